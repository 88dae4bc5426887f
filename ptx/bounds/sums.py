"""Error of sums, products of matrices, and all else that is linear in each of its operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.bounds.enclosure import Enclosure, Values, between, enclosed, exactly, marks_of
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
        if len(operands) == 1 and value.dtype.kind in "iub":
            return between(value, np.asarray(function(operands[0].low)), np.asarray(function(operands[0].high)), marks)
        quanta = [o.quantum for o in operands]
        quantum = math.prod(quanta) if of_products else min(quanta)
        quantum = quantum if quantum >= rounding.smallest else 0.0
        if quantum and of_products and terms * _largest(operands) <= quantum * rounding.whole:
            return exactly(value, quantum, marks)
        sizes, radii = [_finite(np.abs(o.value)) for o in operands], [_radius(o) for o in operands]
        size = np.asarray(function(*sizes))
        if quantum:
            if np.max(size, initial=0) <= quantum * rounding.whole:
                return exactly(value, quantum, marks)
            marks |= {"outgrown"}
        error = np.zeros(value.shape)
        if not exact:
            apart = zip(operands, sizes, radii, strict=True)
            reaches = [size if r is None else _finite(np.abs(o.value) + r) for o, size, r in apart]
            reach = np.asarray(function(*reaches))
            error, size = reach - size, reach
        # of terms that are all zero nothing is rounded
        error = error + rounding.sum(terms) * size + np.where(size == 0, 0.0, terms * rounding.smallest)
        if rounding.short_sums and len(operands) == 2:
            error = error + short_sum_error(function, operands[0].value, operands[1].value, size)
        low, high, unknown = _with_specials(function, operands, radii, of_products, value, size > rounding.largest)
        low, high = np.where(np.isfinite(value), value - error, low), np.where(np.isfinite(value), value + error, high)
    return replace(enclosed(value, low, high, rounding.largest, unknown, marks=marks), terms=terms, span=size)


def _largest(operands: Sequence[Enclosure]) -> float:
    """The largest product of one element of every operand."""
    return math.prod(float(np.max(np.abs(o.value), initial=0)) for o in operands)


def _with_specials(
    function: Callable[..., Values],
    operands: Sequence[Enclosure],
    radii: Sequence[Values | None],
    of_products: bool,
    value: Values,
    unknown: Values,
) -> tuple[Values, Values, Values]:
    """(low, high, where nothing can be said) of sums with terms that are infinite or no number.

    radii    of the operands
    unknown  where finite terms may overflow
    """
    low = high = value
    pairs = list(zip(operands, radii, strict=True))
    loose = [np.False_ if r is None else ~(np.isfinite(r) | np.isnan(o.value)) for o, r in pairs]
    if all(np.isfinite(o.value).all() for o in operands) and not any(mask.any() for mask in loose):
        return low, high, unknown
    missing = [np.isnan(o.value) & np.isnan(o.low) & np.isnan(o.high) for o in operands]
    shapes = [o.value.shape for o in operands]
    nan, anything = (_touches(function, shapes, masks, of_products, value.shape) for masks in (missing, loose))
    if of_products and len(operands) > 1 and any(r is not None for r in radii):  # infinity times what may be zero
        anything = anything | ~np.isfinite(value)
    return low, high, np.asarray((unknown | anything) & ~nan)


def _touches(
    function: Callable[..., Values],
    shapes: Sequence[tuple[int, ...]],
    masks: Sequence[NDArray[np.bool_] | np.bool_],
    of_products: bool,
    shape: tuple[int, ...],
) -> NDArray[np.bool_]:
    """Results, of `shape`, with a term of which a factor is marked, or that is marked itself.

    shapes  of the operands
    """
    found = np.zeros(shape, dtype=bool)
    for i, mask in enumerate(masks):
        if mask.any():
            others = [np.ones(s) if of_products else np.zeros(s) for s in shapes]
            found |= np.asarray(function(*others[:i], mask.astype(np.float64), *others[i + 1 :])) > 0
    return found


def _radius(o: Enclosure) -> Values | None:
    """How far each element may be off, 0 where an infinity is certain; None where all are exact."""
    if o.exact:
        return None
    off = np.maximum(o.high - o.value, o.value - o.low)
    return np.where((o.low == o.value) & (o.high == o.value), 0.0, np.where(np.isnan(o.value), np.inf, off))


def _finite(values: Values) -> Values:
    return np.where(np.isfinite(values), values, 0.0) if values.dtype.kind == "f" else values
