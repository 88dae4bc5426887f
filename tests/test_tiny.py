"""The handful of tests to run first: one for each arrow from a class to a proved kernel. Under ten seconds.

pytest tests/test_tiny.py
"""

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, Scalar, blocked
from tinygpu.layouts import Layout, compose
from tinygpu.machines.matmul_ampere import MatmulAmpere
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.search import Evaluation, minimize
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


def test_layouts_compose_on_every_coordinate() -> None:
    outer, inner = Layout.parse("(4,8):(8,1)"), Layout.parse("(8,2):(2,1)")
    composed = compose(outer, inner)
    assert [composed(i) for i in range(composed.size)] == [outer(inner(i)) for i in range(inner.size)]


def test_a_space_says_why_a_point_is_out() -> None:
    problem = MatmulAmpere.problem(m=256, n=256, k=256)
    space = build_space(MatmulAmpere, problem, device("a100")).space
    assert 0 < space.size < space.raw_size
    assert space.raw_size - space.size == sum(row.removed for row in space.funnel)
    inside = space.at(0)
    assert inside in space
    assert space.explain(inside) == ()
    outside = {**inside, "bm": 256, "bn": 256, "bk": 128, "stages": 6}
    assert outside not in space
    assert any("smem" in str(violation).lower() for violation in space.explain(outside))


def test_search_finds_the_least_value() -> None:
    space = build_space(MatmulAmpere, MatmulAmpere.problem(m=64, n=64, k=64), device("a100")).space
    result = minimize(
        space, lambda points: [Evaluation(float(p["bm"] + p["bn"])) for p in points], evaluations=50, seed=1
    )
    assert result.best in space
    assert result.value == min(trial.value for trial in result.history)


@pytest.mark.parametrize("dims", [{"m": 128, "n": 128, "k": 64}, {"m": 77, "n": 93, "k": 51}])
def test_a_candidate_becomes_a_kernel_that_assembles_and_is_right(dims: dict[str, int]) -> None:
    problem = MatmulAmpere.problem(**dims)
    space = build_space(MatmulAmpere, problem, device("a100"))
    (point,) = space.space.sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    assert assemble(kernel.ptx, "sm_80").registers <= 255
    verification = verify(kernel, MatmulAmpere, problem, orders=("late",))
    assert verification.passed, str(verification)


class Scale(Machine):
    """y = a * x"""

    n = Dim()
    a = Scalar("f32")
    x = Input("f32", n)
    y = Output("f32", n)

    warps, vector = Param(1, 2, 4), Param(1, 2, 4)
    ld, st, mul = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Mul("f32")

    def program(self, p: Any) -> None:
        threads = self.warps * 32
        shape = (threads * self.vector,)
        who = blocked(shape, threads=threads, vector=self.vector, across=threads)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=shape), who)
            p.store(self.st, self.y.tile(i, shape=shape), p.apply(self.mul, x, self.a))

    @staticmethod
    def reference(a: Any, x: Any) -> Any:
        return a * x


def test_a_machine_of_ones_own_goes_the_whole_way() -> None:
    problem = Scale.problem(n=1000)
    space = build_space(Scale, problem, device("rtx4090"))
    assert space.space.size > 1
    for point in space.space.points():
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        assemble(kernel.ptx, "sm_89")
        verification = verify(kernel, Scale, problem)
        assert verification.passed, str(verification)
