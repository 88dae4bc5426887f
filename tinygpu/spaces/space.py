"""A space: all points of a machine for one problem on one device, as a value that counts, lists, samples and explains.

Nothing is listed before somebody asks for a list. The first question that needs the survivors eliminates the axes
(see `elimination`), which gives exact counts; sampling, ranking and masking are then walks through diagrams.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.constraints.explanation import Violation
from tinygpu.spaces.elimination import TooLarge
from tinygpu.spaces.exact import exact_type
from tinygpu.spaces.nearest import Nearest, find_nearest
from tinygpu.spaces.part import Choice, Part, Point, SpaceError
from tinygpu.spaces.points import points_at
from tinygpu.spaces.solution import FunnelRow, PartSolution, Rule, funnel, judge, read_rules, solve
from tinygpu.users_code import at

if TYPE_CHECKING:
    from tinygpu.constraints.query import Notebook
    from tinygpu.spaces.conflict import Conflict

# Rows (distinct prefixes) that exact counting may keep per group of axes: some 10 bytes each.
DEFAULT_ROW_BUDGET = 40_000_000
# Points that are turned into arrays when nobody says otherwise: some 8 bytes per point and parameter.
DEFAULT_LIST_LIMIT = 20_000_000
_CHUNK = 1 << 14


@dataclass(frozen=True, eq=False)
class Space:
    """A disjoint union of parts.

    name        the machine, problem and device, for error messages
    parts       one per structure; no point belongs to two
    row_budget  greatest number of rows that exact counting may keep for a group of connected axes. Beyond it every
                question about the survivors raises `TooLarge`; nothing is ever approximated
    strict      whether a constraint that divides by zero at some point, where no earlier one rejects the point, is an
                error in the declaration; else it rejects the point
    origin      what the points are candidates of, for a search that knows more than points: the `MachineSpace` that
                this space was built for, or None
    place       `file.py:12`, where the user says what the points are candidates of; "" where that is not known

    Raises `SpaceError` when two parts share a point.
    """

    name: str
    parts: tuple[Part, ...]
    row_budget: int = field(default=DEFAULT_ROW_BUDGET, kw_only=True)
    strict: bool = field(default=True, kw_only=True)
    origin: object | None = field(default=None, kw_only=True)
    place: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        _check_disjoint(self.name, self.parts)

    def __repr__(self) -> str:
        return f"Space({self.name!r}, {len(self.parts)} parts, {self.raw_size:,} points before constraints)"

    # -- counting -----------------------------------------------------------------------------------------------

    @property
    def raw_size(self) -> int:
        """Number of points before any constraint, exact."""
        return sum(part.raw_size for part in self.parts)

    @property
    def size(self) -> int:
        """Number of points that satisfy every constraint, exact. Raises `TooLarge`."""
        return self._starts[-1]

    @cached_property
    def funnel(self) -> tuple[FunnelRow, ...]:
        """How many points each constraint removed, in the order in which they are judged.

        Every removed point is counted in the first row that rejects it: raw_size - size = sum of `removed`.
        """
        return funnel(self.parts, self.solutions, self.row_budget, self.strict)

    @cached_property
    def solutions(self) -> tuple[PartSolution, ...]:
        """The survivors of each part."""
        try:
            return solve(self.parts, self.row_budget, strict=self.strict)
        except SpaceError as refused:
            raise at(type(refused)(f"[{self.name}] {refused}"), self.place) from refused

    def count(self, choices: Mapping[str, Choice | Iterable[Choice]]) -> int:
        """Number of survivors with these values; a name may be given several values, and others are free."""
        wanted = _as_sets(choices)
        return sum(s.count(allowed) for s, allowed in self._allowed(wanted))

    # -- points -------------------------------------------------------------------------------------------------

    def points(self) -> Iterator[dict[str, Choice]]:
        """All survivors, in the order of their indices; made in small batches."""
        for solution in self.solutions:
            for start in range(0, solution.size, _CHUNK):
                ranks = _ranks(start, min(start + _CHUNK, solution.size), solution.size)
                yield from points_at(solution, ranks)

    def __iter__(self) -> Iterator[dict[str, Choice]]:
        return self.points()

    def columns(self, limit: int = DEFAULT_LIST_LIMIT) -> dict[str, NDArray[Any]]:
        """All survivors as arrays, one per name, in the order of their indices: integers, or objects for words.

        Raises `SpaceError` for more than `limit` survivors, and when the parts have different names.
        """
        blocks = [block for _, block in self.columns_by_part(limit)]
        if len({frozenset(b) for b in blocks}) > 1:
            raise SpaceError(
                f"[{self.name}] the parts of this space have different parameters; ask for the columns by part"
            )
        names = blocks[0] if blocks else ()
        return {name: np.concatenate([b[name] for b in blocks]) for name in names}

    def columns_by_part(self, limit: int = DEFAULT_LIST_LIMIT) -> Iterator[tuple[Part, dict[str, NDArray[Any]]]]:
        """The survivors of one part after the other, as arrays. Raises `SpaceError` for more than `limit` in all."""
        if self.size > limit:
            raise SpaceError(
                f"[{self.name}] {self.size:,} points are too many to list (the limit is {limit:,}); sample them instead"
            )
        for solution in self.solutions:
            yield solution.part, solution.values(solution.columns(), solution.size)

    def __contains__(self, point: object) -> bool:
        """Whether a point has a value on offer for every name and satisfies every constraint."""
        return isinstance(point, Mapping) and any(p.offers(point) and p.admits(point) for p in self.parts)

    def at(self, index: int) -> dict[str, Choice]:
        """The survivor with this index, from 0 to size - 1."""
        if not 0 <= index < self.size:
            raise SpaceError(f"[{self.name}] there is no point {index:,}; indices go from 0 to {self.size - 1:,}")
        (point,) = self.take([index])
        return point

    def take(self, indices: Iterable[int]) -> tuple[dict[str, Choice], ...]:
        """The survivors with these indices, each from 0 to size - 1."""
        found: dict[int, dict[str, Choice]] = {}
        wanted = list(indices)
        home = [bisect_right(self._starts, i) - 1 for i in wanted]
        for p in sorted(set(home)):
            solution, places = self.solutions[p], [k for k, h in enumerate(home) if h == p]
            ranks = _array([wanted[k] - self._starts[p] for k in places], solution.size)
            found.update(zip(places, points_at(solution, ranks), strict=True))
        return tuple(found[k] for k in range(len(wanted)))

    def index(self, point: Point) -> int:
        """The index of a survivor. Raises `SpaceError`, saying why, when the point is not in the space."""
        for start, solution in zip(self._starts, self.solutions, strict=False):
            if solution.part.offers(point):
                rank = solution.rank({a.name: a.values.index(point[a.name]) for a in solution.part.axes})
                if rank is not None:
                    return start + rank
        reasons = "; ".join(str(v) for v in self.explain(point)) or "it does not name every parameter, and only those"
        raise SpaceError(f"[{self.name}] {_text(point)} is not in the space: {reasons}")

    def sample(self, count: int, rng: np.random.Generator) -> tuple[dict[str, Choice], ...]:
        """`count` survivors, each drawn uniformly from all, independently. Raises `SpaceError` for an empty space."""
        if not self.size:
            raise SpaceError(f"[{self.name}] no point satisfies every constraint, so that none can be drawn")
        return self.take(_uniform(self.size, count, rng))

    def neighbours(self, point: Point) -> tuple[dict[str, Choice], ...]:
        """The survivors that differ from the point in exactly one value, structural choices included."""
        out: list[dict[str, Choice]] = []
        for part, rules in zip(self.parts, self._rules, strict=True):
            if point.keys() == part.domains().keys():
                out += _neighbours(part, rules, point)
        return tuple(out)

    def legal_values(self, partial: Point, name: str) -> tuple[Choice, ...]:
        """The values of `name` for which a survivor with the values in `partial` exists, in the order on offer.

        Values that `partial` gives for `name` itself are ignored.
        """
        wanted = _as_sets({n: v for n, v in partial.items() if n != name})
        found: dict[Choice, None] = {}
        for solution, allowed in self._allowed(wanted):
            part = solution.part
            if name in part.fixed and solution.count(allowed):
                found[part.fixed[name]] = None
            for axis in part.axes:
                if axis.name == name:
                    possible = solution.legal(name, allowed)
                    found.update(dict.fromkeys(v for v, p in zip(axis.values, possible, strict=True) if p))
        if name not in self.names:
            raise SpaceError(f"[{self.name}] there is no parameter {name!r}; there are {', '.join(self.names)}")
        return tuple(found)

    # -- reasons ------------------------------------------------------------------------------------------------

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all parts, in the order of first sight."""
        return tuple(dict.fromkeys(name for part in self.parts for name in part.names))

    def explain(self, point: Point) -> tuple[Violation, ...]:
        """Why a point is out; empty when it is in (or, for a point that leaves names open, when a completion is in).

        The point is judged in the part that suits it best: the structure that it names, and of several the one where
        fewest constraints break, one that has points of its own if it can be. Values need not be on offer.
        """
        unknown = [n for n in point if n not in self.names]
        if unknown:
            raise SpaceError(f"[{self.name}] there is no parameter {unknown[0]!r}; there are {', '.join(self.names)}")
        fitting = [p for p in self.parts if all(point.get(n, v) == v for n, v in p.fixed.items())]
        fitting = [p for p in fitting if point.keys() <= p.domains().keys()] or fitting or list(self.parts)
        offered: dict[str, tuple[Choice, ...]] = {}
        for name, values in (domain for p in self.parts for domain in p.domains().items()):
            offered[name] = tuple(dict.fromkeys((*offered.get(name, ()), *values)))
        broken: list[tuple[Part, tuple[Violation, ...]]] = []
        for part in fitting:
            found = part.violations(point, offered=offered)
            if not found and (point.keys() == part.domains().keys() or self._completes(part, point)):
                return ()
            broken.append((part, found))
        if not broken:
            return ()  # a space without parts
        fewest = min(len(found) or 1 for _, found in broken)
        closest = [(part, found) for part, found in broken if (len(found) or 1) == fewest]
        # where a structure has no points at all, that is not the point's fault
        part, found = next((one for one in closest if len(closest) == 1 or self._has_points(one[0])), closest[0])
        return found or self._why_no_completion(part, point)

    def restrict(self, choices: Mapping[str, Choice | Iterable[Choice]]) -> Space:
        """The space of the points with these values: one or several per name, others stay as they are."""
        wanted = _as_sets(choices)
        for name in wanted:
            if name not in self.names:
                raise SpaceError(f"[{self.name}] there is no parameter {name!r}; there are {', '.join(self.names)}")
        kept = (p.restrict(wanted) for p in self.parts if wanted.keys() <= p.domains().keys())
        return replace(self, parts=tuple(p for p in kept if p is not None))

    def conflict(self, notebook: Notebook | None = None) -> tuple[Conflict, ...]:
        """Why the space is empty: per part, constraints that cannot hold together, none of which can be dropped.

        Parts with the same set share one entry. Raises `SpaceError` when the space is not empty.
        """
        from tinygpu.spaces.conflict import find_conflicts  # loads Z3

        self._refuse_unless_empty()
        return find_conflicts(self.solutions, self.row_budget, notebook)

    def nearest(self) -> Nearest:
        """The smallest change that would let a point into an empty space. Raises `SpaceError` when it is not empty."""
        self._refuse_unless_empty()
        try:
            return find_nearest(self.parts, self.row_budget)
        except SpaceError as refused:
            raise type(refused)(f"[{self.name}] {refused}") from refused

    # -- inside -------------------------------------------------------------------------------------------------

    def _refuse_unless_empty(self) -> None:
        if self.size:
            raise SpaceError(f"[{self.name}] the space is not empty: {self.size:,} points satisfy every constraint")

    @cached_property
    def _rules(self) -> tuple[tuple[Rule, ...], ...]:
        return tuple(read_rules(part) for part in self.parts)

    @cached_property
    def _starts(self) -> tuple[int, ...]:
        """(parts + 1,) the index of the first survivor of each part, and the size of the space."""
        starts = [0]
        for solution in self.solutions:
            starts.append(starts[-1] + solution.size)
        return tuple(starts)

    def _allowed(self, wanted: Mapping[str, frozenset[Choice]]) -> Iterator[tuple[PartSolution, dict[str, Any]]]:
        """Per part that has all the names and offers a wanted value for each: masks over the values of its axes."""
        for solution in self.solutions:
            part = solution.part
            if not wanted.keys() <= part.domains().keys():
                continue
            if any(n in wanted and v not in wanted[n] for n, v in part.fixed.items()):
                continue
            yield (
                solution,
                {a.name: np.array([v in wanted[a.name] for v in a.values]) for a in part.axes if a.name in wanted},
            )

    def _completes(self, part: Part, point: Point) -> bool:
        narrowed = part.restrict({n: (v,) for n, v in point.items()})
        return narrowed is not None and replace(self, parts=(narrowed,)).size > 0

    def _has_points(self, part: Part) -> bool:
        try:
            return self._completes(part, {})
        except TooLarge:  # nobody can count them
            return True

    def _why_no_completion(self, part: Part, point: Point) -> tuple[Violation, ...]:
        narrowed = part.restrict({n: (v,) for n, v in point.items()})
        if narrowed is None:
            return (Violation(None, f"{_text(point)} names no point of {part.label}"),)
        (conflict,) = replace(self, parts=(narrowed,)).conflict()
        begun = f"{_text(point)} has no completion: " if point else ""  # who says nothing is told what cannot hold
        return (Violation(conflict.constraints[0], f"{begun}{conflict}"),)


