"""Whole numbers in outputs of float types: a kernel may have worked them out in single precision.

A reference makes of integers what integers are, in 64 bits, and nothing of that is rounded. A kernel that converts its
inputs first, as one does for `x * x * x` in f32, is right all the same: up to 2^24 to the last bit, and beyond as exact
as single precision is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tinygpu.dtypes import DType
from tinygpu.ptx.bounds.answers import Answer
from tinygpu.users_code import UsersCodeError

# Single precision has all whole numbers up to here.
_WHOLE = 2.0**24


def in_floats(
    found: Mapping[str, Answer],
    types: Mapping[str, DType],
    arguments: Mapping[str, Any],
    answered: Callable[[Mapping[str, Any]], Mapping[str, Answer]],
) -> dict[str, Answer]:
    """The answers, those of whole numbers beyond 2^24 in outputs of float types with what rounding makes of the same in
    floats.

    found      of the reference, given integers as such
    types      of the outputs
    arguments  of the reference
    answered   what it makes of others; a reference that wants integers, as places of elements, has no others
    """
    large = {name: _is_large(types[name], a) for name, a in found.items()}
    if not any(np.any(there) for there in large.values()):
        return dict(found)
    try:
        floats = answered({name: _as_float(value) for name, value in arguments.items()})
    except UsersCodeError:
        return dict(found)
    return {name: _loosened(a, floats[name], large[name]) for name, a in found.items()}


def _as_float(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind not in "iu":
        return value
    return array.astype(np.float64) if array.ndim else float(value)


def _is_large(kind: DType, answer: Answer) -> Any:
    """Where whole numbers are beyond what single precision has."""
    exact = answer.value.dtype.kind in "iu" and not answer.followed
    return np.abs(answer.value.astype(np.float64)) > _WHOLE if exact and kind.is_float and kind.name != "f64" else False


def _loosened(answer: Answer, floats: Answer, large: Any) -> Answer:
    if floats.followed or not np.any(large):
        return answer
    low, high = np.where(large, floats.low, answer.low), np.where(large, floats.high, answer.high)
    return replace(answer, value=answer.value.astype(np.float64), low=low, high=high)
