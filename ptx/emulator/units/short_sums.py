"""How Hopper's tensor cores add products of 8-bit floats: aligned to the largest, and cut off some 13 bits behind it.

NVIDIA documents no width. Of H100 it is reported that the 32 products of an instruction and the accumulator are shifted
to the largest of their exponents and cut off towards zero (DeepSeek-V3 Technical Report, 2024, 3.3.2).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Bits behind the leading one of the largest number.
BITS = 13

Floats = NDArray[np.float64]


def short_sum(left: Floats, right: Floats, old: Floats) -> Floats:
    """(groups, m, n) sums of the products of (groups, m, k) and (groups, k, n), and of what was there before.

    >>> one, tiny = np.ones((1, 1, 1)), np.full((1, 1, 1), 2.0**-14)
    >>> float(short_sum(one, tiny, one)[0, 0, 0] - 1)  # the product lies below the last bit that is kept
    0.0
    >>> float(short_sum(one, 2 * tiny, one)[0, 0, 0] - 1) == 2.0**-13
    True
    """
    products = left[:, :, :, None] * right[:, None, :, :]
    terms = np.concatenate([products, old[:, :, None, :]], axis=2)
    size = np.abs(terms)
    largest = np.max(np.where(np.isfinite(size), size, 0.0), axis=2, keepdims=True)
    _, exponent = np.frexp(largest)  # largest is below 2^exponent
    unit = np.ldexp(1.0, exponent - 1 - BITS)
    kept = np.where(np.isfinite(terms), np.trunc(terms / unit) * unit, terms)
    return np.asarray(kept.sum(axis=2))