def _check_disjoint(name: str, parts: tuple[Part, ...]) -> None:
    domains = [part.domains() for part in parts]
    sets = [{n: frozenset(v) for n, v in d.items()} for d in domains]
    for i, first in enumerate(sets):
        for j in range(i):
            second = sets[j]
            if first.keys() == second.keys() and all(first[n] & second[n] for n in first):
                raise SpaceError(
                    f"[{name}] the parts {parts[j].label!r} and {parts[i].label!r} share points; "
                    "give them different structural choices"
                )


def _neighbours(part: Part, rules: tuple[Rule, ...], point: Point) -> list[dict[str, Choice]]:
    """Survivors of one part that differ from the point (which names the same parameters) in exactly one value."""
    domains = part.domains()
    apart = [n for n in part.names if point[n] not in domains[n]]
    moved = [n for n in part.fixed if point[n] != part.fixed[n]]
    if len(moved) > 1 or any(n not in moved for n in apart):
        return []
    base = {**point, **part.fixed}
    if moved:
        candidates = [base]
    else:
        candidates = [{**base, a.name: v} for a in part.axes for v in a.values if v != point[a.name]]
    admitted = _admitted(part, rules, candidates)
    return [{n: c[n] for n in part.names} for c, inside in zip(candidates, admitted, strict=True) if inside]


