"""An array with error: every element's value in exact arithmetic, and the least and greatest by any rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
Mark = Literal["approximated", "outgrown", "wrapped"]


class CannotBound(ValueError):
    """A reference that does what has no rule for its error; the sentence says what."""


@dataclass(frozen=True, slots=True, eq=False)
class Enclosure:
    """One array.

    value         as the reference gives it, in double precision (integers: 64 bits)
    low, high     what rounding may make of it; the value itself where nothing is rounded. From -infinity to infinity:
                  anything, a NaN included. NaNs, where the value is one: it must be one
    quantum       the values are exact multiples of this power of two, 1 at most, as whole numbers are; 0: unknown
    marks         what happened on the way: "approximated" by a function; "outgrown", whole numbers so large that they
                  had to be rounded; "wrapped", powers of them that have no place in 64 bits
    terms         of the sum that it is, with which a kernel may go on; 0 where it is none
    span          sums of these terms' absolute values, as large as what a kernel has on the way may be; None: not known
    """

    value: Values
    low: Values
    high: Values
    quantum: float = 0.0
    marks: frozenset[Mark] = frozenset()
    terms: float = 0
    span: Values | None = None

    @property
    def exact(self) -> bool:
        return self.low is self.value and self.high is self.value

    @property
    def unknown(self) -> Values:
        """Elements of which nothing can be said."""
        if self.exact or self.low.dtype.kind != "f":
            return np.zeros(self.value.shape, dtype=bool)
        return np.asarray((self.low == -np.inf) & (self.high == np.inf))

    @property
    def ends(self) -> tuple[Values, ...]:
        """The value where it is exact, else its two ends."""
        return (self.value,) if self.exact else (self.low, self.high)

    @property
    def reach(self) -> Values:
        """How far what a kernel has on the way may be from zero, where that is finite; 0 elsewhere."""
        found = self.size if self.span is None else self.span
        return np.where(np.isfinite(found), found, 0.0)

    @property
    def size(self) -> Values:
        """Largest absolute value, element by element."""
        return np.abs(self.value) if self.exact else np.maximum(np.abs(self.low), np.abs(self.high))


def marks_of(*operands: Enclosure) -> frozenset[Mark]:
    """What happened on the way to any of them."""
    return frozenset[Mark]().union(*[o.marks for o in operands])


def exactly(value: Any, quantum: float | None = None, marks: frozenset[Mark] = frozenset()) -> Enclosure:
    """An array without error; what its values are multiples of is looked up where it is not given."""
    array = np.asarray(value)
    if array.dtype.kind not in "iufb":
        raise CannotBound(f"works with values of type {array.dtype}")
    return Enclosure(array, array, array, quantum_of(array) if quantum is None else quantum, marks)


def quantum_of(array: Values) -> float:
    """The largest power of two, 1 at most, of which all values are multiples; 0 where some value is no number, or has
    more bits above it than single precision holds.

    >>> quantum_of(np.array([3.0, -np.inf])), quantum_of(np.array([0.5, 0.75])), quantum_of(np.array([0.1]))
    (1.0, 0.25, 0.0)
    """
    if array.dtype.kind != "f" or np.all(array == np.rint(array)):
        return 1.0
    found = array[np.isfinite(array) & (array != 0)]
    if np.isnan(array).any():
        return 0.0
    fractions, exponents = np.frexp(found.astype(np.float64))
    bits = np.ldexp(fractions, 53).astype(np.int64)
    lowest = int(np.min(exponents - 53 + np.log2(bits & -bits).astype(np.int64)))
    highest = int(np.max(exponents))
    return 2.0 ** min(lowest, 0) if highest - lowest <= 24 else 0.0


def between(value: Values, low: Values, high: Values, marks: frozenset[Mark] = frozenset()) -> Enclosure:
    """Truth values or whole numbers, some of which hang on how others are rounded: those between two ends."""
    if np.array_equal(low, high):
        return exactly(value, 1.0, marks)
    return Enclosure(value, low, high, 0.0, marks)


def enclosed(
    value: Values, low: Values, high: Values, largest: float, unknown: Values | None = None, *, marks: frozenset[Mark]
) -> Enclosure:
    """An array with error.

    low, high  NaNs where no order of the operations gives a number
    largest    results beyond this may be infinite
    unknown    elements of which nothing can be said; those too whose value is a number while an end is none
    """
    with np.errstate(all="ignore"):
        anything = (np.isnan(low) | np.isnan(high)) & ~np.isnan(value)
        # a value that is no number is certain only where its ends are none either
        anything |= np.isnan(value) & ~(np.isnan(low) & np.isnan(high))
        anything |= (low == -np.inf) & (high == np.inf)
        if unknown is not None:
            anything |= unknown
        low = np.where(low < -largest, -np.inf, low)
        high = np.where(high > largest, np.inf, high)
        if anything.any():
            low, high = np.where(anything, -np.inf, low), np.where(anything, np.inf, high)
    return Enclosure(value, low, high, 0.0, marks)
