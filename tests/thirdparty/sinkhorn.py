"""A round of Sinkhorn: a plan of two normalisations."""

from typing import Any

from tinygpu.language import Dim, Input, Machine, Output, Param, Plan, Step, Tracer, Workspace, blocked, positive
from tinygpu.ptx import isa


class RowsToOne(Machine):
    """y = x, of which every row is divided by its sum"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n, values=positive()), Output("f32", m, n)

    warps, vector, step = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 4)
    ld, st, add, arithmetic = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Add("f32"), isa.arithmetic("f32")
    exchange, exact = isa.Exchange("shuffles", "pairs"), False

    def program(self, p: Tracer) -> None:
        shape = (1, 32 * self.warps * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(self.n, step=shape[1]) as j:
                total += p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            scale = 1 / p.reduce(self.add, total, axis=1, by=self.exchange)
            with p.loop(self.n, step=shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                p.store(self.st, self.y.tile(i, j, shape=shape), x * scale)

    @staticmethod
    def reference(x: Any) -> Any:
        return x / x.sum(axis=1, keepdims=True)


class ColumnsToOne(Machine):
    """y = x, of which every column is divided by its sum"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n, values=positive()), Output("f32", m, n)

    warps, vector, rows = Param(1, 2, 4, 8), Param(1, 2, 4), Param(1, 2, 4)
    ld, st, add, arithmetic = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Add("f32"), isa.arithmetic("f32")
    exchange, exact = isa.Exchange("shuffles", "pairs"), False

    def program(self, p: Tracer) -> None:
        shape = (self.warps * self.rows, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, shape[1])) as (j,), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(self.m, step=shape[0]) as i:
                total += p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            scale = 1 / p.reduce(self.add, total, axis=0, by=self.exchange)
            with p.loop(self.m, step=shape[0]) as i:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                p.store(self.st, self.y.tile(i, j, shape=shape), x * scale)

    @staticmethod
    def reference(x: Any) -> Any:
        return x / x.sum(axis=0, keepdims=True)


class Sinkhorn(Plan):
    """One round of Sinkhorn: rows are divided by their sums, and then columns"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n, values=positive()), Output("f32", m, n)
    half = Workspace("f32", m, n)
    rows = Step(RowsToOne, x=x, y=half)
    columns = Step(ColumnsToOne, x=half, y=y)

    @staticmethod
    def reference(x: Any) -> Any:
        x = x / x.sum(axis=1, keepdims=True)
        return x / x.sum(axis=0, keepdims=True)
