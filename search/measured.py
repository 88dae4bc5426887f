"""Measured times: what a worker's results file says of candidates, as an objective and as recipes.

Measured beats predicted: a candidate that was measured has its measured time, with the GPU, the driver and the date.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tinygpu.files import FileError
from tinygpu.files.json_text import parse
from tinygpu.files.lines import begins, read_lines
from tinygpu.files.shape import built, picked
from tinygpu.search.evaluation import Evaluation, Failure
from tinygpu.search.recipe import Recipe
from tinygpu.search.searchable import Point

KEY = "tinygpu_results"
_VERSION = 1
_NO_RESULTS = f"{{}} is no results file of version {_VERSION}; `python -m tinygpu.ptx.measuring` writes one"


@dataclass(frozen=True, slots=True)
class Measurement:
    """What became of one candidate on the GPU.

    problem       as `Problem.to_json()` gives it
    seconds       per launch with a cold L2, the median; None for a failure
    low, high     its quartiles
    warm_seconds  per launch with a warm L2
    relative      its time over that of the first kernel, by pairs of launches in turns
    predicted_s   what the model said
    digest        SHA-256 of the PTX that was measured
    """

    kernel: str
    machine: str
    point: Point
    problem: Mapping[str, Any]
    digest: str
    predicted_s: float
    seconds: float | None = None
    low: float | None = None
    high: float | None = None
    warm_seconds: float | None = None
    relative: float | None = None
    failure: Failure | None = None

    def evaluation(self) -> Evaluation:
        """For a search."""
        if self.failure is not None:
            return Evaluation(failure=self.failure)
        return Evaluation(value=self.seconds)


@dataclass(frozen=True, slots=True)
class MeasuredResults:
    """A results file.

    title         what was measured, in words
    device        the library's name of the device that the kernels were made for
    gpu, driver   where they were timed
    date          when
    noise         relative; smaller differences are ties
    measurements  in the order of the bundle
    incumbent     the best after all had taken their turns: the last that was told to be faster than the best before
    finals        kernel -> verdict of a longer comparison with the incumbent: "faster", "slower", "tie" or "failed"
    """

    path: Path
    title: str
    device: str
    gpu: str
    driver: str
    date: str
    noise: float
    measurements: tuple[Measurement, ...]
    incumbent: str
    finals: Mapping[str, str]

    @property
    def said(self) -> str:
        """Where and when: "measured on NVIDIA H200, driver 13.0, 2026-03-01"."""
        return f"measured on {self.gpu}, driver {self.driver}, {self.date[:10]}"

    def ranked(self) -> list[Measurement]:
        """Those with a time, the best first: what the last comparison calls faster than the incumbent, then that (no
        tie takes its place), then all others by their time."""
        rank = {"faster": 0, "slower": 3, "failed": 3}

        def order(m: Measurement) -> tuple[int, float]:
            place = 1 if m.kernel == self.incumbent else rank.get(self.finals.get(m.kernel, ""), 2)
            return place, m.relative or 0.0

        return sorted((m for m in self.measurements if m.relative is not None), key=order)

    def ties(self) -> tuple[Measurement, ...]:
        """Those that cannot be told from the best one."""
        ranked = self.ranked()
        if not ranked:
            return ()
        first = ranked[0]
        if first.kernel == self.incumbent and self.finals:
            return tuple(m for m in ranked[1:] if self.finals.get(m.kernel) == "tie")
        most = (first.relative or 0.0) * (1 + self.noise)
        return tuple(m for m in ranked[1:] if (m.relative or 0.0) <= most)

    def of(self, machine: str, problem: Mapping[str, Any]) -> tuple[Measurement, ...]:
        """The measurements of a machine for a problem, the best first, then failures."""
        ranked = self.ranked()
        failed = [m for m in self.measurements if m.failure is not None]
        wanted = _plain(problem)
        return tuple(m for m in (*ranked, *failed) if m.machine == machine and m.problem == wanted)

    def best(self, machine: str, problem: Mapping[str, Any], device: str) -> Recipe | None:
        """The recipe for a machine, a problem and a device of the library (see `RecipeBook`)."""
        if device != self.device:
            return None
        for m in self.of(machine, problem):
            if m.seconds is not None:
                return Recipe(m.machine, m.point, m.seconds, self.said)
        return None


class MeasuredTime:
    """The objective of a search among candidates that were measured before; all others have no value."""

    def __init__(self, results: MeasuredResults, machine: str, problem: Mapping[str, Any]) -> None:
        self._where = results.path
        self._known = {_key(m.point): m for m in results.of(machine, problem)}

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        out = []
        for point in points:
            found = self._known.get(_key(point))
            if found is None:
                out.append(Evaluation(failure=Failure("unmeasured", f"{self._where} does not hold this candidate")))
            else:
                out.append(found.evaluation())
        return out


@dataclass(frozen=True, slots=True)
class _Gpu:
    name: str
    driver: str


@dataclass(frozen=True, slots=True)
class _Head:
    """What is taken of the first line."""

    title: str
    device: str
    gpu: Mapping[str, Any]
    date: str
    problems: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, slots=True)
class _Spread:
    median: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class _Line:
    """What is taken of a kernel's line."""

    kernel: str
    status: Literal["measured", "failed"]
    machine: str
    point: Mapping[str, int | str]
    question: int
    digest: str
    predicted_s: float
    cold: Mapping[str, Any] | None = None
    warm: Mapping[str, Any] | None = None
    relative: float | None = None
    verdict: Literal["faster", "slower", "tie"] | None = None
    failure: Failure | None = None

    def __post_init__(self) -> None:
        if self.status == "failed" and self.failure is None:
            raise ValueError("a kernel that failed has no failure")
        if self.status == "measured" and (self.cold is None or self.relative is None or self.relative <= 0):
            raise ValueError("a kernel that was measured has no time")


