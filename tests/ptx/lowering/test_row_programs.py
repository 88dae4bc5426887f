"""Random machines that move rows which values name are what NumPy says they are."""

from __future__ import annotations

import pytest
from row_programs import drawn_rows

from tinygpu.devices import device
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


def judged(seed: int) -> None:
    machine, problem, said = drawn_rows(seed)
    space = build_space(machine, problem, device("a100"))
    assert space.space.size, f"{seed}: {said} has no candidate: {space.space.conflict()[0]}"
    kernel = build(space.program({}), problem, {}, SolverCache()).kernel
    whole = said.startswith("add of f16")  # memory holds each sum rounded; small ones are exact
    found = verify(
        kernel, machine, problem, orders=("random",), derived=problem, seed=seed, random_inputs=not whole
    )  # fmt: skip
    assert found.passed, f"{seed}: {said}\n{found}"


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5, 6, 8, 59, 87])
def test_drawn_rows_are_what_numpy_says(seed: int) -> None:
    judged(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 500))
def test_many_drawn_rows_are_what_numpy_says(seed: int) -> None:
    judged(seed)
