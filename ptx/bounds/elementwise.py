"""Error of element-wise functions: what they make of the ends of their operands, and what they add themselves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tinygpu.ptx.bounds.arithmetic import CIRCULAR, LOGARITHM, Rounding
from tinygpu.ptx.bounds.enclosure import CannotBound, Enclosure, Values, between, enclosed, exactly, marks_of

# Nothing is rounded, and results are multiples of what operands are.
_PLAIN = frozenset(
    {
        "negative", "positive", "absolute", "fabs", "maximum", "minimum", "fmax", "fmin", "rint", "floor", "ceil",
        "trunc", "sign", "copysign", "heaviside", "conjugate",
    }
)  # fmt: skip
# Of these, what makes whole numbers.
_WHOLE = frozenset({"rint", "floor", "ceil", "trunc", "sign"})
# Exact while numbers are small, of multiples of a power of two.
_SUMS = frozenset({"add", "subtract"})
_PRODUCTS = frozenset({"multiply", "square"})
_LOGICAL = frozenset(
    {
        "greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "logical_and", "logical_or",
        "logical_not", "logical_xor", "isnan", "isinf", "isfinite", "signbit",
    }
)  # fmt: skip
# The same, of truth values.
_OF_BITS = frozenset({"bitwise_and", "bitwise_or", "bitwise_xor", "invert"})
# Of whole numbers: what lies between the ends of the operands gives what lies between the results of these.
_MONOTONE = frozenset(
    {"add", "subtract", "multiply", "negative", "maximum", "minimum", "left_shift", "right_shift", "sign"}
)
# What these add beside a relative error, in units of 1.
_ABSOLUTE = {
    "log": LOGARITHM, "log2": LOGARITHM, "log10": LOGARITHM, "log1p": LOGARITHM, "expm1": LOGARITHM,
    "logaddexp": LOGARITHM, "logaddexp2": LOGARITHM, "sin": CIRCULAR, "cos": CIRCULAR, "tan": CIRCULAR,
}  # fmt: skip
# Functions whose argument a kernel may scale first: exp(x) as ex2(x * log2(e)).
_SCALED = frozenset({"exp", "exp2", "expm1", "sin", "cos", "tan", "sinh", "cosh", "tanh", "logaddexp"})
# Not monotone, however close the ends are.
_JUMPING = frozenset({"remainder", "fmod"})
_NOT_NEGATIVE = frozenset({"sqrt", "log", "log2", "log10"})


def apply(ufunc: np.ufunc, operands: Sequence[Enclosure], rounding: Rounding) -> Enclosure:
    """One element-wise function of arrays with error."""
    name = ufunc.__name__
    if ufunc.nout != 1:
        raise CannotBound(f"calls {name}, which has several results")
    marks = marks_of(*operands)
    with np.errstate(all="ignore"):
        value = np.asarray(ufunc(*_values(operands)))
        if name == "power" and value.dtype.kind in "iu" and _wraps(operands):
            marks |= {"wrapped"}
        exact, least = all(o.exact for o in operands), min(o.quantum for o in operands)
        if exact and (value.dtype.kind in "iub" or name in _PLAIN):
            return exactly(value, 1.0 if value.dtype.kind != "f" or name in _WHOLE else least, marks)
        kinds = {o.value.dtype.kind for o in operands}
        if name in _LOGICAL or (name in _OF_BITS and kinds == {"b"}):
            corners = [ufunc(*ends) for ends in itertools.product(*[o.ends for o in operands])]
            return between(value, np.logical_and.reduce(corners), np.logical_or.reduce(corners), marks)
        if kinds <= set("iub") and (name in _MONOTONE or (name == "bitwise_or" and _not_negative(operands))):
            return between(value, *_whole_ends(ufunc, operands), marks)
        if value.dtype.kind != "f" or name in _JUMPING:
            raise CannotBound(f"calls {name} on values that are rounded")
        if name in _SUMS | _PRODUCTS and least:
            quantum = _quantum(name, operands)
            size = value if name in _PRODUCTS else operands[0].size + operands[1].size
            if quantum >= rounding.smallest and np.max(np.abs(size), initial=0) <= quantum * rounding.whole:
                return exactly(value, quantum, marks)
            marks |= {"outgrown"}
        scaled = _scales(name, operands, rounding)
        if scaled and exact and _normal(value, rounding).all():
            return exactly(value, None if least else 0.0, marks)
        low, high, unknown = _corners(ufunc, _widened(name, operands, rounding), value)
        for o in operands:  # what may be no number stays so, whatever is done to it
            unknown = unknown | o.unknown
        if name in _PLAIN:
            found = enclosed(value, low, high, rounding.largest, unknown, marks=marks)
            (*_, o) = operands
            return replace(found, terms=o.terms, span=o.span) if name == "negative" else found
        low, high = _rounded(name, operands, low, high, rounding, scaled)
        low, high = _begun(name, operands, low, high, rounding)
        span = _span(operands) if name in _SUMS else None
        if span is not None and any(o.span is not None for o in operands):  # three terms or more come in any order
            low, high = low - 2 * rounding.unit * span, high + 2 * rounding.unit * span
            unknown = unknown | (span > rounding.largest) & ~np.isnan(value)
    if name not in _SUMS | _PRODUCTS and not scaled and not _by_constant(name, operands):
        marks |= {"approximated"}
    found = enclosed(value, low, high, rounding.largest, unknown, marks=marks)
    return replace(found, terms=_terms(operands), span=span) if name in _SUMS else found


def _terms(operands: Sequence[Enclosure]) -> float:
    """Terms of a sum of sums, which a kernel may add one by one; 0 where none of them is a sum of many."""
    return sum(o.terms or 1 for o in operands) if any(o.terms for o in operands) else 0


def _span(operands: Sequence[Enclosure]) -> Values:
    """The absolute values of all terms of a sum together, those of sums among them too."""
    return np.asarray(np.add(*(o.reach for o in operands)))


def where(condition: Enclosure, chosen: Enclosure, other: Enclosure) -> Enclosure:
    """Elements of one array or of another; of both, where the condition hangs on how its operands are rounded."""
    value = np.where(condition.value, chosen.value, other.value)
    quantum = min(chosen.quantum, other.quantum)
    marks = marks_of(condition, chosen, other)
    if condition.exact and chosen.exact and other.exact:
        return exactly(value, quantum, marks)
    always, never = condition.low.astype(bool), ~condition.high.astype(bool)
    low = np.where(always, chosen.low, np.where(never, other.low, np.minimum(chosen.low, other.low)))
    high = np.where(always, chosen.high, np.where(never, other.high, np.maximum(chosen.high, other.high)))
    if value.dtype.kind in "iub":
        return between(value, low, high, marks)
    return enclosed(value, low, high, np.inf, marks=marks)


def _values(operands: Sequence[Enclosure]) -> list[Any]:
    """The values; of whole numbers beside arrays a single one is a number without a type, as scalars are to NumPy."""
    arrays = any(o.value.ndim for o in operands)
    return [o.value.item() if arrays and not o.value.ndim and o.value.dtype.kind in "iu" else o.value for o in operands]


def _wraps(operands: Sequence[Enclosure]) -> bool:
    """Whether a power of whole numbers has no place in 64 bits; products, as those of hashes, may be meant so."""
    base, exponent = (o.value.astype(np.float64) for o in operands)
    return bool((np.abs(base) ** exponent >= 2.0**63).any())


def _not_negative(operands: Sequence[Enclosure]) -> bool:
    return all(bool((o.low >= 0).all()) for o in operands)


def _whole_ends(ufunc: np.ufunc, operands: Sequence[Enclosure]) -> tuple[Values, Values]:
    """The least and the greatest whole number; of bits together, at least the larger number, and at most the sum."""
    if ufunc is np.bitwise_or:
        (a, b), (c, d) = ((o.low, o.high) for o in operands)
        sure = (a == b) & (c == d)
        return np.where(sure, a | c, np.maximum(a, c)), np.where(sure, a | c, b + d)
    corners = [np.asarray(ufunc(*ends)) for ends in itertools.product(*[o.ends for o in operands])]
    return np.minimum.reduce(corners), np.maximum.reduce(corners)


def _widened(name: str, operands: Sequence[Enclosure], rounding: Rounding) -> list[tuple[Values, ...]]:
    """The ends of the operands, which a kernel may have scaled, or kept from becoming negative."""
    ends = [o.ends for o in operands]
    if name in _SCALED:
        more = 4 * rounding.unit
        ends = [_apart(e[0], e[-1], more * np.abs(e[0]), more * np.abs(e[-1])) for e in ends]
    if name in _NOT_NEGATIVE:
        (o,) = operands
        ends = [tuple(np.where((o.value >= 0) & (e < 0), 0.0, e) for e in ends[0])]
    return ends


def _begun(
    name: str, operands: Sequence[Enclosure], low: Values, high: Values, rounding: Rounding
) -> tuple[Values, Values]:
    """The ends of a sum to which more is added: a kernel may begin with that, and round every term beside it."""
    if name in _SUMS:
        for o, other in (operands, operands[::-1]):
            if o.terms:
                more = rounding.sum(o.terms) * np.where(np.isfinite(other.size), other.size, 0.0)
                low, high = low - more, high + more
    return low, high


def _corners(ufunc: np.ufunc, ends: Sequence[tuple[Values, ...]], value: Values) -> tuple[Values, Values, Values]:
    """(least, greatest, where nothing can be said): what ends come to, and what lies between them where they turn."""
    name = ufunc.__name__
    corners: list[tuple[Values, ...]] = []
    if name in _SUMS:  # the least of all is of the least ends, or of the greatest of what is taken away
        (a, b), (c, d) = ((e[0], e[-1]) for e in ends)
        corners += [(a, c), (b, d)] if name == "add" else [(a, d), (b, c)]
    else:
        corners += itertools.product(*[_either_sign(e) for e in ends] if name == "divide" else ends)
    low = high = value
    for corner in corners:
        found = np.asarray(ufunc(*corner))
        low, high = np.minimum(low, found), np.maximum(high, found)
    unknown = np.asarray(np.isnan(low))
    if unknown.any():  # not where no corner is a number, and the value is none either
        never = np.logical_and.reduce([np.isnan(ufunc(*corner)) for corner in corners])
        unknown = unknown & ~(never & np.isnan(value))
    if name in ("absolute", "fabs", "square", "cosh"):
        (both,) = ends
        spans = (both[0] < 0) & (both[-1] > 0)
        low = np.where(spans, np.minimum(low, ufunc(0.0)), low)
    elif name in ("sin", "cos"):
        (both,) = ends
        crest = np.pi / 2 if name == "sin" else 0.0
        high = np.where(_passes(both, crest, 2 * np.pi), 1.0, high)
        low = np.where(_passes(both, crest - np.pi, 2 * np.pi), -1.0, low)
    elif name == "tan":
        unknown = unknown | _passes(ends[0], np.pi / 2, np.pi)
    elif name in ("arcsin", "arccos", "arctanh"):
        # Numbers between -1 and 1 alone; ends on both sides of that say nothing of what lies between them.
        least, most = ends[0][0], ends[0][-1]
        unknown = unknown | (least < 1) & (most > -1) & ((least < -1) | (most > 1))
    elif name == "arctan2":
        turns = np.broadcast_to(_spans_zero(ends[0]) & (ends[1][0] < 0), value.shape)
        low, high = np.where(turns, -np.pi, low), np.where(turns, np.pi, high)
    elif name == "hypot":
        inner = [np.where(_spans_zero(e), 0.0, np.minimum(np.abs(e[0]), np.abs(e[-1]))) for e in ends]
        low = np.minimum(low, np.hypot(*inner))
    elif name == "copysign":
        spans = _spans_zero(ends[0])
        low, high = np.where(spans, np.minimum(low, 0.0), low), np.where(spans, np.maximum(high, 0.0), high)
    elif name in ("divide", "reciprocal", "floor_divide"):
        unknown = unknown | np.broadcast_to(_spans_zero(ends[-1]), value.shape)
    elif name in ("power", "float_power"):
        spans = _spans_zero(ends[0])
        low, high = np.where(spans, np.minimum(low, 0), low), np.where(spans, np.maximum(high, 0), high)
        unknown = unknown | np.broadcast_to(spans & (ends[1][0] < 0), value.shape)
    return low, high, unknown


def _either_sign(ends: tuple[Values, ...]) -> tuple[Values, ...]:
    """The ends, of zeros that were worked out one of either sign: what is divided by them has either, too."""
    nothing = (ends[0] == 0) & (ends[-1] == 0)
    if len(ends) < 2 or not nothing.any():
        return ends
    return np.where(nothing, -0.0, ends[0]), np.where(nothing, 0.0, ends[-1])


def _passes(ends: tuple[Values, ...], at: float, period: float) -> Values:
    """Whether some at + n * period lies between the ends."""
    return np.asarray(np.ceil((ends[0] - at) / period) <= np.floor((ends[-1] - at) / period))


def _spans_zero(ends: tuple[Values, ...]) -> Values:
    return np.asarray((ends[0] <= 0) & (ends[-1] >= 0) & (ends[0] != ends[-1]))


def _quantum(name: str, operands: Sequence[Enclosure]) -> float:
    """What sums are multiples of, or products."""
    quanta = [o.quantum for o in operands] * (2 if name == "square" else 1)
    return math.prod(quanta) if name in _PRODUCTS else min(quanta)


def _scales(name: str, operands: Sequence[Enclosure], rounding: Rounding) -> bool:
    """Whether a product, or a quotient by one number, changes exponents alone: a factor is a power of two, or ldexp.

    A machine that is not exact may divide by approximate instructions.
    """
    if name == "ldexp":
        return operands[1].exact
    if name == "multiply":
        return any(o.exact and _is_power_of_two(o.value) for o in operands)
    return rounding.exact and _by_constant(name, operands) and _is_power_of_two(operands[1].value)


def _is_power_of_two(values: Values) -> bool:
    """Whether all values are, or the negative of one."""
    return bool(np.all(np.isfinite(values) & (np.abs(np.frexp(values)[0]) == 0.5)))


def _normal(values: Values, rounding: Rounding) -> Values:
    """What arithmetic keeps every bit of: all but what is subnormal, or finite beyond the largest number."""
    size = np.abs(values)
    return np.asarray(~((size > 0) & (size < rounding.smallest)) & ~(np.isfinite(size) & (size > rounding.largest)))


def _rounded(
    name: str, operands: Sequence[Enclosure], low: Values, high: Values, rounding: Rounding, scaled: bool
) -> tuple[Values, Values]:
    """The ends, moved apart by what the function itself may be off.

    scaled  a factor is a power of two
    """
    relative: Any
    added: Any
    if name in _SUMS:
        # as terms of a sum, which may be added in another order
        sizes = [[np.abs(e) for e in (o.low, o.high)] for o in operands]
        below, above = (2 * rounding.unit * (a + b) for a, b in zip(*sizes, strict=True))
    elif name in _PRODUCTS or scaled:
        # zero stays zero; where exponents alone change, nothing but a subnormal number is rounded
        relative = 0.0 if scaled else 2 * rounding.unit
        below, above = (
            relative * np.abs(e) + np.where(_normal(e, rounding) if scaled else e == 0, 0.0, rounding.smallest)
            for e in (low, high)
        )
    else:
        relative = 8 * rounding.unit if _by_constant(name, operands) else rounding.function
        if name in ("power", "float_power"):  # ex2(y * lg2(x)): the exponent's error grows with the logarithm
            exponent = np.abs(operands[1].value)
            steep = 1 + exponent * (1 + np.abs(np.log2(np.abs(operands[0].value))))
            relative = relative * np.where(np.isfinite(steep), steep, 0.0)
        added = rounding.smallest + _ABSOLUTE.get(name, 0.0) * (2.0**-29 if rounding.wide else 1.0)
        if name == "divide":  # as a product with the inverse, of which a subnormal one is taken for zero
            inverse = rounding.smallest * np.minimum(operands[0].size, rounding.largest)
            added = np.where(operands[0].size == 0, 0.0, added + inverse)  # zero stays zero
        below, above = (relative * np.abs(e) + added for e in (low, high))
    return _apart(low, high, below, above)


def _by_constant(name: str, operands: Sequence[Enclosure]) -> bool:
    """A division by one number, which is a product with its inverse."""
    return name == "divide" and operands[1].exact and operands[1].value.size == 1


def _apart(low: Values, high: Values, below: Values, above: Values) -> tuple[Values, Values]:
    """Ends moved apart; infinities stay."""
    return np.where(np.isinf(low), low, low - below), np.where(np.isinf(high), high, high + above)
