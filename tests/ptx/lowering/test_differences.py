"""Windows whose offset takes quotients and dims away: the place is the same as in a remainder, whatever is added up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


class RowsAgain(Machine):
    """y[i] = row (i - page * (i // page)) of x, whose rows are apart and whose columns are shifted by `back`"""

    m, n, w, back = Dim(), Dim(), Dim(), Dim()
    x = Input("f32", n, w)
    y = Output("f32", m, w)
    page, rows = Param(4, 8, 24), Param(2, 4)
    ld, st = isa.LdGlobal(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        shape = (self.rows, 32)
        who = blocked(shape, threads=32, across=32)
        with p.grid((self.m, self.rows), (self.w, 32)) as (i, j), p.role("all", warps=1):
            at = i - self.page * (i // self.page)
            x = p.load(self.ld, self.x.tile(at, j - self.back, shape=shape), who)
            p.store(self.st, self.y.tile(i, j, shape=shape), x)

    @staticmethod
    def reference(x: Any, m: int, back: int, page: int, rows: int) -> Any:
        shifted = np.pad(x, ((0, m + page), (back, 0)))[:, : x.shape[1]]
        begin = np.arange(m) // rows * rows
        return shifted[begin % page + np.arange(m) - begin]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.sampled(6)
def test_what_is_taken_away_in_an_offset_is_taken_from_the_address(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m, n, w, back = (int(rng.integers(1, most)) for most in (70, 40, 70, 40))
    problem = RowsAgain.problem(m=m, n=n, w=w, back=back)
    space = build_space(RowsAgain, problem, device("a100"))
    (point,) = space.sample(1, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, RowsAgain, problem, orders=("late",))
    assert found.passed, f"{problem} {point}\n{found}"
