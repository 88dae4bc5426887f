"""Integer intervals: what an expression can be when its symbols range over intervals.

They answer three questions about a condition before any point is looked at: does it hold (or fail) everywhere, can
its arithmetic leave 64 bits, and can one of its divisors be zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from tinygpu.expressions import Table


class Interval:
    """All integers from `lo` to `hi`; a condition is an interval within 0..1.

    peak  the greatest absolute value that any step of the computation can reach
    safe  no divisor on the way can be zero or negative
    """

    __slots__ = ("hi", "lo", "peak", "safe")

    def __init__(self, lo: int, hi: int, peak: int = 0, safe: bool = True) -> None:
        self.lo = lo
        self.hi = hi
        self.peak = max(peak, -lo, hi)
        self.safe = safe

    def __repr__(self) -> str:
        return f"Interval({self.lo}, {self.hi})"

    @property
    def always(self) -> bool:
        """As a condition: it holds everywhere."""
        return self.lo > 0

    @property
    def never(self) -> bool:
        """As a condition: it holds nowhere."""
        return self.hi == 0 and self.lo == 0

    def _join(self, other: Interval, lo: int, hi: int) -> Interval:
        return Interval(lo, hi, max(self.peak, other.peak), self.safe and other.safe)

    def __add__(self, other: Operand) -> Interval:
        b = _interval(other)
        return self._join(b, self.lo + b.lo, self.hi + b.hi)

    def __mul__(self, other: Operand) -> Interval:
        b = _interval(other)
        corners = (self.lo * b.lo, self.lo * b.hi, self.hi * b.lo, self.hi * b.hi)
        return self._join(b, min(corners), max(corners))

    def __pow__(self, power: int) -> Interval:
        out = self
        for _ in range(power - 1):
            out = out * self
        # An even power of an interval around zero is not negative; the product of corners only widens it.
        return out

    def __floordiv__(self, other: Operand) -> Interval:
        b = _interval(other)
        low, high = max(1, b.lo), max(1, b.hi)
        corners = (self.lo // low, self.lo // high, self.hi // low, self.hi // high)
        out = self._join(b, min(corners), max(corners))
        out.safe = out.safe and b.lo >= 1
        return out

    def __mod__(self, other: Operand) -> Interval:
        b = _interval(other)
        low, high = max(1, b.lo), max(1, b.hi)
        if low == high and self.lo // low == self.hi // low:
            out = self._join(b, self.lo % low, self.hi % low)
        elif self.lo >= 0 and self.hi < low:
            out = self._join(b, self.lo, self.hi)
        else:
            out = self._join(b, 0, high - 1 if self.lo < 0 else min(high - 1, self.hi))
        out.safe = out.safe and b.lo >= 1
        return out

    def __radd__(self, other: Operand) -> Interval:
        return self + other

    def __rmul__(self, other: Operand) -> Interval:
        return self * other

    def __rfloordiv__(self, other: Operand) -> Interval:
        return _interval(other) // self

    def __rmod__(self, other: Operand) -> Interval:
        return _interval(other) % self

    def __lt__(self, other: Operand) -> Interval:
        b = _interval(other)
        return self._join(b, int(self.hi < b.lo), int(self.lo < b.hi))

    def __le__(self, other: Operand) -> Interval:
        b = _interval(other)
        return self._join(b, int(self.hi <= b.lo), int(self.lo <= b.hi))

    def __gt__(self, other: Operand) -> Interval:
        return _interval(other) < self

    def __ge__(self, other: Operand) -> Interval:
        return _interval(other) <= self

    def __eq__(self, other: object) -> Interval:  # type: ignore[override]
        b = _interval(other)
        apart = self.hi < b.lo or b.hi < self.lo
        return self._join(b, int(self.lo == self.hi == b.lo == b.hi), int(not apart))

    def __ne__(self, other: object) -> Interval:  # type: ignore[override]
        return _not(self == other)

    __hash__ = None  # type: ignore[assignment]


Operand: TypeAlias = "Interval | int"


def _interval(value: Any) -> Interval:
    if isinstance(value, Interval):
        return value
    number = int(value)
    return Interval(number, number)


def _fold(combine: Callable[[Iterable[int]], int]) -> Callable[[Operand, Operand], Interval]:
    def folded(a: Operand, b: Operand) -> Interval:
        x, y = _interval(a), _interval(b)
        return x._join(y, combine((x.lo, y.lo)), combine((x.hi, y.hi)))

    return folded


def _not(a: Operand) -> Interval:
    x = _interval(a)
    return x._join(x, 1 - min(x.hi, 1), 1 - min(x.lo, 1))


def _where(condition: Operand, then: Operand, otherwise: Operand) -> Interval:
    c, x, y = _interval(condition), _interval(then), _interval(otherwise)
    both = x._join(y, min(x.lo, y.lo), max(x.hi, y.hi))
    # Both branches are computed whichever is taken, so that peak and safety are those of both.
    lo, hi = (x.lo, x.hi) if c.always else (y.lo, y.hi) if c.never else (both.lo, both.hi)
    return c._join(both, lo, hi)


def _tabulated(table: Table) -> Callable[..., Interval]:
    """What a table may count: at least what it says itself."""
    least = table.least
    if least is None:
        return lambda *arguments: Interval(0, 2**31)

    def bounded(*arguments: Operand) -> Interval:
        low = least(*((a.lo, a.hi) for a in map(_interval, arguments)))
        return Interval(low, max(low, 2**31))

    return bounded


# The names that compiled expressions use, over intervals.
INTERVAL_NAMES: dict[str, Any] = {
    "_max": _fold(max),
    "_min": _fold(min),
    "_and": _fold(min),
    "_or": _fold(max),
    "_not": _not,
    "_where": _where,
    "_tabulated": _tabulated,
}
