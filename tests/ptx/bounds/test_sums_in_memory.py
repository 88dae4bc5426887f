"""Sums that memory keeps in 16 bits: whatever the order, a kernel's are right, and what is left out is not."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, InOut, Input, Machine, Param, blocked, integers
from tinygpu.ptx import isa
from tinygpu.ptx.bounds.answers import answers
from tinygpu.ptx.bounds.arithmetic import Rounding
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import Verification, verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


@cache
def bins(kind: str, left_out: int = 0) -> type[Machine]:
    """y[k[i]] += x[i]; where some are left out, what lies at their places is not added."""

    class Bins(Machine):
        n, v = Dim(), Dim()
        k = Input("s32", n, values=integers(0, v))
        x, y = Input(kind, n), InOut(kind, v)
        warps = Param(1, 2, 4)
        ld, add, places = isa.LdGlobal(1), isa.RedGlobal("add"), isa.arithmetic("s32")
        exact = False  # of 16 bits every sum is rounded

        def program(self, p: Any) -> None:
            shape = (32 * self.warps,)
            who = blocked(shape, threads=32 * self.warps)
            with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
                k = p.load(self.ld, self.k.tile(i, shape=shape), who, fill=-1)
                x = p.load(self.ld, self.x.tile(i, shape=shape), who)
                k = p.where(p.index(who, 0) >= left_out, k, -1) if left_out else k
                p.store(self.add, self.y.rows(k).tile(0, shape=shape), x)

        @staticmethod
        def reference(k: Any, x: Any, y: Any) -> Any:
            y = y.copy()
            np.add.at(y, k.astype(int), x)
            return y

    return Bins


def verified(machine: type[Machine], n: int, v: int, seed: int) -> Verification:
    problem = machine.problem(n=n, v=v)
    space = build_space(machine, problem, device("h100"))
    (point,) = space.space.sample(1, np.random.default_rng(seed))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    return verify(kernel, machine, problem, orders=("late", "random"), seed=seed)


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize(("n", "v"), [(2000, 3), (77, 1), (1009, 40)])
def test_sums_of_any_order_are_right_and_such_that_lack_a_term_are_not(kind: str, n: int, v: int) -> None:
    for seed in range(3):
        found = verified(bins(kind), n, v, seed)
        assert found.passed, f"{kind}, n={n}, v={v}, seed {seed}: {found}"
        assert not verified(bins(kind, 3), n, v, seed).passed


@pytest.mark.parametrize("special", [np.nan, np.inf, 1e9])
def test_what_is_no_number_or_may_be_any_marks_the_sum_that_it_is_added_to_and_no_other(special: float) -> None:
    """y[k[i]] += f(x[i]) of rounded terms, of which one is special; of 1e9 f divides by a difference that may be 0."""

    def added(k: Any, x: Any, y: Any) -> Any:
        y = y.copy()
        np.add.at(y, k.astype(int), np.where(x == 1e9, 1 / (x / 3 * 3 - x), x / 3))
        return y

    k, x, y = np.array([0, 1, 1, 2]), np.array([0.1, 0.2, special, 0.4]), np.full(4, 0.7)
    found = answers(added, {"k": k, "x": x, "y": y}, {}, ["y"], Rounding(exact=True))["y"]
    assert found.followed == ""
    assert (found.high[[0, 2, 3]] < found.low[[0, 2, 3]] + 1e-5).all()
    assert not np.isfinite(found.low[1])
