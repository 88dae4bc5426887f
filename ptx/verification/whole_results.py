"""Whole numbers in outputs of float types: a kernel may have worked them out in single precision.

A reference makes of integers what integers are, in 64 bits, and nothing of that is rounded. A kernel that converts its
inputs first, as one does for `x * x * x` in f32, is right all the same: up to 2^24 to the last bit, and beyond as exact
as single precision is. What a reference wants as integers, as places of elements, it is given as such.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tinygpu.dtypes import DType
from tinygpu.ptx.bounds.answers import Answer
from tinygpu.users_code import UsersCodeError

Answered: TypeAlias = Callable[[Mapping[str, Any]], Mapping[str, Answer]]

# Single precision has all whole numbers up to here.
_WHOLE = 2.0**24


def in_floats(
    found: Mapping[str, Answer],
    types: Mapping[str, DType],
    arguments: Mapping[str, Any],
    answered: Answered,
) -> dict[str, Answer]:
    """The answers, those of whole numbers beyond 2^24 in outputs of float types with what rounding makes of the same in
    floats.

    found      of the reference, given integers as such
    types      of the outputs
    arguments  of the reference
    answered   what it makes of others
    """
    large = {name: _is_large(types[name], a) for name, a in found.items()}
    if not any(np.any(there) for there in large.values()):
        return dict(found)
    floats = _of_floats(arguments, answered)
    return dict(found) if floats is None else {n: _loosened(a, floats[n], large[n]) for n, a in found.items()}


def _of_floats(arguments: Mapping[str, Any], answered: Answered) -> Mapping[str, Answer] | None:
    """The answers of integers given as floats, all of them or as many as the reference takes so; None where it takes
    none.
    """
    whole = [name for name, value in arguments.items() if np.asarray(value).dtype.kind in "iu"]

    def given(names: Collection[str]) -> Mapping[str, Answer] | None:
        try:
            found = answered({name: _as_float(v) if name in names else v for name, v in arguments.items()})
        except UsersCodeError:
            return None
        return None if any(answer.followed for answer in found.values()) else found

    found = given(whole)
    if found is not None:
        return found
    taken = [name for name in whole if given([name]) is not None]
    return given(taken) if taken else None


def _as_float(value: Any) -> Any:
    array = np.asarray(value)
    return array.astype(np.float64) if array.ndim else float(value)


def _is_large(kind: DType, answer: Answer) -> Any:
    """Where whole numbers are beyond what single precision has."""
    exact = answer.value.dtype.kind in "iu" and not answer.followed
    return np.abs(answer.value.astype(np.float64)) > _WHOLE if exact and kind.is_float and kind.name != "f64" else False


def _loosened(answer: Answer, floats: Answer, large: Any) -> Answer:
    if not np.any(large):
        return answer
    low, high = np.where(large, floats.low, answer.low), np.where(large, floats.high, answer.high)
    return replace(answer, value=answer.value.astype(np.float64), low=low, high=high)
