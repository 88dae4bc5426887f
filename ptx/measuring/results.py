"""The results file: JSON lines, each on disk as soon as it is known, so that a worker that was killed goes on.

The first line says which bundle was measured on which GPU. A `begin` line stands before what happens to a kernel, so
that one which takes the machine down with it is known, and not tried for ever.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinygpu.ptx.measuring.statistics import Ratio, Spread, Verdict

VERSION = 1
# A kernel that was begun so often without an end is not begun again.
MOST_BEGINNINGS = 2


class ResultsMismatch(ValueError):
    """A results file of another bundle or another GPU."""


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
        """Opens or continues a file; raises ResultsMismatch for one of another bundle or GPU."""
        self.path = path
        self.done: dict[str, dict[str, Any]] = {}
        self.begun: dict[str, int] = {}
        self.finals: dict[str, dict[str, Any]] = {}
        self.noise: float | None = None
        kept = self._read(header)
        self._file = open(path, "ab")  # noqa: SIM115  closed by `close`
        self._file.truncate(kept)
        if not kept:
            self._write({"tinygpu_results": VERSION, **header})
        else:
            self._write({"resumed": header["date"]})

    def begin(self, kernel: str) -> None:
        self.begun[kernel] = self.begun.get(kernel, 0) + 1
        self._write({"begin": kernel})

    def record(self, line: Mapping[str, Any]) -> None:
        """A kernel's line from `measured` or `failed`."""
        self.done[line["kernel"]] = dict(line)
        self._write(line)

    def record_noise(self, noise: float, same: Ratio) -> None:
        """What timing one kernel under two names gave."""
        self.noise = noise
        self._write({"noise": noise, "ratio": same.to_json()})

    def record_final(self, line: Mapping[str, Any]) -> None:
        self.finals[line["kernel"]] = dict(line)
        self._write({"final": dict(line)})

    def end(self, seconds: float) -> None:
        self._write({"end": {"seconds": round(seconds, 3)}})

    def close(self) -> None:
        self._file.close()

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()

    def _read(self, header: Mapping[str, Any]) -> int:
        """Takes in the lines of earlier runs; the number of bytes that are whole lines."""
        if not self.path.exists():
            return 0
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        for number, text in enumerate(whole.splitlines(), start=1):
            try:
                line = json.loads(text)
            except ValueError:
                line = None
            if not isinstance(line, dict):
                raise ResultsMismatch(f"{self.path}, line {number}: this is no line of a results file")
            if number == 1:
                self._check(line, header)
            elif "begin" in line:
                self.begun[line["begin"]] = self.begun.get(line["begin"], 0) + 1
            elif "kernel" in line:
                self.done[line["kernel"]] = line
            elif "noise" in line:
                self.noise = float(line["noise"])
            elif "final" in line:
                self.finals[line["final"]["kernel"]] = line["final"]
        return len(whole)

    def _check(self, line: Mapping[str, Any], header: Mapping[str, Any]) -> None:
        if line.get("tinygpu_results") != VERSION:
            raise ResultsMismatch(f"{self.path} is no results file of version {VERSION}; give another path")
        if line["bundle"] != header["bundle"]:
            raise ResultsMismatch(f"{self.path} holds results of another bundle; give another path")
        before, now = line["gpu"]["name"], header["gpu"]["name"]
        if before != now:
            raise ResultsMismatch(f"{self.path} was measured on {before}, and this is {now}; give another path")
