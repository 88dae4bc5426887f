"""What a power of two scales is not rounded: halves are halves, and their sums are exact while they are small."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.bounds.array import Enclosed
from tinygpu.ptx.bounds.enclosure import Enclosure, exactly, quantum_of

EXACT, ROUNDED = Rounding(True), Rounding(False)
WHOLE = np.arange(-9.0, 10.0)
RANDOM = np.float32(np.random.default_rng(0).uniform(-1, 1, 50)).astype(np.float64)


def of(values: Any, rounding: Rounding = EXACT, quantum: float | None = None) -> Enclosed:
    return Enclosed(exactly(np.asarray(values), quantum), rounding)


def certain(found: Any) -> bool:
    held = found.enclosure
    return bool(np.all(held.low == held.high))


@pytest.mark.parametrize("rounding", [EXACT, ROUNDED])
@pytest.mark.parametrize("factor", [0.5, -2.0, 2.0**-30, np.array([0.25, -8.0] * 25)])
def test_a_product_with_a_power_of_two_is_exact(rounding: Rounding, factor: Any) -> None:
    found = of(RANDOM, rounding, 0.0) * factor
    assert found.enclosure.exact
    assert np.array_equal(found.enclosure.value, RANDOM * factor)


@pytest.mark.parametrize("rounding", [EXACT, ROUNDED])
@given(st.lists(st.integers(-40, 40), min_size=50, max_size=50))
def test_ldexp_is_a_product_with_a_power_of_two(rounding: Rounding, exponents: list[int]) -> None:
    powers = np.array(exponents)
    held = Enclosed(Enclosure(RANDOM, RANDOM - 2.0**-9, RANDOM + 2.0**-9), rounding)
    for factor in (of(RANDOM, rounding, 0.0), of(WHOLE[np.arange(50) % 19], rounding), held):
        found, product = np.ldexp(factor, of(powers, rounding)), factor * np.ldexp(1.0, powers)
        for name in ("value", "low", "high"):
            assert np.array_equal(getattr(found.enclosure, name), getattr(product.enclosure, name))
        # a product asks first whether whole numbers of the smallest power are kept, and may tell that they are not
        assert found.enclosure.marks <= product.enclosure.marks <= {"outgrown"}
    assert np.ldexp(1.0, of(powers, rounding)).enclosure.exact


def test_other_products_are_rounded() -> None:
    for factor in (0.3, 0.75, np.array([0.5, 0.7] * 25)):
        assert not certain(of(RANDOM, EXACT, 0.0) * factor)


def test_a_quotient_by_a_power_of_two_is_exact_where_a_machine_is() -> None:
    assert certain(of(RANDOM, EXACT, 0.0) / 4)
    assert not certain(of(RANDOM, ROUNDED, 0.0) / 4)
    assert not certain(of(RANDOM, EXACT, 0.0) / 3)


def test_what_becomes_subnormal_or_infinite_is_rounded_element_by_element() -> None:
    found = (of([1.0, 2.0**-126, 2.0**-149, 0.0]) * 0.5).enclosure
    assert (found.low[[0, 3]] == found.high[[0, 3]]).all()
    assert (found.low[[1, 2]] < found.value[[1, 2]]).all()
    large = (of([2.0**127, 1.0]) * 4.0).enclosure
    assert large.high[0] == np.inf
    assert large.low[1] == large.high[1] == 4.0


def test_ends_of_what_is_rounded_are_scaled_and_move_no_farther() -> None:
    held = Enclosed(Enclosure(WHOLE, WHOLE - 0.25, WHOLE + 0.25), EXACT)
    found = (held * 0.5).enclosure
    assert np.array_equal(found.low, (WHOLE - 0.25) / 2)
    assert np.array_equal(found.high, (WHOLE + 0.25) / 2)


def test_zero_is_no_rounded_product() -> None:
    assert np.floor(of([0.0, 3.0]) * 0.3).enclosure.low.tolist() == [0.0, 0.0]


def test_halves_are_rounded_as_they_are_and_no_other_way() -> None:
    even, up = np.rint(of(WHOLE) * 0.5), np.floor(of(WHOLE) / 2 + 0.5)
    assert certain(even)
    assert certain(up)
    assert not np.array_equal(even.enclosure.value, up.enclosure.value)


def test_sums_and_products_of_quarters_are_exact_while_they_are_small() -> None:
    quarters = of(WHOLE) * 0.25
    assert certain(quarters.sum() + quarters * quarters)
    assert (quarters @ quarters).enclosure.quantum == 2.0**-4
    outgrown = of([2.0**23, 1.0]) * 0.25 + 1.25 * of([2.0**23, 1.0])
    assert "outgrown" in outgrown.enclosure.marks
    assert not certain(outgrown)


@pytest.mark.parametrize(
    ("values", "quantum"),
    [
        ([3, -4], 1.0), ([2.0**30, 1.0], 1.0), ([0.5, 3.0], 0.5), ([0.75, -0.0], 0.25), ([2.0**-20, 8.0], 2.0**-20),
        ([2.0**-20, 16.0], 0.0), ([0.1], 0.0), ([np.nan], 0.0), ([np.inf, 0.5], 0.5), ([True], 1.0), ([], 1.0),
    ],
)  # fmt: skip
def test_what_numbers_are_multiples_of(values: Any, quantum: float) -> None:
    assert quantum_of(np.asarray(values)) == quantum


def test_chosen_and_moved_numbers_keep_what_they_are_multiples_of() -> None:
    quarters, halves = of(WHOLE) * 0.25, of(WHOLE) * 0.5
    for found in (
        np.where(quarters > 0, quarters, halves),
        np.concatenate([quarters, halves]),
        quarters[3:],
        -quarters,
    ):
        assert found.enclosure.quantum == 0.25
    for found in (np.floor(quarters), np.sign(quarters), np.rint(halves)):
        assert found.enclosure.quantum == 1.0
    changed = of(np.zeros(19))
    changed[2:4] = halves[2:4]
    assert changed.enclosure.quantum == 0.5
