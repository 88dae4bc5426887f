"""Local search with restarts and tabu: from neighbour to neighbour, downhill where there is a way down.

A descent moves to the first neighbour that is better. Where none is, the walk leaves over the least bad neighbour that
it has not been at lately (the tabu), so that it does not fall back at once; after some such steps without a new best
of the walk, another walk starts, in turn from a fresh random point and from a few random steps away from the best.
"""

from __future__ import annotations

import itertools
from collections import deque

import numpy as np

from tinygpu.search.evaluation import Evaluation, Trial
from tinygpu.search.searchable import Point, Searchable, Value
from tinygpu.search.seen import Seen, UnseenPoints, best_of
from tinygpu.search.strategy import Proposals

# Random points from which the first walk takes the best, and each later fresh one.
_FIRST_POINTS, _FRESH_POINTS = 8, 4
# Random steps away from the best point, for a walk that starts near it.
_KICK = 3
# Points that a walk does not go back to.
_TABU = 20
# Steps over known ground, or uphill, before a walk is given up.
_PATIENCE = 5


def local_search(space: Searchable, seen: Seen, rng: np.random.Generator, batch: int) -> Proposals:
    """Walks over the space's neighbours, so that every point is admitted; in the end every point has been proposed."""
    unseen = UnseenPoints(space, seen, rng)
    for walk in itertools.count():
        sample: list[Trial] = []
        wanted = 0 if walk % 2 else max(_FIRST_POINTS - len(seen), _FRESH_POINTS)
        while len(sample) < wanted:
            points = unseen.draw(min(batch, wanted - len(sample)))
            if not points:
                return
            evaluations = yield points
            sample += [Trial(point, given) for point, given in zip(points, evaluations, strict=True)]
        best = best_of(list(seen))
        if best is None:
            continue
        if walk % 2:
            start: Point = _kicked(space, best.point, rng)
        else:
            fresh = best_of(sample if walk else list(seen))
            start = (fresh or best).point
        if start not in seen:
            yield [start]
        yield from _walk(space, seen, rng, batch, Trial(start, seen[start]))


def _kicked(space: Searchable, point: Point, rng: np.random.Generator) -> Point:
    for _ in range(_KICK):
        around = list(space.neighbours(point))
        if around:
            point = around[int(rng.integers(len(around)))]
    return point


def _walk(space: Searchable, seen: Seen, rng: np.random.Generator, batch: int, here: Trial) -> Proposals:
    tabu: deque[frozenset[tuple[str, Value]]] = deque([frozenset(here.point.items())], maxlen=_TABU)
    best = here.evaluation.cost
    patience = _PATIENCE
    while patience:
        neighbours = list(space.neighbours(here.point))
        around = [neighbours[i] for i in rng.permutation(len(neighbours))]
        unknown = [point for point in around if point not in seen]
        found: list[Trial] = [Trial(point, seen[point]) for point in around if point in seen]
        better = best_of([trial for trial in found if trial.evaluation.cost < here.evaluation.cost])
        while better is None and unknown:
            points, unknown = unknown[:batch], unknown[batch:]
            evaluations: list[Evaluation] = list((yield points))
            new = [Trial(point, given) for point, given in zip(points, evaluations, strict=True)]
            found += new
            better = best_of([trial for trial in new if trial.evaluation.cost < here.evaluation.cost])
        # a known better neighbour that was left already would be a step in a circle
        allowed = [trial for trial in found if frozenset(trial.point.items()) not in tabu]
        step = better if better in allowed else best_of(allowed)
        if step is None:
            return
        here = step
        tabu.append(frozenset(here.point.items()))
        if here.evaluation.cost < best:
            best, patience = here.evaluation.cost, _PATIENCE
        else:
            patience -= 1
