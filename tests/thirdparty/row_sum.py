"""The sum of every row: each thread sums its own values, then the lanes of a warp exchange theirs."""

from typing import Any

from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa


class RowSum(Machine):
    """y[i] = sum of x[i, j] over j"""

    m, n = Dim(), Dim()
    x = Input(("f32", "f16"), m, n)
    y = Output("f32", m)

    warps, rows, vector, steps = Param(1, 2, 4, 8), Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 4)
    lanes = Param(8, 16, 32)  # threads side by side in a row
    ld, st, add, shfl = isa.LdGlobal(vector), isa.StGlobal(1), isa.Add("f32"), isa.ShflBfly()

    def program(self, p: Any) -> None:
        threads = 32 * self.warps
        shape = (threads // self.lanes * self.rows, self.lanes * self.vector * self.steps)
        who = blocked(shape, threads=threads, vector=self.vector, across=self.lanes)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            total = p.full(who.along(0), "f32")
            with p.loop(self.n, step=shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                if self.x.dtype.name != "f32":
                    x = p.apply(isa.Cvt(self.x.dtype.name, "f32"), x)
                p.apply(self.add, total, p.reduce(self.add, x, axis=1, by=self.shfl), into=total)
            p.store(self.st, self.y.column(i, shape[0]), total)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=1)
