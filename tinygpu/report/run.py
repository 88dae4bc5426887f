"""A tuning run as data: all that its report shows, in a file that needs neither the machine nor the space again."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tinygpu.files import FileError
from tinygpu.files.error import excerpt
from tinygpu.files.json_text import sealed
from tinygpu.files.schema import converted, decoded_as, versions
from tinygpu.solver.smem_layout import SmemLayout

KEY = "tinygpu_run"
VERSION = 1
# Of seconds, FLOP and bytes: what a drawing can still scale.
_LEAST, _MOST = 1e-15, 1e30
# Of points and evaluations: numbers that a float can still hold.
_MOST_POINTS = 10**300
_MOST_VALUE = 2**63 - 1


def _check_seconds(what: str, *seconds: float | None) -> None:
    for value in seconds:
        if value is not None and not _LEAST <= value <= _MOST:
            raise ValueError(f"{what} takes {_LEAST} to {_MOST} seconds, not {value}")


def _check_counts(what: str, *counts: int) -> None:
    for count in counts:
        if not 0 <= count <= _MOST_POINTS:
            raise ValueError(f"{what} has 0 to 10^300 of everything that is counted, not {excerpt(count)}")


def _check_values(values: Iterable[int | str | None]) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > _MOST_VALUE:
            raise ValueError(f"a number of a candidate has 63 bits, not {excerpt(value)}")


@dataclass(frozen=True, slots=True)
class Step:
    """A constraint of a space, with the points that it removed."""

    name: str
    kind: str
    source: str
    removed: int

    def __post_init__(self) -> None:
        _check_counts("a constraint", self.removed)


@dataclass(frozen=True, slots=True)
class Sample:
    """Some of the candidates that were tried: the best ones, and others drawn uniformly.

    columns  per parameter one value per candidate; None where it has no such parameter
    seconds  per candidate
    """

    columns: dict[str, list[int | str | None]]
    seconds: list[float]

    def __post_init__(self) -> None:
        if any(len(column) != len(self.seconds) for column in self.columns.values()):
            raise ValueError("a sample has as many values of every parameter as it has times")
        _check_seconds("a sampled candidate", *self.seconds)
        for column in self.columns.values():
            _check_values(column)


@dataclass(frozen=True, slots=True)
class Access:
    """A shared-memory access under a layout: what it takes, and what it would take without bank conflicts."""

    name: str
    wavefronts: int
    ideal: int
    instances: int

    def __post_init__(self) -> None:
        if self.instances < 1:
            raise ValueError(f"an access has at least one instance, not {self.instances}")
        _check_values((self.wavefronts, self.ideal, self.instances))


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
    xor: list[tuple[int, int]]
    sentence: str
    proof: str
    accesses: list[Access]

    def __post_init__(self) -> None:
        if max(self.rows, self.pitch_bytes) > 2**20:
            raise ValueError(f"a layout of {self.rows:,} rows at {self.pitch_bytes:,} bytes is larger than any memory")
        SmemLayout(self.rows, self.row_bytes, self.pitch_bytes, tuple((bit, mask) for bit, mask in self.xor))


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

    point: dict[str, int | str]
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

    def __post_init__(self) -> None:
        _check_seconds("a candidate", self.seconds)
        _check_values(self.point.values())
        _check_values((self.registers, self.estimate, self.spill_bytes, self.ctas_per_sm))
        shares = (self.flops, self.dram_bytes, self.roofline, *self.breakdown.values())
        if min(shares) < 0 or max(shares) > _MOST:
            raise ValueError(f"the amounts and shares of a candidate are 0 to {_MOST}")
        if any(0 < amount < 1 for amount in (self.flops, self.dram_bytes)):
            raise ValueError("a candidate has no FLOP and moves no byte, or one at least")


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

    def __post_init__(self) -> None:
        evaluations = [count for count, _ in self.improvements]
        _check_counts("a search", self.raw, self.structures, self.size, self.tried, *evaluations)
        _check_seconds("a candidate", *[seconds for _, seconds in self.improvements])
        if not 0 <= self.seconds <= _MOST:
            raise ValueError(f"a search takes 0 to {_MOST} seconds, not {self.seconds}")
        removed = sum(step.removed for step in self.steps)
        if removed > self.raw:
            raise ValueError(f"constraints remove {excerpt(removed)} of {excerpt(self.raw)} points")


@dataclass(frozen=True, slots=True)
class Roof:
    """A peak of the device, FLOP per second."""

    name: str
    flops_per_s: float

    def __post_init__(self) -> None:
        if not 1 <= self.flops_per_s <= _MOST:
            raise ValueError(f"a peak is 1 to {_MOST} FLOP per second, not {self.flops_per_s}")


@dataclass(frozen=True, slots=True)
class Timed:
    """A candidate that was measured, or failed at it (`failure` is then its kind)."""

    machine: str
    point: dict[str, int | str]
    predicted: float
    seconds: float | None
    low: float | None
    high: float | None
    failure: str

    def __post_init__(self) -> None:
        _check_values(self.point.values())
        _check_seconds("a measured candidate", self.predicted, self.seconds, self.low, self.high)


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of time on a row of the timeline; kind is "work", "wait" or "copy"."""

    row: str
    label: str
    kind: str
    start: float
    stop: float

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.stop <= _MOST:
            raise ValueError(f"a stretch of time goes on from 0 or later, not from {self.start} to {self.stop}")


@dataclass(frozen=True, slots=True)
class Timeline:
    """The winner, simulated: the beginning of what one SM does, and where time goes. Predicted, never measured."""

    seconds: float
    sentence: str
    stretches: list[Stretch]

    def __post_init__(self) -> None:
        _check_seconds("a timeline", self.seconds, max((s.stop for s in self.stretches), default=None))


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
        return {KEY: VERSION, **dataclasses.asdict(self)}

    def __post_init__(self) -> None:
        if self.roofs and not 1 <= self.dram_bytes_s <= _MOST:
            raise ValueError(f"a bandwidth is 1 to {_MOST} bytes per second, not {self.dram_bytes_s}")
        _check_seconds("a problem", self.floor)
        if self.winner is not None:
            machine, number = self.winner
            if not (0 <= machine < len(self.searched) and 0 <= number < len(self.searched[machine].candidates)):
                raise ValueError(f"the winner {list(self.winner)} is none of its candidates")

    def to_text(self) -> str:
        """The run as it is written to a file."""
        return sealed(self.to_json())

    @staticmethod
    def from_text(data: bytes, where: str) -> Run:
        """The run of a file called `where`. Raises FileError for anything else."""
        _check_version(versions(data, (KEY,)).get(KEY), where)
        return decoded_as(Run, data, where, beside=(KEY,))

    @staticmethod
    def from_json(data: Any, where: str = "the run") -> Run:
        """The run that `to_json` gave. Raises FileError for anything else."""
        _check_version(data.get(KEY) if isinstance(data, Mapping) else None, where)
        return converted(Run, data, where, beside=(KEY,))


def _check_version(version: Any, where: str) -> None:
    if version is None:
        raise FileError(f"{where} is no run, or has been cut: one of version {VERSION} begins by saying so")
    if version != VERSION:
        raise FileError(f"{where} is no run of version {VERSION}: its version is {excerpt(version)}")