@dataclass(frozen=True, slots=True)
class _Final:
    kernel: str
    verdict: Literal["faster", "slower", "tie", "failed"] = "failed"


def load_results(path: str | Path) -> MeasuredResults:
    """Reads a results file; a line that a kill cut short is left out. Raises FileError."""
    file = Path(path)
    head: _Head | None = None
    lines: list[_Line] = []
    found: dict[str, Measurement] = {}
    finals: dict[str, str] = {}
    noise = 0.0
    if file.is_file() and not begins(file, KEY):
        raise FileError(_NO_RESULTS.format(file))
    for where, text, _, _ in read_lines(file):
        line = parse(text, where)
        if not isinstance(line, dict):
            raise FileError(f"{where}: this is no line of a results file")
        if head is None:
            if line.get(KEY) != _VERSION:
                break
            head = picked(_Head, line, where)
        elif "status" in line:
            lines.append(picked(_Line, line, where))
            found[lines[-1].kernel] = _measurement(lines[-1], head.problems, where)
        elif "noise" in line:
            noise = built(float, line["noise"], where)
        elif "final" in line:
            final = picked(_Final, line["final"], where)
            finals[final.kernel] = final.verdict
    if head is None:
        raise FileError(_NO_RESULTS.format(file))
    gpu = picked(_Gpu, head.gpu, f"{file}, line 1")
    return MeasuredResults(
        file, head.title, head.device, gpu.name, gpu.driver, head.date, noise, tuple(found.values()), _incumbent(lines),
        finals,
    )  # fmt: skip


def _incumbent(lines: Sequence[_Line]) -> str:
    best = ""
    for line in lines:
        if line.status == "measured" and (not best or line.verdict == "faster"):
            best = line.kernel
    return best


def _measurement(line: _Line, problems: Sequence[Mapping[str, Any]], where: str) -> Measurement:
    if not 0 <= line.question < len(problems):
        raise FileError(f"{where}: question must be one of {len(problems)} problems, from 0 on, not {line.question}")
    same = (line.kernel, line.machine, line.point, problems[line.question], line.digest, line.predicted_s)
    if line.failure is not None:
        return Measurement(*same, failure=line.failure)
    cold = picked(_Spread, line.cold, where)
    warm = None if line.warm is None else picked(_Spread, line.warm, where).median
    return Measurement(*same, cold.median, cold.low, cold.high, warm, line.relative)


def _plain(problem: Mapping[str, Any]) -> Mapping[str, Any]:
    """As it comes out of JSON."""
    found: Mapping[str, Any] = json.loads(json.dumps(problem))
    return found


def _key(point: Point) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(point.items()))
