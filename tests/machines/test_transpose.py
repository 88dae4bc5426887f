"""The transpose machine: whichever way lanes exchange values, of every type, any candidate is right on any sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.machines.transpose import KINDS, MatrixTranspose
from tinygpu.program.nodes import Relayout
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.lowering.relayout import plan_of
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

SHUFFLED, SHARED, NONE = "shfl.sync.idx", "ld.shared+st.shared", "none"


def candidates(kind: str, way: str, count: int, seed: int) -> Any:
    """(program, kernel, problem) of some candidates of sizes that their tiles need not divide."""
    rng = np.random.default_rng([seed, *kind.encode(), *way.encode()])
    m, n = (4 * int(size) for size in rng.integers(1, 200, 2))
    problem = MatrixTranspose.problem(m=m, n=n, dtypes={"x": kind})
    space = build_space(MatrixTranspose, problem, device("a100"))
    for point in space.space.restrict({"exchange": way}).sample(count, rng):
        program = space.program(point)
        yield program, build(program, problem, point, SolverCache()).kernel, problem


@pytest.mark.parametrize("way", [SHUFFLED, SHARED, NONE])
@pytest.mark.parametrize("kind", ["f32", "s8", *(pytest.param(k, marks=pytest.mark.slow) for k in KINDS)])
@pytest.mark.parametrize("number", [1, pytest.param(12, marks=pytest.mark.slow)])
def test_candidates_are_right_whichever_way_values_are_exchanged(kind: str, way: str, number: int) -> None:
    for _, kernel, problem in candidates(kind, way, number, number):
        report = verify(kernel, MatrixTranspose, problem, orders=("random",), random_inputs=False)
        assert report.passed, str(report)


@pytest.mark.parametrize("kind", ["f32", "s8"])
def test_a_kernel_has_the_shuffles_of_its_plan_and_no_shared_memory(kind: str) -> None:
    for program, kernel, _ in candidates(kind, SHUFFLED, 3, 7):
        (statement,) = (s for s in walk(program.body) if isinstance(s, Relayout))
        assert kernel.ptx.count("shfl.sync.idx.b32") == plan_of(statement).shuffles
        assert kernel.smem_bytes == 0


@pytest.mark.slow
def test_what_lanes_exchange_is_predicted_to_save_sectors() -> None:
    """Without an exchange a lane loads elements of as many rows as it stores neighbours of."""
    space = tg.space(MatrixTranspose, m=2048, n=2048, dtypes={"x": "s8"}, device="a100")
    seconds = {way: float(tg.predict(space, exchange=way).seconds) for way in (SHUFFLED, SHARED, NONE)}
    assert max(seconds[SHUFFLED], seconds[SHARED]) < seconds[NONE]
