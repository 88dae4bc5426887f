"""A microbenchmark: a kernel that does one thing many times, and the figures that follow from its time.

The kernel has a loop. One pass of it, a *trip*, does an exactly known amount of work. The kernel is timed with fewer
and with more trips, and the difference belongs to the trips alone: launching, filling caches and reading clocks
cancel. How much a trip does is a count of the emulator, stated here in closed form, and proved by running the same
text there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.calibration.chip import Chip

Array: TypeAlias = NDArray[Any]
Clock = Literal["cycles", "seconds", "stream", "graph"]
Group = Literal["memory", "shared memory", "arithmetic", "tensor cores", "copies", "synchronisation"]
# Lanes of a warp, bytes of a pair of clocks.
LANES = 32
# Most launches of one kernel on the same buffers: what must be fresh for each of them is made for so many.
MOST_LAUNCHES = 64
MEASURED = ("launches", "cycles")
CLOCKS, TRIPS, SINK = "clocks", "trips", "sink"


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Device memory for one pointer parameter.

    name      of the parameter
    contents  what it holds at first, over and over again until it is full
    bytes     its size; 0 means that of the contents
    relative  its 64-bit words are offsets from its own start: the launcher adds the address at which it lies
    """

    name: str
    contents: Array
    bytes: int = 0
    relative: bool = False

    def __post_init__(self) -> None:
        if self.relative and (self.contents.dtype != np.uint64 or self.bytes not in (0, self.contents.nbytes)):
            raise ValueError(f"[buffer {self.name}] addresses are 64-bit words, and every one of them is given")
        if self.bytes and self.bytes % self.contents.nbytes:
            raise ValueError(f"[buffer {self.name}] {self.bytes} bytes are no multiple of {self.contents.nbytes}")

    @property
    def size_bytes(self) -> int:
        return self.bytes or self.contents.nbytes


@dataclass(frozen=True, slots=True)
class Number:
    """A number for one parameter: 32 bits."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class Map:
    """A tensor map of 128 bytes over a buffer of 16-bit elements, dense, without a swizzle.

    buffer  name of the buffer, which is also a parameter
    dims    elements along each axis, the contiguous one first
    box     elements that one copy moves along each axis
    """

    name: str
    buffer: str
    dims: tuple[int, int]
    box: tuple[int, int]


Argument: TypeAlias = Buffer | Number | Map


@dataclass(frozen=True, slots=True, eq=False)
class Launch:
    """How a kernel is launched on one chip. Its first parameters are always clocks, sink and trips.

    grid         CTAs
    block        threads of a CTA
    arguments    those behind clocks, sink and trips, in order
    rows         pairs of clocks (start, stop) that a CTA writes
    joined       whether the rows of a CTA are one measurement, from the first start to the last stop
    ctas_per_sm  CTAs that share an SM
    cluster      CTAs of a cluster
    """

    grid: int
    block: int
    arguments: tuple[Argument, ...] = ()
    rows: int = 1
    joined: bool = True
    ctas_per_sm: int = 1
    cluster: int = 1

    @property
    def warps(self) -> int:
        """Warps of the grid."""
        return self.grid * -(-self.block // LANES)

    @property
    def threads(self) -> int:
        return self.grid * self.block

    def number(self, name: str) -> int:
        """The value of a number among the arguments."""
        return next(a.value for a in self.arguments if isinstance(a, Number) and a.name == name)

    def buffer(self, name: str) -> Buffer:
        """A buffer among the arguments."""
        return next(a for a in self.arguments if isinstance(a, Buffer) and a.name == name)

    def all_buffers(self) -> tuple[Buffer, ...]:
        """Every buffer, clocks and sink first: one 32-bit word per thread and one pair of clocks per row."""
        clocks = Buffer(CLOCKS, np.zeros(2 * self.rows * self.grid, np.uint64))
        sink = Buffer(SINK, np.zeros(self.threads, np.uint32))
        return (clocks, sink, *(a for a in self.arguments if isinstance(a, Buffer)))

    def cycles(self, clocks: Array) -> NDArray[np.int64]:
        """Cycles of each measurement, from the (2 * rows * grid) clocks that the kernel left."""
        pairs = clocks.view(np.int64).reshape(self.grid, self.rows, 2)
        if self.joined:
            return np.asarray(pairs[:, :, 1].max(axis=1) - pairs[:, :, 0].min(axis=1), np.int64)
        return np.asarray((pairs[:, :, 1] - pairs[:, :, 0]).reshape(-1), np.int64)


@dataclass(frozen=True, slots=True)
class Reading:
    """A figure that follows from the time of one trip.

    name       what it is, in words
    unit       of the figure
    of         the count of the emulator that is the amount of work: a field of its counters, or the opcode of an
               instruction (warps that executed it), or a sum of these; "launches" are kernels instead of trips, and
               "cycles" are those of the clocks
    as_rate    True: amount over time; False: time over amount
    clock      cycles of an SM, seconds of the device, or seconds between launches of a stream or a graph
    scale      factor to the unit
    per        whose work is counted: that of one warp, of what one pair of clocks measures, of an SM, or of all SMs
    field      the device's figure that it replaces; "" where no model asks for it
    least, most  what no GPU is outside of: such a value is a sign of a wrong measurement, and is not used
    quantile   which of the measurements (SMs, lines of memory) it describes: 0.5 is their median
    where      on which chips it replaces the figure
    whole      the figure is a whole number
    """

    name: str
    unit: str
    of: str
    as_rate: bool
    clock: Clock
    least: float
    most: float
    scale: float = 1.0
    per: Literal["warp", "row", "SM", "device"] = "SM"
    field: str = ""
    quantile: float = 0.5
    where: Callable[[Chip], bool] | None = None
    whole: bool = False

    def replaces(self, chip: Chip) -> bool:
        """Whether it stands for a figure of this chip's profile."""
        return bool(self.field) and (self.where is None or self.where(chip))

    @property
    def counts(self) -> tuple[str, ...]:
        """The counts of the emulator that add up to the amount of work."""
        return () if self.of in MEASURED else tuple(self.of.split(" + "))

    def amount(self, launch: Launch, per_trip: Mapping[str, int], chip: Chip) -> float:
        """The work of one trip, of the warp, SM or device that the figure speaks of."""
        if self.of in MEASURED:
            raise ValueError(f"[{self.name}] {self.of} are measured, and not counted")
        total = sum(per_trip[name] for name in self.counts)
        if self.per == "warp":
            return total / launch.warps
        if self.per == "row":
            return total / (launch.grid * launch.rows)
        if self.clock == "seconds":
            return float(total)
        per_sm = total / launch.grid * launch.ctas_per_sm
        return per_sm * chip.sms if self.per == "device" else per_sm

    def value(self, per_trip: float, amount: float) -> float:
        """The figure, from the time of one trip (cycles or seconds) and the amount of work in it."""
        return self.scale * (amount / per_trip if self.as_rate else per_trip / amount)

    @property
    def formula(self) -> str:
        """How the figure is calculated, in words."""
        time = {"cycles": "cycles", "seconds": "s", "stream": "s", "graph": "s"}[self.clock]
        count = self.of if self.of in MEASURED else " + ".join(f"`{name}`" for name in self.counts)
        count = f"({count})" if len(self.counts) > 1 else count
        scaled = f"{self.scale:g} x " if self.scale != 1 else ""
        share = {
            "warp": " of a warp",
            "row": " of a warp in one line",
            "SM": " of an SM" if self.clock == "cycles" else "",
            "device": " of all SMs",
        }
        owner = "" if self.of in MEASURED else share[self.per]
        middle = "" if self.quantile == 0.5 else f", at the {100 * self.quantile:g} % quantile"
        ratio = f"{count}{owner} / {time}" if self.as_rate else f"{time} / {count}{owner}"
        return f"{scaled}{ratio}{middle}"


