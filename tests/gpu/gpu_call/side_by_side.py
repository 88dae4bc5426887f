"""Step: the table: ours beside PyTorch and Triton, or beside a copy, problem by problem.

The problems are timed by a process of its own (`beside`). Where a kernel of ours brings it down or hangs, another one
goes on without that kernel.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gpu_call.kit import Job, unpacked_kit
from gpu_call.records import read_lines
from gpu_call.step import Call, Skip, end_group, python, run_step
from gpu_call.turns import Turns

# Without a line for so long, the process hangs: the longest silence is Triton's compiler.
QUIET_S = 40.0
# How the process ended that was still at work when the step's time was over.
TIME_UP = "the time was up"
# Kernels of a problem are tried for so many times its part of the time.
MOST_OF_SHARE = 1.5
# So many problems go before those that are bound by memory: the squares, and one layer with each number of rows.
FIRST = 7
# So many processes are started for one problem before it is given up.
MOST_STARTS = 3


@dataclass(slots=True)
class Progress:
    """What the lines of all processes say.

    rows      finished problems, by name
    failed    problems that were given up, with a sentence
    skip      problem -> kernels that brought a process down, with how that process ended
    starts    problem -> processes that ended in it
    """

    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    skip: dict[str, dict[str, str]] = field(default_factory=dict)
    starts: dict[str, int] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def take(self, lines: Sequence[Mapping[str, Any]], how: str) -> None:
        """Learns from the lines of one process that has ended.

        how  it ended, where it did not end by itself
        """
        problem = kernel = ""
        ended = False
        for line in lines:
            if "gpu" in line:
                self.about = dict(line)
            elif "row" in line:
                self.rows[line["row"]["case"]] = dict(line["row"])
                problem = kernel = ""
            elif "begin" in line:
                problem, kernel = line["begin"], line["kernel"]
            elif "failed" in line:
                self.failed[line["failed"]] = line["sentence"]
                problem = kernel = ""
            elif "lost" in line:
                how = line["sentence"]
            ended = ended or "end" in line
        if ended or not problem or how == TIME_UP:
            return
        self.starts[problem] = self.starts.get(problem, 0) + 1
        if kernel:
            self.skip.setdefault(problem, {})[kernel] = how
        if not kernel or self.starts[problem] >= MOST_STARTS:
            self.failed[problem] = how

    def open(self, jobs: Sequence[Job]) -> list[Job]:
        return [j for j in jobs if j.name not in self.rows and j.name not in self.failed]

    def noise(self) -> float | None:
        return next((row["noise"] for row in self.rows.values()), None)

    def to_json(self, jobs: Sequence[Job], turns: Turns) -> dict[str, Any]:
        return {
            **self.about, "protocol": turns.to_json(), "problems": len(jobs), "rows": list(self.rows.values()),
            "failed": self.failed, "skipped_kernels": {p: sorted(k) for p, k in self.skip.items()},
            "left": [j.name for j in self.open(jobs)],
        }  # fmt: skip


def requests(call: Call, jobs: Sequence[Job], progress: Progress, turns: Turns) -> dict[str, Any]:
    """What `beside` reads. No problem takes much more than its part of the time, so that all are reached."""
    seconds = MOST_OF_SHARE * max(call.left(), 0.0) / len(jobs)
    return {
        "driver": call.driver, "turns": turns.to_json(), "seed": 0, "noise": progress.noise(),
        "requests": [
            {
                "role": j.role, "name": j.name, "bundle": str(call.kit / j.file), "machine": j.machine,
                "facts": dict(j.facts), "skip": progress.skip.get(j.name, {}), "seconds": seconds,
            }
            for j in jobs
        ],
    }  # fmt: skip


def watch(
    command: Sequence[str], lines: Path, log: Path, seconds: float, quiet_s: float, seen: Callable[[], None]
) -> str:
    """Runs a program until it ends, or writes no line for `quiet_s`, or `seconds` are over: "" or why it was ended."""
    begun = heard = time.monotonic()
    size = 0
    with open(log, "ab") as file:
        process = subprocess.Popen(
            command, cwd=lines.parent, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            while process.poll() is None:
                now = time.monotonic()
                written = lines.stat().st_size if lines.exists() else 0
                if written != size:
                    size, heard = written, now
                    seen()
                if now - begun > seconds:
                    return TIME_UP
                if now - heard > quiet_s:
                    return f"it did not end within {quiet_s:g} s"
                time.sleep(0.1)
        finally:
            end_group(process)
    return "" if process.returncode == 0 else f"its process ended with code {process.returncode}"


def side_by_side(call: Call) -> Mapping[str, Any]:
    if find_spec("torch") is None:
        raise Skip("PyTorch is not installed here")
    kit = unpacked_kit(call.kit)
    streams, matmuls = kit.of("streams"), kit.of("matmuls")
    jobs = (*matmuls[:FIRST], *streams, *matmuls[FIRST:])
    if not jobs:
        raise Skip("the kit has no problems to lay side by side")
    turns = Turns(rounds=8, warm_rounds=2, sample_s=1e-4, warm_up_s=0.0, most_launches=4) if call.rehearsal else Turns()
    progress = Progress()
    number = 0
    while (left := progress.open(jobs)) and call.left() > 5:
        asked, lines = call.work / f"asked-{number}.json", call.work / f"lines-{number}.jsonl"
        asked.write_text(json.dumps(requests(call, left, progress, turns)))

        def seen(lines: Path = lines) -> None:
            done = [*progress.rows.values(), *(line["row"] for line in read_lines(lines) if "row" in line)]
            call.tell({**progress.to_json(jobs, turns), "rows": done})

        how = watch(
            python("gpu_call.beside", asked, lines), lines, call.work / "beside.log", call.left() - 3,
            call.limit(QUIET_S), seen,
        )
        before = len(progress.rows) + len(progress.failed) + sum(len(s) for s in progress.skip.values())
        progress.take(read_lines(lines), how)
        after = len(progress.rows) + len(progress.failed) + sum(len(s) for s in progress.skip.values())
        if how == TIME_UP:
            break
        if after == before:  # it fails before it begins anything
            text = (call.work / "beside.log").read_text(errors="replace").strip()
            raise RuntimeError(f"{how or 'it ended at once'}: {text.splitlines()[-1] if text else 'without a word'}")
        number += 1
    return progress.to_json(jobs, turns)


if __name__ == "__main__":
    sys.exit(run_step(side_by_side))
