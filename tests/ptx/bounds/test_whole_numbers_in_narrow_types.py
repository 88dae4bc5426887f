"""Whole numbers that a reference rounds to a narrower type are those of NumPy, and known exactly."""

from typing import Any

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


def test_u32_counts_modulo_two_to_the_32_as_numpy_does() -> None:
    values = np.array([0, 1, 3, 64, 2**31, 2**32 - 1, 12345678901], dtype=np.int64)
    held = Enclosed(exactly(values), Rounding(True))

    def hashed(x: Any) -> Any:
        x = x.astype(np.uint32)
        return ((x ^ (x >> np.uint32(16))) * np.uint32(0x45D9F3B)) % np.uint32(37)

    assert np.array_equal(hashed(held).enclosure.value, hashed(values))
    assert hashed(held).enclosure.exact
    assert np.array_equal((held.astype(np.int32) * 3).enclosure.value, values.astype(np.int32).astype(np.int64) * 3)


def test_u64_stays_u64_and_scalars_beside_arrays_have_no_type() -> None:
    """As in NumPy, where a Python number takes the type of the array that it is combined with."""
    values = np.arange(7)
    held, seed = (Enclosed(exactly(v), Rounding(True)) for v in (values, 12345))

    def upper(x: Any, seed: Any) -> Any:
        product = x.astype(np.uint64) * np.uint64(0xD256D193)
        return ((product >> np.uint64(32)) ^ (seed + 0x9E3779B9 * 3) % 2**32) % np.uint64(2**32)

    found = upper(held, seed).enclosure
    assert found.exact
    assert found.value.dtype == np.uint64
    assert np.array_equal(found.value, upper(values, 12345))
