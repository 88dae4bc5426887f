"""A tuning run as data: all that its report shows, in a file that needs neither the machine nor the space again."""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

VERSION = 1
_T = TypeVar("_T")


class NotARun(ValueError):
    """A file that holds no run."""


@dataclass(frozen=True, slots=True)
class Step:
    """A constraint of a space, with the points that it removed."""

    name: str
    kind: str
    source: str
    removed: int


@dataclass(frozen=True, slots=True)
class Sample:
    """Some of the candidates that were tried: the best ones, and others drawn uniformly.

    columns  per parameter one value per candidate; None where it has no such parameter
    seconds  per candidate
    """

    columns: dict[str, list[Any]]
    seconds: list[float]


@dataclass(frozen=True, slots=True)
class Access:
    """A shared-memory access under a layout: what it takes, and what it would take without bank conflicts."""

    name: str
    wavefronts: int
    ideal: int
    instances: int


@dataclass(frozen=True, slots=True)
class Placed:
    """The solved layout of a buffer in shared memory.

    xor    (row bit, mask over the byte within the row) pairs
    proof  why nothing is better: "ideal", "pigeonhole", "refuted" or "none"
    """

    buffer: str
    text: str
    rows: int
    row_bytes: int
    pitch_bytes: int
    xor: list[list[int]]
    sentence: str
    proof: str
    accesses: list[Access]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One of the best, as a kernel. All times predicted.

    roofline       roofline time over predicted time
    estimate       registers, as estimated before assembling
    breakdown      unit -> busy seconds; "latency", "tail", "power", "launch" -> seconds lost
    flops          useful, of the problem
    dram_bytes     traffic of the launch
    roof           which of the run's roofs it works under
    """

    point: dict[str, Any]
    seconds: float
    roofline: float
    registers: int
    estimate: int
    spill_bytes: int
    ctas_per_sm: int
    sentence: str
    breakdown: dict[str, float]
    flops: float
    dram_bytes: float
    roof: str
    layouts: list[Placed]


@dataclass(frozen=True, slots=True)
class Searched:
    """One machine's part of a run.

    improvements  (evaluations so far, best seconds so far), where the best changed, and the end
    failures      by kind
    sentence      why there is no candidate; "" where there is one
    """

    machine: str
    summary: str
    problem: str
    raw: int
    structures: int
    size: int
    steps: list[Step]
    sentence: str
    strategy: str = ""
    seed: int = 0
    seconds: float = 0.0
    ended: str = ""
    tried: int = 0
    failures: dict[str, int] = dataclasses.field(default_factory=dict)
    improvements: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    sample: Sample | None = None
    candidates: list[Candidate] = dataclasses.field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Roof:
    """A peak of the device, FLOP per second."""

    name: str
    flops_per_s: float


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate that was measured, or failed at it (`failure` is then its kind)."""

    machine: str
    point: dict[str, Any]
    predicted: float
    seconds: float | None
    low: float | None
    high: float | None
    failure: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time on a row of the timeline; kind is "work", "wait" or "copy"."""

    row: str
    label: str
    kind: str
    start: float
    stop: float


@dataclass(frozen=True, slots=True)
class Timeline:
    """The winner, simulated: the beginning of what one SM does, and where time goes. Predicted, never measured."""

    seconds: float
    sentence: str
    stretches: list[Stretch]


@dataclass(frozen=True, slots=True)
class Run:
    """A tuning run.

    title          the problem, in words
    date           when it was made, ISO 8601
    version        of tinygpu
    floor          least seconds of the problem on the device: the roofline; None where nothing was predicted
    dram_bytes_s   bandwidth of the device
    refused        machine -> why it does not take the problem
    winner         the machine and the number of its candidate; None without one
    verified       whether the emulator found the winner right; None where it was not run
    verification   what it said
    measured       where and when: "" where nothing was
    """

    title: str
    family: str
    device: str
    date: str
    version: str
    floor: float | None
    dram_bytes_s: float
    roofs: list[Roof]
    searched: list[Searched]
    refused: dict[str, str]
    winner: tuple[int, int] | None
    verified: bool | None
    verification: str
    measured: str = ""
    timed: list[Timed] = dataclasses.field(default_factory=list)
    timeline: Timeline | None = None

    @property
    def best(self) -> Candidate | None:
        if self.winner is None:
            return None
        machine, number = self.winner
        return self.searched[machine].candidates[number]

    def to_json(self) -> dict[str, Any]:
        return {"tinygpu_run": VERSION, **dataclasses.asdict(self)}

    @staticmethod
    def from_json(data: Any) -> Run:
        """The run that `to_json` wrote. Raises NotARun for anything else."""
        if not isinstance(data, dict) or data.get("tinygpu_run") != VERSION:
            found = data.get("tinygpu_run") if isinstance(data, dict) else None
            raise NotARun(f"this is no run of version {VERSION}: its version is {found!r}")
        try:
            return _read(Run, {key: value for key, value in data.items() if key != "tinygpu_run"})
        except (KeyError, TypeError, ValueError, AttributeError) as broken:
            raise NotARun(f"this run is damaged: {broken}") from None

    def save(self, path: str | Path) -> None:
        """Writes the run; the file is there whole or not at all."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(target.name + f".{os.getpid()}.draft")
        draft.write_text(json.dumps(self.to_json()))
        draft.replace(target)


def _read(kind: type[_T], data: Mapping[str, Any]) -> _T:
    """A dataclass from its fields as JSON."""
    hints = typing.get_type_hints(kind)
    return kind(**{name: _value(hints[name], value) for name, value in data.items()})


def _value(kind: Any, value: Any) -> Any:
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return None if value is None else _value(next(k for k in inside if k is not type(None)), value)
    if dataclasses.is_dataclass(kind):
        return _read(typing.cast("type[Any]", kind), value)
    if origin is list:
        return [_value(inside[0], item) for item in value]
    if origin is dict:
        return {key: _value(inside[1], item) for key, item in value.items()}
    if origin is tuple:
        return tuple(_value(k, item) for k, item in zip(inside, value, strict=True))
    if kind is float and isinstance(value, int):
        return float(value)
    if kind is not Any and not isinstance(value, kind):
        raise TypeError(f"{value!r} is no {kind.__name__}")
    return value
