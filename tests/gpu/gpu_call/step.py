"""What every step is given, and how it says what it found."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from glob import glob
from pathlib import Path
from typing import Any

from gpu_call.records import write_json

REAL = "cuda.bindings.driver"
# By how much longer a kernel may take in a rehearsal, which emulates it.
REHEARSED = 10
# Patterns of folders.
TOOL_PLACES = ("/opt/nvidia/nsight-compute/*", "/usr/local/cuda/bin", "/usr/local/cuda-*/bin", "/opt/cuda/bin")


class Skip(Exception):
    """A step that cannot run here; its text says why."""


@dataclass(frozen=True, slots=True)
class Call:
    """One step's call.

    kit      the folder of the unpacked kit, with kit.json
    work     a folder of its own
    result   the file that `tell` writes
    seconds  after which it should have ended; it is killed somewhat later
    begun    when it began, as `time.monotonic` says
    driver   module with the driver's functions
    """

    kit: Path
    work: Path
    result: Path
    seconds: float
    begun: float
    driver: str

    @property
    def rehearsal(self) -> bool:
        """Whether something stands for the GPU."""
        return self.driver != REAL

    def limit(self, seconds: float) -> float:
        """So many seconds for one kernel; an emulated one takes longer."""
        return seconds * (REHEARSED if self.rehearsal else 1)

    def left(self) -> float:
        return self.seconds - (time.monotonic() - self.begun)

    def tell(self, found: Mapping[str, Any]) -> None:
        """What the step has found so far; the last word counts, also where the step is killed."""
        write_json(self.result, found)


def run_step(step: Callable[[Call], Mapping[str, Any]], words: Sequence[str] | None = None) -> int:
    """The command of a step: 0 where it is done or skipped."""
    parser = argparse.ArgumentParser()
    for name in ("kit", "work", "result"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--driver", default=REAL)
    given = parser.parse_args(words)
    given.work.mkdir(parents=True, exist_ok=True)
    call = Call(given.kit, given.work, given.result, given.seconds, time.monotonic(), given.driver)
    try:
        call.tell(step(call))
    except Skip as skipped:
        call.tell({"skipped": str(skipped)})
    return 0


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended; code is None where it was killed for taking too long."""

    code: int | None
    output: str


def run_program(command: Sequence[str], seconds: float, *, cwd: Path, log: Path | None = None) -> Ended:
    """Runs a program and everything that it starts for so long at most; its output and errors in one text."""
    place = log or cwd / "program.log"
    with open(place, "wb") as file:
        process = subprocess.Popen(command, cwd=cwd, stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code: int | None = process.wait(timeout=max(seconds, 0.1))
        except subprocess.TimeoutExpired:
            code = None
        finally:
            end_group(process)
    return Ended(code, place.read_text(errors="replace"))


def find_tool(name: str, places: Sequence[str] = TOOL_PLACES) -> str | None:
    """Where a tool of NVIDIA's is: on the path, or where its installers put it, the newest first."""
    found = shutil.which(name)
    if found is not None:
        return found
    for place in places:
        there = [p for p in sorted(glob(f"{place}/{name}"), reverse=True) if os.access(p, os.X_OK)]
        if there:
            return there[0]
    return None


def end_group(process: subprocess.Popen[Any]) -> None:
    """Ends a program that leads a session of its own, and all that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=30)


def python(module: str, *words: object) -> list[str]:
    """The command that runs a module of ours with this interpreter; -P: not from the current folder."""
    return [sys.executable, "-P", "-m", module, *map(str, words)]


def last_json_line(text: str) -> dict[str, Any]:
    """The last line of an output that is an object of JSON; {} where there is none."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            with suppress(json.JSONDecodeError):
                found: dict[str, Any] = json.loads(line)
                return found
    return {}
