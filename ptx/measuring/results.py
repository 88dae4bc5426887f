"""The results file: JSON lines, each on disk as soon as it is known, so that a worker that was killed goes on.

The first line says which bundle was measured on which GPU. A `begin` line stands before what happens to a kernel, so
that one which takes the machine down with it is known, and not tried for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tinygpu.files import FileError
from tinygpu.files.json_text import parse
from tinygpu.files.lines import LineFile
from tinygpu.files.shape import built, picked
from tinygpu.ptx.measuring.statistics import Ratio, Spread, Verdict

KEY = "tinygpu_results"
VERSION = 1
# A kernel that was begun so often without an end is not begun again.
MOST_BEGINNINGS = 2


@dataclass(frozen=True, slots=True)
class _Gpu:
    name: str


@dataclass(frozen=True, slots=True)
class _Head:
    """What is compared of the first line."""

    tinygpu_results: int
    bundle: str
    gpu: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Line:
    """What a run that goes on uses of a kernel's line."""

    kernel: str
    status: Literal["measured", "failed"]
    relative: float | None = None
    verdict: Verdict | None = None

    def __post_init__(self) -> None:
        if self.status == "measured" and (self.relative is None or self.relative <= 0):
            raise ValueError(f"the time relative to the first kernel must be above 0, not {self.relative}")


@dataclass(frozen=True, slots=True)
class _Final:
    kernel: str


def measured(
    kernel: str,
    cold: Spread,
    warm: Spread | None,
    against: str,
    ratio: Ratio | None,
    verdict: Verdict | None,
    relative: float,
    details: Mapping[str, Any],
) -> dict[str, Any]:
    """A kernel's line: its times in seconds per launch.

    against   the kernel that it was timed in turns with; "" for the first
    relative  its time over that of the first kernel, along the chain of those it was compared with
    """
    return {
        "kernel": kernel,
        "status": "measured",
        "cold": cold.to_json(),
        "warm": None if warm is None else warm.to_json(),
        "against": against,
        "ratio": None if ratio is None else ratio.to_json(),
        "verdict": verdict,
        "relative": relative,
        **details,
    }


def failed(kernel: str, kind: str, sentence: str, details: Mapping[str, Any]) -> dict[str, Any]:
    """A kernel's line: why it has no time. kind: "wrong", "fault", "launch", "hang", "crash"."""
    return {"kernel": kernel, "status": "failed", "failure": {"kind": kind, "sentence": sentence}, **details}


class Results:
    """An open results file.

    done     lines of kernels that earlier runs ended, by kernel
    begun    how often each other kernel was begun
    finals   lines of the final comparison, by kernel
    noise    relative noise, where an earlier run measured it
    """

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        """Opens or continues a file. Raises FileError for one of another bundle or GPU, or of another kind."""
        self.path = path
        self.done: dict[str, dict[str, Any]] = {}
        self.begun: dict[str, int] = {}
        self.finals: dict[str, dict[str, Any]] = {}
        self.noise: float | None = None
        self._file = LineFile(path, KEY, "a results file")
        try:
            for number, (where, text) in enumerate(self._file.lines()):
                line = parse(text, where)
                if not isinstance(line, dict):
                    raise FileError(f"{where}: this is no line of a results file; give another path")
                if number == 0:
                    self._check(line, where, header)
                else:
                    self._take(line, where)
            if self._file.resume():
                self._file.write({"resumed": header["date"]})
            else:
                self._file.write({KEY: VERSION, **header})
        except BaseException:
            self._file.close()
            raise

    def begin(self, kernel: str) -> None:
        self.begun[kernel] = self.begun.get(kernel, 0) + 1
        self._file.write({"begin": kernel})

    def record(self, line: Mapping[str, Any]) -> None:
        """A kernel's line from `measured` or `failed`."""
        self.done[line["kernel"]] = dict(line)
        self._file.write(line)

    def record_noise(self, noise: float, same: Ratio) -> None:
        """What timing one kernel under two names gave."""
        self.noise = noise
        self._file.write({"noise": noise, "ratio": same.to_json()})

    def record_final(self, line: Mapping[str, Any]) -> None:
        self.finals[line["kernel"]] = dict(line)
        self._file.write({"final": dict(line)})

    def end(self, seconds: float) -> None:
        self._file.write({"end": {"seconds": round(seconds, 3)}})

    def close(self) -> None:
        self._file.close()

    def _take(self, line: dict[str, Any], where: str) -> None:
        """One line of an earlier run."""
        if "begin" in line:
            name = built(str, line["begin"], where)
            self.begun[name] = self.begun.get(name, 0) + 1
        elif "kernel" in line:
            self.done[picked(_Line, line, where).kernel] = line
        elif "noise" in line:
            self.noise = built(float, line["noise"], where)
        elif "final" in line:
            self.finals[picked(_Final, line["final"], where).kernel] = line["final"]

    def _check(self, line: dict[str, Any], where: str, header: Mapping[str, Any]) -> None:
        if line.get(KEY) != VERSION:
            raise FileError(f"{self.path} is no results file of version {VERSION}; give another path")
        head = picked(_Head, line, where)
        if head.bundle != header["bundle"]:
            raise FileError(f"{self.path} holds results of another bundle; give another path")
        before, now = picked(_Gpu, head.gpu, where).name, header["gpu"]["name"]
        if before != now:
            raise FileError(f"{self.path} was measured on {before}, and this is {now}; give another path")
