"""The call: every step in turn, each in a process of its own, under one budget; one folder of results."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_call.budget import Budget, Share
from gpu_call.kit import NotAKit, open_kit
from gpu_call.records import StepRecord, read_json, write_json, write_text
from gpu_call.report import report
from gpu_call.step import REAL, end_group
from gpu_call.tree import lay_out

ROOT = Path(__file__).resolve().parents[3]
KIT = ROOT / "runs" / "gpu-kit.zip"
MINUTES = 9.0


@dataclass(frozen=True, slots=True)
class Step:
    """A step of the call: a module of ours, and the seconds that it needs of nine minutes."""

    name: str
    module: str
    least_s: float
    most_s: float
    title: str


# In the order of what would be missed most, the dense samples before the table, in which the best of them take part.
# What a step leaves over goes to the next ones.
STEPS = (
    Step("environment", "environment", 5, 30, "the machine"),
    Step("correctness", "correctness", 25, 80, "every machine on the GPU against its reference"),
    Step("dense_0", "dense_0", 40, 80, "dense sample at 4096^3"),
    Step("dense_1", "dense_1", 50, 125, "dense sample at 8192^3"),
    Step("side_by_side", "side_by_side", 90, 170, "ours beside cuBLAS, Triton, PyTorch and a copy"),
    Step("calibration", "calibration", 30, 75, "measured device profile"),
    Step("gpu_tests", "gpu_tests", 20, 80, "tests marked gpu"),
    Step("counters", "counters", 15, 45, "emulated and hardware counters"),
    Step("sanitizer", "sanitizer", 15, 45, "compute-sanitizer"),
)
# Seconds of the whole that are kept for laying out, reports and killing.
_KEPT_S = 8.0
# A step is told to end so long before it is killed.
_WARNING_S = 2.0


def conclude(
    step: str, code: int | None, found: dict[str, Any], tail: str, seconds: float, limit_s: float
) -> StepRecord:
    """What became of a step whose process has ended; what it had found stays, also where it was killed.

    code  of its process; None where it was killed
    tail  the last line that it printed
    """
    if "skipped" in found:
        return StepRecord(step, "skipped", found["skipped"], round(seconds, 1), round(limit_s, 1))
    if "unavailable" in found:
        return StepRecord(step, "failed", found["unavailable"], round(seconds, 1), round(limit_s, 1), found)
    if code is None:
        return StepRecord(step, "failed", f"killed after {seconds:.0f} s", round(seconds, 1), round(limit_s, 1), found)
    if code:
        why = f"ended with code {code}" + (f": {tail}" if tail else "")
        return StepRecord(step, "failed", why, round(seconds, 1), round(limit_s, 1), found)
    return StepRecord(step, "done", "", round(seconds, 1), round(limit_s, 1), found)


class Run:
    """One call.

    out   the folder of results: few files, rewritten after each step
    work  everything else
    """

    def __init__(
        self, out: Path, work: Path, kit: Path, driver: str, path: Sequence[Path], say: Callable[[str], None]
    ) -> None:
        self.out, self.work, self.kit, self.driver, self.say = out, work, kit, driver, say
        self.records: list[StepRecord] = []
        self._path = os.pathsep.join(map(str, path))

    def step(self, step: Step, limit_s: float) -> StepRecord:
        """Runs a step for so long at most."""
        folder, result = self.work / step.name, self.work / f"{step.name}.json"
        folder.mkdir(parents=True, exist_ok=True)
        log = self.work / f"{step.name}.log"
        command = [
            sys.executable, "-P", "-m", f"gpu_call.{step.module}", "--kit", str(self.kit), "--work", str(folder),
            "--result", str(result), "--seconds", f"{limit_s - _WARNING_S:.1f}", "--driver", self.driver,
        ]  # fmt: skip
        environment = {
            **os.environ, "PYTHONPATH": self._path, "PYTHONUNBUFFERED": "1",
            "TRITON_CACHE_DIR": str(self.work.parent / "triton"),
        }  # fmt: skip
        begun = time.monotonic()
        with open(log, "wb") as file:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                code: int | None = process.wait(timeout=limit_s)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                end_descendants(process)
        tail = log.read_text(errors="replace").strip().splitlines()
        return conclude(step.name, code, read_json(result), tail[-1] if tail else "", time.monotonic() - begun, limit_s)

    def take(self, record: StepRecord) -> None:
        """Keeps a record, and writes what is known so far."""
        self.records.append(record)
        found = f": {record.reason}" if record.reason else ""
        self.say(f"{record.step}: {record.status} in {record.seconds:.0f} s{found}")
        self.write()

    def write(self) -> None:
        """results.json, report.md, the profile, the workers' results, and all logs in one file."""
        results = {"schema": "tinygpu-gpu-call/1", "steps": [r.to_json() for r in self.records]}
        write_json(self.out / "results.json", results)
        write_text(self.out / "report.md", report(results))
        for name, source in (
            ("profile.json", self.work / "calibration" / "profile.json"),
            ("dense-0.results.jsonl", self.work / "dense_0" / "results.jsonl"),
            ("dense-1.results.jsonl", self.work / "dense_1" / "results.jsonl"),
        ):
            if source.exists():
                shutil.copyfile(source, self.out / name)
        draft = self.out / ".logs.zip"
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(self.work.rglob("*")):
                if file.is_file() and file.suffix in (".log", ".json", ".jsonl", ".xml"):
                    archive.write(file, file.relative_to(self.work))
        os.replace(draft, self.out / "logs.zip")


