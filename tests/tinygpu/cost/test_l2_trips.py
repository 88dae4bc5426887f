"""What CTAs leave for each other is taken from L2: the emulator's DRAM sees none of it."""

from __future__ import annotations

import numpy as np
import pytest
from counted_launches import launched

from tinygpu.devices import device
from tinygpu.machines.matvec import Matvec
from tinygpu.ptx.emulator import Caches
from tinygpu.spaces.build import build_space


@pytest.mark.parametrize("split_k", [1, 8])
def test_partial_sums_of_shared_rows_are_trips_to_l2_and_no_reads_of_dram(split_k: int) -> None:
    gpu, problem = device("a100"), Matvec.problem(m=64, k=8192)
    space = build_space(Matvec, problem, gpu)
    point = next(
        p for p in space.sample(400, 1) if (p["split_k"], p["meet"]) == (split_k, "through memory") and p["warps"] > 1
    )
    index = space.structure_index(point)
    chosen = {a: int(point[a]) for a in space.traces[index].axes}
    demand = space.counts(index).demand({**space.environment, **chosen}, gpu)
    waits = (demand.prologue.chain.l2_trips, demand.epilogue.chain.l2_trips)
    assert (sum(int(np.asarray(trips)) for trips in waits) >= 2) == (split_k > 1)  # the count, and what others left
    report = launched(space, point, 0, Caches(0, gpu.l2_near_bytes, 4, 4))
    assert report.traffic is not None
    # a sector more of each tensor, which need not begin with one, and of the counters, which the launch finds at zero
    more = 32 * len(problem.operands) + (32 * 16 if split_k > 1 else 0)
    left = 4 * 64 * split_k * (split_k > 1)
    assert left == 0 or left > more
    assert demand.dram_bytes_read <= report.traffic.dram_read_bytes <= demand.dram_bytes_read + more
