"""References that cannot be followed: what is estimated is each element's own, whatever a few others are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.bounds.sensitivity import sensitivity


def bound_of(x: Any, function: Any) -> Any:
    return sensitivity(lambda a: {"y": function(a["x"])}, {"x": x}, Rounding(exact=False))["y"]


@pytest.mark.parametrize("extreme", [3.4e38, 1000.0, np.inf, np.nan])
def test_extreme_numbers_do_not_excuse_their_neighbours(extreme: float) -> None:
    x = np.random.default_rng(0).uniform(-1, 1, 200)
    x[::10] = extreme
    with np.errstate(all="ignore"):
        bound = bound_of(x, lambda x: np.sqrt(np.abs(x)) * 2)
    random = np.arange(200) % 10 != 0
    assert bound[random].max() < 2.0**-16
    assert bound[random].min() > 0


def test_what_did_not_change_is_given_what_others_did() -> None:
    x = np.random.default_rng(0).uniform(0.5, 1, 200)
    x[50:60] = 0.0
    bound = bound_of(x, lambda x: x)
    assert (bound[50:60] > 2.0**-24).all()
    assert (bound_of(np.zeros(9), lambda x: x) == 0).all()
