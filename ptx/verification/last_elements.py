"""Whole numbers of which the last along each axis is the largest of its line, or the least, in turn.

A loop that ends an element too early loses the last one, and of a largest or a least result nothing else shows that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.distributions import Distribution
from tinygpu.language.problem import Problem
from tinygpu.ptx.verification.signs import signed_operands


def with_last_elements(
    problem: Problem, arrays: Mapping[str, NDArray[Any]], declared: Mapping[str, Distribution], other: bool
) -> dict[str, NDArray[Any]]:
    """The arrays, with last elements as far from zero as any number of theirs, and none of the others as far.

    What has numbers of one sign only, is listed, sorted or definite, or of a type narrower than a byte stays as it is.

    other  the last of the first line is the least, and not the largest
    """
    out = dict(arrays)
    for o in signed_operands(problem, declared):
        if o.name not in arrays or not arrays[o.name].size:
            continue
        wide = arrays[o.name].astype(np.float64)
        most = max(float(np.abs(wide).max()), 1.0)
        least, greatest = (-most, most) if o.name not in declared else declared[o.name].ends_drawn
        wide = np.clip(wide, 1 - most, most - 1)
        for axis in range(wide.ndim):
            last = np.moveaxis(wide, axis, -1)[..., -1]
            turns = (np.arange(last.size).reshape(last.shape) + other) % 2
            np.moveaxis(wide, axis, -1)[..., -1] = np.where(turns, max(-most, least), min(most, greatest))
        out[o.name] = wide.astype(o.dtype.numpy)
    return out
