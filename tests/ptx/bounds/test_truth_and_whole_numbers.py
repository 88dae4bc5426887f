"""Truth values and whole numbers of which rounding decides some: every outcome lies between the ends, and no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.ptx.bounds.answers import answers
from tinygpu.ptx.bounds.arithmetic import Rounding

ROUNDING = Rounding(exact=True)
OPERATIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "packed": lambda near, far: ((near & ~far) << np.arange(8)).sum(axis=1),
    "by products": lambda near, far: ((near ^ far) * 2 ** np.arange(8)).sum(axis=1),
    "chosen": lambda near, far: np.where(near | far, 1 << np.arange(8), 0).sum(axis=1),
    "bytes": lambda near, far: np.packbits(near & far, axis=1, bitorder="little")[:, 0],
    "counted": lambda near, far: near.sum(axis=1) - 3 * far.astype(np.int64).sum(axis=1),
    "of two": lambda near, far: (near << np.arange(8)).sum(axis=1) | (far.astype(int) << np.arange(8)).sum(axis=1),
    "together": lambda near, far: np.maximum(near.sum(axis=1), far.sum(axis=1)) >> 1,
    "running": lambda near, far: np.cumsum(near.astype(np.int64) - far.astype(np.int64), axis=1),
}


@pytest.mark.parametrize("name", OPERATIONS)
@given(seed=st.integers(0, 2**32 - 1))
def test_every_outcome_of_comparisons_lies_between_the_ends(name: str, seed: int) -> None:
    """Some sums lie as near to the limit as roundings reach, and each of them is on one side of it or on the other."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(0.1, 1, (5, 8, 2))
    unsure = rng.random((5, 8)) < 0.2
    x[..., 1] = np.where(unsure, 1 - x[..., 0], x[..., 1])

    def reference(x: Any, y: Any) -> Any:
        return OPERATIONS[name](x[..., 0] + x[..., 1] > 1.0, x[..., 0] > y)

    (found,) = answers(reference, {"x": x, "y": np.array(0.5)}, {}, ["out"], ROUNDING).values()
    assert found.followed == ""
    sums, far = x[..., 0] + x[..., 1], x[..., 0] > 0.5
    for _ in range(20):
        near = np.where(np.abs(sums - 1) < 1e-9, rng.random((5, 8)) < 0.5, sums > 1)
        got = OPERATIONS[name](near, far)
        assert ((found.low <= got) & (got <= found.high)).all()
    sure = ~unsure.any(axis=1)
    assert np.array_equal(found.low[sure], found.high[sure])


def test_what_cannot_be_followed_is_exact_where_no_comparison_turns() -> None:
    """Of bits no mean error is spread over the others: those that are decided are as they are."""
    x = np.linspace(0, 1, 64).reshape(8, 8)
    x[3, 5] = 0.5

    def reference(x: Any) -> Any:
        return np.asarray(np.packbits(np.asarray([[v > 0.5 for v in row] for row in x], dtype=bool), axis=1))[:, 0]

    (found,) = answers(reference, {"x": x}, {}, ["out"], ROUNDING).values()
    assert found.followed
    assert np.flatnonzero(found.low != found.high).tolist() == [3]
    assert found.value.tolist() == reference(x).tolist()
