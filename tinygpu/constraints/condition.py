"""Conditions ready to be judged: top-level conjunctions split, each part compiled once for every kind of number.

sympy is only needed here. A compiled condition reads its symbols from a mapping, so that one compilation serves
every problem, every device and every part of a space.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import sympy
from numpy.typing import NDArray

from tinygpu.constraints.intervals import INTERVAL_NAMES, Interval
from tinygpu.expressions import Expr, compile_arrays, compile_with

# Beyond this a 64-bit step could overflow, and arrays of Python integers are used instead.
SAFE_PEAK = 1 << 62


class DivisorNotPositive(ValueError):
    """A condition divided by something that is not a positive integer."""


class Condition:
    """One conjunct of a constraint.

    node     the sympy condition
    symbols  names of the symbols that it reads
    """

    __slots__ = ("_arrays", "_intervals", "_scalars", "node", "symbols")

    def __init__(self, node: Any) -> None:
        self.node = node
        self.symbols = frozenset(s.name for s in node.free_symbols)
        self._arrays: Callable[[Mapping[str, Any]], Any] | None = None
        self._scalars: Callable[[Mapping[str, Any]], Any] | None = None
        self._intervals: Callable[[Mapping[str, Any]], Any] | None = None

    def __repr__(self) -> str:
        return f"Condition({Expr(self.node)})"

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether the condition holds, in exact integers. Raises `DivisorNotPositive`."""
        if self._scalars is None:
            self._scalars = _compile_scalars_checked(self.node)
        return bool(self._scalars(values))

    def mask(self, values: Mapping[str, Any]) -> Any:
        """Where the condition holds: a Boolean array of the values' common shape, or one Boolean.

        values  64-bit arrays (or integers) small enough that no step overflows, with positive divisors: see `bounds`
        """
        if self._arrays is None:
            self._arrays = compile_arrays(Expr(self.node))
        (mask,) = self._arrays(values)
        return mask

    def exact_mask(self, values: Mapping[str, Any], *, strict: bool = True) -> NDArray[np.bool_]:
        """As `mask`, slower: in Python integers of any size, with every divisor looked at.

        strict  whether a divisor that is not positive raises `DivisorNotPositive`, or makes the condition fail there
        """
        exact = {name: np.asarray(values[name]).astype(object) for name in self.symbols}
        divisors = _Divisors()
        (found,) = compile_with(divisors.names(), Expr(self.node), checked=True)(exact)
        mask = _as_bool(found)
        if not divisors.seen:
            return mask
        shape = np.broadcast_shapes(mask.shape, *(d.shape for d in divisors.seen))
        good = np.ones(shape, dtype=np.bool_)
        for divisor in divisors.seen:
            if strict and divisor.size:
                _divisor(np.min(divisor))
            good &= _as_bool(divisor > 0)
        good &= mask
        return good

    def bounds(self, values: Mapping[str, Interval]) -> Interval:
        """What the condition can be (within 0..1) when its symbols range over the given intervals."""
        if self._intervals is None:
            self._intervals = compile_with(INTERVAL_NAMES, Expr(self.node))
        (out,) = self._intervals(values)
        return out if isinstance(out, Interval) else Interval(int(out), int(out))

    def fits_64_bits(self, bounds: Interval) -> bool:
        """Whether `mask` may be used for values within the intervals that gave `bounds`."""
        return bounds.safe and bounds.peak < SAFE_PEAK


@cache
def _condition(node: Any) -> Condition:
    return Condition(node)


@cache
def _conjuncts(node: Any) -> tuple[Condition, ...]:
    parts = node.args if isinstance(node, sympy.And) else (node,)
    # sympy's own argument order depends on hashes; by text it is the same in every process.
    return tuple(_condition(part) for part in sorted(parts, key=lambda p: (len(p.free_symbols), str(p))))


def conjuncts(condition: Expr) -> tuple[Condition, ...]:
    """The conditions that must all hold for `condition` to hold; compiled at most once per expression."""
    return _conjuncts(condition.sympy)


def evaluator(node: Any) -> Callable[[Mapping[str, int]], Any]:
    """The exact value of a sympy integer or condition, compiled once. Raises `DivisorNotPositive`."""
    return _evaluator(node)


@cache
def _evaluator(node: Any) -> Callable[[Mapping[str, int]], Any]:
    return _compile_scalars_checked(node)


def _compile_scalars_checked(node: Any) -> Callable[[Mapping[str, Any]], Any]:
    function: Callable[[Mapping[str, Any]], Any] = compile_with(_SCALAR_NAMES, Expr(node), checked=True)

    def value(values: Mapping[str, Any]) -> Any:
        (only,) = function(values)
        return only

    return value


def _divisor(divisor: int) -> int:
    if divisor < 1:
        raise DivisorNotPositive(f"a divisor is {divisor}; divisors are positive integers")
    return divisor


_SCALAR_NAMES: Mapping[str, Any] = {
    "_max": lambda a, b: a if a > b else b,
    "_min": lambda a, b: a if a < b else b,
    "_and": lambda a, b: bool(a) and bool(b),
    "_or": lambda a, b: bool(a) or bool(b),
    "_not": lambda a: not a,
    "_where": lambda c, a, b: a if c else b,
    "_div": lambda a, b: a // _divisor(b),
    "_mod": lambda a, b: a % _divisor(b),
}


def _as_bool(values: Any) -> NDArray[np.bool_]:
    return np.asarray(values, dtype=np.bool_)


class _Divisors:
    """Array arithmetic in Python integers that remembers every divisor and divides by 1 where one is not positive."""

    def __init__(self) -> None:
        self.seen: list[NDArray[Any]] = []

    def names(self) -> dict[str, Any]:
        return {
            "_max": np.maximum,
            "_min": np.minimum,
            "_and": lambda a, b: _as_bool(a) & _as_bool(b),
            "_or": lambda a, b: _as_bool(a) | _as_bool(b),
            "_not": lambda a: ~_as_bool(a),
            "_where": lambda c, a, b: np.where(_as_bool(c), a, b),
            "_div": lambda a, b: a // self._positive(b),
            "_mod": lambda a, b: a % self._positive(b),
        }

    def _positive(self, divisor: Any) -> NDArray[Any]:
        self.seen.append(np.asarray(divisor))
        positive: NDArray[Any] = np.maximum(self.seen[-1], 1)
        return positive
