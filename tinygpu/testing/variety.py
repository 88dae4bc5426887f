"""Few candidates that differ in much: every value of every parameter, then pairs of values, and the edges of limits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import sympy

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, compile_scalars

Point = Mapping[str, int | str]
# What a candidate is worth that shows something for the first time: that lies at the edge of one of the author's
# limits, that has a value nobody had, and two values that nobody had together.
EDGE, VALUE, PAIR = 60, 20, 1


def varied(
    pools: Sequence[Sequence[Point]],
    environments: Sequence[Mapping[str, int]],
    limits: Sequence[Constraint],
    count: int,
) -> list[tuple[int, Point]]:
    """(pool, point) of `count` points, from the pools in turn: greedily those that show most that is new.

    environments  per pool, the numbers that limits read beside parameters
    limits        inequalities whose edges are worth a look: a limit that is too loose is so at its edge
    """
    listed = [_with_features(pool, env, limits) for pool, env in zip(pools, environments, strict=True)]
    seen: set[Hashable] = set()
    out: list[tuple[int, Point]] = []
    for number in range(count if listed else 0):
        which = number % len(listed)
        if not listed[which]:
            continue
        best = max(range(len(listed[which])), key=lambda i: sum(w for f, w in listed[which][i][1] if f not in seen))
        point, features = listed[which].pop(best)
        seen.update(f for f, _ in features)
        out.append((which, point))
    return out


def _with_features(
    pool: Sequence[Point], environment: Mapping[str, int], limits: Sequence[Constraint]
) -> list[tuple[Point, list[tuple[Hashable, int]]]]:
    """Every distinct point, with what it shows and what that is worth."""
    distinct = list({tuple(p.items()): p for p in pool}.values())
    edges: dict[int, list[Hashable]] = {}
    for c in limits:
        for place, room in enumerate(_rooms(c)):
            slack = [_slack(room, {**environment, **p}) for p in distinct]
            known = [s for s in slack if s is not None]
            for i, s in enumerate(slack):
                if s is not None and s == min(known) and min(known) < max(known):
                    edges.setdefault(i, []).append((c.name, place))
    out = []
    for i, point in enumerate(distinct):
        values = sorted(point.items())
        features: list[tuple[Hashable, int]] = [(edge, EDGE) for edge in edges.get(i, [])]
        features += [(v, VALUE) for v in values]
        features += [(pair, PAIR) for pair in itertools.combinations(values, 2)]
        out.append((point, features))
    return out


def _rooms(c: Constraint) -> list[Callable[[Mapping[str, Any]], tuple[Any, ...]]]:
    """Per inequality of a condition: by how much it holds at a point."""
    atoms = sorted(c.condition.sympy.atoms(sympy.core.relational.Relational), key=str)
    unequal = [a for a in atoms if isinstance(a, (sympy.Ge, sympy.Gt, sympy.Le, sympy.Lt))]
    return [compile_scalars(Expr(a.gts - a.lts)) for a in unequal]


def _slack(room: Callable[[Mapping[str, Any]], tuple[Any, ...]], values: Mapping[str, Any]) -> int | None:
    """By how much an inequality holds; None where it does not, or where another constraint says what it divides by."""
    try:
        more = int(room({k: v for k, v in values.items() if isinstance(v, int)})[0])
    except (KeyError, ArithmeticError):
        return None
    return more if more >= 0 else None


def shortfall(c: Constraint, values: Mapping[str, Any]) -> int:
    """By how much a point misses the inequalities of a condition that it breaks; 0 where none is broken."""
    numbers = {k: v for k, v in values.items() if isinstance(v, int)}
    missing = 0
    for room in _rooms(c):
        try:
            missing += max(0, -int(room(numbers)[0]))
        except (KeyError, ArithmeticError):
            continue
    return missing
