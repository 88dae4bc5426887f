"""What a tuned kernel leaves on disk: PTX, launch description, and a summary for people. All of it, or nothing."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinygpu.api.choosing import Chosen, Finalist
from tinygpu.files import FileError
from tinygpu.files.folder import check_folder, write_folder
from tinygpu.files.json_text import dumped
from tinygpu.files.lines import begins
from tinygpu.ptx.verification.verify import Verification
from tinygpu.report.run import Run
from tinygpu.search.cache import is_cache
from tinygpu.search.journal import KEY as JOURNAL

NAMES = ("kernel.ptx", "launch.json", "summary.txt", "run.json")


def default_folder(winner: Chosen) -> Path:
    """runs/MACHINE-DIMS-DEVICE; with -2, -3 and so on where that is a folder of somebody else's."""
    dims = "-".join(f"{k}{v}" for k, v in winner.space.problem.dims)
    kinds = "-".join(dict.fromkeys(o.dtype.name for o in winner.space.problem.operands))
    name = f"{winner.space.machine.__name__.lower()}-{dims}-{kinds}-{winner.space.device.name}"
    first = Path("runs") / re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    others = (first.with_name(f"{first.name}-{number}") for number in itertools.count(2))
    return next(folder for folder in itertools.chain([first], others) if _takes_output(folder))


def _takes_output(folder: Path) -> bool:
    try:
        check_output(folder)
    except FileError:
        return False
    return True


def check_output(folder: Path) -> None:
    """Raises FileError where a kernel cannot be written to a folder, before anything is searched for it."""
    check_folder(folder, NAMES, beside=of_a_run)


def of_a_run(path: Path) -> bool:
    """Whether a file is what a run itself keeps while it goes on: a journal or a cache, which may lie in its folder."""
    if not path.is_file():
        return False
    name = path.name
    for ending in ("-wal", "-shm"):
        name = name.removesuffix(ending)
    return begins(path, JOURNAL) or is_cache(path.with_name(name))


def write_kernel(
    folder: Path,
    finalist: Chosen,
    verification: Verification | None,
    measured: Mapping[str, Any] | None = None,
    run: Run | None = None,
) -> tuple[Path, ...]:
    """Writes kernel.ptx (of a plan one text for each step), launch.json, summary.txt and, of a tuning run, run.json.

    All of them, or nothing. They replace those of an earlier run in the same folder. Raises FileError where the folder
    is not ours.

    measured  what a GPU said of it: seconds, gpu, driver, date
    run       what `tinygpu report` shows
    """
    launch = finalist.kernels.launch_json()
    made = [(part, _of_part(part)) for part in finalist.parts]
    if "kernels" in launch:
        for told, (_, mine) in zip(launch["kernels"], made, strict=True):
            told |= mine
    else:
        launch |= made[0][1]
    launch |= {
        "device": finalist.space.device.name,
        "predicted_seconds": float(finalist.prediction.seconds),
        "verified": None if verification is None else verification.passed,
        "measured": None if measured is None else dict(measured),
    }
    files = {
        **finalist.kernels.texts(),
        "launch.json": dumped(launch, indent=2) + "\n",
        "summary.txt": summary(finalist, verification, measured),
    }
    if run is not None:
        files["run.json"] = run.to_text()
    return write_folder(folder, files, beside=of_a_run)


def _of_part(part: Finalist) -> dict[str, Any]:
    """What is known of one kernel beside its launch."""
    return {
        "registers": part.assembly.registers,
        "spill_bytes": part.assembly.spill_store_bytes + part.assembly.spill_load_bytes,
        "layouts": {name: s.layout.to_json() for name, s in part.refined.layouts.solutions.items()},
    }


def summary(
    finalist: Chosen, verification: Verification | None, measured: Mapping[str, Any] | None = None
) -> str:
    """A short account of one kernel."""
    lines = [str(finalist)]
    if measured is not None:
        lines.append(
            f"measured    {measured['seconds'] * 1e6:,.2f} us with a cold L2, on {measured['gpu']}, driver "
            f"{measured['driver']}, {measured['date'][:10]}"
        )
    if verification is None:
        lines.append(f"emulated    {verdict(None)}")
    else:
        lines += ["emulated    " + line.strip() for line in str(verification).splitlines()]
    return "\n".join(lines) + "\n"


def verdict(verification: Verification | None) -> str:
    """Whether a kernel was verified, in a sentence."""
    if verification is None:
        return "not verified: no emulator has run this kernel; `tinygpu verify` does, and `tinygpu emit --verify`"
    left_out = f"; {len(verification.left_out)} were left out" if verification.left_out else ""
    runs = f"{len(verification.checks)} runs in the emulator{left_out}"
    if not verification.passed:
        return f"WRONG in the emulator: {runs}"
    return f"verified: {'right' if verification.judged else 'nothing judged'} in {runs}"
