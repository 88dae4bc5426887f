"""Factored search: the best points of a sum whose terms have parameters of their own, with a proof.

Where the values of the shared parameters are known, every term is least by itself: what has to be listed are the points
of each term, not their combinations. The sums of the least terms, one for each combination of shared values, say which
of these is best; nothing that was not tried can be better.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.constraints.constraint import Constraint
from tinygpu.constraints.explanation import find_violation
from tinygpu.search.searchable import Columns, Point, Searchable, Value
from tinygpu.search.seen import LISTABLE_POINTS, Seen
from tinygpu.search.strategy import PROVED, ProvingProposals
from tinygpu.search.terms import SumObjective, Term
from tinygpu.spaces import Part, Space

# Combinations of shared values that are tried, the best first, and for each of them points in all.
MOST_COMBINATIONS, EACH = 64, 256

Key: TypeAlias = tuple[Value, ...]
# The best points of a term for one combination of shared values, each with its value.
Group: TypeAlias = list[tuple[float, dict[str, Value]]]

# Rows that are scored at once.
_ROWS = 16_384


@dataclass(frozen=True, slots=True)
class Factored:
    """The strategy for one objective."""

    objective: SumObjective

    def __call__(self, space: Searchable, seen: Seen, rng: np.random.Generator, batch: int) -> ProvingProposals:
        """The best combinations of the terms' best points, in the order of their sums."""
        if not isinstance(space, Space):
            raise ValueError("strategy='factored' needs a space that knows its constraints")
        tables = _Tables(space, self.objective.terms)
        found: list[tuple[float, list[Point]]] = []
        for part in space.parts:
            found += tables.combinations(part)
        for _, points in sorted(found, key=lambda pair: pair[0])[:MOST_COMBINATIONS]:
            yield [point for point in points if point not in seen]
        return PROVED


def separable(space: Searchable, objective: object) -> bool:
    """Whether the terms of an objective can be listed one by one: no constraint ties what two have to themselves."""
    if not isinstance(objective, SumObjective) or not isinstance(space, Space):
        return False
    for part in space.parts:
        shared, axes = _shared(part, objective.terms), {a.name for a in part.axes}
        for constraint in part.constraints:
            own = (constraint.condition.symbols & axes) - shared
            if own and not any(own <= set(term.names) for term in objective.terms):
                return False
    return True


def _shared(part: Part, terms: Sequence[Term]) -> frozenset[str]:
    """Axes that several terms depend on, or none."""
    users = {a.name: sum(a.name in term.names for term in terms) for a in part.axes}
    return frozenset(name for name, count in users.items() if count != 1)


class _Tables:
    """Per term and structure of its own, its best points for every combination of shared values; each made once."""

    def __init__(self, space: Space, terms: Sequence[Term]) -> None:
        self._space, self._terms = space, terms
        self._each = max(2, int(EACH ** (1 / len(terms))))
        self._known: dict[tuple[str, Key], dict[Key, Group]] = {}

    def combinations(self, part: Part) -> Iterator[tuple[float, list[Point]]]:
        """For each combination of shared values of a part the least sum, and the points that come first."""
        shared = tuple(a.name for a in part.axes if a.name in _shared(part, self._terms))
        between = [c for c in part.constraints if not (c.condition.symbols & {a.name for a in part.axes}) - {*shared}]
        tables = [self._table(part, term, shared) for term in self._terms]
        for key in tables[0]:
            if all(key in table for table in tables) and _holds(part, between, dict(zip(shared, key, strict=True))):
                best = [table[key] for table in tables]
                ranked = sorted(itertools.product(*best), key=lambda chosen: sum(value for value, _ in chosen))
                yield sum(group[0][0] for group in best), [_point(part, chosen) for chosen in ranked]

    def _table(self, part: Part, term: Term, shared: tuple[str, ...]) -> dict[Key, Group]:
        kept = {*shared, *term.names}
        fixed = tuple(part.fixed[name] for name in part.fixed if name in kept)
        known = self._known.get((term.name, fixed))
        if known is None:
            known = self._known[term.name, fixed] = self._made(part, term, shared, kept)
        return known

    def _made(self, part: Part, term: Term, shared: tuple[str, ...], kept: set[str]) -> dict[Key, Group]:
        axes = tuple(a for a in part.axes if a.name in kept)
        private = {a.name for a in axes} - {*shared}
        constraints = tuple(c for c in part.constraints if c.condition.symbols & private)
        one = Part(part.fixed, axes, constraints, part.environment)
        alone = Space(f"{self._space.name}, {term.name}", (one,))
        if not alone.size:
            return {}
        (found,) = alone.columns_by_part(LISTABLE_POINTS)
        columns = {name: np.asarray(column) for name, column in found[1].items() if name in kept}
        values = np.concatenate([self._scored(term, columns, at) for at in range(0, alone.size, _ROWS)])
        names = [a.name for a in axes]
        return self._best(values, {name: columns[name] for name in names}, shared)

    def _scored(self, term: Term, columns: Columns, start: int) -> NDArray[np.float64]:
        return term.score({name: column[start : start + _ROWS] for name, column in columns.items()})

    def _best(self, values: NDArray[np.float64], columns: Columns, shared: tuple[str, ...]) -> dict[Key, Group]:
        """The first rows of every combination of shared values, by value."""
        groups = np.zeros(len(values), dtype=np.int64)
        for name in shared:
            codes = np.unique(columns[name], return_inverse=True)[1]
            groups = groups * (int(codes.max()) + 1) + codes
        order = np.lexsort((values, groups))
        order = order[np.isfinite(values[order])]
        starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
        out: dict[Key, Group] = {}
        for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(order)], strict=True):
            rows = order[start : min(stop, start + self._each)].tolist()
            key = tuple(_python(columns[name][rows[0]]) for name in shared)
            out[key] = [(float(values[r]), {name: _python(c[r]) for name, c in columns.items()}) for r in rows]
        return out


def _holds(part: Part, constraints: Sequence[Constraint], shared: dict[str, Value]) -> bool:
    """Whether what is said of shared values alone holds for them."""
    known = part.constants() | {name: value for name, value in shared.items() if isinstance(value, int)}
    return not any(find_violation(constraint, known) for constraint in constraints)


def _point(part: Part, chosen: Sequence[tuple[float, dict[str, Value]]]) -> Point:
    point: dict[str, Value] = dict(part.fixed)
    for _, values in chosen:
        point |= values
    return {name: point[name] for name in part.names}


def _python(value: Any) -> Value:
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain


__all__ = ["Factored", "separable"]
