"""How Hopper's wgmma adds products of 8-bit floats: in steps of 32, with some 13 bits behind the leading one.

The products of a step and what has been added so far are shifted to the largest of their exponents, cut off 13 bits
behind its leading one, and added (DeepSeek-V3 Technical Report, 3.3.2: "about 14 bits"; the width is measured, not
documented by NVIDIA). Of 33 numbers each loses less than 2^-13 of the largest.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tinygpu.ptx.bounds.enclosure import Values

STEP, BITS = 32, 13


def short_sum_error(function: Callable[..., Values], a: Values, b: Values, size: Values) -> Values:
    """Largest error, per element of a product of two matrices.

    size  sums of the absolute values of the products: what partial sums can reach where `function` is another product

    >>> a, b = np.ones((1, 64)), np.ones((64, 1))
    >>> float(short_sum_error(np.matmul, a, b, a @ b)[0, 0] * 2**13 / (2 * 33))  # two steps, numbers up to 128 and 1
    129.0
    """
    if function is not np.matmul or a.ndim != 2 or b.ndim != 2:
        terms = max(a.size * b.size / max(size.size, 1), 1) ** 0.5
        return np.asarray(-(-terms // STEP) * (STEP + 1) * 2.0**-BITS * size)
    steps = -(-a.shape[1] // STEP)
    so_far, most = np.zeros(size.shape), np.zeros(size.shape)
    with np.errstate(all="ignore"):
        for start in range(0, a.shape[1], STEP):
            so_far = so_far + a[:, start : start + STEP] @ b[start : start + STEP]
            most = np.fmax(most, np.abs(so_far))
        product = np.max(np.abs(a), axis=1, initial=0)[:, None] * np.max(np.abs(b), axis=0, initial=0)
        # CTAs that share a tile begin anywhere: what they add is a difference of two sums from the start
        return np.asarray(steps * (STEP + 1) * 2.0**-BITS * (2 * most + product))
