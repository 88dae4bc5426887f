"""Ascending numbers of which one piece or segment has everything, as no draw has them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.distributions import Distribution
from tinygpu.ptx.verification.ascending import Together, with_everything_in_one

WAYS: tuple[Together, ...] = ("first", "halves", "last")


@given(st.integers(0, 9), st.integers(1, 4), st.booleans(), st.sampled_from(WAYS), st.integers(0, 2**32))
def test_they_stay_what_is_declared(length: int, rows: int, ends: bool, which: Together, seed: int) -> None:
    law = Distribution("ascending", 2, 7, ends=ends)
    drawn = law.draw(np.random.default_rng(seed), (rows, length)).astype(np.int32)
    found = with_everything_in_one({"seg": drawn}, {"seg": law}, which)["seg"]
    assert found.shape == drawn.shape
    assert found.dtype == drawn.dtype
    assert set(np.unique(found)) <= {2, 7} or (ends and length < 2)
    assert (np.diff(found, axis=-1) >= 0).all()
    if ends and length > 1:
        assert (found[:, 0] == 2).all()
        assert (found[:, -1] == 7).all()


@pytest.mark.parametrize(
    ("which", "ends", "wanted"),
    [
        ("first", False, [9, 9, 9, 9]), ("halves", False, [0, 0, 9, 9]), ("last", False, [0, 0, 0, 0]),
        ("first", True, [0, 9, 9, 9]), ("halves", True, [0, 0, 9, 9]), ("last", True, [0, 0, 0, 9]),
    ],
)  # fmt: skip
def test_one_has_everything(which: Together, ends: bool, wanted: list[int]) -> None:
    arrays = {"seg": np.array([0, 3, 3, 9]), "x": np.arange(4.0)}
    found = with_everything_in_one(arrays, {"seg": Distribution("ascending", 0, 9, ends=ends)}, which)
    assert found["seg"].tolist() == wanted
    assert found["x"] is arrays["x"]
    assert arrays["seg"].tolist() == [0, 3, 3, 9]


@pytest.mark.parametrize("more", [{"apart": 3}, {"distinct": True}], ids=str)
def test_neighbours_with_a_declared_distance_and_those_that_differ_stay(more: dict[str, Any]) -> None:
    arrays = {"seg": np.array([0, 3, 5, 8])}
    law = Distribution("ascending", 0, 9, **more)
    assert with_everything_in_one(arrays, {"seg": law}, "last")["seg"] is arrays["seg"]