def end_descendants(process: subprocess.Popen[Any]) -> None:
    """Ends a step and all that it started, programs in sessions of their own too."""
    groups = {process.pid}
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    waiting = [process.pid]
    while waiting:
        for child in parents.get(waiting.pop(), ()):
            groups.add(child)
            waiting.append(child)
    for pid in groups - {process.pid}:
        try:
            os.kill(pid, 9)
        except ProcessLookupError:
            continue
    end_group(process)


def call(
    out: Path, kit: Path, *, minutes: float = MINUTES, only: Sequence[str] = (), driver: str = REAL,
    extra: Sequence[Path] = (), say: Callable[[str], None] = print, begun: float | None = None,
) -> list[StepRecord]:  # fmt: skip
    """Runs the steps, all or `only` some, and writes the folder of results.

    driver  module with the driver's functions; another one than the real makes this a rehearsal
    extra   folders in front of the path: what stands for libraries in a rehearsal

    Raises NotAKit, and ValueError for a step that does not exist.
    """
    begun = time.monotonic() if begun is None else begun
    unknown = sorted(set(only) - {s.name for s in STEPS})
    if unknown:
        raise ValueError(f"there is no step {unknown[0]!r}; there are {', '.join(s.name for s in STEPS)}")
    chosen = [s for s in STEPS if not only or s.name in only]
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="tinygpu-call-") as folder:
        work = Path(folder)
        unpacked, site = work / "kit", work / "site"
        open_kit(kit, unpacked)
        lay_out(ROOT, site)
        run = Run(out, work / "steps", unpacked, driver, (*extra, site, ROOT / "tests" / "gpu"), say)
        run.work.mkdir()
        factor = minutes / MINUTES
        shares = [Share(s.name, s.least_s, s.most_s).scaled(factor) for s in chosen]
        budget = Budget(shares, 60 * minutes - _KEPT_S * factor)
        for step in chosen:
            if any("unavailable" in r.result for r in run.records):
                run.take(StepRecord(step.name, "skipped", "there is no GPU to run it on"))
                continue
            spent = time.monotonic() - begun
            share, limit = budget.limit(spent)
            if limit:
                say(f"{step.name}: {step.title} (at most {limit:.0f} s)")
                run.take(run.step(step, limit))
            else:
                why = f"only {max(budget.total_s - spent, 0):.0f} s were left, and it needs {share.least_s:.0f}"
                run.take(StepRecord(step.name, "skipped", why))
        return run.records


def main(words: Sequence[str] | None = None) -> int:
    """The command. 0 where every step is done or was skipped with a reason, 1 where one failed, 2 for wrong input."""
    begun = time.monotonic()
    parser = argparse.ArgumentParser(prog="tests/gpu/run.sh", description=__doc__)
    parser.add_argument("out", type=Path, help="folder of the results")
    parser.add_argument("--kit", type=Path, default=KIT, help="what tests/gpu/prepare.py made (runs/gpu-kit.zip)")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all of it (9)")
    parser.add_argument("--only", action="append", default=[], metavar="STEP", help="this step, and others given so")
    given = parser.parse_args(words)
    try:
        records = call(
            given.out, given.kit, minutes=given.minutes, only=given.only, begun=begun,
            say=lambda line: print(line, flush=True),
        )  # fmt: skip
    except (NotAKit, ValueError) as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    print((given.out / "report.md").read_text())
    return int(any(r.status == "failed" for r in records))


if __name__ == "__main__":
    sys.exit(main())
