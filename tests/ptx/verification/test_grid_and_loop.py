"""A dim that grid and loop both cut: derived problems leave the remainders of both; a reference without memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, Tracer, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.derived import DEEP, WHOLE, derive
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

TILE = 64


class Both(Machine):
    """y[i] = x[i] + the sum of x"""

    n = Dim()
    x, y = Input("f32", n), Output("f32", n)
    step = Param(96, 128)
    ld, st, exchange, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Exchange(), isa.Add("f32")
    arithmetic = isa.arithmetic("f32")
    lost: Any = 0

    def program(self, p: Tracer) -> None:
        own, all_ = blocked((TILE,), threads=32), blocked((self.step,), threads=32)
        with p.grid((self.n, TILE)) as (i,), p.role("all", warps=1):
            total = p.full(all_, "f32")
            with p.loop(self.n - self.lost, step=self.step) as j:
                total += p.load(self.ld, self.x.tile(j, shape=(self.step,)), all_)
            whole = p.reduce(self.add, total, axis=0, by=self.exchange)
            mine = p.load(self.ld, self.x.tile(i, shape=(TILE,)), own)
            p.store(self.st, self.y.tile(i, shape=(TILE,)), mine + whole)

    @staticmethod
    def reference(x: Any) -> Any:
        return x + x.sum()


class LosesOne(Both):
    """the same, but for the last element where that is a round of its own"""

    lost = 1


class Outer(Both):
    """the same, with a reference that goes over pairs"""

    @staticmethod
    def reference(x: Any) -> Any:
        if len(x) > 4096:
            raise MemoryError("Unable to allocate 96.0 GiB")
        return x + np.broadcast_to(x, (len(x), len(x))).sum(axis=1)


def made(machine: type[Machine], n: int, step: int) -> tuple[Kernel, Any]:
    problem = machine.problem(n=n)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.space.restrict({"step": step}).sample(1, np.random.default_rng(0))
    return build(space.program(point), problem, point, SolverCache()).kernel, problem


@settings(max_examples=20)
@given(st.integers(1, 5000), st.sampled_from((96, 128)))
def test_derived_sizes_leave_what_the_real_one_leaves_of_tiles_and_of_rounds(n: int, step: int) -> None:
    kernel, problem = made(Both, n, step)
    for aim in (DEEP, WHOLE):
        small = derive(kernel, Both, problem, aim).dim["n"]
        assert (small - n) % TILE == 0
        assert (small - n) % step == 0


@pytest.mark.parametrize(("n", "step"), [(257, 128), (385, 96), (1025, 128)])
def test_a_loop_that_loses_the_last_round_of_one_is_found(n: int, step: int) -> None:
    for machine in (Both, LosesOne):
        kernel, problem = made(machine, n, step)
        found = verify(kernel, machine, problem, orders=("late",), random_inputs=False)
        assert found.passed == (machine is Both), str(found)


def test_a_reference_that_has_no_memory_for_the_real_problem_leaves_its_ctas_out() -> None:
    kernel, problem = made(Outer, 10_000, 128)
    found = verify(kernel, Outer, problem, orders=("late",), random_inputs=False, thorough=True)
    assert found.passed
    assert found.left_out == (
        "CTA 156 of 157; CTA 0 of 157: the reference asks for more memory than there is (Unable to allocate 96.0 GiB)",
    )
