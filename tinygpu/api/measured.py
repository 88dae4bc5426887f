"""Tuning by measured times: results from a GPU, or from the one that is here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tinygpu.api.bundle import bundle, bundle_points
from tinygpu.api.choosing import Chosen, NotAdmitted, choose
from tinygpu.api.machines import Family
from tinygpu.api.on_arrays import lines_of
from tinygpu.api.problems import Asked, Refusal, problems
from tinygpu.api.tune import NothingFound, Watcher
from tinygpu.devices import Device
from tinygpu.files import FileError
from tinygpu.ptx.measuring.bundle import ptx_digest
from tinygpu.ptx.measuring.worker import Settings, measure
from tinygpu.ptx.runtime.driver import available
from tinygpu.ptx.runtime.errors import GpuUnavailable
from tinygpu.ptx.verification.verify import Verification
from tinygpu.ptx.verification.whole import verify_kernels
from tinygpu.search.evaluation import Failure
from tinygpu.search.measured import MeasuredResults, Measurement, load_results
from tinygpu.search.searchable import Point
from tinygpu.search.worker_time import WORKER, WorkerTime
from tinygpu.spaces.build import MachineSpace
from tinygpu.spaces.plan_space import space_of


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredTuning:
    """What measured results say of a problem.

    measured      every candidate of the problem, the best first, failures last
    winner        the best one, as a kernel
    time          its measurement
    ties          candidates that cannot be told from it
    changed       whether its kernel is no longer the text that was measured
    verification  in the emulator
    """

    family: str
    device: Device
    results: MeasuredResults
    measured: tuple[Measurement, ...]
    refused: tuple[Refusal, ...]
    winner: Chosen
    time: Measurement
    ties: tuple[Measurement, ...]
    changed: bool
    verification: Verification


def tune_by_results(
    chosen: Family,
    asked: Asked,
    device: Device,
    results: MeasuredResults,
    *,
    seed: int = 0,
    watcher: Watcher | None = None,
) -> MeasuredTuning:
    """The best measured candidate of a family for a problem, as a verified kernel.

    Raises FileError where the file holds nothing of this problem on this device, and NothingFound where every
    candidate failed.
    """
    watch = watcher or Watcher()
    accepted, refused = problems(chosen, asked)
    if results.device != device.name:
        raise FileError(
            f"{results.path} holds kernels made for {results.device}, not for {device.name}; "
            f"give --device {results.device}"
        )
    spaces = {m.__name__: (m, p) for m, p in accepted}
    listed = [m for name, (_, p) in spaces.items() for m in results.of(name, p.to_json())]
    if not listed:
        raise FileError(f"{results.path} holds results of {results.title}, and nothing of this problem")
    order = {m.kernel: n for n, m in enumerate(results.ranked())}
    listed.sort(key=lambda m: order.get(m.kernel, len(order)))
    if listed[0].seconds is None:
        raise NothingFound(f"all {len(listed)} candidates failed; the first: {listed[0].failure}")
    best = listed[0]
    machine, posed = spaces[best.machine]
    watch.stage(f"{best.machine}: building the kernel of the best")
    space = space_of(machine, posed, device)
    try:
        winner = choose(space, best.point)
    except NotAdmitted as error:
        raise FileError(
            f"{results.path}: the best candidate is not in the space of this version of {best.machine}: {error}; "
            "measure again"
        ) from None
    watch.stage(f"{best.machine}: verifying the winner in the emulator")
    verification = verify_kernels(winner.kernels, seed=seed, thorough=True, lines=lines_of(winner))
    changed = ptx_digest(*(s.kernel.ptx.encode() for s in winner.kernels.stages)) != best.digest
    ties = tuple(m for m in results.ties() if m in listed)
    return MeasuredTuning(
        chosen.name, device, results, tuple(listed), tuple(refused), winner, best, ties, changed, verification
    )


def measure_here(
    chosen: Family,
    asked: Asked,
    device: Device,
    folder: Path,
    *,
    count: int,
    settings: Settings | None = None,
    seconds: float = 60.0,
    seed: int = 0,
    watcher: Watcher | None = None,
    say: Callable[[str], None] = print,
) -> MeasuredResults:
    """Times the `count` best predicted candidates on the GPU that is here; bundle and results stay in `folder`.

    Raises GpuUnavailable without a GPU, before anything is searched or written.
    """
    if not (gpu := available()).present:
        raise GpuUnavailable(
            f"nothing can be timed here: {gpu.reason}; `tinygpu bundle` writes kernels for a machine that has the GPU"
        )
    made = bundle(
        chosen, asked, device, folder / "candidates.bundle", count=count, choose="best", seconds=seconds, seed=seed,
        watcher=watcher,
    )  # fmt: skip
    path = folder / "results.jsonl"
    measure(made.bundle, path, settings or Settings(seed=seed), say)
    return load_results(path)


def measured_objective(space: MachineSpace, folder: Path, command: Sequence[str] | None = None) -> WorkerTime:
    """The objective of a search by measured time on the GPU that is here.

    `minimize(space.space, measured_objective(space, folder), batch=32, evaluations=500)` searches with it.
    """

    def write(points: Sequence[Point], path: Path) -> Sequence[str | Failure]:
        return bundle_points(space, points, path)

    return WorkerTime(write, folder, command or WORKER)
