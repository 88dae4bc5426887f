"""Refines the best predictions with what only shows candidate by candidate: bank conflicts that no layout avoids.

A score without conflicts is a lower bound, so candidates are refined in the order of their bounds until no bound is
below what has been found: the order that comes out is exact under the predictor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tinygpu.cost.demand import Demand
from tinygpu.cost.predictor import Prediction
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.search.predicted import PredictedTime, counted_at
from tinygpu.search.preference import Ranked, strain_of
from tinygpu.search.searchable import Point
from tinygpu.solver.buffers import SolvedLayouts, solve_buffers
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace


@dataclass(frozen=True, slots=True, eq=False)
class Refined:
    """One candidate with its solved layouts.

    prediction  with the conflicts that its layouts leave
    score       predicted seconds and strain
    extra       wavefronts per main-loop round that are conflicts
    registers   per thread, as estimated from the tiles that live together
    """

    point: Point
    program: Program
    layouts: SolvedLayouts
    prediction: Prediction
    score: float
    extra: float
    registers: int

    def demand(self, space: MachineSpace) -> Demand:
        """What it asks for, with the conflicts of its layouts."""
        return counted_at(space, self.point).demand(space.device, self.extra)


def refine(
    objective: PredictedTime, candidates: Sequence[Ranked], cache: SolverCache, *, keep: int = 8
) -> list[Refined]:
    """The `keep` best candidates after refinement, best first; of equal ones the earlier first.

    candidates  in the order of their scores; where all of them are refined, a better one beyond them can be missed
    """
    best: list[Refined] = []
    for candidate in candidates:
        if len(best) == keep and candidate.score >= best[-1].score:
            break
        best.append(refined(objective, candidate.point, cache))
        best.sort(key=lambda r: r.score)
        del best[keep:]
    return best


def refined(objective: PredictedTime, point: Point, cache: SolverCache) -> Refined:
    """One candidate with its conflicts."""
    program = objective.space.program(point)
    layouts = solve_buffers(program, cache)
    found = counted_at(objective.space, point)
    extra = conflict_wavefronts(program, layouts, float(found["iterations"]))
    prediction = objective.predict(found, extra)
    score = float(prediction.seconds) + float(strain_of(objective.space.device, found, prediction))
    return Refined(point, program, layouts, prediction, score, extra, int(found["registers"]))


def conflict_wavefronts(program: Program, layouts: SolvedLayouts, rounds: float) -> float:
    """Wavefronts per main-loop round beyond those without conflicts; what lies outside the loop is spread over it."""
    looped = {name for s in walk(program.body) if isinstance(s, n.Pipelined) for name in s.pipelines}
    total = 0.0
    for name, conflicts in layouts.conflicts.items():
        total += conflicts if name.split(".")[0] in looped else conflicts / rounds
    return total
