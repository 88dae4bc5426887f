"""The survivors of a space's parts, as diagrams, and the funnel that counts what each constraint removed.

One order of axes serves all parts. A condition's place in the printed order is the place of its last axis in that
order, then the place of its constraint in the declaration. Conditions are applied in exactly this order within every
group of connected axes, and groups do not touch each other's points, so that "removed" is exact: the points whose
first rejecting row, in the printed order, is this one.

The terms of a conjunction, and one constraint in different parts, can have different places. Survivors are found with
every term at its own place, which prunes earliest. For the funnel the terms wait for the last of these places, so that
every constraint has one row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.constraints.condition import Condition, DivisorNotPositive, conjuncts
from tinygpu.constraints.constraint import Constraint
from tinygpu.constraints.explanation import describe
from tinygpu.constraints.intervals import Interval
from tinygpu.expressions import Expr
from tinygpu.spaces.diagram import Diagram
from tinygpu.spaces.elimination import Elimination, Step, eliminate
from tinygpu.spaces.exact import exact_type
from tinygpu.spaces.order import Estimate, connected, plan_order
from tinygpu.spaces.part import Axis, Part, SpaceError

_SAMPLES = 256
# A funnel of one row per constraint may take so many times the rows of the survivors' elimination, and some for free.
_PATIENCE = 8
_FREE_ROWS = 2_000_000


@dataclass(frozen=True, slots=True, eq=False)
class FunnelRow:
    """How many points one constraint removed: those that every row before it admits and this one rejects.

    A constraint has one row. Only where that would need too many rows of work, the terms of a conjunction have rows of
    their own, each at the place where it can be judged first.

    constraint  the constraint (one of them, where several parts have it)
    conditions  the terms of it that this row judges
    removed     number of points, exact
    """

    constraint: Constraint
    conditions: tuple[Condition, ...]
    removed: int

    @property
    def name(self) -> str:
        return self.constraint.name

    @property
    def kind(self) -> str:
        return self.constraint.kind

    @property
    def source(self) -> str:
        return self.constraint.source

    @property
    def formula(self) -> str:
        """What this row judges, in the notation of explanations."""
        return " and ".join(describe(Expr(c.node)) for c in self.conditions)

    def __str__(self) -> str:
        source = f" ({self.source})" if self.source else ""
        return f"{self.name}{source}, {self.kind}: removed {self.removed:,}"


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """One condition of a part, with what is known of it before any point is looked at."""

    constraint: Constraint
    condition: Condition
    bounds: Interval
    axes: frozenset[str]

    @property
    def settled(self) -> bool:
        """Whether it holds for every combination of values, which the intervals alone show."""
        return self.bounds.always and self.bounds.safe

    @property
    def exact(self) -> bool:
        """Whether it must be judged in integers of any size, with its divisors checked."""
        return not self.condition.fits_64_bits(self.bounds)


@dataclass(frozen=True, eq=False)
class Group:
    """Axes of a part that conditions connect, eliminated together."""

    axes: tuple[Axis, ...]
    elimination: Elimination

    @cached_property
    def diagram(self) -> Diagram:
        return self.elimination.diagram()


@dataclass(frozen=True, slots=True, eq=False)
class PartSolution:
    """The survivors of one part: the product of its groups.

    rows  the part's own funnel, in the printed order: place, constraint, conditions, points removed
    """

    part: Part
    groups: tuple[Group, ...]
    rows: tuple[tuple[int, Constraint, tuple[Condition, ...], int], ...]
    size: int

    def choices(self, ranks: NDArray[Any]) -> dict[str, NDArray[np.int64]]:
        """The value indices of the survivors with these ranks, per axis.

        ranks  64-bit, or Python integers where the part has more survivors than 64 bits can number
        """
        rest = ranks
        out: dict[str, NDArray[np.int64]] = {}
        for group in reversed(self.groups):  # the last group turns fastest
            size = group.elimination.size
            out.update(group.diagram.choices(rest % size))
            rest = rest // size
        return out

    def rank(self, indices: Mapping[str, int]) -> int | None:
        if not self.size:
            return None
        rank = 0
        for group in self.groups:
            within = group.diagram.rank(indices)
            if within is None:
                return None
            rank = rank * group.elimination.size + within
        return rank

    def columns(self) -> dict[str, NDArray[np.int64]]:
        """The value indices of all survivors, per axis, in order of rank."""
        out: dict[str, NDArray[np.int64]] = {}
        if not self.size:
            return {a.name: np.zeros(0, dtype=np.int64) for a in self.part.axes}
        before, after = 1, self.size
        for group in self.groups:
            size = group.elimination.size
            after //= size
            for name, column in group.diagram.columns().items():
                out[name] = np.tile(np.repeat(column, after), before)
            before *= size
        return out

    def values(self, choices: Mapping[str, NDArray[np.int64]], count: int) -> dict[str, NDArray[Any]]:
        """The values behind value indices, and the fixed choices, in the order of the part's names."""
        out: dict[str, NDArray[Any]] = {}
        for name, value in self.part.fixed.items():
            out[name] = np.full(count, value, dtype=_column_type((value,)))
        for axis in self.part.axes:
            out[axis.name] = np.array(axis.values, dtype=_column_type(axis.values))[choices[axis.name]]
        return out

    def count(self, allowed: Mapping[str, NDArray[np.bool_]]) -> int:
        """Number of survivors whose value indices are allowed."""
        if not self.size:
            return 0
        return _product([group.diagram.count(allowed) for group in self.groups])

    def legal(self, axis: str, allowed: Mapping[str, NDArray[np.bool_]]) -> NDArray[np.bool_]:
        """(values of axis,) which values occur in a survivor whose other value indices are allowed."""
        home = next(g for g in self.groups if any(a.name == axis for a in g.axes))
        others = (g for g in self.groups if g is not home)
        possible = home.diagram.legal(axis, allowed)
        if not self.size or not all(g.diagram.count(allowed) for g in others):
            possible[:] = False
        return possible


