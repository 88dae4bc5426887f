"""Random machines of index arithmetic, masks, rows by ids and rounds that data decide are what NumPy says they are."""

from __future__ import annotations

import numpy as np
import pytest
from index_programs import drawn

from tinygpu.devices import device
from tinygpu.program.saved import load_program, save_program
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.inputs import drawn as inputs_of
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


def judged(seed: int) -> None:
    """The kernel in the emulator, which watches every access, and the program in the interpreter, beside NumPy."""
    machine, dims = drawn(seed)
    problem = machine.problem(**dims)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.space.sample(1, np.random.default_rng(seed))
    program = space.program(point)
    kernel = build(program, problem, point, SolverCache()).kernel
    order = ("late", "early", "random")[seed % 3]
    found = verify(kernel, machine, problem, orders=(order,), random_inputs=False, derived=problem, seed=seed)
    assert found.passed, f"{seed}: {machine.__doc__} on {dims}\n{found}\n{program}"
    arrays, scalars = inputs_of(machine, problem, "integers", seed, {o.name: o.shape for o in problem.operands})
    again = load_program(save_program(program)).run(arrays, scalars, sizes=dims)
    wide = {name: a.astype(np.float64 if a.dtype.kind == "f" else np.int64) for name, a in arrays.items()}
    want = machine.reference(**wide)
    for name, array in (want if isinstance(want, dict) else {"y": want}).items():
        np.testing.assert_array_equal(again[name], array, err_msg=f"{seed}: {name} of {machine.__doc__}")


# Some of them fail where windows of rows or segments are not cut, where coordinates are those of another
# axis, and where differences in conditions lose their signs.
@pytest.mark.parametrize("seed", [4, 10, 23, 35, 36, 44, 60, 89])
def test_a_drawn_program_of_indices_is_what_numpy_says(seed: int) -> None:
    judged(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 500))
def test_many_drawn_programs_of_indices_are_what_numpy_says(seed: int) -> None:
    judged(seed)
