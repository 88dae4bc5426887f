"""Machines with relayouts: every way that their spaces admit is right, and counts what its plan does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.append(str(Path(__file__).parent))
from relayout_machines import BesideAnotherRole, RowsOfProducts, TwoProducts

import tinygpu as tg
from tinygpu.cost.counting import count
from tinygpu.cost.relayouts import exchanged
from tinygpu.devices import device
from tinygpu.expressions import compile_arrays
from tinygpu.language import Machine
from tinygpu.language.trace import trace
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.relayout import plan_of
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

SHUFFLE, MEMORY = "shfl.sync.idx", "ld.shared+st.shared"


def candidates(machine: type[Machine], part: str, count: int, **asked: Any) -> Iterator[tuple[Any, Any, Any]]:
    """(program, kernel, report) of candidates of both ways."""
    problem = machine.problem(**asked)
    space = build_space(machine, problem, device(part))
    listed = list(space.space.sample(40 * count, np.random.default_rng(3)))
    for way in (SHUFFLE, MEMORY):
        of_way = {str(p): p for p in listed if p["way"] == way}
        assert of_way, way
        for point in list(of_way.values())[:count]:
            program = space.program(point)
            kernel = build(program, problem, point, SolverCache()).kernel
            yield program, kernel, verify(kernel, machine, problem, orders=("late",), random_inputs=False)


def relayouts(program: Any) -> list[n.Relayout]:
    return [s for s in walk(program.body) if isinstance(s, n.Relayout)]


@pytest.mark.parametrize("count", [1, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize("types", [{"a": "f16"}, pytest.param({"a": "bf16", "c": "f32"}, marks=pytest.mark.slow)])
def test_accumulators_become_rows(types: dict[str, str], count: int) -> None:
    for _, _, report in candidates(RowsOfProducts, "a100", count, m=100, n=104, k=72, dtypes=types):
        assert report.passed, str(report)


@pytest.mark.parametrize(
    ("kind", "plan"),
    [
        ("f16", "nothing"),
        pytest.param("tf32", "shuffles: 4 shuffles, 8 selects", marks=pytest.mark.slow),
        ("s8", "shuffles: 4 shuffles, 4 selects, 4 byte permutations"),
    ],
)
def test_accumulators_become_the_operand_of_the_next_product(kind: str, plan: str) -> None:
    for program, kernel, report in candidates(TwoProducts, "a100", 1, m=40, n=70, d=32, dtypes={"q": kind}):
        assert report.passed, str(report)
        assert [str(plan_of(s)) for s in relayouts(program)] == ([plan] if dict(kernel.point)["way"] == SHUFFLE else [])


def test_a_role_beside_others_gives_values_to_other_holders() -> None:
    for _, _, report in candidates(BesideAnotherRole, "h100", 1, m=100, n=100):
        assert report.passed, str(report)


def test_the_costs_of_all_candidates_at_once_are_those_of_their_plans() -> None:
    problem = RowsOfProducts.problem(m=960, n=960, k=64)
    space = build_space(RowsOfProducts, problem, device("a100"))
    listed = [p for p in space.space.sample(200, np.random.default_rng(1)) if p["way"] == SHUFFLE]
    points = list({str(p): p for p in listed}.values())[:12]
    (statement,) = relayouts(trace(RowsOfProducts, problem, (("way", SHUFFLE),)).program)
    names = sorted(k for k, v in points[0].items() if not isinstance(v, str))
    columns = {name: np.array([int(p[name]) for p in points]) for name in names}
    counts = exchanged(statement)
    said = compile_arrays(counts.shuffles, counts.selects, counts.permutes)(columns)
    plans = [plan_of(s) for p in points for s in relayouts(space.program(p))]
    assert [np.broadcast_to(c, len(points)).tolist() for c in said] == [
        [p.shuffles for p in plans],
        [p.selects for p in plans],
        [p.permutes for p in plans],
    ]
    assert len({p.shuffles for p in plans}) > 2
    whole = count(trace(RowsOfProducts, problem, (("way", SHUFFLE),)).program)
    values = {**problem.environment(), **columns}
    warps = columns["warps_m"] * columns["warps_n"]


    def once(what: str) -> Any:
        """Outside the loop."""
        return whole.value(f"prologue.{what}", values) + whole.value(f"epilogue.{what}", values)

    moved = 32 * warps * np.array([p.selects + p.permutes for p in plans])
    assert (once("alu_ops") == moved + columns["bm"] * columns["bn"] // 2).all()  # and a conversion of every pair
    assert (once("l1_wavefronts") == warps * np.array([p.shuffles for p in plans])).all()


@pytest.mark.slow
def test_what_is_exchanged_costs_time_and_the_simulator_runs_it() -> None:
    """The same stores by the same lanes: from accumulators that lie as they are stored, and from others."""
    space = tg.space(RowsOfProducts, m=2048, n=2048, k=32, device="a100")
    tile = {"bm": 64, "bn": 64, "warps_m": 1, "warps_n": 1, "way": SHUFFLE}
    found = {}
    for vc, across in ((2, 4), (8, 8)):
        predicted = tg.predict(space, **tile, vc=vc, across=across)
        (statement,) = relayouts(space.program(predicted.point))
        found[plan_of(statement).shuffles] = predicted
    assert sorted(found) == [0, 64]
    for busy in (lambda p: p.simulation.prediction.busy_s, lambda p: p.simulation.busy_s):
        for unit in ("alu", "smem"):
            assert float(busy(found[0])[unit]) < float(busy(found[64])[unit])
