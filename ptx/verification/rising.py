"""Random numbers that rise along every axis, from next to nothing to large ones.

What a kernel does only where a line outgrows all before it, as scaling sums anew, happens with these at nearly every
tile; among numbers drawn alike the first tile has as large ones as any other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.distributions import Distribution
from tinygpu.language.problem import Problem
from tinygpu.ptx.verification.encoded import encoded

# The powers of two between the least and the largest factor.
_OCTAVES = 10
# Laws of which numbers nearer to zero, or to the least, are as good as others.
_SHRINKS = ("uniform", "normal", "magnitudes")


def with_rising(
    problem: Problem, arrays: Mapping[str, NDArray[Any]], declared: Mapping[str, Distribution]
) -> dict[str, NDArray[Any]]:
    """The arrays, with numbers of float types rising along every axis.

    Those of which nothing is declared rise from 2^-5 to 2^5 times what was drawn; of those with declared ends the last
    are as they were drawn, and those before them nearer to zero, or to the least where zero is none of them. What is
    listed, sorted, whole by declaration or definite stays as it is.
    """
    out = dict(arrays)
    for o in problem.operands:
        law = declared.get(o.name)
        if o.name not in arrays or not o.dtype.is_float or o.dtype.bits < 8 or not arrays[o.name].size:
            continue
        if law is not None and law.law not in _SHRINKS:
            continue
        drawn = arrays[o.name].astype(np.float64)
        octaves = _OCTAVES * (_along(drawn.shape) - (0.5 if law is None else 1.0))
        nearest = 0.0 if law is None or law.low <= 0 <= law.high else law.low
        risen = nearest + (drawn - nearest) * np.exp2(octaves)
        out[o.name] = encoded(risen, law, o.dtype)
    return out


def _along(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """From 0 at the first element to 1 at the last: how far along the axes with several elements it lies, together."""
    long = [axis for axis, extent in enumerate(shape) if extent > 1]
    found = np.ones(shape) if not long else np.zeros(shape)
    for axis in long:
        part = np.linspace(0.0, 1.0, shape[axis]) / len(long)
        found = found + part.reshape([-1 if a == axis else 1 for a in range(len(shape))])
    return found
