"""Small triangular systems: what one row of a tile has is told to all by a sum of nothing else."""

from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, Param, Tracer, blocked, equal, positive_definite, where
from tinygpu.ptx import isa

N = 32


class LowerSolve(Machine):
    """x of l x = b, for many lower triangular matrices of 32 x 32: a warp has one, and a lane a row"""

    z = Dim()
    l = Input("f32", z, N, N, values=positive_definite(16))  # noqa: E741  # whose upper triangle is not looked at
    b, x = Input("f32", z, N), Output("f32", z, N)

    vector = Param(1, 2, 4)
    ld, single, st = isa.LdGlobal(vector), isa.LdGlobal(1), isa.StGlobal(1)
    add, shuffle = isa.Add("f32"), isa.ShflBfly()
    arithmetic, whole, exact = isa.arithmetic("f32"), isa.arithmetic("s32"), False

    def program(self, p: Tracer) -> None:
        who = blocked((N, N), threads=32, vector=self.vector, across=1)
        with p.grid((self.z, 1)) as (z,), p.role("all", warps=1):
            lower = p.load(self.ld, self.l.at(z).tile(0, 0, shape=(N, N)), who)
            rest = p.load(self.single, self.b.at(z).tile(0, shape=(N,)).unsqueeze(1), who.along(0))
            row = p.index(who.along(0), 0)
            for k in range(N):
                column = lower.window((0, k), (N, 1))
                found = p.reduce(self.add, where(equal(row, k), rest / column, 0.0), axis=0, by=self.shuffle)
                rest = where(row > k, rest - column * found, where(equal(row, k), found, rest))
            p.store(self.st, self.x.at(z).tile(0, shape=(N,)).unsqueeze(1), rest)

    @staticmethod
    def reference(l: Any, b: Any) -> Any:  # noqa: E741
        x: list[Any] = []
        for r in range(N):
            x.append((b[:, r] - sum(l[:, r, k] * x[k] for k in range(r))) / l[:, r, r])
        return np.stack(x, axis=1)
