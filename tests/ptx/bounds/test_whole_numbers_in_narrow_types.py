"""Whole numbers that a reference rounds to a narrower type are those of NumPy, and known exactly."""

import ml_dtypes
import numpy as np
import pytest

from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.bounds.array import Enclosed
from tinygpu.ptx.bounds.enclosure import exactly


@pytest.mark.parametrize("to", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_whole_numbers_are_rounded_as_numpy_rounds_them(to: type) -> None:
    """Also beyond those that the type holds: what a kernel leaves in 16 bits between two steps is rounded."""
    values = np.arange(-5000, 5000, 7)
    found = Enclosed(exactly(values.astype(np.float64)), Rounding(True)).astype(to).enclosure
    assert found.exact
    assert (found.value == values.astype(to).astype(np.float64)).all()
