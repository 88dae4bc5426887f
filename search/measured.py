"""Measured times: what a worker's results file says of candidates, as an objective and as recipes.

Measured beats predicted: a candidate that was measured has its measured time, with the GPU, the driver and the date.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tinygpu.search.evaluation import Evaluation, Failure
from tinygpu.search.recipe import Recipe
from tinygpu.search.searchable import Point

_VERSION = 1


class NotResults(ValueError):
    """A file that is no results file, or one that does not hold what is looked for."""


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


def load_results(path: str | Path) -> MeasuredResults:
    """Reads a results file; lines that a kill cut short are left out. Raises NotResults."""
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise NotResults(f"{file} cannot be read: {error.strerror}") from None
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(data[: data.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict):
            raise NotResults(f"{file}, line {number}: this is no line of a results file")
        lines.append(line)
    if not lines or lines[0].get("tinygpu_results") != _VERSION:
        raise NotResults(f"{file} is no results file of version {_VERSION}; `python -m tinygpu.ptx.worker` writes one")
    head = lines[0]
    noise = [float(line["noise"]) for line in lines if "noise" in line]
    finals = [line["final"] for line in lines if "final" in line]
    found = {line["kernel"]: _measurement(line, head["problems"]) for line in lines if "status" in line}
    return MeasuredResults(
        file,
        head["title"],
        head["device"],
        head["gpu"]["name"],
        head["gpu"]["driver"],
        head["date"],
        noise[-1] if noise else 0.0,
        tuple(found.values()),
        _incumbent(lines),
        {f["kernel"]: f.get("verdict", "failed") for f in finals},
    )


def _incumbent(lines: Sequence[Mapping[str, Any]]) -> str:
    best = ""
    for line in lines:
        if line.get("status") == "measured" and (not best or line["verdict"] == "faster"):
            best = line["kernel"]
    return best


def _measurement(line: Mapping[str, Any], problems: Sequence[Mapping[str, Any]]) -> Measurement:
    problem = _plain(problems[line["question"]])
    same = (line["kernel"], line["machine"], line["point"], problem, line["digest"], line["predicted_s"])
    if line["status"] == "failed":
        return Measurement(*same, failure=Failure(line["failure"]["kind"], line["failure"]["sentence"]))
    cold, warm = line["cold"], line["warm"]
    return Measurement(
        *same, cold["median"], cold["low"], cold["high"], warm["median"] if warm else None, line["relative"]
    )


def _plain(problem: Mapping[str, Any]) -> Mapping[str, Any]:
    """As it comes out of JSON."""
    found: Mapping[str, Any] = json.loads(json.dumps(problem))
    return found


def _key(point: Point) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(point.items()))
