"""Dims into which CTAs only reach: derived problems end where the real ones do, so that what is done there is seen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Require, blocked
from tinygpu.machines.reductions import Parts
from tinygpu.ptx import isa
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.derived import derive
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

CACHE = SolverCache()


class BeginsAtOne(Parts):
    """What lies behind the last element counts as 1 in a sum"""

    def reduced(self, row: Any, of: Any, squared: bool) -> Any:
        return row.reduce(self.plus, row.load(self.ld, of, fill=1.0, to="f32"))


class AtMost(Parts):
    """A machine that says of its sizes what is legal"""

    few = Require(Parts.n >= 300_000, "there are many elements")


def kernel_of(machine: type[Parts], n: int, parts: int, seed: int, **dims: Any) -> tuple[Kernel, Any]:
    problem = machine.problem(n=n, parts=parts, **dims)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.sample(1, seed)
    return build(space.program(point), problem, point, CACHE).kernel, problem


@settings(max_examples=30)
@example(16777217, 1, 0)  # more than memory holds, and most of it is left out
@given(st.integers(1, 2**28), st.integers(1, 2**18), st.integers(0, 99))
def test_what_few_ctas_reach_is_left_and_ends_where_the_real_one_does(n: int, parts: int, seed: int) -> None:
    kernel, problem = kernel_of(Parts, n, parts, seed)
    small = derive(kernel, Parts, problem)
    chunk, few = int(dict(kernel.point)["chunk"]), small.dim["parts"]
    if parts * chunk < n:  # something is left out
        assert small.dim["n"] == n
        return
    assert (n - small.dim["n"]) % chunk == 0, "no end of a tile, and no fact, is another"
    assert small.dim["n"] == n or (few - 1) * chunk < small.dim["n"] <= few * chunk, "the last CTA comes to the end"
    assert small.dim["n"] <= n
    assert small.dim["n"] < n or n <= few * chunk, "nothing is larger than what is reached"


class FirstTile(Machine):
    """y[i] = the sum of row i of x, of which one tile is read, however long it is"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m)
    ld, st, plus, exchange = isa.LdGlobal(4), isa.StGlobal(1), isa.Add("f32"), isa.Exchange()
    exact = False

    def program(self, p: Any) -> None:
        who = blocked((8, 64), threads=128, vector=4, across=16)
        with p.grid((self.m, 8)) as (i,), p.role("all", warps=4):
            x = p.load(self.ld, self.x.tile(i, 0, shape=who.shape), who)
            p.store(self.st, self.y.column(i, 8), p.reduce(self.plus, x, axis=1, by=self.exchange))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=1)


@pytest.mark.parametrize(("n", "right"), [(60, True), (64, True), (68, False), (128, False), (200_000, False)])
def test_what_no_cta_reaches_is_not_left_out_of_derived_problems(n: int, right: bool) -> None:
    problem = FirstTile.problem(m=100, n=n)
    space = build_space(FirstTile, problem, device("a100"))
    (point,) = space.space.points()
    kernel = build(space.program(point), problem, point, CACHE).kernel
    assert verify(kernel, FirstTile, problem, orders=("late",)).passed is right


def test_what_is_legal_decides() -> None:
    for seed in range(6):
        kernel, problem = kernel_of(AtMost, 2**24, 2**16, seed)
        assert derive(kernel, AtMost, problem).dim["n"] >= 300_000


@pytest.mark.parametrize("n", [70_001, 4096 * 20 + 4])
def test_a_wrong_end_far_behind_the_first_ctas_is_seen(n: int) -> None:
    """On as many elements as the real problem has, the two CTAs of a derived one would not come to the end."""
    for machine, right in ((Parts, True), (BeginsAtOne, False)):
        for seed in range(3):
            kernel, problem = kernel_of(machine, n, -(-n // 1024), seed)
            assert verify(kernel, machine, problem, orders=("late",)).passed is right
