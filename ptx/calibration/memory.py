"""Memory: the latencies and bandwidths of L1, L2 and DRAM, and atomics."""

from __future__ import annotations

from tinygpu.ptx.calibration.benchmark import Microbenchmark
from tinygpu.ptx.calibration.memory_bandwidth import atomic_rate, dram_copy, dram_read, l1_bandwidth, l2_bandwidth
from tinygpu.ptx.calibration.memory_latency import atomic_latency, dram_latency, l1_latency, l2_latency


def benchmarks() -> tuple[Microbenchmark, ...]:
    """All of this group."""
    return (
        l1_latency(),
        l2_latency(),
        dram_latency(),
        l1_bandwidth(),
        l2_bandwidth(),
        dram_copy(),
        dram_read(),
        atomic_latency(),
        atomic_rate(),
    )
