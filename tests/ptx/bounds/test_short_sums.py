"""Sums of 8-bit floats on Hopper: the emulator cuts them off as reported, and the bound holds what comes of it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.devices import device
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.ptx.bounds import short_sums as bounded
from tinygpu.ptx.emulator import emulate
from tinygpu.ptx.emulator.units import short_sums as emulated
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.comparison import compare
from tinygpu.ptx.verification.memory import arguments, workspaces
from tinygpu.ptx.verification.trial import Trial, adds_short, draw, reference_answers, rounding_of
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


@settings(max_examples=50)
@given(st.integers(1, 12), st.integers(0, 2**32), st.sampled_from([0.0, 1.0, 8.0]), st.booleans())
def test_the_bound_holds_what_is_cut_off(steps: int, seed: int, offset: float, split: bool) -> None:
    """Numbers of both signs and of one, added from the start, or in two parts by two CTAs."""
    assert emulated.BITS == bounded.BITS
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(16, 32 * steps)) + offset
    b = rng.normal(size=(32 * steps, 24)) * 2.0 ** rng.integers(-4, 4, 24)
    parts = [(0, steps // 2), (steps // 2, steps)] if split else [(0, steps)]
    got = np.zeros((16, 24))
    for start, end in parts:
        total = np.zeros((1, 16, 24))
        for step in range(start, end):
            part = slice(32 * step, 32 * step + 32)
            total = emulated.short_sum(a[None, :, part], b[None, part], total)
        got += total[0]
    error = bounded.short_sum_error(np.matmul, a, b, np.abs(a) @ np.abs(b))
    assert (np.abs(got - a @ b) <= error).all()
    if offset and not split:
        assert (np.abs(got - a @ b) > error / 200).any(), "a bound that is far from what happens"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "result"), [("e4m3", "f32"), ("e5m2", "f16")])
@pytest.mark.end_to_end
def test_a_kernel_that_is_right_on_hopper_is_right_by_its_own_bound_alone(kind: str, result: str) -> None:
    problem = MatmulHopper.problem(m=128, n=64, k=512, dtypes={"a": kind, "c": result}, majors={"b": "col"})
    space = build_space(MatmulHopper, problem, device("h100"))
    (point,) = space.space.sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    assert adds_short(kernel, problem)
    trial = draw(MatmulHopper, problem, "random", 0)
    knowing = replace(rounding_of(MatmulHopper, problem), short_sums=True)
    shapes = {o.name: o.shape for o in problem.operands}
    answers = reference_answers(MatmulHopper, problem, trial.arrays, trial.scalars, knowing, shapes)
    allowed = Trial(problem, "random", trial.arrays, trial.scalars, answers)
    for short in (False, True):
        operands, spaces = trial.operands(), workspaces(kernel, problem, kernel.grid(problem)[0])
        emulate(
            kernel.ptx, grid=kernel.grid(problem), block=kernel.threads, cluster=kernel.cluster, short_sums=short,
            args=arguments(kernel, problem, operands, dict(trial.scalars), spaces), dynamic_smem=kernel.smem_bytes,
        )  # fmt: skip
        if kind == "e4m3" or not short:  # of e5m2 fewer bits are cut off, and f16 hides them
            assert compare(trial, operands, "late").passed == (not short)
        assert compare(allowed, operands, "late").passed
