"""Floats that a reference makes itself, of sizes and constants, as `(2 * np.arange(n) + 1) / (2 * n)` does.

A kernel makes them, too, in its own arithmetic, and what the reference did on the way is not seen. So they are known as
well as one function is, within eight roundings. And they may be differences of larger ones, as the weights of an
interpolation are: of numbers up to 1, or up to 64 times the largest of them. They are known within 32 roundings of
these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.bounds.enclosure import Enclosure, enclosed, exactly

OF_THE_NUMBER, OF_LARGER, TIMES = 8, 32, 64


def of_sizes(value: Any, rounding: Rounding) -> Enclosure:
    """An array that is none of the inputs, nor made of them.

    Single numbers, and numbers all of which single precision holds, are as the reference writes them.
    """
    held = exactly(value)
    if held.value.ndim == 0 or held.value.dtype.kind != "f" or held.quantum:
        return held
    finite = np.where(np.isfinite(held.value), held.value, 0.0)
    with np.errstate(over="ignore"):
        if np.array_equal(finite, finite.astype(np.float32)):
            return held
    size = np.abs(finite)
    off = rounding.of_its_own * np.maximum(OF_THE_NUMBER * size, OF_LARGER * min(TIMES * float(np.max(size)), 1.0))
    return enclosed(held.value, held.value - off, held.value + off, rounding.largest, marks=frozenset())
