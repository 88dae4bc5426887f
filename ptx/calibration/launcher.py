"""What runs microbenchmarks: a GPU, or in tests something that stands for one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from tinygpu.ptx.calibration.benchmark import Array, Launch, Microbenchmark
from tinygpu.ptx.calibration.chip import Chip


class LaunchFailed(RuntimeError):
    """A microbenchmark that did not run.

    lost  whether nothing more runs in this process
    """

    def __init__(self, sentence: str, lost: bool = False) -> None:
        self.lost = lost
        super().__init__(sentence)


@dataclass(frozen=True, slots=True)
class Gpu:
    """The GPU that is measured.

    name    the driver's name for it: "NVIDIA H200"
    driver  version of the driver: "13.0"
    cc      compute capability as major * 10 + minor
    sms     streaming multiprocessors
    l2_bytes  capacity of L2
    """

    name: str
    driver: str
    cc: int
    sms: int
    l2_bytes: int


class Loaded(Protocol):
    """A microbenchmark's kernel, loaded, with its buffers. What launches leave in them stays."""

    def run(self, trips: int) -> None:
        """Launches once and waits. Raises LaunchFailed."""

    def seconds(self, trips: int, launches: int, queue: Literal["stream", "graph"], held: int = 0) -> float:
        """Seconds from the begin of the first to the end of the last of some launches, one behind another.

        held  trips of one more launch in front of a stream of launches, behind which all of them wait; 0: none
        """

    def read(self, name: str) -> Array:
        """What a buffer holds, in the type of its contents; of a relative one, offsets from its start."""

    def close(self) -> None:
        """Gives its memory back."""


class Launcher(Protocol):
    """One GPU."""

    @property
    def gpu(self) -> Gpu:
        """Which one."""

    def load(self, benchmark: Microbenchmark, launch: Launch) -> Loaded:
        """The kernel with fresh buffers. Raises LaunchFailed."""

    def clocks(self) -> Mapping[str, Any] | None:
        """sm_mhz, memory_mhz, watts, celsius, held_back now; None where nobody says."""


def chip_on(gpu: Gpu, l2_partitions: float) -> Chip:
    """What microbenchmarks are planned for on a GPU."""
    return Chip(gpu.cc, gpu.sms, gpu.l2_bytes, int(gpu.l2_bytes / l2_partitions))
