"""CPU time of this checkout beside another commit, in one run: python -m tests.benchmarks.beside_commit [COMMIT]

Both are copied into a temporary folder, this checkout as it lies here, the commit (HEAD, unless another is named) out
of git, and take turns: one round is a process of each, in the order that the round before had not. So what the machine
does beside falls on both, and every process is as cold as a user's. What is timed, in CPU seconds:

    import tinygpu       the package alone
    front door           the first use of a call of it: what spaces need is loaded
    rest of it           instructions, search, lowering: what the front door had no use for yet
    declare              the machine's class is made: its structures are traced for its own types
    space                the space for a problem of other sizes
    count, draw          counting the space, and drawing candidates of it
    fill                 candidates filled in: parameters become numbers
    lower                their layouts solved, and their text written
    predict              thousands of candidates, with compiling their counts
    all                  from the import to the predictions
    tune                 the README's main job, a process of the command line with all that it starts

Each line gives the medians of both, the median of the ratios of the rounds (below 1: this checkout takes less), and the
least and the greatest of them. One round before the first, which nobody counts, compiles the sources. Whether both make
the same candidates, kernels (comments aside) and predictions is told by machine.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
# folder -> where it stands in the package
ROOMS = {"tinygpu": ".", "machines": "machines", "search": "search", "ptx": "ptx"}
CHILD = Path(__file__).with_name("timed_parts.py")
_MATMUL = {"m": 512, "n": 1024, "k": 2048}
CASES: Mapping[str, Mapping[str, Any]] = {
    "axpby": {"device": "a100", "dims": {"n": 1 << 20}},
    "bias_relu": {"device": "a100", "dims": {"m": 1024, "n": 1024}},
    "matmul_simt": {"device": "a100", "dims": _MATMUL},
    "matmul_ampere": {"device": "a100", "dims": _MATMUL},
    "matmul_skinny": {"device": "h100", "dims": _MATMUL | {"m": 16}},
    "matmul_hopper": {"device": "h100", "dims": _MATMUL},
}
MAIN_JOB = ("tune", "matmul", "--shape", "m=4096,n=14336,k=4096", "--device", "a100")


@dataclass(frozen=True, slots=True)
class Side:
    """A checkout that can be imported: `folder` holds the package, and the bytecode of its sources."""

    name: str
    folder: Path

    def run(self, command: Sequence[str]) -> tuple[str, float]:
        """What a Python of this side prints, and its CPU seconds with all processes that it waited for."""
        with tempfile.TemporaryDirectory() as empty:
            environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | {
                "PYTHONPATH": str(self.folder),
                "PYTHONPYCACHEPREFIX": str(self.folder / "bytecode"),
            }
            begun = _children()
            done = subprocess.run(
                [sys.executable, *command], env=environment, cwd=empty, capture_output=True, text=True
            )
            seconds = _children() - begun
        if done.returncode:
            raise SystemExit(f"{self.name}: {' '.join(command[:2])} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout, seconds


@dataclass(frozen=True, slots=True)
class Row:
    """One part on both sides: CPU seconds by round, of this checkout and of the other commit."""

    machine: str
    part: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]

    @property
    def ratios(self) -> tuple[float, ...]:
        """Ours over theirs, round by round."""
        return tuple(a / b for a, b in zip(self.ours, self.theirs, strict=True))

    def cells(self) -> tuple[str, ...]:
        before, now = (f"{statistics.median(s) * 1e3:,.1f}" for s in (self.theirs, self.ours))
        ratios = self.ratios
        return (
            self.machine, self.part, before, now, f"{statistics.median(ratios):.2f}",
            f"{min(ratios):.2f} to {max(ratios):.2f}",
        )  # fmt: skip


def _children() -> float:
    """CPU seconds of all processes that this one has waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def of_this_checkout(folder: Path) -> Side:
    """The checkout as it lies here, uncommitted changes too."""
    for room, place in ROOMS.items():
        ignored = shutil.ignore_patterns("__pycache__", ".*_cache")
        shutil.copytree(ROOT / room, folder / "tinygpu" / place, ignore=ignored, dirs_exist_ok=True)
    return Side("this checkout", folder)