def solve(
    parts: Sequence[Part], row_budget: int, *, strict: bool = True, whole: bool = False
) -> tuple[PartSolution, ...]:
    """The survivors of every part, eliminated in one order. Raises `TooLarge`.

    strict  whether a divisor that is not positive is an error; else the condition fails there
    whole   all terms of a constraint are judged at the last of their places, in all parts
    """
    rules = [read_rules(part) for part in parts]
    order = {name: i for i, name in enumerate(_choose_order(parts, rules))}
    identity: dict[tuple[str, str, str], int] = {}
    for part in parts:
        for c in part.constraints:
            identity.setdefault(_key(c), len(identity))
    last: dict[tuple[str, str, str], int] = {}
    if whole:
        for rule in (r for own in rules for r in own):
            level = _level(rule, order)
            last[_key(rule.constraint)] = max(level, last.get(_key(rule.constraint), level))
    plan = _Plan(order, identity, last, row_budget, strict)
    return tuple(_solve_part(p, r, plan) for p, r in zip(parts, rules, strict=True))


def funnel(
    parts: Sequence[Part], solutions: Sequence[PartSolution], row_budget: int, strict: bool
) -> tuple[FunnelRow, ...]:
    """How many points each constraint removed, in the printed order.

    solutions  as `solve` gives them; they are enough where every constraint has one place
    """
    rows = add_rows(solutions)
    if len({_key(r.constraint) for r in rows}) == len(rows):
        return rows
    used = sum(len(layer.target) for s in solutions for g in s.groups for layer in g.elimination.layers)
    try:
        # Judging later keeps more rows; not without end, because the split rows are exact as well.
        return add_rows(solve(parts, min(row_budget, _PATIENCE * used + _FREE_ROWS), strict=strict, whole=True))
    except SpaceError:  # too large; or what keeps a divisor from being zero has to wait too long
        return rows


def add_rows(solutions: Sequence[PartSolution]) -> tuple[FunnelRow, ...]:
    """The rows of all parts, added up by place and constraint, in the printed order."""
    rows: dict[tuple[int, tuple[str, str, str]], FunnelRow] = {}
    place: dict[tuple[str, str, str], int] = {}
    for solution in solutions:
        for c in solution.part.constraints:
            place.setdefault(_key(c), len(place))
        for level, constraint, conditions, removed in solution.rows:
            key = (level, _key(constraint))
            known = rows.get(key)
            rows[key] = FunnelRow(
                known.constraint if known else constraint,
                known.conditions if known else conditions,
                removed + (known.removed if known else 0),
            )
    return tuple(rows[key] for key in sorted(rows, key=lambda k: (k[0], place[k[1]])))


def _key(constraint: Constraint) -> tuple[str, str, str]:
    """What makes two constraints of different parts the same row."""
    return constraint.name, constraint.kind, constraint.source


def read_rules(part: Part) -> tuple[Rule, ...]:
    """The conditions of a part, in the order of its constraints."""
    ranges = {n: Interval(v, v) for n, v in part.constants().items()}
    for axis in part.axes:
        if axis.numeric:
            numbers = [int(v) for v in axis.values]
            ranges[axis.name] = Interval(min(numbers), max(numbers))
    names = frozenset(a.name for a in part.axes)
    return tuple(
        Rule(constraint, condition, condition.bounds(ranges), condition.symbols & names)
        for constraint in part.constraints
        for condition in conjuncts(constraint.condition)
    )


def judge(rule: Rule, values: Mapping[str, Any]) -> Any:
    """Where the rule holds, for arrays of values on offer; it does not hold where a divisor is not positive."""
    if rule.settled:
        return True
    return rule.condition.exact_mask(values, strict=False) if rule.exact else rule.condition.mask(values)


