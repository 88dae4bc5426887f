"""Numbers as elements: what a result becomes in the type of the tile that it goes to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import DType

Array = NDArray[Any]


def as_elements(values: Any, kind: DType) -> Array:
    """The values in an element type: floats are rounded once, to nearest even; integers wrap around.

    Conversions that saturate, or round otherwise, are instructions with a meaning of their own.
    """
    array = np.asarray(values)
    if array.dtype == kind.numpy:
        return array
    if kind.is_float or array.dtype.kind in "iu":
        return array.astype(kind.numpy)
    return np.rint(array.astype(np.float64)).astype(np.int64).astype(kind.numpy)


def number(value: float, kind: DType) -> Array:
    """(0 axes) one number as an element."""
    return as_elements(np.asarray(value), kind)
