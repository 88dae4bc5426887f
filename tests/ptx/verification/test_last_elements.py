"""Whole numbers whose last ones decide: what they are, and that a loop which loses the last one is found by them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, Tracer, blocked, uniform
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.inputs import drawn
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


class Read(Machine):
    """y = x"""

    a, b, c = Dim(), Dim(), Dim()
    x, flags = Input("f32", a, b, c), Input("u8", c)
    near, above = Input("f32", c, values=uniform(-2, 9)), Input("f32", c, values=uniform(1, 9))
    y = Output("f32", a, b, c)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 6), st.sampled_from((1, 3, 64)))
def test_the_last_along_each_axis_is_further_from_zero_than_all_others(a: int, b: int, c: int, amplitude: int) -> None:
    problem = Read.problem(a=a, b=b, c=c)
    shapes = {o.name: o.shape for o in problem.operands}
    found, _ = drawn(Read, problem, "last", 0, shapes, amplitude)
    plain, _ = drawn(Read, problem, "integers", 0, shapes, amplitude)
    x = found["x"]
    inner, most = np.abs(x[:-1, :-1, :-1]), np.abs(x).max()
    last = np.ones(x.shape, dtype=bool)
    last[:-1, :-1, :-1] = False
    assert (np.abs(x[last]) == most).all()
    assert (inner < most).all()
    assert x[0, 0, -1] == most
    if a * b > 1:
        assert (x[..., -1] < 0).any()
    assert found["near"].min() >= -2
    for name in ("above", "flags"):
        ends = plain[name].min(), plain[name].max()
        if len(np.unique(plain[name])) < 3:
            np.testing.assert_array_equal(found[name], plain[name])
        else:
            assert found[name][-1] == ends[1]
            assert ((found[name][:-1] > ends[0]) & (found[name][:-1] < ends[1])).all()


class Largest(Machine):
    """y = the sum of each row and z = its largest: two loops of different steps"""

    m, n = Dim(), Dim()
    x, y, z = Input("f32", m, n), Output("f32", m), Output("f32", m)
    one, two = Param(32), Param(96)
    ld, st, shuffle, larger, add = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly(), isa.Max("f32"), isa.Add("f32")
    arithmetic = isa.arithmetic("f32")
    lost: Any = 0

    def program(self, p: Tracer) -> None:
        first, second = (blocked((1, size), threads=32) for size in (self.one, self.two))
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            total, most = p.full(first, "f32"), p.full(second, "f32", -np.inf)
            with p.loop(self.n, step=self.one) as j:
                total += p.load(self.ld, self.x.tile(i, j, shape=(1, self.one)), first)
            with p.loop(self.n - self.lost, step=self.two) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=(1, self.two)), second, fill=-np.inf)
                p.apply(self.larger, most, x, into=most)
            p.store(self.st, self.y.column(i, 1), p.reduce(self.add, total, axis=1, by=self.shuffle))
            p.store(self.st, self.z.column(i, 1), p.reduce(self.larger, most, axis=1, by=self.shuffle))

    @staticmethod
    def reference(x: Any) -> Any:
        return {"y": x.sum(axis=1), "z": x.max(axis=1)}


class LosesOne(Largest):
    """the same, but for the last element of a row where that is a round of its own"""

    lost = 1


class OfTwo(Machine):
    """y = the largest a[i] + b[j] of each i, or the least: of a vector, which is one line"""

    m, n = Dim(), Dim()
    a, b, y = Input("f32", m), Input("f32", n), Output("f32", m)
    step = Param(32)
    ld, st, shuffle, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly(), isa.arithmetic("f32")
    larger, smaller = isa.Max("f32"), isa.Min("f32")
    lost: Any = 0
    least: Any = False

    def program(self, p: Tracer) -> None:
        who = blocked((1, self.step), threads=32)
        end, choose = (np.inf, self.smaller) if self.least else (-np.inf, self.larger)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            a, found = p.load(self.ld, self.a.column(i, 1), who.along(0)), p.full(who, "f32", end)
            with p.loop(self.n - self.lost, step=self.step) as j:
                b = p.load(self.ld, self.b.row(j, self.step), who.along(1), fill=end)
                p.apply(choose, found, a + b, into=found)
            p.store(self.st, self.y.column(i, 1), p.reduce(choose, found, axis=1, by=self.shuffle))

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return (a[:, None] + b[None]).max(axis=1)


class LosesOneOfTwo(OfTwo):
    """the largest, but for the last where that is a round of its own"""

    lost = 1


class LeastOfTwo(OfTwo):
    """the least"""

    least = True

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return (a[:, None] + b[None]).min(axis=1)


class LosesOneLeast(LeastOfTwo):
    """the least, but for the last where that is a round of its own"""

    lost = 1


@pytest.mark.parametrize(("right", "wrong"), [(OfTwo, LosesOneOfTwo), (LeastOfTwo, LosesOneLeast)])
def test_so_is_one_of_two_tensors(right: type[Machine], wrong: type[Machine]) -> None:
    for machine in (right, wrong):
        problem = machine.problem(m=3, n=100)
        kernel = build(build_space(machine, problem, device("a100")).program({"step": 32}), problem, {"step": 32},
                       SolverCache()).kernel  # fmt: skip
        assert verify(kernel, machine, problem).passed == (machine is right)


@pytest.mark.parametrize("n", [100, 150])
def test_a_largest_that_loses_the_last_element_is_found(n: int) -> None:
    for machine in (Largest, LosesOne):
        problem = machine.problem(m=3, n=n)
        space = build_space(machine, problem, device("a100"))
        (point,) = space.space.sample(1, np.random.default_rng(0))
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        found = verify(kernel, machine, problem, orders=("late",), random_inputs=False)
        assert found.passed == (machine is Largest), str(found)
