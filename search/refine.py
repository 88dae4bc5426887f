"""Refines the best predictions with what only shows candidate by candidate: bank conflicts that no layout avoids.

A prediction without conflicts is a lower bound, so candidates are refined in the order of their bounds until no bound is
below what has been found: the order that comes out is exact under the predictor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinygpu.cost.predictor import Prediction
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.search.evaluation import Trial
from tinygpu.search.predicted import PredictedTime, score
from tinygpu.search.searchable import Point
from tinygpu.solver.buffers import SolvedLayouts, solve_buffers
from tinygpu.solver.smem import SolverCache


@dataclass(frozen=True, slots=True, eq=False)
class Refined:
    """One candidate with its solved layouts.

    prediction  with the conflicts that its layouts leave
    score       predicted seconds, ties broken
    extra       wavefronts per main-loop round that are conflicts
    """

    point: Point
    program: n.Program
    layouts: SolvedLayouts
    prediction: Prediction
    score: float
    extra: float


def refine(
    objective: PredictedTime, trials: Sequence[Trial], cache: SolverCache, *, keep: int = 8, most: int = 400
) -> list[Refined]:
    """The `keep` best candidates after refinement, best first.

    trials  in the order of their predicted seconds
    most    candidates refined at most; only when so many are refined can a better one be missed
    """
    best: list[Refined] = []
    for trial in trials[:most]:
        if trial.value is None:
            continue
        if len(best) == keep and trial.value >= best[-1].score:
            break
        best.append(refined(objective, trial.point, cache))
        best.sort(key=lambda r: r.score)
        del best[keep:]
    return best


def refined(objective: PredictedTime, point: Point, cache: SolverCache) -> Refined:
    """One candidate with its conflicts."""
    program = objective.space.fill(point)
    layouts = solve_buffers(program, cache)
    extra = conflict_wavefronts(program, layouts, objective, point)
    prediction = objective.prediction(point, extra_wavefronts=extra)
    return Refined(point, program, layouts, prediction, float(score(prediction)), extra)


def conflict_wavefronts(
    program: n.Program, layouts: SolvedLayouts, objective: PredictedTime, point: Point
) -> float:
    """Wavefronts per main-loop round beyond those without conflicts; what lies outside the loop is spread over it."""
    looped = {s.pipeline for s in walk(program.body) if isinstance(s, n.Pipelined)}
    rounds = 1.0
    if looped:
        index = objective.space.structure_index(point)
        chosen = {a: int(point[a]) for a in objective.space.traces[index].axes}
        values = {**objective.space.environment, **chosen}
        rounds = float(objective.space.counts(index).iterations(values))
    total = 0.0
    for name, conflicts in layouts.conflicts.items():
        total += conflicts if name.split(".")[0] in looped else conflicts / rounds
    return total
