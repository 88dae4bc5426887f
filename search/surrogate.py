"""Surrogate-guided search: a model of the values seen so far says which point is worth an evaluation.

A Gaussian process over the encoded parameters predicts every candidate with an error bar, another one how likely it has
a value at all. The candidate from which most improvement is expected is tried next, and the models learn from it.
Candidates are the neighbours of the best points and a random sample, so that the search sharpens what is good without
forgetting the rest of the space. When it stalls, every second proposal is a neighbour of one of the best points: where
a space is rougher than the model believes, the optimum is often one step away.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tinygpu.search.candidates import Candidates
from tinygpu.search.evaluation import Trial
from tinygpu.search.feasibility import Feasibility
from tinygpu.search.gaussian_process import Array, GaussianProcess, log_expected_improvement
from tinygpu.search.searchable import Point, Searchable, Value
from tinygpu.search.seen import Seen, UnseenPoints
from tinygpu.search.strategy import Proposals

# Points that are spread over the space before the model has its say, chosen from a random sample.
_DESIGN_POINTS = 6
_DESIGN_SAMPLE = 500
# Points with a value that the model needs. Until there are so many, points are drawn at random: most points fail at the
# far ends of a space, which a spread prefers.
_FEWEST_VALUES = 2
# Candidates that are drawn for each proposal, beside the neighbours of the best points.
_DRAWN = 1_200
_BEST_POINTS = 3
# Of the candidates with most improvement, so many are asked how likely they have a value.
_ASKED = 256
# Evaluations without a new best after which the search looks more closely around the best points.
_STALLED = 15
# Points that the model learns from at most: the time of a proposal grows with their square.
_MOST_LEARNED = 256


def surrogate(space: Searchable, seen: Seen, rng: np.random.Generator, batch: int) -> Proposals:
    """A spread design, then the greatest expected improvement; in the end every point has been proposed."""
    candidates = Candidates(space, rng)
    unseen = UnseenPoints(space, seen, rng)
    surroundings = _Surroundings(space)
    models = _Models(candidates)
    while True:
        missing = _DESIGN_POINTS - len(seen)
        chosen: list[Point] = []
        if missing > 0:
            chosen = _spread(candidates, seen, min(batch, missing))
        elif sum(trial.value is not None for trial in seen) >= _FEWEST_VALUES:
            chosen = _promising(surroundings, candidates, models, seen, rng, batch)
        proposed = chosen or unseen.draw(batch)
        if not proposed:
            return
        yield proposed


def _spread(candidates: Candidates, seen: Seen, count: int) -> list[Point]:
    """Unseen points of a random sample, each the farthest from all that was tried or chosen before it."""
    drawn = candidates.draw(_DESIGN_SAMPLE)
    distance = np.full(len(drawn.vectors), np.inf)
    for vector in candidates.given([trial.point for trial in seen]).vectors:
        distance = np.minimum(distance, np.abs(drawn.vectors - vector).sum(axis=1))
    chosen: list[Point] = []
    for _ in range(len(distance)):
        number = int(np.argmax(distance))
        point = drawn.point(number)
        if len(chosen) < count and point not in seen and point not in chosen:
            chosen.append(point)
            distance = np.minimum(distance, np.abs(drawn.vectors - drawn.vectors[number]).sum(axis=1))
        distance[number] = -1.0
        if len(chosen) == count:
            break
    return chosen


def _promising(
    surroundings: _Surroundings,
    candidates: Candidates,
    models: _Models,
    seen: Seen,
    rng: np.random.Generator,
    batch: int,
) -> list[Point]:
    """Unseen candidates, each with the most expected improvement if those before it turn out as expected."""
    trials = list(seen)
    best = models.learn(candidates, _learned(trials, rng))
    ordered = sorted((t for t in trials if t.value is not None), key=lambda t: t.evaluation.cost)
    stalled = len(trials) - 1 - trials.index(ordered[0]) >= _STALLED
    # once the search has stalled, every second proposal is the most promising one next to the best points
    nearby = stalled and len(trials) // batch % 2 == 1
    around = (surroundings.unseen(trial.point, seen) for trial in ordered)
    near_best = [point for points in itertools.islice(filter(None, around), _BEST_POINTS) for point in points]
    pools = [candidates.given(near_best)]
    if not nearby or not near_best:
        pools.append(candidates.draw(_DRAWN))
    vectors = np.concatenate([pool.vectors for pool in pools])
    chosen: list[Point] = []
    for _ in range(batch):
        mean, deviation = models.values.predict(vectors)
        gain = log_expected_improvement(mean, deviation, best)
        asked = np.argsort(-gain, kind="stable")[:_ASKED]
        likely = models.feasibility.log_likelihood(vectors[asked])
        for number in asked[np.argsort(-gain[asked] - likely, kind="stable")].tolist():
            first = len(pools[0].vectors)
            point = pools[0].point(number) if number < first else pools[1].point(number - first)
            if point not in seen and point not in chosen:
                chosen.append(point)
                break
        else:
            break
        if len(chosen) < batch:
            models.expect(vectors[number], float(mean[number]))
    return chosen


class _Surroundings:
    """The neighbours of points; a good point is asked for again and again."""

    def __init__(self, space: Searchable) -> None:
        self._space = space
        self._known: dict[frozenset[tuple[str, Value]], list[Point]] = {}

    def unseen(self, point: Point, seen: Seen) -> list[Point]:
        key = frozenset(point.items())
        known = self._known[key] if key in self._known else self._space.neighbours(point)
        self._known[key] = [neighbour for neighbour in known if neighbour not in seen]
        return self._known[key]


class _Models:
    """What was learned so far: values where there are some, and where points fail."""

    def __init__(self, candidates: Candidates) -> None:
        encoding = candidates.encoding
        self.values = GaussianProcess(encoding.groups, encoding.parameters)
        self.feasibility = Feasibility(encoding.groups, encoding.parameters)
        self._vectors = np.zeros((0, candidates.encoding.width))
        self._levels = np.zeros(0)

    def learn(self, candidates: Candidates, trials: Sequence[Trial]) -> float:
        """Learn from trials, some with values; returns the level of the best one."""
        vectors = candidates.given([trial.point for trial in trials]).vectors
        failed = np.array([trial.value is None for trial in trials])
        self._vectors = vectors[~failed]
        self._levels = levels(np.array([trial.value for trial in trials if trial.value is not None]))
        self.values.fit(self._vectors, self._levels)
        self.feasibility.fit(vectors, failed)
        return float(self._levels.min())

    def expect(self, vector: Array, level: float) -> None:
        """Take a point as tried, for the time being."""
        self._vectors = np.concatenate([self._vectors, vector[None]])
        self._levels = np.append(self._levels, level)
        self.values.condition(self._vectors, self._levels)


def _learned(trials: Sequence[Trial], rng: np.random.Generator) -> Sequence[Trial]:
    """The trials that the model learns from: all, or half of them the best and the others at random."""
    if len(trials) <= _MOST_LEARNED:
        return trials
    ordered = sorted(trials, key=lambda trial: trial.evaluation.cost)
    best, rest = ordered[: _MOST_LEARNED // 2], ordered[_MOST_LEARNED // 2 :]
    return best + [rest[i] for i in rng.choice(len(rest), _MOST_LEARNED - len(best), replace=False)]


def levels(values: Array) -> Array:
    """(values,) the same on a scale with mean 0 and spread 1 on which good ones are far apart and bad ones close.

    Twice a logarithm: a time that is twice the best matters, whether it is fifty or a hundred times the best does not.

    >>> levels(np.array([1.0, 2.0, 4.0, 1e6])).round(2).tolist()
    [-1.0, -0.49, -0.16, 1.65]
    """
    logs = np.log(values) if np.all(values > 0) else values
    above = logs - logs.min()
    unit = float(np.median(above)) or float(above.max()) or 1.0
    out = np.log1p(above / unit)
    return np.asarray((out - out.mean()) / (float(out.std()) or 1.0), dtype=np.float64)
