"""The smallest change that would let a point into an empty space.

*Nearest* is the point that breaks the fewest conditions, and among those the one with the least relative excess: for
a broken relation a <= b (or any other) the excess is |a - b| / max(1, |b|). It is found exactly, by elimination with
costs instead of rejections. Then changes are sought that admit a point: another number for one dim or one limit of
the device, with the nearest point as it is; or one more value for one parameter, with all others free.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.constraints.condition import Condition, DivisorNotPositive, conjuncts
from tinygpu.constraints.explanation import Violation
from tinygpu.constraints.intervals import Interval
from tinygpu.expressions import Expr, compile_arrays
from tinygpu.spaces.elimination import TooLarge, number_rows
from tinygpu.spaces.order import Estimate, plan_order
from tinygpu.spaces.part import Axis, Choice, Part, SpaceError
from tinygpu.spaces.points import first_point
from tinygpu.spaces.solution import Rule, judge, read_rules, solve

# Excesses break ties only: together they never weigh as much as one broken condition.
_TIE = 1.0 / 1024
# Numbers on either side of the present one that are tried for a dim or a limit.
_WINDOW = 4096
# Multiples of the common divisor that are tried as one more value of a parameter.
_MOST_VALUES = 256
# Changes that are shown.
_MOST_CHANGES = 6


@dataclass(frozen=True, slots=True)
class Change:
    """One change that admits a point.

    name    a dim, a tensor fact or a device figure; or a parameter
    now     its number; the nearest value on offer for a parameter
    needed  the number or the additional value that would admit a point
    point   a point that is then admitted
    adds    True when `needed` is one more value of a parameter
    """

    name: str
    now: int
    needed: int
    point: Mapping[str, Choice]
    adds: bool

    @property
    def distance(self) -> float:
        return abs(self.needed - self.now) / max(1, self.now)

    def __str__(self) -> str:
        if self.adds:
            return f"{self.name}={self.needed:,} on offer"
        return f"{self.name} = {self.needed:,} instead of {self.now:,}"


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """The point of an empty space that is closest to being in.

    point       the point
    violations  what it breaks, with the numbers
    changes     changes that would each, alone, admit a point; the smallest first; empty when none was found
    """

    point: Mapping[str, Choice]
    violations: tuple[Violation, ...]
    changes: tuple[Change, ...]

    def __str__(self) -> str:
        at = ", ".join(f"{n}={v}" for n, v in self.point.items())
        text = f"the nearest point is {at}: {'; '.join(v.sentence for v in self.violations)}"
        if self.changes:
            text += f". It would take {', or '.join(str(c) for c in self.changes)}"
        return text


def find_nearest(parts: Sequence[Part], row_budget: int) -> Nearest:
    """The nearest point and the changes, over all parts of an empty space."""
    if not parts:
        raise SpaceError("the space has no part, so that no point is near")
    limits, best = itertools.count(2.0), None  # more than one broken condition costs, than two, and so on
    while best is None:
        limit = next(limits)
        for part in parts:
            found = _cheapest(part, limit, row_budget)
            if found is not None:
                limit, best = found[0], (part, found[1])
    part, point = best
    return Nearest(point, part.violations(point), _find_changes(part, point, row_budget))


def _cheapest(part: Part, limit: float, row_budget: int) -> tuple[float, Mapping[str, Choice]] | None:
    """The point of least cost among those that cost less than `limit`, and its cost; None when there is none."""
    rules = [r for r in read_rules(part) if not r.settled]
    widths = {a.name: len(a.values) for a in part.axes}
    # With rejections rare, every condition is estimated to admit everything but the few that decide.
    order = plan_order(widths, [Estimate(r.axes, 0.5) for r in rules if r.axes])
    axes = {a.name: a for a in part.axes}
    constants = part.constants()
    cost = float(sum(float(_cost(r, constants)) for r in rules if not r.axes))
    if cost >= limit:
        return None
    costs = np.array([cost])
    columns: dict[str, NDArray[Any]] = {}
    trail: list[tuple[str, NDArray[Any], NDArray[Any]]] = []
    pending, rows = [r for r in rules if r.axes], 0
    for depth, name in enumerate(order):
        axis, known = axes[name], set(order[: depth + 1])
        due = [r for r in pending if r.axes <= known]
        pending = [r for r in pending if not r.axes <= known]
        source, choice, costs = _extend(columns, axis, axes, due, constants, costs, limit)
        rows += len(source)
        if rows > row_budget:
            raise TooLarge(f"finding the nearest point needs more than the budget of {row_budget:,} rows")
        kept = [n for n in order[: depth + 1] if any(n in r.axes for r in pending)]
        columns = {n: choice if n == name else columns[n][source] for n in kept}
        best = _best_of_each(columns, widths, costs)
        trail.append((name, source[best], choice[best]))
        columns, costs = {n: c[best] for n, c in columns.items()}, costs[best]
    if not len(costs):
        return None
    state, picked = 0, {}
    for name, source, choice in reversed(trail):
        picked[name] = axes[name].values[int(choice[state])]
        state = int(source[state])
    return float(costs.item()), {n: part.fixed.get(n, picked.get(n, "")) for n in part.names}


def _extend(
    columns: Mapping[str, NDArray[Any]],
    axis: Axis,
    axes: Mapping[str, Axis],
    due: Sequence[Rule],
    constants: Mapping[str, int],
    costs: NDArray[Any],
    limit: float,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """The (state, value index) pairs that cost less than `limit`, and their costs."""
    width = len(axis.values)
    source = np.repeat(np.arange(len(costs)), width)
    choice = np.tile(np.arange(width), len(costs))
    costs = costs[source]
    for rule in due:
        values: dict[str, Any] = {}
        for name in rule.condition.symbols:
            if name == axis.name:
                values[name] = axis.array()[choice]
            else:
                values[name] = axes[name].array()[columns[name][source]] if name in axes else constants[name]
        costs = costs + _cost(rule, values)
        alive = costs < limit
        source, choice, costs = source[alive], choice[alive], costs[alive]
    return source, choice, costs


def _best_of_each(columns: Mapping[str, NDArray[Any]], widths: Mapping[str, int], costs: NDArray[Any]) -> NDArray[Any]:
    """The row of least cost for every distinct combination of the columns; the first of equals."""
    number, states = number_rows([(c, widths[n]) for n, c in columns.items()], len(costs))
    order = np.lexsort((costs, number))
    first = np.searchsorted(number[order], np.arange(states))
    return order[first]


def _cost(rule: Rule, values: Mapping[str, Any]) -> Any:
    """0 where the rule holds, else 1 and a little more for the excess."""
    mask = np.asarray(judge(rule, values), dtype=np.bool_)
    sides = _sides(rule.condition.node)
    excess: Any = 1.0
    if sides is not None and not rule.exact:
        left, right = (np.asarray(side, dtype=np.float64) for side in sides(values))
        gap = np.abs(left - right) / np.maximum(1.0, np.abs(right))
        excess = gap / (1.0 + gap)
    return np.where(mask, 0.0, 1.0 + _TIE * excess)


@cache
def _sides(node: Any) -> Callable[[Mapping[str, Any]], tuple[Any, Any]] | None:
    if not node.is_Relational:
        return None
    return compile_arrays(Expr(node.lhs), Expr(node.rhs))


def _find_changes(part: Part, point: Mapping[str, Choice], row_budget: int) -> tuple[Change, ...]:
    found = [c for name in part.environment if (c := _change_number(part, point, name)) is not None]
    found += [c for axis in part.axes if axis.numeric and (c := _offer_value(part, axis, row_budget)) is not None]
    return tuple(sorted(found, key=lambda c: (c.distance, c.name))[:_MOST_CHANGES])


def _change_number(part: Part, point: Mapping[str, Choice], name: str) -> Change | None:
    """The nearest other number for a dim or a figure under which the point is in."""
    values = part.constants() | {n: v for n, v in point.items() if isinstance(v, int)}
    rules = [r for r in read_rules(part) if name in r.condition.symbols]
    conditions = [condition for c in part.constraints for condition in conjuncts(c.condition)]
    if not rules or not all(_holds(c, values) for c in conditions if name not in c.symbols):
        return None
    now = part.environment[name]
    numbers = set(range(max(0, now - _WINDOW), now + _WINDOW + 1))
    for rule in rules:
        sides = _sides(rule.condition.node)
        if sides is not None:
            with suppress(ZeroDivisionError):  # at a point that divides by zero the sides are no numbers
                numbers |= {int(side) + d for side in sides(values) for d in (-1, 0, 1) if int(side) + d >= 0}
    candidates = np.array(sorted(numbers, key=lambda n: (abs(n - now), n)), dtype=object)
    ranges = {n: Interval(v, v) for n, v in values.items()} | {name: Interval(min(numbers), max(numbers))}
    inside = np.ones(len(candidates), dtype=np.bool_)
    for rule in rules:
        trial = Rule(rule.constraint, rule.condition, rule.condition.bounds(ranges), rule.axes)
        column = candidates if trial.exact else candidates.astype(np.int64)
        inside &= np.broadcast_to(np.asarray(judge(trial, {**values, name: column}), dtype=np.bool_), inside.shape)
    if not inside.any():
        return None
    return Change(name, now, int(candidates[int(np.argmax(inside))]), point, adds=False)


def _holds(condition: Condition, values: Mapping[str, int]) -> bool:
    """Whether a condition holds; a divisor that is not positive counts as a failure."""
    try:
        return condition.holds(values)
    except DivisorNotPositive:
        return False


def _offer_value(part: Part, axis: Axis, row_budget: int) -> Change | None:
    """One more value for an axis that admits a point: of those like the values on offer, the closest to one of them.

    Like them are the multiples of their greatest common divisor, and their halves and doubles.
    """
    offered = [int(v) for v in axis.values]
    step = max(1, math.gcd(*offered))
    more = {step * i for i in range(min(2 * max(offered) // step, _MOST_VALUES) + 1)}
    more |= {v << i for v in offered for i in range(5)} | {v >> i for v in offered for i in range(5)}
    fresh = tuple(sorted(v for v in more - set(offered) if v > 0))
    if not fresh:
        return None
    try:
        (opened,) = solve((_with_values(part, axis, fresh),), row_budget, strict=False)
    except TooLarge:  # no suggestion
        return None
    admitted = [v for v, possible in zip(fresh, opened.legal(axis.name, {}), strict=True) if possible]
    if not admitted:
        return None
    closest = {v: min(offered, key=lambda o: (abs(o - v), o)) for v in admitted}
    needed = min(admitted, key=lambda v: (abs(v - closest[v]) / max(1, closest[v]), v))
    (narrowed,) = solve((_with_values(part, axis, (needed,)),), row_budget, strict=False)
    return Change(axis.name, closest[needed], needed, first_point(narrowed), adds=True)


def _with_values(part: Part, axis: Axis, values: tuple[int, ...]) -> Part:
    """The part with these values on offer for one axis, instead of its own."""
    return replace(part, axes=tuple(Axis(a.name, values) if a is axis else a for a in part.axes))
