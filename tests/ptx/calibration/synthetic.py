"""A GPU whose times are made up: kernels run in the emulator, and a trip costs what is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from tinygpu.ptx.calibration.benchmark import CLOCKS, Array, Launch, Microbenchmark
from tinygpu.ptx.calibration.emulated import Memory, run_once
from tinygpu.ptx.calibration.launcher import Gpu, LaunchFailed

H200 = Gpu("NVIDIA H200", "13.0", 90, 132, 60 << 20)


@dataclass
class SyntheticGpu:
    """Times of a trip by the name of the microbenchmark; what is not said takes 1,000 cycles and 1 us.

    cycles     of a trip; a function of the row where the rows differ
    seconds    of a trip
    launch_s   seconds of a launch in a stream; in a graph it is half of that
    overhead   cycles and microseconds of a launch beside its trips
    noise      relative standard deviation of every time
    emulating  whether kernels run at all; without, what they leave is what they got
    fails      name -> sentence of a launch that fails, and whether the GPU is lost
    """

    gpu: Gpu = H200
    cycles: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    launch_s: float = 2.5e-6
    overhead: float = 1234.0
    noise: float = 0.0
    emulating: bool = True
    fails: dict[str, tuple[str, bool]] = field(default_factory=dict)
    runs: list[tuple[str, int]] = field(default_factory=list)
    held: list[int] = field(default_factory=list)
    timed: list[tuple[int, int, str]] = field(default_factory=list)
    closed: int = 0

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(0)

    def clocks(self) -> Mapping[str, Any] | None:
        return {"sm_mhz": 1980, "memory_mhz": 3201, "watts": 120.0, "celsius": 40, "held_back": []}

    def load(self, benchmark: Microbenchmark, launch: Launch) -> SyntheticLoaded:
        return SyntheticLoaded(self, benchmark, launch)

    def shaken(self, value: float) -> float:
        return value * (1 + self.noise * float(self.rng.standard_normal()))


class SyntheticLoaded:
    def __init__(self, gpu: SyntheticGpu, benchmark: Microbenchmark, launch: Launch) -> None:
        self.gpu, self.benchmark, self.launch = gpu, benchmark, launch
        # what a kernel that does not run gets may be gigabytes
        self.memory = Memory(launch if gpu.emulating else replace(launch, arguments=()))

    def run(self, trips: int) -> None:
        name = self.benchmark.name
        if name in self.gpu.fails:
            sentence, lost = self.gpu.fails[name]
            raise LaunchFailed(sentence, lost)
        self.gpu.runs.append((name, trips))
        if self.gpu.emulating:
            run_once(self.benchmark.ptx, self.launch, self.memory, trips)
        rows = self.launch.grid * self.launch.rows
        each = self.gpu.cycles.get(name, 1000.0)
        per_trip = np.array([each(row) for row in range(rows)]) if callable(each) else np.full(rows, float(each))
        # warps of a CTA begin and end together; each SM has a clock of its own
        begun = np.repeat(self.gpu.rng.integers(1 << 40, 1 << 50, self.launch.grid), self.launch.rows)
        took = np.round((self.gpu.overhead + per_trip * trips) * self.gpu.shaken(1.0))
        clocks = np.stack([begun, begun + took.astype(np.int64)], axis=1).reshape(-1)
        self.memory.buffers[CLOCKS].array[:] = clocks.astype(np.uint64)

    def seconds(self, trips: int, launches: int, queue: Literal["stream", "graph"], held: int = 0) -> float:
        self.gpu.held.append(held)
        self.gpu.timed.append((trips, launches, queue))
        if launches > 1 or trips == 1:
            each = self.gpu.launch_s if queue == "stream" else self.gpu.launch_s / 2
            return self.gpu.shaken(self.gpu.overhead * 1e-6 + launches * each)
        name = self.benchmark.name
        return self.gpu.shaken(self.gpu.overhead * 1e-6 + trips * self.gpu.seconds.get(name, 1e-6))

    def read(self, name: str) -> Array:
        return self.memory.left().get(name, np.zeros(0))

    def close(self) -> None:
        self.gpu.closed += 1
