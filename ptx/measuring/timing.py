"""Timing one kernel in turns with another.

A sample is the run of a graph: many launches in a row, the time between events that the graph itself records, divided
by the launches. *Cold* samples go through sets of operands so many that the L2 cache has forgotten a set when its turn
comes again; where that would take too many sets, the L2 is overwritten before each launch, and only the launches are
timed. *Warm* samples use one set. Kernels take turns, in random order, so that drifting clocks meet both alike.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from tinygpu.ptx.measuring.statistics import out_of_race
from tinygpu.ptx.measuring.subject import Operands, Subject
from tinygpu.ptx.runtime.context import Memory
from tinygpu.ptx.runtime.sequence import LoadedSequence
from tinygpu.ptx.runtime.streams import Event, Graph, Stream

# A set is forgotten when this many times the L2 was touched since.
L2_FACTOR = 2
MOST_SETS = 32
# Operands of all sets leave this part of the free memory alone.
MEMORY_SHARE = 0.5


@dataclass(frozen=True, slots=True)
class Protocol:
    """How kernels are timed.

    samples       pairs of cold samples
    warm_samples  pairs of warm samples
    sample_s      what a sample should last at least
    warm_up_s     how long each kernel runs before the first sample, so that clocks have risen
    most_launches in one sample
    flushes       launches in one sample where the L2 is overwritten
    race_pairs    a kernel that took `race_factor` as long in each of so many pairs is not timed further; eight are the
                  fewest that decide anything (see `order_rank`)
    seconds       after which no further pair is begun, once there are enough for an interval
    """

    samples: int = 30
    warm_samples: int = 10
    sample_s: float = 2e-3
    warm_up_s: float = 25e-3
    most_launches: int = 400
    flushes: int = 10
    race_pairs: int = 8
    race_factor: float = 1.3
    seconds: float = 10.0

    def __post_init__(self) -> None:
        if self.samples < 1 or self.warm_samples < 0 or self.race_pairs < 1 or self.race_factor <= 1:
            raise ValueError(f"a protocol has at least one sample and a race factor above 1: {self}")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Samples:
    """Times of a kernel and of the one it took turns with, pair by pair, in seconds per launch.

    mode  how the L2 was made cold: "rotate" through `sets` sets, or "flush"
    """

    cold: tuple[list[float], list[float]]
    warm: tuple[list[float], list[float]]
    mode: Literal["rotate", "flush"]
    sets: int
    launches: int


class Stopwatch:
    """Times the kernels of one subject on a stream of its own."""

    def __init__(self, subject: Subject, protocol: Protocol) -> None:
        self.subject = subject
        self.protocol = protocol
        self.context = subject.context
        self.stream = Stream(self.context)
        self._sets: list[Operands] = []
        self._flusher: Memory | None = None
        self.mode: Literal["rotate", "flush"] = "rotate"
        self._choose()

    def _choose(self) -> None:
        """Sets of operands, or memory to overwrite the L2 with."""
        flushed = L2_FACTOR * self.context.limits.l2_bytes
        each = self.subject.bytes_per_set()
        wanted = 1 + math.ceil(flushed / each)
        if wanted <= MOST_SETS and wanted * each <= MEMORY_SHARE * self.context.free_bytes():
            self._sets = [self.subject.operands("random") for _ in range(max(wanted, 2))]
        else:
            self.mode = "flush"
            self._sets = [self.subject.operands("random")]
            self._flusher = self.context.allocate(flushed, "what overwrites the L2")
        # operands are copied on the null stream, for which the stream that times does not wait
        self.context.synchronize()

    def single(self, kernel: LoadedSequence) -> float:
        """Seconds of one launch, after one that brought the kernel there."""
        start, stop = Event(self.context), Event(self.context)
        arguments = self.subject.arguments(kernel, self._sets[0], "random")
        config = kernel.config(self.stream.handle)
        try:
            for _ in range(2):
                start.record(self.stream)
                kernel.run(arguments, config)
                stop.record(self.stream)
                self.stream.synchronize()
            return max(stop.seconds_since(start), 1e-7)
        finally:
            start.close()
            stop.close()

    def take_turns(self, first: LoadedSequence, second: LoadedSequence, seed: int, clock: Any) -> Samples:
        """Samples of two kernels of this subject's question in turns; they may be the same.

        seed   of the order
        clock  seconds that only grow, of the host
        """
        return take_turns((self, first), (self, second), self.protocol, seed, clock)

    def cold_run(self, kernel: LoadedSequence, launches: int) -> _Run:
        if self.mode == "flush":
            return _Run(self, kernel, min(launches, self.protocol.flushes), self._sets, self._flusher)
        return _Run(self, kernel, max(launches, len(self._sets)), self._sets, None)

    def warm_run(self, kernel: LoadedSequence, launches: int) -> _Run:
        return _Run(self, kernel, launches, self._sets[:1], None)

    def sets(self) -> int:
        return len(self._sets)

    def close(self) -> None:
        for operands in self._sets:
            operands.free()
        if self._flusher is not None:
            self._flusher.free()
        self.stream.close()


class _Run:
    """One kind of sample of one kernel, as a graph."""

    def __init__(
        self, watch: Stopwatch, kernel: LoadedSequence, launches: int, sets: list[Operands], flusher: Memory | None
    ) -> None:
        self.watch = watch
        self.launches = launches
        stream = watch.stream
        # with a flusher one pair of events for each launch, else one for all
        self.events = [
            (Event(watch.context), Event(watch.context)) for _ in range(launches if flusher is not None else 1)
        ]
        config = kernel.config(stream.handle)
        # graphs copy arguments when they are captured
        arguments = [watch.subject.arguments(kernel, s, "random") for s in sets]
        with stream.capture():
            if flusher is None:
                self.events[0][0].record_in_graph(stream)
            for number in range(launches):
                if flusher is not None:
                    stream.fill(flusher.address, number & 0xFF, flusher.size_bytes)
                    self.events[number][0].record_in_graph(stream)
                kernel.run(arguments[number % len(sets)], config)
                if flusher is not None:
                    self.events[number][1].record_in_graph(stream)
            if flusher is None:
                self.events[0][1].record_in_graph(stream)
        if stream.graph is None:
            raise RuntimeError("a captured stream gave no graph")
        self.graph: Graph = stream.graph

    def sample(self) -> float:
        """Seconds per launch: of all, or the median of single ones."""
        self.graph.run(self.watch.stream)
        self.watch.stream.synchronize()
        times = [stop.seconds_since(start) for start, stop in self.events]
        return float(np.median(times)) if len(times) > 1 else times[0] / self.launches

    def close(self) -> None:
        self.graph.close()
        for pair in self.events:
            for event in pair:
                event.close()


def take_turns(
    first: tuple[Stopwatch, LoadedSequence], second: tuple[Stopwatch, LoadedSequence], protocol: Protocol, seed: int,
    clock: Any,
) -> Samples:  # fmt: skip
    """Samples of two kernels in turns, each with the stopwatch of its own question."""
    rng = np.random.default_rng(seed)
    begun = clock()
    longest = max(watch.single(kernel) for watch, kernel in (first, second))
    launches = max(1, min(math.ceil(protocol.sample_s / longest), protocol.most_launches))
    warm_ups = max(1, math.ceil(protocol.warm_up_s / (launches * longest)))
    taken: Mapping[str, tuple[list[float], list[float]]] = {"cold": ([], []), "warm": ([], [])}
    for kind, pairs in (("cold", protocol.samples), ("warm", protocol.warm_samples)):
        if not pairs or (kind == "warm" and out_of_race(*taken["cold"], protocol.race_pairs, protocol.race_factor)):
            break
        runs: list[_Run] = []
        try:
            for watch, kernel in (first, second):
                runs.append(watch.cold_run(kernel, launches) if kind == "cold" else watch.warm_run(kernel, launches))
            for run in runs:  # the first of each also brings its code and its graph to the GPU
                for _ in range(warm_ups if kind == "cold" else 1):
                    run.sample()
            for number in range(pairs):
                for which in rng.permutation(2).tolist():
                    taken[kind][which].append(runs[which].sample())
                if kind == "cold" and out_of_race(*taken["cold"], protocol.race_pairs, protocol.race_factor):
                    break
                if number + 1 >= 8 and clock() - begun > protocol.seconds:
                    break
        finally:
            for run in runs:
                run.close()
    watch = first[0]
    return Samples(taken["cold"], taken["warm"], watch.mode, watch.sets(), launches)
