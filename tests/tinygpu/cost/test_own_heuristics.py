"""Costs of a machine's own decide what is best, beside what the predictor counts."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.cost.counting import count
from tinygpu.cost.demand import Chain, Work
from tinygpu.devices import Device, device
from tinygpu.expressions import symbol
from tinygpu.language import HEURISTICS, DeclarationError, Heuristic
from tinygpu.language.heuristic import WAITS, WORK
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.program.program import Program
from tinygpu.search.predicted import PredictedTime
from tinygpu.spaces.build import build_space

sys.path.append(str(Path(__file__).parents[2] / "thirdparty"))
from atomic_sum import ColumnSum, ColumnSumInTurn


def test_what_may_be_charged_for_is_what_the_predictor_counts() -> None:
    assert tuple(f.name for f in fields(Work)) == WORK
    assert tuple(f.name for f in fields(Chain)) == WAITS


@dataclass(frozen=True, eq=False)
class Charged(Heuristic):
    """So much of something for every execution of the statements of one name."""

    statement: str = ""
    what: str = ""
    amount: Any = 1
    name = "charged"

    def costs(self, s: Any, warps: Any) -> Mapping[str, Any]:
        return {self.what: self.amount} if getattr(s, "name", "") == self.statement else {}


@cache
def simt() -> tuple[Program, dict[str, int], Device]:
    """A product of 5 rounds of which each has 8 steps, with the numbers of a candidate and of its device."""
    space = build_space(MatmulSimt, MatmulSimt.problem(m=64, n=64, k=40), device("a100"))
    point = next(dict(p) for p in space.space.sample(40, np.random.default_rng(1)) if p["bk"] == 8)
    index = space.structure_index(point)
    values = space.environment | {a: int(point[a]) for a in space.traces[index].axes}
    return space.traces[index].program, values, space.device


@pytest.mark.sampled(2)
@pytest.mark.parametrize("what", [*WORK, *WAITS])
def test_each_execution_of_a_statement_is_charged(what: str) -> None:
    """In a loop of 5 rounds of which each has 8 steps, and with a figure of the device."""
    program, values, a100 = simt()

    def total(*own: Heuristic) -> float:
        demand = count(program, (*HEURISTICS, *own)).demand(values, a100)
        before, each, after = (
            getattr(phase.work if what in WORK else phase.chain, what)
            for phase in (demand.prologue, demand.iteration, demand.epilogue)
        )
        return float(before + demand.iterations * each + after)

    without = total()
    assert total(Charged("ld_a", what, 3)) == without + 3 * 5 * 8
    assert total(Charged("st_row", what, 7)) == without + 7
    assert total(Charged("st_row", what, symbol("device.sm_count"))) == without + 108
    assert total(Charged("nobody", what)) == without


def test_what_is_not_counted_is_told() -> None:
    space = build_space(ColumnSum, ColumnSum.problem(m=64, n=64), device("a100"))
    with pytest.raises(ValueError) as refused:
        count(space.traces[0].program, (Charged("red", "luck"),))
    known = ", ".join((*WORK, *WAITS))
    assert str(refused.value) == f"the heuristic charged charges for 'luck'; it may charge for {known}"
    with pytest.raises(DeclarationError) as declared:

        class Charges(ColumnSum):
            """y += sums"""

            heuristics = (3,)

    assert str(declared.value) == (
        "Charges.heuristics: unknown heuristic 3; known: coalescing, bank conflicts, occupancy, locality, L1, and "
        "instances of a Heuristic of your own"
    )


DIMS = {"m": 65536, "n": 256}


def test_the_best_is_what_its_own_cost_makes_best() -> None:
    """Charged for every atomic, fewer CTAs with more rows each are best."""
    best = {}
    for machine in (ColumnSum, ColumnSumInTurn):
        space = build_space(machine, machine.problem(**DIMS), device("a100"))
        objective = PredictedTime(space)
        best[machine] = min(space.space.points(), key=lambda point: objective.prediction(point).seconds)
    assert (best[ColumnSum]["rows"], best[ColumnSumInTurn]["rows"]) == (4, 64)


@pytest.mark.slow
def test_tune_takes_what_its_own_cost_makes_best() -> None:
    best = {machine: tg.tune(machine, **DIMS, device="a100").point for machine in (ColumnSum, ColumnSumInTurn)}
    assert best[ColumnSum]["rows"] < best[ColumnSumInTurn]["rows"]
