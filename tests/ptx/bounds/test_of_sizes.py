"""Floats that a reference makes of sizes: a kernel makes them in single precision, in forms of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.ptx.bounds.answers import answers
from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.bounds.of_sizes import of_sizes

SINGLE, WIDE = Rounding(exact=False), Rounding(exact=False, wide=True)


def places(count: int, kind: Any) -> Any:
    """Fractions between pixels, by one division."""
    top, down = (2 * np.arange(count) + 1) * 7 % (2 * count), 2 * count
    return top.astype(kind) / kind(down)


def far(t: Any, a: Any) -> Any:
    """The weight of a cubic's outermost point, a difference of numbers up to 6."""
    return ((a * t - 5 * a) * t + 8 * a) * t - 4 * a


def kept(t: Any, a: Any) -> Any:
    """The same, factored."""
    return a * (t - 1) * (t - 2) * (t - 2)


def turned(t: Any, a: Any) -> Any:
    return np.cos(t) * a


@given(st.integers(1, 300), st.sampled_from([-0.75, -0.5, 0.3]))
def test_weights_in_single_precision_lie_within_the_ends(count: int, a: float) -> None:
    x = np.linspace(-3, 3, count)

    def reference(x: Any) -> Any:
        return x * far(places(count, np.float64) + 1, a)

    answer = answers(reference, {"x": x}, {}, ["y"], SINGLE)["y"]
    t = places(count, np.float32) + np.float32(1)
    for form in (far, kept):
        found = x.astype(np.float32) * form(t, np.float32(a))
        assert not answer.followed
        assert np.all((answer.low <= found) & (found <= answer.high))


@given(st.integers(2, 300))
def test_other_numbers_do_not(count: int) -> None:
    """A weight that is off by 2^-16 shows wherever it is not next to zero."""
    x = np.ones(count)
    answer = answers(lambda x: x * turned(places(count, np.float64), 1.0), {"x": x}, {}, ["y"], SINGLE)["y"]
    off = turned(places(count, np.float64), 1.0) * (1 + 2.0**-16)
    assert np.all(off > answer.high)


@pytest.mark.parametrize(("rounding", "unit"), [(SINGLE, 2.0**-24), (WIDE, 2.0**-53)], ids=["single", "double"])
def test_roundings_of_the_number_and_of_one(rounding: Rounding, unit: float) -> None:
    value = np.array([1e-6, 0.1, 33.3])
    off = of_sizes(value, rounding).high - value
    assert np.allclose(off, unit * np.array([32, 32, 8 * 33.3]), rtol=0.01)
    small = np.array([1e-6, 1e-7])  # none of which stands beside a large one
    assert np.all(of_sizes(small, rounding).high - small <= 32 * 64 * 1.01 * unit * 1e-6)


def test_what_is_written_and_what_single_precision_holds_is_known() -> None:
    scales = np.array([2.0**-60, 1.5, 2.0**60, np.inf])
    for value in (0.1, np.float64(1 / 3), np.arange(7), np.arange(7) / 8, np.array([True, False]), scales):
        assert of_sizes(value, SINGLE).exact


def test_infinities_and_what_is_no_number_stay() -> None:
    value = np.array([np.inf, -np.inf, np.nan, 0.1])
    held = of_sizes(value, SINGLE)
    assert held.low[0] == np.inf
    assert held.high[1] == -np.inf
    assert np.isnan(held.low[2])
    assert np.isnan(held.high[2])


def test_a_result_of_sizes_alone_is_known_as_well() -> None:
    answer = answers(lambda x: np.arange(5) / 10, {"x": np.ones(5)}, {}, ["y"], SINGLE)["y"]
    single = np.arange(5, dtype=np.float32) * np.float32(0.1)
    assert np.all((answer.low <= single) & (single <= answer.high))
