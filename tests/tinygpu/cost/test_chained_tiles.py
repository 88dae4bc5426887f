"""Tiles that wait for those before them: no launch is predicted to end before they have told one another."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.cost.demand import Phase
from tinygpu.cost.predictor import predict
from tinygpu.cost.rates import Rates
from tinygpu.devices import device
from tinygpu.language.meeting import LANES
from tinygpu.machines.scan import LongScan


def trips(tiles: int, rows: int, resident: int) -> float:
    """Trips to L2 until the last CTA knows what stands before it, where nothing else takes any time.

    CTAs are launched in their order, row after row, so many at a time. Each publishes what it has, reads the flags of
    32 tiles before it, in a trip, until all are there; then what they speak of, in another trip; and so on, until one
    of them knows what all up to it have. What is published is seen by who comes to L2 half a trip later.
    """
    total = tiles * rows
    own, whole = np.full(total, math.inf), np.full(total, math.inf)
    free = [0.0] * min(resident, total)
    waiting: list[tuple[float, int, int]] = []  # (when flags have been read, CTA, the nearest tile that it looks at)
    launched = ended = 0
    end = 0.0

    def knows(cta: int, now: float) -> None:
        nonlocal ended, end
        whole[cta] = now + 0.5
        ended, end = ended + 1, max(end, now)
        heapq.heappush(free, now)

    while ended < total:
        while launched < total and free:
            now, cta = heapq.heappop(free), launched
            launched, own[cta] = launched + 1, now + 0.5
            if cta % tiles:
                heapq.heappush(waiting, (now + 1, cta, cta - 1))
            else:
                knows(cta, now)
        if not waiting:
            continue
        now, cta, back = heapq.heappop(waiting)
        window = slice(max(cta // tiles * tiles, back - LANES + 1), back + 1)
        if own[window].max() > now - 0.5:
            heapq.heappush(waiting, (now + 1, cta, back))
        elif whole[window].min() <= now - 0.5:
            knows(cta, now + 1)
        else:
            heapq.heappush(waiting, (now + 2, cta, back - LANES))
    return end


told = cache(trips)
# Warps, vector, step, all along a row; and m, n: one row and many, of a few tiles and of more than are resident.
DRAWN = (
    (1, 1, 1, 1, 200_000), (1, 1, 1, 6, 33_000), (4, 1, 1, 3, 300_000), (16, 1, 1, 11, 500_000), (16, 2, 1, 40, 30_000),
    (2, 1, 1, 700, 64), (8, 4, 2, 2, 9_000_000),
)  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("name", ["a100", "h100"])
@pytest.mark.parametrize(("warps", "vector", "step", "m", "n"), DRAWN)
def test_no_scan_over_the_grid_is_predicted_to_be_earlier(
    name: str, warps: int, vector: int, step: int, m: int, n: int, idle: bool
) -> None:
    """Of the machine as it is; and of one whose CTAs do nothing else."""
    space = tg.space(LongScan, m=m, n=n // vector * vector, device=name)
    point = {"warps": warps, "across": 32 * warps, "vector": vector, "step": step, "exchange": "shuffles"}
    index = space.structure_index(point)
    demand = space.counts(index).demand({**space.environment, **point}, device(name))
    if idle:
        nothing = {"prologue": Phase(), "iteration": Phase(), "epilogue": Phase()}
        demand = replace(demand, **nothing, dram_bytes_read=0, dram_bytes_written=0, compulsory_dram_bytes=0)  # type: ignore[arg-type]
    found = predict(device(name), demand)
    resident = device(name).sm_count * int(found.occupancy.ctas_per_sm)
    rows = int(demand.ctas) // int(demand.chained)
    least = told(int(demand.chained), rows, resident)
    rates = Rates.of(device(name), demand)
    assert float(found.seconds - found.launch_s) >= least * float(rates.l2_cycles / rates.clock_hz)


@pytest.mark.parametrize("seed", range(12))
def test_the_closed_form_is_no_less_than_the_protocol_and_not_far_from_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tiles, resident = (int(2 ** rng.uniform(low, high)) for low, high in ((6, 12.5), (6, 11)))
    rows = max(1, int(2 ** rng.uniform(4, 14)) // tiles)
    least = trips(tiles, rows, resident)
    whole = tiles * rows / resident * math.sqrt(min(tiles, resident)) / 2
    rule: Any = math.ceil(tiles * 3 / LANES)
    assert max(whole, rule) + 3 >= least
    assert whole <= 2 * least
