"""Reductions of rows, columns and whole tensors, and scans: random candidates of odd sizes, every type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.api.machines import family
from tinygpu.devices import device
from tinygpu.machines.reductions import ArgMax, ColumnReduction, RowReduction, TensorReduction
from tinygpu.machines.scan import LongScan, RowScan
from tinygpu.ptx.launching.kernels import Kernels
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.ptx.verification.whole import verify_kernels
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.spaces.plan_space import build_plan_space

SIZES = ((1, 1), (3, 7), (17, 129), (5, 1000), (2, 4097), (70, 64), (1031, 3))
GPUS = ("a100", "h100", "rtx5090")
OPERATIONS: tuple[dict[str, Any], ...] = tuple({"operation": o} for o in ("sum", "max", "mean", "norm"))
SCANS: tuple[dict[str, Any], ...] = tuple(
    {"operation": o, "exclusive": e} for o in ("sum", "max") for e in (False, True)
)
OPTIONS: dict[type[Any], tuple[dict[str, Any], ...]] = {
    RowReduction: OPERATIONS,
    ColumnReduction: OPERATIONS,
    ArgMax: ({},),
    RowScan: SCANS,
    LongScan: SCANS,
}


@pytest.mark.parametrize("seed", range(42))
@pytest.mark.parametrize("machine", OPTIONS)
@pytest.mark.sampled(42)
@pytest.mark.end_to_end
def test_random_candidates_are_right(machine: Any, seed: int, draw_candidate: Any) -> None:
    rng = np.random.default_rng(seed)
    m, n = SIZES[seed % len(SIZES)]
    kind = str(rng.choice(("f32", "f16", "bf16", "s32") if OPTIONS[machine] is SCANS else ("f32", "f16", "bf16")))
    wide = machine in (RowReduction, ColumnReduction) and rng.random() < 0.5
    dtypes = {"x": kind, "y": "f32"} if wide else {"x": kind}
    problem = machine.problem(m=m, n=n, dtypes=dtypes, options=OPTIONS[machine][seed % len(OPTIONS[machine])])
    space = build_space(machine, problem, device(GPUS[seed % 3]))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("random",))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.sampled(4)
def test_random_candidates_of_whole_tensors_are_right(seed: int, draw_candidate: Any) -> None:
    n = (1, 7, 1023, 4097, 70001, 1025)[seed % 6]
    dtypes = {"x": ("f32", "f16", "bf16")[seed // 2 % 3]}
    problem = TensorReduction.problem(n=n, dtypes=dtypes, options=OPERATIONS[seed % 4])
    space = build_plan_space(TensorReduction, problem, device(GPUS[seed % 3]))
    point = draw_candidate(space, seed)
    steps, cache = space.candidates(point), SolverCache()
    parts = [build(c.space.program(c.point), c.space.problem, c.point, cache).kernel for c in steps]
    found = verify_kernels(Kernels.of_plan(space.machine, problem, point, tuple(parts)), orders=("random",))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.parametrize("seed", range(3))
def test_the_first_of_equal_elements_is_the_place(seed: int) -> None:
    """Few different numbers, so that all rows have equals; and rows that have nothing but -inf."""
    x = np.random.default_rng(seed).integers(-2, 2, (5, 300)).astype(np.float32)
    x[3] = -np.inf
    space = tg.space(ArgMax, m=5, n=300, device="a100")
    kernel = tg.emit(space, space.sample(1, seed)[0])
    assert (tg.emulate(kernel, x) == x.argmax(axis=1)).all()


def test_a_plan_that_ships_is_called_by_name() -> None:
    assert family("tensor-reduction").machines == (TensorReduction,)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("machine", [RowScan, LongScan])
@pytest.mark.parametrize("operation", ["sum", "max"])
@pytest.mark.end_to_end
def test_whole_numbers_that_no_float_has_are_scanned_exactly(machine: Any, operation: str) -> None:
    x = np.random.default_rng(0).integers(-(2**24), 2**24, (3, 101)).astype(np.int32) | 1
    x[2] = 1 - 2**31 // 101  # the largest of them is far below zero, where the scan excludes the element itself
    options = {"operation": operation, "exclusive": True}
    space = tg.space(machine, m=3, n=101, dtypes={"x": "s32"}, device="a100", options=options)
    y = tg.emulate(tg.emit(space, space.sample(1, 0)[0]), x)
    wanted = np.cumsum(x, axis=1, dtype=np.int32) if operation == "sum" else np.maximum.accumulate(x, axis=1)
    assert (y[:, 1:] == wanted[:, :-1]).all()
    assert (y[:, 0] == (0 if operation == "sum" else -(2**31))).all()