Counts: TypeAlias = Mapping[str, int]
Check: TypeAlias = Callable[[Launch, int, Mapping[str, Array]], str]


@dataclass(frozen=True, slots=True, eq=False)
class Microbenchmark:
    """One kernel and what follows from it.

    name      "fma-latency"
    measures  what the kernel does, in a phrase
    ptx       its text, the same on every chip that runs it
    target    its `.target`
    trips     fewer and more trips, which are compared on a GPU
    plan      the launch on a chip, for no more trips than are said
    counts    what the emulator must count in the whole launch with so many trips
    check     what is wrong with the buffers that the launch left, as a sentence; "" where nothing is
    readings  the figures that follow
    native    on which of the chips that take the PTX it is an instruction of their own; elsewhere the assembler makes
              other instructions of it, and what is timed is something else. All of them where None
    held      trips of a launch in front of a stream of launches, so long that all of them wait behind it, and the
              host's pace does not count; 0 where there is none
    """

    name: str
    group: Group
    measures: str
    ptx: str
    target: str
    trips: tuple[int, int]
    plan: Callable[[Chip, int], Launch]
    counts: Callable[[Launch, int], Counts]
    check: Check
    readings: tuple[Reading, ...]
    native: Callable[[Chip], bool] | None = None
    held: int = 0

    def __post_init__(self) -> None:
        few, many = self.trips
        if not 0 < few < many:
            raise ValueError(f"[{self.name}] {few} and {many} are no two numbers of trips, fewer first")

    @property
    def entry(self) -> str:
        """Name of the kernel."""
        found = re.search(r"\.entry\s+(\w+)", self.ptx)
        if found is None:
            raise ValueError(f"[{self.name}] its PTX has no kernel")
        return found[1]

    def runs_on(self, chip: Chip) -> bool:
        """Whether it can be timed there."""
        return chip.runs(self.target) and (self.native is None or self.native(chip))

    def per_trip(self, launch: Launch) -> Counts:
        """What one trip more adds to the counts of the launch."""
        one, two = self.counts(launch, 1), self.counts(launch, 2)
        return {name: two[name] - one[name] for name in one}
