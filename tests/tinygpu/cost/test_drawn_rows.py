"""Rows that values name: what is expected of the declared draws, beside what the emulator counts of drawn inputs."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from counted_launches import counted, whole

from tinygpu.cost.drawn_rows import apart, bank_rounds, bank_turns, to_one_place
from tinygpu.cost.predictor import predict
from tinygpu.devices import device
from tinygpu.expressions import Expr, compile_scalars, expr
from tinygpu.language import InOut, Input, Machine, Values, integers, one_of
from tinygpu.machines.embedding import Embedding
from tinygpu.machines.scatter_add import Histogram, ScatterAdd

Point = Mapping[str, int | str]


class Skewed(Histogram):
    """Half of all numbers are the same."""

    x = Input("s32", Histogram.m, values=one_of(*range(64), weights=(63.0, *[1.0] * 63)))
    counts = InOut(("s32", "u32"), Histogram.v)


@pytest.mark.parametrize("machine", [Histogram, Skewed])
@pytest.mark.parametrize("v", [64, 100, 250])
def test_lanes_that_add_to_words_of_one_bank_take_turns(machine: type[Machine], v: int) -> None:
    point = {"counted": "in shared memory", "warps": 4, "vector": 2, "rounds": 16, "bins": 256}
    demand, counters = counted(machine, {"m": 1 << 16, "v": v}, point)
    expected = whole(demand, "smem_store_wavefronts")
    assert expected == pytest.approx(counters.shared_atomic_turns, rel=0.02)
    # lanes that add to one word do not share it, as lanes that read it would
    assert counters.shared_atomic_turns > (5 if machine is Skewed else 1.1) * counters.shared_atomic_wavefronts


@pytest.mark.parametrize("machine", [Histogram, Skewed])
@pytest.mark.parametrize("v", [64, 1000])
def test_lanes_that_add_to_one_sector(machine: type[Machine], v: int) -> None:
    point = {"counted": "in global memory", "warps": 4, "vector": 2, "rounds": 16, "bins": 256}
    demand, counters = counted(machine, {"m": 1 << 16, "v": v}, point)
    expected = whole(demand, "sectors_written")
    assert expected == pytest.approx(counters.global_atomic_sectors, rel=0.01)
    assert expected < 0.9 * counters.global_atomic_requests * 32  # less than a sector for each lane


def test_what_one_slice_of_l2_serves_bounds_a_histogram_of_few_bins() -> None:
    """Of one bin every warp adds to the same place; of many, none is asked for by more than its share."""
    point = {"counted": "in global memory", "warps": 4, "vector": 2, "rounds": 16, "bins": 256}
    m, a100 = 1 << 22, device("a100")
    seconds = {}
    for v in (1, 16, 1 << 10, 1 << 20):
        demand, _ = counted(Histogram, {"m": m, "v": v}, point, emulated=False)
        seconds[v] = float(predict(a100, demand).busy_s["l2"])
        if v <= 16:  # the only 64 bytes that there are
            assert whole(demand, "accesses_to_one") == m // 32
            assert seconds[v] >= m / 32 / a100.boost_clock_hz
    assert whole(demand, "accesses_to_one") < m / 2**14
    assert seconds[1] == seconds[16] > 2 * seconds[1 << 10]
    skewed, _ = counted(Skewed, {"m": m, "v": 1 << 20}, point, emulated=False)
    assert whole(skewed, "accesses_to_one") == pytest.approx(m / 32, rel=1e-3)  # of 32 lanes, one has the usual number


@pytest.mark.parametrize(("n", "v", "across"), [(4, 10, 1), (4, 300, 1), (8, 10, 2), (64, 5, 4), (64, 5000, 16)])
def test_rows_that_several_lanes_read(n: int, v: int, across: int) -> None:
    point = {"ld": "ld.global", "warps": 2, "across": across, "vector": 4, "step": max(n // (4 * across), 1), "rows": 2}
    demand, counters = counted(Embedding, {"m": 4096, "n": n, "v": v}, point)
    assert whole(demand, "sectors_read") == pytest.approx(counters.global_load_sectors, rel=0.02)


@pytest.mark.parametrize(("n", "v"), [(1, 10), (2, 100), (8, 7)])
def test_rows_that_several_lanes_add_to(n: int, v: int) -> None:
    point = {"warps": 2, "across": min(n, 8), "vector": 1, "step": 1, "rows": 2}
    demand, counters = counted(ScatterAdd, {"m": 8192, "n": n, "v": v}, point)
    assert whole(demand, "sectors_written") == pytest.approx(counters.global_atomic_sectors, rel=0.02)


def evaluated(count: Expr) -> float:
    return float(compile_scalars(count)({})[0])


def numbers_of(values: Values) -> list[int]:
    return [int(n) for n in values.listed] or [*range(int(values.low), int(values.high) + 1)]


def weights_of(values: Values) -> tuple[float, ...]:
    return values.weights or (1.0,) * len(numbers_of(values))


def mean(values: Values, draws: int, what: Any) -> float:
    """Over all draws, each as often as the law says."""
    numbers, weights = numbers_of(values), weights_of(values)
    total = sum(weights)
    return sum(
        what([numbers[i] for i in drawn]) * np.prod([weights[i] / total for i in drawn])
        for drawn in itertools.product(range(len(numbers)), repeat=draws)
    )


def most_of_a_bank(rows: list[int], words: int) -> int:
    named = {row * words for row in rows}
    return max(sum(1 for word in named if word % 32 == bank) for bank in range(32))


@pytest.mark.parametrize(
    "values",
    [integers(0, 5), integers(3, 9), integers(7, 8), one_of(0, 1, 32, 64, 96), one_of(1, 2, 9, weights=(3, 1, 0))],
)
@pytest.mark.parametrize("draws", [1, 2, 4])
def test_means_are_those_over_all_draws(values: Values, draws: int) -> None:
    for together in (1, 2, 8):
        exact = mean(values, draws, lambda rows, t=together: len({row // t for row in rows})) / draws
        assert evaluated(apart(values, expr(draws), expr(256 // together), 256)) == pytest.approx(exact, abs=1 / 4096)
    for words in (1, 2, 16, 32):
        exact = mean(values, draws, lambda rows, w=words: most_of_a_bank(rows, w))
        assert evaluated(bank_rounds(values, expr(draws), expr(32 * words))) == pytest.approx(exact, abs=1 / 4096)
        exact = mean(values, draws, lambda rows, w=words: max(Counter(row * w % 32 for row in rows).values()))
        assert evaluated(bank_turns(values, expr(draws), expr(32 * words))) == pytest.approx(exact, abs=1 / 4096)
    for together in (1, 2, 8):
        every: Counter[int] = Counter()
        for number, weight in zip(numbers_of(values), weights_of(values), strict=True):
            every[number // together] += weight
        likely = max(every, key=lambda place: every[place])
        met = mean(values, draws, lambda rows, t=together, o=likely: float(any(row // t == o for row in rows)))
        touched = mean(values, draws, lambda rows, t=together: len({row // t for row in rows}))
        found = evaluated(to_one_place(values, expr(draws), expr(512 // together), 512))
        assert found == pytest.approx(met / touched, abs=1 / 4096)
        # rows of several pieces each
        assert evaluated(to_one_place(values, expr(draws), expr(512 * 4), 512)) <= 1 / 4
