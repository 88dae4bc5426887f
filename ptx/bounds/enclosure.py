"""An array with error: every element's value in exact arithmetic, and the least and greatest by any rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]
Mark = Literal["approximated", "outgrown"]


class CannotBound(ValueError):
    """A reference that does what has no rule for its error; the sentence says what."""


@dataclass(frozen=True, slots=True, eq=False)
class Enclosure:
    """One array.

    value         as the reference gives it, in double precision (integers: 64 bits)
    low, high     what rounding may make of it; the value itself where nothing is rounded. From -infinity to infinity:
                  anything, a NaN included. NaNs, where the value is one: it must be one
    whole         the values are exact whole numbers
    marks         what happened on the way: "approximated" by a function; "outgrown", whole numbers so large that they
                  had to be rounded
    terms         of the sum that it is, with which a kernel may go on; 0 where it is none
    """

    value: Values
    low: Values
    high: Values
    whole: bool = False
    marks: frozenset[Mark] = frozenset()
    terms: float = 0

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
    def size(self) -> Values:
        """Largest absolute value, element by element."""
        return np.abs(self.value) if self.exact else np.maximum(np.abs(self.low), np.abs(self.high))


def marks_of(*operands: Enclosure) -> frozenset[Mark]:
    """What happened on the way to any of them."""
    return frozenset[Mark]().union(*[o.marks for o in operands])


def exactly(value: Any, whole: bool | None = None, marks: frozenset[Mark] = frozenset()) -> Enclosure:
    """An array without error; whether its values are whole is looked up where it is not given."""
    array = np.asarray(value)
    if array.dtype.kind not in "iufb":
        raise CannotBound(f"works with values of type {array.dtype}")
    if whole is None:
        whole = array.dtype.kind != "f" or bool(np.all(array == np.rint(array)))
    return Enclosure(array, array, array, whole, marks)


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
    return Enclosure(value, low, high, False, marks)
