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

from tinygpu.search.searchable import Point, Searchable, Value
from tinygpu.search.seen import LISTABLE_POINTS, Seen
from tinygpu.search.strategy import PROVED, ProvingProposals
from tinygpu.search.terms import SumObjective, Term
from tinygpu.spaces import Axis, Part, Space

# Combinations of shared values that are tried, the best first, and for each of them points in all.
MOST_COMBINATIONS, EACH = 64, 256

Key: TypeAlias = tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Factored:
    """The strategy for one objective."""

    objective: SumObjective

    def __call__(self, space: Searchable, seen: Seen, rng: np.random.Generator, batch: int) -> ProvingProposals:
        """The best combinations of the terms' best points, in the order of their sums."""
        if not isinstance(space, Space):
            raise ValueError("strategy='factored' needs a space that knows its constraints")
        found: list[tuple[float, list[Point]]] = []
        for part in space.parts:
            found += self._combinations(space, part)
        for _, points in sorted(found, key=lambda pair: pair[0])[:MOST_COMBINATIONS]:
            yield [point for point in points if point not in seen]
        return PROVED

    def _combinations(self, space: Space, part: Part) -> Iterator[tuple[float, list[Point]]]:
        """For each combination of shared values of a part the least sum, and the points that come first."""
        terms = self.objective.terms
        shared = _shared(part, terms)
        tables = [_table(space, part, term, shared) for term in terms]
        each = max(2, int(EACH ** (1 / len(terms))))
        for key in tables[0]:
            if all(key in table for table in tables):
                best = [table[key][:each] for table in tables]
                total = sum(group[0][0] for group in best)
                ranked = sorted(itertools.product(*best), key=lambda chosen: sum(value for value, _ in chosen))
                points: list[Point] = []
                for chosen in ranked:
                    point: dict[str, Value] = dict(part.fixed)
                    for _, values in chosen:
                        point |= values
                    points.append({name: point[name] for name in part.names})
                yield total, points


def separable(space: Searchable, objective: object) -> bool:
    """Whether the terms of an objective can be listed one by one: no constraint ties what two have to themselves."""
    if not isinstance(objective, SumObjective) or not isinstance(space, Space):
        return False
    terms = objective.terms
    for part in space.parts:
        shared = set(_shared(part, terms))
        axes = {a.name for a in part.axes}
        for constraint in part.constraints:
            own = (constraint.condition.symbols & axes) - shared
            if own and not any(own <= set(term.names) for term in terms):
                return False
        if any(_alone(space, part, term, _shared(part, terms)).size > LISTABLE_POINTS for term in terms):
            return False
    return True


def _shared(part: Part, terms: Sequence[Term]) -> tuple[str, ...]:
    """Axes that several terms depend on, or none."""
    users = {a.name: sum(a.name in term.names for term in terms) for a in part.axes}
    return tuple(name for name, count in users.items() if count != 1)


def _alone(space: Space, part: Part, term: Term, shared: Sequence[str]) -> Space:
    """The points of a part as far as one term can tell them apart."""
    kept = {*shared, *term.names}
    axes = tuple(Axis(a.name, a.values) for a in part.axes if a.name in kept)
    dropped = {a.name for a in part.axes} - {a.name for a in axes}
    constraints = tuple(c for c in part.constraints if not c.condition.symbols & dropped)
    return Space(f"{space.name}, {term.name}", (Part(part.fixed, axes, constraints, part.environment),))


def _table(
    space: Space, part: Part, term: Term, shared: Sequence[str]
) -> dict[Key, list[tuple[float, dict[str, Value]]]]:
    """Per combination of shared values the term's points, the best first, each with its value."""
    alone = _alone(space, part, term, shared)
    out: dict[Key, list[tuple[float, dict[str, Value]]]] = {}
    for one, columns in alone.columns_by_part():
        count = alone.size
        if not count:
            return {}
        fixed = {name: np.full(count, value, dtype=object) for name, value in one.fixed.items()}
        numbers = {name: np.full(count, value) for name, value in one.fixed.items() if isinstance(value, int)}
        known: dict[str, NDArray[Any]] = {**fixed, **numbers, **columns}
        values = term.score({name: column for name, column in known.items() if name in {*term.names, *shared}})
        order = np.argsort(values, kind="stable")
        order = order[np.isfinite(values[order])]
        names = [name for name in columns if name not in one.fixed]
        for row in order.tolist():
            key = tuple(_python(columns[name][row]) for name in shared)
            group = out.setdefault(key, [])
            if len(group) < EACH:
                group.append((float(values[row]), {name: _python(columns[name][row]) for name in names}))
    return out


def _python(value: Any) -> Value:
    plain: Value = value.item() if isinstance(value, np.generic) else value
    return plain


__all__ = ["Factored", "separable"]
