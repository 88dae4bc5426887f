"""Where all terms of a sum are zero nothing is rounded: guards of divisions are decided, and zeros have either sign."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tinygpu.ptx.bounds.answers import Answer, answers
from tinygpu.ptx.bounds.arithmetic import Rounding

X = np.array([[0.5, 0.25, 0.7], [0.1, -0.3, 0.2]])
W = np.array([[0.0, 0.0, 0.0], [0.3, 0.2, 0.7]])


def answer(reference: Callable[..., Any]) -> Answer:
    kinds = dict.fromkeys(("w", "x"), np.dtype(np.float32))
    return answers(reference, {"w": W, "x": X}, {}, ["y"], Rounding(exact=True), kinds)["y"]


def total(w: Any, x: Any) -> Any:
    return (w * x).sum(axis=1, keepdims=True)


SUMS: dict[str, Callable[..., Any]] = {
    "sum of products": total,
    "product of matrices": lambda w, x: np.einsum("ij,ij->i", w, x)[:, None],
    "mean": lambda w, x: (w * x).mean(axis=1, keepdims=True),
}


@pytest.mark.parametrize("name", SUMS)
def test_what_a_guard_chooses_is_decided(name: str) -> None:
    of = SUMS[name]
    for guarded in (
        lambda w, x: np.where(of(w, x) > 0, w / of(w, x), 0.0),
        lambda w, x: w / np.where(of(w, x) > 0, of(w, x), 1.0),
        lambda w, x: w / np.where(of(w, x) != 0, of(w, x), 1.0),
        lambda w, x: w / np.maximum(of(w, x), 1e-12),
    ):
        found = answer(guarded)
        assert np.abs(np.stack([found.low[0], found.high[0]])).max() <= 2.0**-126
        assert np.isfinite(found.low).all()
        assert np.isfinite(found.high).all()


@pytest.mark.parametrize("name", SUMS)
def test_a_zero_by_which_something_is_divided_has_either_sign(name: str) -> None:
    found = answer(lambda w, x: x / SUMS[name](w, x))
    assert (found.low[0] == -np.inf).all()
    assert (found.high[0] == np.inf).all()


def test_of_terms_that_may_be_other_than_zero_a_sum_may_be_too() -> None:
    found = answer(lambda w, x: np.where((np.exp(x) - np.exp(x) * (1 + w)).sum(axis=1, keepdims=True) > 0, 5.0, 1.0))
    assert (found.low[0], found.high[0]) == (1.0, 5.0)


@pytest.mark.parametrize("name", SUMS)
def test_of_terms_next_to_zero_a_kernel_may_add_nothing(name: str) -> None:
    """Products below the smallest normal number are zero where subnormal numbers are flushed (PTX ISA, .ftz)."""
    found = answer(lambda w, x: SUMS[name](w * 2.0**-70 + 2.0**-70, np.abs(x) * 2.0**-70))
    assert (found.value > 0).all()
    assert (found.low <= 0).all()
