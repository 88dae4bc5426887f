"""Conditions, ends of loops, windows and numbers that may be negative are what NumPy says they are."""

from __future__ import annotations

import numpy as np
import pytest
from difference_programs import drawn

from tinygpu.devices import device
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.inputs import drawn as inputs_of
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


def judged(seed: int) -> None:
    """The kernel in the emulator, and the program in the interpreter, beside NumPy."""
    machine, dims = drawn(seed)
    problem = machine.problem(**dims)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.space.sample(1, np.random.default_rng(seed))
    program = space.program(point)
    kernel = build(program, problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("late",), random_inputs=False, derived=problem, seed=seed)
    assert found.passed, f"{seed}: {dims}\n{found}\n{program}"
    arrays, scalars = inputs_of(machine, problem, "integers", seed, {o.name: o.shape for o in problem.operands})
    got = program.run(arrays, scalars, sizes=dims)["y"]
    want = machine.reference(**arrays, s=dims["s"], t=dims["t"])
    np.testing.assert_array_equal(got, want, err_msg=f"{seed}: {dims}\n{program}")


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sampled(3)
def test_a_program_of_differences_is_what_numpy_says(seed: int) -> None:
    judged(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_programs_of_differences_are_what_numpy_says(seed: int) -> None:
    judged(seed)
