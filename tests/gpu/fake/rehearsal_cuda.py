"""The driver of a rehearsal: kernels run in the emulator, microbenchmarks move clocks as `clocked_cuda` lets them."""

from __future__ import annotations

from typing import Any

from clocked_cuda import ClockedCuda
from fake_cuda import FakeCuda, described

from tinygpu.ptx.calibration.benchmark import CLOCKS, TRIPS


class RehearsalCuda(ClockedCuda):
    """One GPU for both."""

    def cuLaunchKernelEx(self, config: Any, function: Any, parameters: int, extra: int) -> Any:
        if f".param .u64 {CLOCKS}" in function.ptx and TRIPS in function.ptx:
            return super().cuLaunchKernelEx(config, function, parameters, extra)
        self.trips = 0
        return FakeCuda.cuLaunchKernelEx(self, config, function, parameters, extra)

    def _pass(self, ptx: str) -> None:
        if self.trips:
            super()._pass(ptx)
        else:
            FakeCuda._pass(self, ptx)


_gpu = RehearsalCuda(**described(memory_bytes=1 << 30, noise=0.002))


def __getattr__(name: str) -> Any:
    return getattr(_gpu, name)
