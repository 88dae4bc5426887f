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

    __slots__ = ("_arrays", "_checked", "_intervals", "_scalars", "node", "symbols")

    def __init__(self, node: Any) -> None:
        self.node = node
        self.symbols = frozenset(s.name for s in node.free_symbols)
        self._arrays: Callable[[Mapping[str, Any]], Any] | None = None
        self._checked: Callable[[Mapping[str, Any]], Any] | None = None
        self._scalars: Callable[[Mapping[str, Any]], Any] | None = None
        self._intervals: Callable[[Mapping[str, Any]], Any] | None = None

    def __repr__(self) -> str:
        return f"Condition({self.node})"

    def holds(self, values: Mapping[str, int]) -> bool:
        """Whether the condition holds, in exact integers. Raises `DivisorNotPositive`."""
        if self._scalars is None:
            self._scalars = _compile_scalars_checked(self.node)
        return bool(self._scalars(values)[0])

    def mask(self, values: Mapping[str, Any]) -> Any:
        """Where the condition holds: a Boolean array of the values' common shape, or one Boolean.

        values  64-bit arrays (or integers) small enough that no step overflows, with positive divisors: see `bounds`
        """
        if self._arrays is None:
            self._arrays = compile_arrays(Expr(self.node))
        return self._arrays(values)[0]

    def exact_mask(self, values: Mapping[str, Any]) -> Any:
        """As `mask`, slower: in Python integers of any size. Raises `DivisorNotPositive`."""
        if self._checked is None:
            self._checked = compile_with(_EXACT_NAMES, Expr(self.node), checked=True)
        exact = {name: np.asarray(values[name]).astype(object) for name in self.symbols}
        return np.asarray(self._checked(exact)[0]).astype(bool)

    def bounds(self, values: Mapping[str, Interval]) -> Interval:
        """What the condition can be (within 0..1) when its symbols range over the given intervals."""
        if self._intervals is None:
            self._intervals = compile_with(INTERVAL_NAMES, Expr(self.node))
        out = self._intervals(values)[0]
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
    function = _compile_scalars_checked(node)
    return lambda values: function(values)[0]


def _compile_scalars_checked(node: Any) -> Callable[[Mapping[str, Any]], Any]:
    function: Callable[[Mapping[str, Any]], Any] = compile_with(_SCALAR_NAMES, Expr(node), checked=True)
    return function


def _divisor(divisor: int) -> int:
    if divisor < 1:
        raise DivisorNotPositive(f"a divisor is {divisor}; divisors are positive integers")
    return divisor


def _divisors(divisors: Any) -> Any:
    if np.size(divisors):
        _divisor(np.min(divisors))
    return divisors


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
_EXACT_NAMES: Mapping[str, Any] = {
    "_max": np.maximum,
    "_min": np.minimum,
    "_and": lambda a, b: np.asarray(a).astype(bool) & np.asarray(b).astype(bool),
    "_or": lambda a, b: np.asarray(a).astype(bool) | np.asarray(b).astype(bool),
    "_not": lambda a: ~np.asarray(a).astype(bool),
    "_where": lambda c, a, b: np.where(np.asarray(c).astype(bool), a, b),
    "_div": lambda a, b: a // _divisors(b),
    "_mod": lambda a, b: a % _divisors(b),
}
