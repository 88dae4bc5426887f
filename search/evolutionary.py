"""Evolutionary search: good points are crossed and changed a little; their children displace the worst.

A child is put together parameter after parameter. The space says at each which values still lead to an admitted
point; the child takes a parent's value where that is one of them, else the nearest that is. So every child is
admitted, and none costs an evaluation in vain.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinygpu.search.evaluation import Trial
from tinygpu.search.searchable import Point, Searchable, Value
from tinygpu.search.seen import Seen, UnseenPoints
from tinygpu.search.strategy import Proposals

# Points that may have children: the best of all that were tried.
_POPULATION = 12
# Random points before the first child.
_FIRST_POINTS = 12
# A parent is the best of so many of the population, drawn at random.
_TOURNAMENT = 2
# How many parameters of a child change at random, on average.
_MUTATIONS = 1.0
# How often a random point comes in place of a child.
_IMMIGRANTS = 0.05


def evolutionary(space: Searchable, seen: Seen, rng: np.random.Generator, batch: int) -> Proposals:
    """Children of the best points so far; in the end every point has been proposed."""
    unseen = UnseenPoints(space, seen, rng)
    while True:
        if len(seen) < _FIRST_POINTS:
            proposed = unseen.draw(min(batch, _FIRST_POINTS - len(seen)))
        else:
            population = sorted(seen, key=lambda trial: trial.evaluation.cost)[:_POPULATION]
            proposed = []
            for _ in range(batch):
                child = None if rng.random() < _IMMIGRANTS else _child(space, population, seen, proposed, rng)
                proposed += [child] if child is not None else [p for p in unseen.draw(1) if p not in proposed]
        if not proposed:
            return
        yield proposed


def _child(
    space: Searchable, population: Sequence[Trial], seen: Seen, known: Sequence[Point], rng: np.random.Generator
) -> Point | None:
    """An unseen child, or an unseen neighbour of one; None where all of them are known."""
    mother, father = _parent(population, rng), _parent(population, rng)
    child = crossed(space, mother, father, rng)
    if child not in seen and child not in known:
        return child
    around = [p for p in space.neighbours(child) if p not in seen and p not in known]
    return around[int(rng.integers(len(around)))] if around else None


def _parent(population: Sequence[Trial], rng: np.random.Generator) -> Point:
    """The population is sorted, so that the least of some random places is the best of them."""
    return population[int(rng.integers(len(population), size=_TOURNAMENT).min())].point


def crossed(space: Searchable, mother: Point, father: Point, rng: np.random.Generator) -> Point:
    """An admitted point with values of both parents, and now and then another one.

    It has the parameters of the mother. Where the space has no such point, it is the mother herself.
    """
    names = [name for name in space.names if name in mother]
    chance = _MUTATIONS / len(names) if names else 0.0
    child: dict[str, Value] = {}
    for name in names:
        legal = space.legal_values(child, name)
        if not legal:
            return mother
        if rng.random() < chance:
            child[name] = legal[int(rng.integers(len(legal)))]
        else:
            given = father.get(name, mother[name]) if rng.random() < 0.5 else mother[name]
            child[name] = nearest(legal, given)
    return child if child in space else mother


def nearest(legal: Sequence[Value], wanted: Value) -> Value:
    """`wanted` if it is legal; else the number whose ratio to it is least, or the first value for a word.

    >>> nearest((16, 32, 128), 32), nearest((16, 32, 256), 100), nearest(("direct", "staged"), "bulk")
    (32, 256, 'direct')
    """
    if wanted in legal:
        return wanted
    numbers = [value for value in legal if isinstance(value, int)]
    if not isinstance(wanted, int) or not numbers:
        return legal[0]
    return min(numbers, key=lambda value: abs(np.log((abs(value) + 1) / (abs(wanted) + 1))))