def of_commit(commit: str, folder: Path) -> Side:
    """The sources of a commit; SystemExit where git knows none by that name."""
    listed = subprocess.run(["git", "archive", commit, *ROOMS], cwd=ROOT, capture_output=True)
    if listed.returncode:
        raise SystemExit(f"git has no sources of {commit!r}: {listed.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(listed.stdout)) as archive:
        archive.extractall(folder / "archive", filter="data")
    for room, place in ROOMS.items():
        shutil.copytree(folder / "archive" / room, folder / "tinygpu" / place, dirs_exist_ok=True)
    return Side(commit, folder)


def timed(side: Side, machine: str, candidates: int, predicted: int) -> dict[str, Any]:
    """Seconds by part, and the hash of what was made."""
    asked = {"machine": machine, **CASES[machine], "candidates": candidates, "predicted": predicted}
    out, _ = side.run([str(CHILD), json.dumps(asked)])
    found: dict[str, Any] = json.loads(out)
    found["seconds"]["all"] = sum(found["seconds"].values())
    return found


def alternately(
    ours: Side, theirs: Side, rounds: int, once: Callable[[Side], dict[str, Any]]
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What `once` finds on both sides, by round, after a round that is not counted; who is first changes."""
    found = []
    for number in range(rounds + 1):
        sides = (ours, theirs) if number % 2 else (theirs, ours)
        by = {side.name: once(side) for side in sides}
        found.append((by[ours.name], by[theirs.name]))
    return found[1:]


def sameness(found: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """Whether both made the same, or what they made differently."""
    differ = [what for what in found[0][0]["made"] if any(a["made"][what] != b["made"][what] for a, b in found)]
    return f"other {', '.join(differ)} than the commit's" if differ else "the same candidates, kernels and predictions"


def rows_of(machine: str, found: Sequence[tuple[dict[str, Any], dict[str, Any]]]) -> list[Row]:
    """A row for each part that both sides have, in their order."""
    parts = [part for part in found[0][0]["seconds"] if part in found[0][1]["seconds"]]
    return [
        Row(machine, p, *(tuple(pair[side]["seconds"][p] for pair in found) for side in (0, 1))) for p in parts
    ]


def together(rows: Iterable[Row]) -> list[Row]:
    """The same parts of all machines, added up round by round."""
    by: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by[row.part].append(row)
    return [
        Row(
            "together",
            part,
            tuple(map(sum, zip(*(r.ours for r in same), strict=True))),
            tuple(map(sum, zip(*(r.theirs for r in same), strict=True))),
        )
        for part, same in by.items()
    ]


def print_table(rows: Sequence[Row], commit: str) -> None:
    head = ("machine", "part", f"{commit}, ms", "here, ms", "ratio", "of the rounds")
    cells = [head, *(row.cells() for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    for line in cells:
        aligned = (c.ljust(w) if i < 2 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths, strict=True)))
        print("  ".join(aligned).rstrip())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, prog="beside_commit"
    )
    parser.add_argument("commit", nargs="?", default="HEAD", help="what git calls the other side (default: HEAD)")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds of every machine (default: 5)")
    parser.add_argument("--machines", nargs="+", choices=CASES, default=list(CASES), metavar="NAME", help="some only")
    parser.add_argument("--candidates", type=int, default=8, help="filled in and lowered, of each machine")
    parser.add_argument("--predicted", type=int, default=2000, help="predicted at once, of each machine")
    parser.add_argument("--tune", type=int, default=1, help="counted rounds of the main job (default: 1); 0 for none")
    asked = parser.parse_args(arguments)
    if asked.rounds < 1 or asked.tune < 0 or asked.candidates < 1 or asked.predicted < 1:
        parser.error("there is at least one round, one candidate and one prediction")
    with tempfile.TemporaryDirectory() as place:
        ours, theirs = of_this_checkout(Path(place, "ours")), of_commit(asked.commit, Path(place, "theirs"))
        rows: list[Row] = []
        for machine in asked.machines:
            found = alternately(
                ours, theirs, asked.rounds, lambda side, m=machine: timed(side, m, asked.candidates, asked.predicted)
            )
            rows += rows_of(machine, found)
            print(f"{machine}: {sameness(found)}", flush=True)
        rows += together(rows)
        if asked.tune:
            job = alternately(ours, theirs, asked.tune, lambda side: {"seconds": {"tune": main_job(side)}})
            rows += rows_of("README's main job", job)
        print_table(rows, asked.commit)
    return 0


def main_job(side: Side) -> float:
    """CPU seconds of the README's main job, from the command line."""
    code = "import sys; from tinygpu.cli import main; sys.argv[0] = 'tinygpu'; main()"
    return side.run(["-c", code, *MAIN_JOB])[1]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