def _admitted(part: Part, rules: tuple[Rule, ...], points: list[dict[str, Choice]]) -> NDArray[np.bool_]:
    """(points,) which points satisfy every rule of the part; each has a value on offer for every name."""
    alive = np.arange(len(points))
    constants = part.constants()
    columns = {a.name: a.array()[[a.values.index(p[a.name]) for p in points]] for a in part.axes if a.numeric}
    for rule in rules:
        if len(alive):
            values = {n: columns[n][alive] if n in columns else constants[n] for n in rule.condition.symbols}
            alive = alive[np.broadcast_to(judge(rule, values), alive.shape)]
    out = np.zeros(len(points), dtype=np.bool_)
    out[alive] = True
    return out


def _as_sets(choices: Mapping[str, Choice | Iterable[Choice]]) -> dict[str, frozenset[Choice]]:
    return {n: frozenset((v,)) if isinstance(v, (int, str)) else frozenset(v) for n, v in choices.items()}


def _array(numbers: list[int], below: int) -> NDArray[Any]:
    return np.array(numbers, dtype=exact_type(below))


def _ranks(start: int, stop: int, below: int) -> NDArray[Any]:
    return np.arange(start, stop, dtype=exact_type(below))


def _uniform(below: int, count: int, rng: np.random.Generator) -> list[int]:
    """`count` integers from 0 to below - 1, uniform and independent, for any size of `below`."""
    if exact_type(below) is np.int64:
        return [int(i) for i in rng.integers(below, size=count)]
    bits = below.bit_length()
    size = (bits + 7) // 8
    out: list[int] = []
    while len(out) < count:  # at least half of the draws are below the bound
        number = int.from_bytes(rng.bytes(size), "little") >> (8 * size - bits)
        if number < below:
            out.append(number)
    return out


def _text(point: Point) -> str:
    return ", ".join(f"{n}={v}" for n, v in point.items()) or "the empty point"
