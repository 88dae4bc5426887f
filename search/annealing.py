"""Simulated annealing: a walk from neighbour to neighbour that accepts a worse point with a falling probability."""

from __future__ import annotations

import itertools
import math

import numpy as np

from tinygpu.search.evaluation import Trial
from tinygpu.search.searchable import Point, Searchable
from tinygpu.search.seen import Seen, UnseenPoints, best_of
from tinygpu.search.strategy import Proposals

# Random points before the first walk: they give a start and the spread of the values.
_FIRST_POINTS = 16
# Random points before each later walk that starts afresh.
_RESTART_POINTS = 4
# A walk cools from the spread of the values to a thousandth of it.
_COOLING = 1e-3
# Proposals in one walk, per parameter of the space; the schedule depends on nothing else, so that it is the same for
# every budget.
_STEPS_PER_PARAMETER = 12


def annealing(space: Searchable, seen: Seen, rng: np.random.Generator, batch: int) -> Proposals:
    """Walks over the space's neighbours, so that every point is admitted; known points cost nothing.

    Walks start in turn from the best point so far and from fresh random points. One point is proposed at a time,
    because each depends on the one before; only the random points before a walk come in batches.
    """
    unseen = UnseenPoints(space, seen, rng)
    for walk in itertools.count():
        sample: list[Trial] = []
        # every second walk starts from fresh random points, the others from the best point so far
        wanted = 0 if walk % 2 else max(_FIRST_POINTS - len(seen), _RESTART_POINTS)
        while len(sample) < wanted:
            points = unseen.draw(min(batch, wanted - len(sample)))
            if not points:
                return
            evaluations = yield points
            sample += [Trial(point, given) for point, given in zip(points, evaluations, strict=True)]
        trials = list(seen)
        start = best_of(sample if walk and sample else trials)
        if start is not None:
            yield from _walk(space, seen, rng, start, spread_of(trials))


def spread_of(trials: list[Trial]) -> float:
    """How far the usual value lies above the best one; the unit in which temperatures are counted.

    The median is taken, because a few hopeless candidates may be a thousand times worse than the rest.
    """
    values = [trial.value for trial in trials if trial.value is not None]
    return float(np.median(values) - min(values)) if values else 0.0


def _walk(space: Searchable, seen: Seen, rng: np.random.Generator, start: Trial, spread: float) -> Proposals:
    """One walk, from hot to cold."""
    here: Point = start.point
    cost = start.evaluation.cost
    steps = _STEPS_PER_PARAMETER * len(here)
    around = _shuffled(space, here, rng)
    for step in range(steps):
        temperature = spread * _COOLING ** (step / steps)
        if not around:
            return
        # Unseen neighbours first: a walk must learn something. Where all are known it may still move on.
        candidate = next((point for point in around if point not in seen), around[0])
        around = [point for point in around if point is not candidate]
        if candidate in seen:
            given = seen[candidate]
        else:
            (given,) = yield [candidate]
        if accepts(given.cost - cost, temperature, float(rng.random())):
            here, cost = candidate, given.cost
            around = _shuffled(space, here, rng)


def _shuffled(space: Searchable, point: Point, rng: np.random.Generator) -> list[Point]:
    neighbours = list(space.neighbours(point))
    return [neighbours[i] for i in rng.permutation(len(neighbours))]


def accepts(increase: float, temperature: float, draw: float) -> bool:
    """Whether a move that makes the value worse by `increase` is taken; `draw` is uniform in [0, 1).

    >>> accepts(-1.0, 0.0, 0.9), accepts(1.0, 0.0, 0.0), accepts(1.0, 1.0, 0.3), accepts(1.0, 1.0, 0.4)
    (True, False, True, False)
    """
    if increase <= 0:
        return True
    return temperature > 0 and draw < math.exp(-increase / temperature)
