"""The sum of every row in two passes: parts of each row first, then the sums of the parts."""
from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, Param, Plan, Require, Step, Workspace, blocked, ceil_div
from tinygpu.ptx import isa


class PartialSums(Machine):
    """y[i, p] = sum of the columns of part p, of `chunk` columns each, in row i of x"""

    m, n, parts = Dim(), Dim(), Dim()
    x = Input(("f32", "f16"), m, n)
    y = Output("f32", m, parts)

    chunk = Param(128, 512, 2048, 8192)
    warps, rows, vector, steps = Param(1, 4), Param(1, 2), Param(1, 2, 4), Param(1, 4)
    lanes = Param(8, 32)  # threads side by side in a row
    ld, st, add, shfl = isa.LdGlobal(vector), isa.StGlobal(1), isa.Add("f32"), isa.ShflBfly()
    whole_rounds = Require(chunk % (lanes * vector * steps) == 0, "a part is a whole number of rounds")

    def program(self, p: Any) -> None:
        threads = 32 * self.warps
        shape = (threads // self.lanes * self.rows, self.lanes * self.vector * self.steps)
        who = blocked(shape, threads=threads, vector=self.vector, across=self.lanes)
        with p.grid((self.m, shape[0]), (self.parts, 1)) as (i, part), p.role("all", warps=self.warps):
            total = p.full(who.along(0), "f32")
            with p.loop(self.chunk, step=shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, part * self.chunk + j, shape=shape), who)
                if self.x.dtype.name != "f32":
                    x = p.apply(isa.Cvt(self.x.dtype.name, "f32"), x)
                p.apply(self.add, total, p.reduce(self.add, x, axis=1, by=self.shfl), into=total)
            p.store(self.st, self.y.tile(i, part, shape=(shape[0], 1)), total)

    @staticmethod
    def reference(x: Any, parts: int, chunk: int) -> Any:
        return np.stack([x[:, p * chunk : (p + 1) * chunk].sum(axis=1) for p in range(parts)], axis=1)


class RowSum(Machine):
    """y[i] = sum of row i of x"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m)

    warps, rows, vector, steps = Param(1, 4), Param(1, 2), Param(1, 2), Param(1, 4)
    lanes = Param(1, 32)
    ld, st, add, shfl = isa.LdGlobal(vector), isa.StGlobal(1), isa.Add("f32"), isa.ShflBfly()

    def program(self, p: Any) -> None:
        threads = 32 * self.warps
        shape = (threads // self.lanes * self.rows, self.lanes * self.vector * self.steps)
        who = blocked(shape, threads=threads, vector=self.vector, across=self.lanes)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            total = p.full(who.along(0), "f32")
            with p.loop(self.n, step=shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                p.apply(self.add, total, p.reduce(self.add, x, axis=1, by=self.shfl), into=total)
            p.store(self.st, self.y.column(i, shape[0]), total)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=1)


class RowSums(Plan):
    """y[i] = sum of row i of x, for few long rows: their parts first, then the sums of the parts"""

    m, n = Dim(), Dim()
    x, y = Input(("f32", "f16"), m, n), Output("f32", m)

    chunk = Param(128, 512, 2048, 8192)  # columns of a part
    partial = Workspace("f32", m, ceil_div(n, chunk))
    parts = Step(PartialSums, x=x, y=partial, chunk=chunk)
    total = Step(RowSum, x=partial, y=y)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=1)
