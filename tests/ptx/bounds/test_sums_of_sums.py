"""Sums that a reference writes tap by tap: a kernel adds all of their terms to what it begins with, one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

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
    given = {name: array.astype(np.float64) for name, array in (("x", x), ("w", w), ("b", b))}
    kinds = dict.fromkeys(given, np.dtype(np.float32))
    (answer,) = answers(REFERENCES[number], given, {}, ["y"], Rounding(exact=True), kinds).values()
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
