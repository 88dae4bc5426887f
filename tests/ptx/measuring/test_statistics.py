"""Statistics of times: medians, intervals by order, ties; by simulated clocks that jitter and drift."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.ptx.measuring.statistics import (
    CONFIDENCE,
    LEAST_NOISE,
    Ratio,
    noise_of,
    order_rank,
    out_of_race,
    ratio,
    spread,
)

times = st.lists(st.floats(1e-6, 1e-2), min_size=1, max_size=40)
pairs = st.lists(st.tuples(st.floats(1e-6, 1e-2), st.floats(1e-6, 1e-2)), min_size=1, max_size=40)


@given(times)
def test_the_median_halves_the_times_and_the_quartiles_enclose_it(seconds: list[float]) -> None:
    found = spread(seconds)
    assert sum(s <= found.median for s in seconds) * 2 >= len(seconds)
    assert sum(s >= found.median for s in seconds) * 2 >= len(seconds)
    assert found.least == min(seconds)
    assert found.least <= found.low <= found.median <= found.high <= max(seconds)
    assert found.count == len(seconds)


@given(pairs)
def test_swapping_two_kernels_inverts_their_ratio(samples: list[tuple[float, float]]) -> None:
    first, second = zip(*samples, strict=True)
    there, back = ratio(first, second), ratio(second, first)
    assert there.median * back.median == pytest.approx(1)
    if math.isfinite(there.high):
        assert there.low * back.high == pytest.approx(1)
        assert there.high * back.low == pytest.approx(1)
    opposite = {"faster": "slower", "slower": "faster", "tie": "tie"}
    assert back.verdict(0.0) == opposite[there.verdict(0.0)] or there.low == pytest.approx(1) or there.high == 1


@given(pairs, st.permutations(range(40)), st.floats(0.1, 10))
def test_neither_the_order_of_pairs_nor_the_unit_of_time_matters(
    samples: list[tuple[float, float]], order: list[int], unit: float
) -> None:
    shuffled = [samples[i] for i in order if i < len(samples)]
    first = ratio(*zip(*samples, strict=True))
    second = ratio(*([unit * t for t in column] for column in zip(*shuffled, strict=True)))
    assert first.median == pytest.approx(second.median)
    assert first.low == pytest.approx(second.low)
    assert first.high == pytest.approx(second.high)


@given(pairs)
def test_the_interval_encloses_the_median(samples: list[tuple[float, float]]) -> None:
    found = ratio(*zip(*samples, strict=True))
    assert found.low <= found.median * (1 + 1e-12)
    assert found.median <= found.high * (1 + 1e-12)


@pytest.mark.parametrize("count", range(1, 15))
def test_the_rank_is_the_largest_that_still_encloses_the_median_often_enough(count: int) -> None:
    """Against all outcomes of `count` tosses: how many values are below the median."""
    rank = order_rank(count)

    def misses(r: int) -> float:
        tosses = itertools.product((0, 1), repeat=count)
        below = [sum(t) for t in tosses]
        return sum(b <= r or b >= count - r for b in below) / len(below)

    if rank is None:
        assert misses(0) > 1 - CONFIDENCE
    else:
        assert misses(rank) <= 1 - CONFIDENCE
        if rank + 1 < count // 2:
            assert misses(rank + 1) > 1 - CONFIDENCE


def test_too_few_pairs_decide_nothing() -> None:
    found = ratio([1e-6] * 7, [2e-6] * 7)
    assert (found.low, found.high, found.verdict(0.0)) == (0.0, math.inf, "tie")
    assert ratio([1e-6] * 8, [2e-6] * 8).verdict(0.0) == "faster"


def in_turns(rng: np.random.Generator, count: int, first: float, second: float, drift: float) -> Ratio:
    """Two kernels in turns on a chip whose clock falls by `drift` over the run, with one per cent of jitter."""
    pace = 1 + drift * np.linspace(0, 1, 2 * count)
    noise = 1 + 0.01 * rng.standard_normal(2 * count)
    seconds = pace * noise
    return ratio(first * seconds[0::2], second * seconds[1::2])


def test_one_kernel_under_two_names_is_a_tie() -> None:
    rng = np.random.default_rng(0)
    ties = sum(in_turns(rng, 30, 1e-4, 1e-4, 0.0).verdict(LEAST_NOISE) == "tie" for _ in range(200))
    assert ties >= 190


def test_drift_makes_a_false_winner_in_sequence_and_none_in_turns() -> None:
    rng = np.random.default_rng(1)
    ties = false = 0
    for _ in range(100):
        ties += in_turns(rng, 30, 1e-4, 1e-4, 0.05).verdict(LEAST_NOISE) == "tie"
        pace = (1 + 0.05 * np.linspace(0, 1, 60)) * (1 + 0.01 * rng.standard_normal(60)) * 1e-4
        false += ratio(pace[:30], pace[30:]).verdict(LEAST_NOISE) == "faster"
    assert false >= 90
    assert ties >= 95


def test_a_difference_beyond_the_noise_is_found() -> None:
    rng = np.random.default_rng(2)
    found = [in_turns(rng, 30, 1e-4, 1.03e-4, 0.05).verdict(LEAST_NOISE) for _ in range(100)]
    assert found.count("faster") >= 99


@given(pairs)
def test_noise_that_was_measured_makes_its_own_measurement_a_tie(samples: list[tuple[float, float]]) -> None:
    found = ratio(*zip(*samples, strict=True))
    assert found.verdict(noise_of(found)) == "tie"


@given(pairs, st.floats(1.01, 3))
def test_only_what_lost_every_pair_leaves_the_race(samples: list[tuple[float, float]], factor: float) -> None:
    first, second = zip(*samples, strict=True)
    assert out_of_race(first, second, 5, factor) == (len(samples) >= 5 and all(a > factor * b for a, b in samples))


def test_what_makes_no_ratio_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^there is no median of no times$"):
        spread([])
    with pytest.raises(ValueError, match=r"^ratios are of pairs: 2 times do not pair with 1$"):
        ratio([1.0, 1.0], [1.0])
    with pytest.raises(ValueError, match=r"^a time is more than 0 seconds$"):
        ratio([1.0], [0.0])
