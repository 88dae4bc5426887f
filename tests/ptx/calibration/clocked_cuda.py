"""A CUDA driver made of the emulator, whose clocks a kernel's trips move: it stands for an H200 with four SMs.

A trip costs 1,280 cycles at 2 GHz. `barrier_256` brings the process down, `barrier_1024` hangs, `mbarrier_round` ends
with a fault.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np
from fake_cuda import FakeCuda, described
from fake_launches import parameters_of

from tinygpu.ptx.calibration.benchmark import MOST_LAUNCHES

CYCLES, HERTZ = 1280, 2e9


class ClockedCuda(FakeCuda):
    """Each launch writes clocks as a GPU would, and takes as long."""

    trips = 0

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: int, extra: int) -> Any:
        if function.name == "barrier_256":
            os._exit(7)
        if function.name == "barrier_1024":
            time.sleep(600)
        if function.name == "mbarrier_round":
            self.lost = "CUDA_ERROR_ILLEGAL_ADDRESS"
        clocks, _, self.trips = (
            int.from_bytes(data, "little") for data in parameters_of(function.ptx, parameters)[:3]
        )
        status = super().cuLaunchKernelEx(config, function, parameters, extra)
        if self.lost or int(config.hStream) in self.capturing:
            return status
        rows = self.allocations[clocks].bytes.view(np.int64).reshape(-1, 2)
        rows[:, 0] = 10**9 + 100 * len(self.launches)
        rows[:, 1] = rows[:, 0] + 500 + CYCLES * self.trips
        if len(self.launches) > 20 * MOST_LAUNCHES:
            raise RuntimeError("more launches than a calibration of a few microbenchmarks has")
        return status

    def _pass(self, ptx: str) -> None:
        """A launch takes two microseconds and its trips, also where a graph replays it."""
        self.now += 2e-6 + CYCLES * self.trips / HERTZ


_gpu = ClockedCuda(**described(memory_bytes=1 << 30, noise=0.0))


def __getattr__(name: str) -> Any:
    return getattr(_gpu, name)
