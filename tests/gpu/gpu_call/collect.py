"""Takes a call's folder of results into docs/results: what the README and the pages quote."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_call.records import read_json, write_text
from gpu_call.report import report, speedup, table

ROOT = Path(__file__).resolve().parents[3]
RESULTS = ROOT / "docs" / "results"
TAKEN = ("results.json", "profile.json", "dense-0.results.jsonl", "dense-1.results.jsonl")
BEGIN, END = "<!-- runs -->", "<!-- /runs -->"


class NotResults(ValueError):
    """A folder that holds no results of a GPU."""


def collect(folder: Path, results: Path = RESULTS) -> Path:
    """Copies what is worth keeping to RESULTS/DEVICE/DATE, and lists it in RESULTS/README.md; the new folder.

    Raises NotResults for a rehearsal, and for what no call left.
    """
    found = read_json(folder / "results.json")
    if found.get("schema") != "tinygpu-gpu-call/1":
        raise NotResults(f"{folder} holds no results.json of tests/gpu/run.sh")
    machine = step(found, "environment")
    if machine.get("rehearsal"):
        raise NotResults(f"{folder} holds a rehearsal: nothing in it was measured")
    if "gpu" not in machine:
        raise NotResults(f"{folder} does not say on which GPU it was measured")
    device, date = slug(machine["gpu"]["name"]), str(machine["date"])[:10]
    target = results / device / date
    number = 1
    while target.exists():
        number += 1
        target = results / device / f"{date}-{number}"
    target.mkdir(parents=True)
    for name in TAKEN:
        if (folder / name).exists():
            shutil.copyfile(folder / name, target / name)
    # written anew, so that an older folder gets what the page says today
    write_text(target / "README.md", report(found))
    readme = results / "README.md"
    write_text(readme, listed(readme.read_text(encoding="utf-8"), runs(results)))
    return target


def step(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """What a step found; {} where it found nothing."""
    result: Mapping[str, Any] = next((s["result"] for s in found["steps"] if s["step"] == name), {})
    return result


def slug(name: str) -> str:
    """A folder's name: "NVIDIA H200" becomes nvidia-h200."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def runs(results: Path) -> str:
    """The table of all runs below a folder, the newest first."""
    rows = []
    found_in = sorted(results.glob("*/*/results.json"), key=lambda p: (p.parent.name, p.parent.parent.name))
    for path in reversed(found_in):
        found = read_json(path)
        machine, beside, right = (step(found, n) for n in ("environment", "side_by_side", "correctness"))
        where = path.parent.relative_to(results).as_posix()
        models = [r for r in beside.get("rows", ()) if r["facts"].get("model")]
        mean = speedup(models, "PyTorch")
        rows.append([
            f"[{machine['date'][:10]}]({where}/README.md)", machine["gpu"]["name"], machine["gpu"]["driver"],
            f"{right['right']} of {right['kernels']}" if right else "",
            "" if mean is None else f"{mean[0]:.3f} (of {mean[1]})",
        ])  # fmt: skip
    if not rows:
        return "There are none yet: no GPU was to be had so far, and a figure that was not measured is never written."
    return table(["date", "GPU", "driver (CUDA)", "kernels right", "model shapes, times as fast as cuBLAS"], rows)


def listed(page: str, text: str) -> str:
    """The page with the table of runs between its marks. Raises NotResults where it has none."""
    head, begin, rest = page.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise NotResults(f"the page of results has no place for its table, between {BEGIN} and {END}")
    return f"{head}{BEGIN}\n{text}\n{END}{tail}"


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests/gpu/collect.py", description=__doc__)
    parser.add_argument("folder", type=Path, help="what tests/gpu/run.sh wrote")
    parser.add_argument("--results", type=Path, default=RESULTS, help="where results are kept (docs/results)")
    given = parser.parse_args(words)
    try:
        print(f"wrote {collect(given.folder, given.results)}")
    except (NotResults, OSError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
