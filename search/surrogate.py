"""Surrogate-guided search: a model of the values seen so far says which point is worth an evaluation.

A Gaussian process over the encoded parameters predicts every candidate with an error bar; the candidate from which
most improvement is expected is tried next, and the model learns from it. Candidates are the neighbours of the best
points and a random sample, so that the search sharpens what is good without forgetting the rest of the space.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.candidates import Candidates
from tinygpu.search.evaluation import Trial
from tinygpu.search.gaussian_process import GaussianProcess, log_expected_improvement
from tinygpu.search.searchable import Point, Searchable
from tinygpu.search.seen import Seen, UnseenPoints
from tinygpu.search.strategy import Proposals

Array = NDArray[np.float64]

# Points that are spread over the space before the model has its say, chosen from a random sample.
_DESIGN_POINTS = 6
_DESIGN_SAMPLE = 500
# Candidates that are drawn for each proposal, beside the neighbours of the best points.
_DRAWN = 2_000
_BEST_POINTS = 3
# Points that the model learns from at most: the time of a proposal grows with their square.
_MOST_LEARNED = 256


def surrogate(space: Searchable, seen: Seen, rng: np.random.Generator, batch: int) -> Proposals:
    """A spread design, then the greatest expected improvement; in the end every point has been proposed."""
    candidates = Candidates(space, rng)
    unseen = UnseenPoints(space, seen, rng)
    model = GaussianProcess(candidates.encoding.groups)
    while True:
        trials = list(seen)
        missing = _DESIGN_POINTS - len(trials)
        if missing > 0 or all(trial.value is None for trial in trials):
            chosen = _spread(candidates, trials, seen, min(batch, missing) if missing > 0 else batch)
        else:
            chosen = _promising(space, candidates, model, trials, seen, rng, batch)
        proposed = chosen or unseen.draw(batch)
        if not proposed:
            return
        yield proposed


def _spread(candidates: Candidates, trials: Sequence[Trial], seen: Seen, count: int) -> list[Point]:
    """Unseen points of a random sample, each the farthest from all that was tried or chosen before it."""
    drawn = candidates.draw(_DESIGN_SAMPLE)
    distance = np.full(len(drawn.vectors), np.inf)
    for vector in candidates.given([trial.point for trial in trials]).vectors:
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
    space: Searchable,
    candidates: Candidates,
    model: GaussianProcess,
    trials: Sequence[Trial],
    seen: Seen,
    rng: np.random.Generator,
    batch: int,
) -> list[Point]:
    """Unseen candidates, each with the most expected improvement if those before it turn out as expected."""
    learned = _learned(trials, rng)
    vectors = candidates.given([trial.point for trial in learned]).vectors
    values = levelled(learned)
    model.fit(vectors, values)
    ordered = sorted((t for t in trials if t.value is not None), key=lambda t: t.evaluation.cost)
    around = [p for trial in ordered[:_BEST_POINTS] for p in space.neighbours(trial.point) if p not in seen]
    pools = [candidates.given(around), candidates.draw(_DRAWN)]
    offered = np.concatenate([pool.vectors for pool in pools])
    chosen: list[Point] = []
    for _ in range(batch):
        mean, deviation = model.predict(offered)
        gain = log_expected_improvement(mean, deviation, float(values.min()))
        for number in np.argsort(-gain, kind="stable").tolist():
            inside = number - len(around)
            point = around[number] if inside < 0 else pools[1].point(inside)
            if point not in seen and point not in chosen:
                chosen.append(point)
                break
        else:
            break
        if len(chosen) < batch:
            vectors = np.concatenate([vectors, offered[[number]]])
            values = np.append(values, mean[number])
            model.condition(vectors, values)
    return chosen


def _learned(trials: Sequence[Trial], rng: np.random.Generator) -> Sequence[Trial]:
    """The trials that the model learns from: all, or half of them the best and the others at random."""
    if len(trials) <= _MOST_LEARNED:
        return trials
    ordered = sorted(trials, key=lambda trial: trial.evaluation.cost)
    best, rest = ordered[: _MOST_LEARNED // 2], ordered[_MOST_LEARNED // 2 :]
    return best + [rest[i] for i in rng.choice(len(rest), _MOST_LEARNED - len(best), replace=False)]


def levelled(trials: Sequence[Trial]) -> Array:
    """(trials,) values on a scale with mean 0 and spread 1 on which the good ones are far apart and the bad ones close.

    Twice a logarithm: a time that is twice the best matters, whether it is fifty or a hundred times the best does not.
    A failure counts as much as the worst success.
    """
    costs = np.array([trial.evaluation.cost for trial in trials])
    fine = np.isfinite(costs)
    logs = np.log(costs[fine]) if np.all(costs[fine] > 0) else costs[fine]
    above = logs - logs.min()
    unit = float(np.median(above)) or 1.0
    out = np.empty(len(costs))
    out[fine] = np.log1p(above / unit)
    out[~fine] = out[fine].max()
    spread = float(out.std())
    return np.asarray((out - out.mean()) / (spread or 1.0), dtype=np.float64)
