"""The call: every step in turn, each in a process of its own, under one budget; one folder of results."""

from __future__ import annotations

import argparse
import os
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
from gpu_call.places import places_of
from gpu_call.records import StepRecord, json_text, read_json, write_text
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


# In the order of what would be missed most. What a step leaves over goes to the next ones.
STEPS = (
    Step("environment", "environment", 5, 30, "the machine"),
    Step("correctness", "correctness", 25, 80, "every machine on the GPU against its reference"),
    Step("side_by_side", "side_by_side", 120, 300, "ours beside cuBLAS, Triton, PyTorch and a copy"),
    Step("calibration", "calibration", 30, 75, "measured device profile"),
    Step("counters", "counters", 20, 45, "emulated and hardware counters"),
    Step("gpu_tests", "gpu_tests", 20, 80, "tests marked gpu"),
    Step("dense_0", "dense_0", 30, 80, "dense sample at 4096^3"),
    Step("dense_1", "dense_1", 40, 125, "dense sample at 8192^3"),
    Step("sanitizer", "sanitizer", 15, 45, "compute-sanitizer"),
)
# Seconds of the whole that are kept for laying out, reports and killing.
_KEPT_S = 12.0
# A step is told to end so long before it is killed.
_WARNING_S = 2.0
# How often what a step has found so far is written.
_TELL_S = 5.0
# JAX would take three quarters of the GPU's memory as soon as it is imported.
_SETTINGS = {"PYTHONUNBUFFERED": "1", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}


def conclude(
    step: str, code: int | None, found: dict[str, Any], tail: str, seconds: float, limit_s: float
) -> StepRecord:
    """What became of a step whose process has ended; what it had found stays, also where it was killed.

    code  of its process; None where it was killed
    tail  the last line that it printed
    """
    if "skipped" in found:
        return StepRecord(step, "skipped", found["skipped"], round(seconds, 1), round(limit_s, 1))
    if "stop" in found:
        return StepRecord(step, "failed", found["stop"], round(seconds, 1), round(limit_s, 1), found)
    if code is None:
        return StepRecord(step, "failed", f"killed after {seconds:.0f} s", round(seconds, 1), round(limit_s, 1), found)
    if code:
        why = f"ended with code {code}" + (f": {tail}" if tail else "")
        return StepRecord(step, "failed", why, round(seconds, 1), round(limit_s, 1), found)
    return StepRecord(step, "done", "", round(seconds, 1), round(limit_s, 1), found)


class Run:
    """One call.

    out   the folder of results: few files, rewritten every few seconds
    work  everything else
    """

    def __init__(
        self, out: Path, work: Path, kit: Path, driver: str, path: Sequence[Path], say: Callable[[str], None]
    ) -> None:
        self.out, self.work, self.kit, self.driver, self.say = out, work, kit, driver, say
        self.places = places_of(ROOT, work, out)
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
        triton = str(self.work.parent / "triton")
        environment = {**os.environ, **_SETTINGS, "PYTHONPATH": self._path, "TRITON_CACHE_DIR": triton}
        begun = time.monotonic()
        with open(log, "wb") as file:
            process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )
            try:
                code = self._wait(process, step.name, result, begun, limit_s)
            finally:
                end_descendants(process)
        tail = log.read_text(errors="replace").strip().splitlines()
        return conclude(step.name, code, read_json(result), tail[-1] if tail else "", time.monotonic() - begun, limit_s)

    def _wait(
        self, process: subprocess.Popen[Any], step: str, result: Path, begun: float, limit_s: float
    ) -> int | None:
        """The code of a step's process, None where it takes too long; meanwhile what it has found is written."""
        while (left := begun + limit_s - time.monotonic()) > 0:
            try:
                return process.wait(timeout=min(left, _TELL_S))
            except subprocess.TimeoutExpired:
                spent = round(time.monotonic() - begun, 1)
                self.write(StepRecord(step, "running", "", spent, round(limit_s, 1), read_json(result)))
        return None

    def take(self, record: StepRecord) -> None:
        """Keeps a record, and writes what is known so far."""
        self.records.append(record)
        found = f": {record.reason}" if record.reason else ""
        self.say(self.places.plain(f"{record.step}: {record.status} in {record.seconds:.0f} s{found}"))
        self.write()
        self._pack_logs()

    def write(self, running: StepRecord | None = None) -> None:
        """results.json, report.md, the profile, and the workers' results, without the names of places."""
        records = [*self.records, *([] if running is None else [running])]
        results = {"schema": "tinygpu-gpu-call/1", "steps": [r.to_json() for r in records]}
        texts = {"results.json": json_text(results), "report.md": report(results)}
        for name, source in (
            ("profile.json", self.work / "calibration" / "profile.json"),
            ("dense-0.results.jsonl", self.work / "dense_0" / "results.jsonl"),
            ("dense-1.results.jsonl", self.work / "dense_1" / "results.jsonl"),
        ):
            if source.exists():
                texts[name] = source.read_text(encoding="utf-8", errors="replace")
        for name, text in texts.items():
            write_text(self.out / name, self.places.plain(text))

    def _pack_logs(self) -> None:
        """All logs in one file."""
        draft = self.out / ".logs.zip"
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(self.work.rglob("*")):
                if file.is_file() and file.suffix in (".log", ".json", ".jsonl", ".xml"):
                    text = file.read_text(encoding="utf-8", errors="replace")
                    archive.writestr(file.relative_to(self.work).as_posix(), self.places.plain(text))
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
            stopped = next((r.step for r in run.records if "stop" in r.result), "")
            if stopped:
                run.take(StepRecord(step.name, "skipped", f"{stopped} says why nothing more is measured"))
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