def _choose_order(parts: Sequence[Part], rules: Sequence[Sequence[Rule]]) -> tuple[str, ...]:
    """The order of axes for all parts, from the share of random points that each condition admits."""
    widths: dict[str, int] = {}
    for part in parts:
        for axis in part.axes:
            width = len(axis.values)
            widths[axis.name] = max(width, widths.get(axis.name, width))
    seen: dict[Any, Estimate] = {}
    for part, own in sorted(zip(parts, rules, strict=True), key=lambda pair: -pair[0].raw_size):
        rng = np.random.default_rng(1)
        columns: dict[str, Any] = dict(part.constants())
        for axis in part.axes:
            if axis.numeric:
                columns[axis.name] = axis.array()[rng.integers(len(axis.values), size=_SAMPLES)]
        for rule in own:
            if rule.condition.node in seen or not rule.axes or rule.settled:
                continue
            share = 0.5
            if not rule.exact:
                passed = np.broadcast_to(rule.condition.mask(columns), (_SAMPLES,))
                share = (int(passed.sum()) + 0.5) / (_SAMPLES + 1)
            seen[rule.condition.node] = Estimate(rule.axes, share)
    return plan_order(widths, list(seen.values()))


@dataclass(frozen=True, slots=True)
class _Plan:
    """What all parts of a space share.

    order     axis -> its place
    identity  constraint -> its place in the declaration
    last      constraint -> the last place of its terms, where they wait for each other
    """

    order: Mapping[str, int]
    identity: Mapping[tuple[str, str, str], int]
    last: Mapping[tuple[str, str, str], int]
    row_budget: int
    strict: bool


def _solve_part(part: Part, rules: Sequence[Rule], plan: _Plan) -> PartSolution:
    order = plan.order
    constants = part.constants()
    # Rows of this part in the printed order, and which row judges which rule.
    places = []
    for rule in rules:
        key = _key(rule.constraint)
        places.append((plan.last.get(key, _level(rule, order)), plan.identity[key], rule.constraint))
    keys = sorted({(level, rank, id(c)): (level, rank, c) for level, rank, c in places}.values(), key=lambda k: k[:2])
    number = {(level, id(c)): i for i, (level, _, c) in enumerate(keys)}
    row_of = [number[level, id(c)] for level, _, c in places]

    axes = sorted(part.axes, key=lambda a: order[a.name])
    live = [(row, rule) for row, rule in zip(row_of, rules, strict=True) if not rule.settled]
    live.sort(key=lambda pair: pair[0])
    groups: list[Group] = []
    for names in connected([a.name for a in axes], [rule.axes for _, rule in live]):
        members = [a for a in axes if a.name in names]
        steps: list[list[Step]] = [[] for _ in members]
        depth = {a.name: i for i, a in enumerate(members)}
        for row, rule in live:
            if rule.axes & depth.keys():
                # Not before the axes of this group that precede it in the printed order.
                at = max(i for i, a in enumerate(members) if order[a.name] <= keys[row][0])
                steps[at].append(Step(row, rule.constraint.name, rule.condition, rule.exact, plan.strict))
        groups.append(Group(tuple(members), eliminate(members, steps, constants, plan.row_budget)))
    dead = [row for row, rule in live if not rule.axes and not _holds(part, rule, constants, plan.strict)]
    removed, size = _attribute(len(keys), groups, dead)
    conditions: list[list[Condition]] = [[] for _ in keys]
    for row, rule in zip(row_of, rules, strict=True):
        conditions[row].append(rule.condition)
    rows = tuple((k[0], k[2], tuple(c), n) for k, c, n in zip(keys, conditions, removed, strict=True))
    return PartSolution(part, tuple(groups), rows, size)


def _holds(part: Part, rule: Rule, constants: Mapping[str, int], strict: bool) -> bool:
    try:
        return rule.condition.holds(constants)
    except DivisorNotPositive as refused:
        if not strict:
            return False
        where = f"[{part.label}] the constraint {rule.constraint.name!r}"
        raise SpaceError(f"{where} cannot be judged: {refused}") from refused


def _attribute(rows: int, groups: Sequence[Group], dead: Sequence[int]) -> tuple[list[int], int]:
    """Points that each row is the first to reject, over the product of the groups, and the survivors.

    dead  rows that reject everything, whatever the axes are
    """
    alive = [g.elimination.raw for g in groups]
    removed = [0] * rows
    gone = set(dead)
    for row in range(rows):
        before = _product(alive)
        if row in gone:
            removed[row] = before
            return removed, 0
        for i, group in enumerate(groups):
            alive[i] -= group.elimination.removed.get(row, 0)
        removed[row] = before - _product(alive)
    return removed, _product(alive)


def _product(numbers: Sequence[int]) -> int:
    out = 1
    for n in numbers:
        out *= n
    return out


def _level(rule: Rule, order: Mapping[str, int]) -> int:
    """The place of the last axis that the rule reads; axes that are fixed in this part count too, as in the others."""
    return max((order[s] for s in rule.condition.symbols if s in order), default=-1)


def _column_type(values: Sequence[Any]) -> Any:
    return exact_type(max(values)) if all(isinstance(v, int) for v in values) else object
