"""Integral images: a plan of two scans."""

from typing import Any

from tinygpu.language import Dim, Input, Machine, Output, Param, Plan, Step, Tracer, Workspace, blocked
from tinygpu.ptx import isa


class AlongRows(Machine):
    """y[i, j] = the sum of x[i, k] over k <= j"""

    m, n = Dim(), Dim()
    x, y = Input(("f32", "u8"), m, n), Output("f32", m, n)

    warps, vector, step = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 4)
    ld, st, add, arithmetic = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Add("f32"), isa.arithmetic("f32")
    compute, exchange = "f32", isa.Exchange("shuffles", "pairs")

    def program(self, p: Tracer) -> None:
        shape = (1, 32 * self.warps * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=self.warps):
            before = p.full(who.reduced(1), "f32")
            with p.loop(self.n, step=shape[1]) as j:
                x = p.cast(p.load(self.ld, self.x.tile(i, j, shape=shape), who), "f32")
                y = p.scan(self.add, x, axis=1, by=self.exchange, carry=before)
                p.store(self.st, self.y.tile(i, j, shape=shape), y)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.cumsum(axis=1)


class AlongColumns(Machine):
    """y[i, j] = the sum of x[k, j] over k <= i"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)

    warps, vector, rows = Param(1, 2, 4, 8), Param(1, 2, 4), Param(1, 2, 4)
    ld, st, add = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Add("f32")
    exchange = isa.Exchange("shuffles", "pairs")

    def program(self, p: Tracer) -> None:
        shape = (self.warps * self.rows, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, shape[1])) as (j,), p.role("all", warps=self.warps):
            before = p.full(who.reduced(0), "f32")
            with p.loop(self.m, step=shape[0]) as i:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                y = p.scan(self.add, x, axis=0, by=self.exchange, carry=before)
                p.store(self.st, self.y.tile(i, j, shape=shape), y)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.cumsum(axis=0)


class Integral(Plan):
    """y[i, j] = the sum of x over all rows up to i and columns up to j"""

    m, n = Dim(), Dim()
    x, y = Input(("f32", "u8"), m, n), Output("f32", m, n)
    across = Workspace("f32", m, n)
    rows = Step(AlongRows, x=x, y=across)
    columns = Step(AlongColumns, x=across, y=y)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.cumsum(axis=1).cumsum(axis=0)
