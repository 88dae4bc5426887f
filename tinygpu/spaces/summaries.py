"""What a pending condition still has to know of the axes already chosen: the values of its sub-terms.

A condition such as a*b + c*d <= limit does not need a and b once both are chosen, only a*b. Keeping such summaries
instead of the axes merges many more prefixes: a sum over ten axes has as many states as the sum has values, not as
many as there are prefixes. Used where the axes alone would need too many rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sympy

from tinygpu.constraints.condition import SAFE_PEAK, Condition
from tinygpu.constraints.intervals import INTERVAL_NAMES, Interval
from tinygpu.expressions import Expr, compile_arrays, compile_with

_JOINING = (sympy.Add, sympy.Mul, sympy.Max, sympy.Min, sympy.And, sympy.Or)


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """A sub-term whose value stands for the axes in it.

    name     a column's name, no parameter has one like it
    node     the sub-term, over axes, constants and earlier summaries
    compute  its values as arrays
    bounds   what it can be
    """

    name: str
    node: Any
    compute: Callable[[Mapping[str, Any]], Any]
    bounds: Interval


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What is known after each axis, for a sequence of axes.

    made        per axis: summaries to compute once it is chosen
    kept        per axis: the names (axes, constants and summaries) that later conditions still read
    conditions  the conditions, over axes, constants and summaries, in the order in which they were given
    """

    made: tuple[tuple[Summary, ...], ...]
    kept: tuple[frozenset[str], ...]
    conditions: tuple[Condition, ...]

    @property
    def summarises(self) -> bool:
        return any(self.made)


def keep_axes(axes: Sequence[str], conditions: Sequence[tuple[int, Condition]]) -> Plan:
    """The plan without summaries: an axis is kept until the last condition that reads it.

    conditions  each with the position of the axis after which it is judged
    """
    kept = []
    for depth in range(len(axes)):
        kept.append(frozenset(n for at, c in conditions if at > depth for n in c.symbols))
    return Plan(tuple(() for _ in axes), tuple(kept), tuple(c for _, c in conditions))


def summarise(
    axes: Sequence[str], conditions: Sequence[tuple[int, Condition, bool]], ranges: Mapping[str, Interval]
) -> Plan:
    """The plan with summaries.

    conditions  each with the position of the axis after which it is judged, and whether it must be left as it is
    ranges      what every axis and constant can be
    """
    maker = _Maker(axes, ranges)
    rewritten: list[Condition] = []
    kept: list[set[str]] = [set() for _ in axes]
    made: list[dict[str, Summary]] = [{} for _ in axes]
    for at, condition, untouched in conditions:
        nodes = None if untouched else maker.stages(condition.node, at)
        if nodes is None:
            nodes = [condition.node] * (at + 1)
        *before, judged = nodes
        for depth, node in enumerate(before):
            kept[depth] |= {s.name for s in node.free_symbols}
        rewritten.append(condition if judged == condition.node else Condition(judged))
    for depth in range(len(axes)):
        known = kept[depth - 1] if depth else set()
        for name in kept[depth]:
            if name in maker.made and name not in known:
                made[depth][name] = maker.made[name]
    return Plan(tuple(tuple(m.values()) for m in made), tuple(frozenset(k) for k in kept), tuple(rewritten))


class _Maker:
    """Names sub-terms; the same sub-term gets the same name in every condition."""

    def __init__(self, axes: Sequence[str], ranges: Mapping[str, Interval]) -> None:
        self.axes = axes
        self.ranges = dict(ranges)
        self.made: dict[str, Summary] = {}
        self._symbols: dict[Any, Any] = {}

    def stages(self, node: Any, at: int) -> list[Any] | None:
        """The condition as it reads after each of the axes 0 .. at - 1, and finally when it is judged.

        None where a summary could leave 64 bits or divide by zero: such a condition keeps its axes.
        """
        constants = frozenset(self.ranges) - frozenset(self.axes) - frozenset(self.made)
        bound = set(constants)
        out = []
        for depth in range(at):
            bound.add(self.axes[depth])
            node = self._rewrite(node, bound, constants)
            if node is None:
                return None
            bound |= {s.name for s in node.free_symbols if s.name in self.made}
            out.append(node)
        (bounds,) = compile_with(INTERVAL_NAMES, Expr(node))(self.ranges)
        safe = isinstance(bounds, Interval) and bounds.safe and bounds.peak < SAFE_PEAK
        return [*out, node] if safe else None

    def _rewrite(self, node: Any, bound: set[str], constants: frozenset[str]) -> Any:
        """The node with its greatest sub-terms over `bound` replaced by summaries; None where that is not safe."""
        names = {s.name for s in node.free_symbols}
        if not node.args or names <= constants:
            return node
        if names <= bound:
            return self._summary(node)
        if isinstance(node, _JOINING):
            ready = [a for a in node.args if {s.name for s in a.free_symbols} <= bound]
            rest = [a for a in node.args if not {s.name for s in a.free_symbols} <= bound]
            parts = []
            if ready:
                parts.append(self._rewrite(node.func(*ready), bound, constants))
            parts += [self._rewrite(a, bound, constants) for a in rest]
        elif isinstance(node, sympy.Piecewise):
            cases = [(self._rewrite(v, bound, constants), self._rewrite(c, bound, constants)) for v, c in node.args]
            parts = [None] if any(v is None or c is None for v, c in cases) else list(cases)
        else:
            parts = [self._rewrite(a, bound, constants) for a in node.args]
        return None if any(p is None for p in parts) else node.func(*parts)

    def _summary(self, node: Any) -> Any:
        if node not in self._symbols:
            (bounds,) = compile_with(INTERVAL_NAMES, Expr(node))(self.ranges)
            if not isinstance(bounds, Interval) or not bounds.safe or bounds.peak >= SAFE_PEAK:
                return None
            name = f"<{len(self.made)}>"
            # A condition's value is 0 or 1; a number's can be negative.
            self._symbols[node] = sympy.Symbol(name) if node.is_Boolean else sympy.Symbol(name, integer=True)
            self.made[name] = Summary(name, node, compile_arrays(Expr(node)), bounds)
            self.ranges[name] = Interval(bounds.lo, bounds.hi)
        return self._symbols[node]
