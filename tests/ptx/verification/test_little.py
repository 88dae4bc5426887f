"""Loops that end with a round of as little as may be, whatever remains in the problem that a kernel was made for."""

from __future__ import annotations

from typing import Any

import pytest
from row_sums import RowSums

from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.little import little_left
from tinygpu.ptx.verification.verify import Verification, verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


class OneTooFew(RowSums):
    """y[i] = sum of row i, but for its last element where that is a round of its own"""

    def columns(self) -> Any:
        return self.n - 1


def made(machine: type[Machine], n: int, vector: int) -> tuple[Kernel, Any]:
    problem = machine.problem(m=3, n=n)
    space = build_space(machine, problem, device("a100"))
    point = {"vector": vector}
    return build(space.program(point), problem, point, SolverCache()).kernel, problem


def verified(machine: type[Machine], n: int, vector: int) -> Verification:
    kernel, problem = made(machine, n, vector)
    return verify(kernel, machine, problem, orders=("late",), random_inputs=False)


@pytest.mark.parametrize(("n", "vector"), [(7, 1), (40, 1), (100, 4), (1000, 4)])
def test_a_loop_that_ends_too_early_is_seen_whatever_remains(n: int, vector: int) -> None:
    assert verified(RowSums, n, vector).passed
    found = verified(OneTooFew, n, vector)
    if vector == 4:  # rows are whole vectors: of the last one, there is no element alone
        assert found.passed
        return
    (wrong,) = (check for check in found.checks if not check.passed)
    assert wrong.where.startswith("a last round of little (m=2,n=")


@pytest.mark.parametrize(
    ("n", "vector", "left"),
    [(7, 1, 33), (40, 1, 33), (95, 1, 65), (33, 1, None), (100, 4, 132), (1000, 4, 900), (1024, 4, None)],
)
def test_as_little_is_left_as_the_launch_allows(n: int, vector: int, left: int | None) -> None:
    """Rows of whole vectors leave a vector; of whole rounds, for which a kernel is made without edges, nothing."""
    kernel, problem = made(RowSums, n, vector)
    found = little_left(kernel, RowSums, problem)
    assert (found and found.dim["n"]) == left
    if found:
        kernel.check(found)
