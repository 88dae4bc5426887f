"""Sums that a reference writes tap by tap: a kernel adds all of their terms to what it begins with, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.ptx.bounds.answers import answers
from tinygpu.ptx.bounds.arithmetic import Rounding

TAPS = 64


def taps(x: Any, w: Any) -> Any:
    return sum(np.einsum("tc,co->to", x[k : k + 40], w[k]) for k in range(TAPS))


def written(x: Any, w: Any) -> Any:
    out = np.zeros((40, 3)) + 0 * x[:40, :1]
    out[:, :] = taps(x, w)
    return out


REFERENCES: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda x, w, b: taps(x, w) + b,
    lambda x, w, b: taps(x, w)[4:] + b,
    lambda x, w, b: b - -taps(x, w)[4:],
    lambda x, w, b: written(x, w) + b,
)


@pytest.mark.parametrize("number", range(len(REFERENCES)))
@pytest.mark.parametrize("seed", range(3))
def test_what_begins_with_a_large_number_is_right(number: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, w = (rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((40 + TAPS, 2), (TAPS, 2, 3)))
    b = np.array([0.5, 1000.0, -3000.0], np.float32)
    total = np.broadcast_to(b, (40, 3)).astype(np.float32)
    for c in range(2):
        for k in range(TAPS):
            total = (total + x[k : k + 40, c, None] * w[k, c]).astype(np.float32)
    arrays = {name: array.astype(np.float64) for name, array in (("x", x), ("w", w), ("b", b))}
    kinds = dict.fromkeys(arrays, np.dtype(np.float32))
    (answer,) = answers(REFERENCES[number], arrays, {}, ["y"], Rounding(exact=True), kinds).values()
    assert not answer.followed
    got = total[40 - len(answer.value) :]
    assert (np.abs(got - answer.value) > 2.0**-22 * np.abs(answer.value)).any(), "a sum that is no worse for its order"
    assert ((answer.low <= got) & (got <= answer.high)).all()
    assert (answer.high - answer.low < 2.0**-24 * 8 * (TAPS * 2 + 16) * 3100).all()


@pytest.mark.parametrize(
    "reference",
    [
        lambda a, b: a @ b + a @ b[::-1],
        lambda a, b: (a @ b)[:, ::-1] - -(a @ b[::-1])[:, ::-1],
        lambda a, b: np.concatenate([a @ b + a @ b[::-1], a @ b + a @ b[::-1]], axis=1)[:, :3],
    ],
)
def test_terms_of_two_sums_may_overflow_on_the_way(reference: Any) -> None:
    """What each sum has is finite, and so is the result; one after another their terms are not. Infinity is certain."""
    a = np.array([[1.0, 1.0], [1.0, np.inf], [1.0, np.nan], [1.0, 0.5]])
    b = np.array([[3e38, 1.0, 1e38], [-2e38, 1.0, -1e38]])
    answer = answers(
        lambda a, b: {"y": reference(a, b)}, {"a": a, "b": b}, {}, ["y"], Rounding(exact=True),
        {"a": np.dtype(np.float32), "b": np.dtype(np.float32)},
    )["y"]  # fmt: skip
    assert not answer.followed
    low, high = (np.broadcast_to(end, answer.value.shape) for end in (answer.low, answer.high))
    anything = (low == -np.inf) & (high == np.inf)
    assert anything[0].tolist() == [True, False, True]
    assert anything[3].sum() == 1
    assert (low[1, 1], high[1, 1]) == (np.inf, np.inf)
    assert np.isnan(low[2]).all()


def single(values: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(np.float32)


@pytest.mark.parametrize("way", ["sum", "half reversed"])
@given(
    st.lists(
        st.one_of(st.floats(-2, 2, width=32), st.sampled_from([3e38, -3e38, 1.7e38, -1.7e38, 1000.0, -1000.0])),
        min_size=3,
        max_size=6,
    ),
    st.randoms(use_true_random=False),
)
def test_a_kernel_adds_the_terms_of_a_sum_in_any_order(way: str, terms: list[float], order: Any) -> None:
    """Written term by term: how it is rounded, and whether it overflows on the way, hangs on the order."""

    def reference(x: Any) -> Any:
        parts = [x[:, k] for k in range(len(terms))]
        if way == "sum":
            return sum(parts[1:], parts[0])
        return (sum(parts[1:-1], parts[0])[None])[0] - -parts[-1]

    x = single(terms)[None]
    (answer,) = answers(reference, {"x": x.astype(np.float64)}, {}, ["y"], Rounding(exact=False)).values()
    assert not answer.followed
    places = list(range(len(terms)))
    order.shuffle(places)
    got = np.float32(0)
    with np.errstate(over="ignore", invalid="ignore"):
        for place in places:
            got = single(got + x[0, place])
    low, high = (np.broadcast_to(end, (1,))[0] for end in (answer.low, answer.high))
    assert (low, high) == (-np.inf, np.inf) if np.isnan(got) else low <= got <= high
    size = np.abs(x.astype(np.float64)).sum()
    if size < 3.4e38:
        assert np.isfinite([low, high]).all()
        assert high - low <= 2.0**-24 * 8 * len(terms) * size + 2.0**-120


def test_two_terms_have_one_order() -> None:
    x = np.array([[3e38, 3e38]])
    for reference in (lambda x: x[:, 0] - x[:, 1], lambda x: (x * 0.9)[::-1][:, 0] - (x * 0.9)[::-1][:, 1]):
        (answer,) = answers(reference, {"x": x}, {}, ["y"], Rounding(exact=False)).values()
        assert np.isfinite([answer.low, answer.high]).all()
