"""Error of sums, products of matrices, and all else that is linear in each of its operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.bounds.enclosure import Enclosure, Values, enclosed, exactly, marks_of
from tinygpu.ptx.bounds.short_sums import short_sum_error


def linear(
    function: Callable[..., Values],
    operands: Sequence[Enclosure],
    terms: float,
    rounding: Rounding,
    *,
    of_products: bool = False,
) -> Enclosure:
    """A function that is linear in each operand, with coefficients that are not negative.

    terms        terms of its longest sum
    of_products  each term is a product of one element of every operand
    """
    marks = marks_of(*operands)
    with np.errstate(all="ignore"):
        value = np.asarray(function(*[o.value for o in operands]))
        exact = all(o.exact for o in operands)
        if exact and value.dtype.kind in "iub":
            return exactly(value, 1.0, marks)
        quanta = [o.quantum for o in operands]
        quantum = math.prod(quanta) if of_products else min(quanta)
        quantum = quantum if quantum >= rounding.smallest else 0.0
        if quantum and of_products and terms * _largest(operands) <= quantum * rounding.whole:
            return exactly(value, quantum, marks)
        sizes = [_finite(np.abs(o.value)) for o in operands]
        size = np.asarray(function(*sizes))
        if quantum:
            if np.max(size, initial=0) <= quantum * rounding.whole:
                return exactly(value, quantum, marks)
            marks |= {"outgrown"}
        error = np.zeros(value.shape)
        if not exact:
            reach = np.asarray(function(*[_finite(np.abs(o.value) + _radius(o)) for o in operands]))
            error, size = reach - size, reach
        error = error + rounding.sum(terms) * size + terms * rounding.smallest
        if rounding.short_sums and len(operands) == 2:
            error = error + short_sum_error(function, operands[0].value, operands[1].value, size)
        low, high, unknown = _with_specials(function, operands, value, size > rounding.largest)
        low, high = np.where(np.isfinite(value), value - error, low), np.where(np.isfinite(value), value + error, high)
    return replace(enclosed(value, low, high, rounding.largest, unknown, marks=marks), terms=terms)


def _largest(operands: Sequence[Enclosure]) -> float:
    """The largest product of one element of every operand."""
    return math.prod(float(np.max(np.abs(o.value), initial=0)) for o in operands)


def _with_specials(
    function: Callable[..., Values], operands: Sequence[Enclosure], value: Values, unknown: Values
) -> tuple[Values, Values, Values]:
    """(low, high, where nothing can be said) of sums with terms that are infinite or no number.

    unknown  where finite terms may overflow
    """
    low = high = value
    if all(np.isfinite(o.value).all() and (o.exact or np.isfinite(_radius(o)).all()) for o in operands):
        return low, high, unknown
    nan = _touches(function, operands, [np.isnan(o.value) & np.isnan(o.low) & np.isnan(o.high) for o in operands])
    loose = _touches(function, operands, [~(np.isfinite(_radius(o)) | np.isnan(o.value)) for o in operands])
    if not all(o.exact for o in operands):  # infinity times what may be zero
        loose |= ~np.isfinite(value)
    return low, high, np.asarray((unknown | loose) & ~nan)


def _touches(function: Callable[..., Values], operands: Sequence[Enclosure], masks: Sequence[Values]) -> Values:
    """Results with a term of which a factor is marked."""
    found = []
    for i, mask in enumerate(masks):
        ones = [np.ones(o.value.shape) for o in operands]
        ones[i] = mask.astype(np.float64)
        found.append(np.asarray(function(*ones)) > 0)
    return np.asarray(np.logical_or.reduce(found))


def _radius(o: Enclosure) -> Values:
    """How far each element may be off; 0 where it is exact, an infinity included."""
    if o.exact:
        return np.zeros(o.value.shape)
    off = np.maximum(o.high - o.value, o.value - o.low)
    return np.where((o.low == o.value) & (o.high == o.value), 0.0, np.where(np.isnan(o.value), np.inf, off))


def _finite(values: Values) -> Values:
    return np.where(np.isfinite(values), values, 0.0) if values.dtype.kind == "f" else values
