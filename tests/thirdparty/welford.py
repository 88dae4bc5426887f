"""Moments of columns: three values at a time are combined, in each round's elements and then between threads."""

from typing import Any

from tinygpu.language import Combine, Dim, Input, Machine, Output, Param, blocked, maximum, normal, shifted, where
from tinygpu.ptx import isa


class ColumnMoments(Machine):
    """mean[j] and var[j] of column j, in one pass that subtracts the mean of what came before (Welford)"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n, values=shifted(normal(0, 1), by=100))
    mean, var = Output("f32", n), Output("f32", n)

    warps, vector, rows = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 4)
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(1), isa.Exchange("shuffles")
    arithmetic, whole, exact = isa.arithmetic("f32"), isa.arithmetic("s32"), False

    def merge(self, p: Any, left: Any, right: Any) -> Any:
        (n, mean, squares), (k, other, more) = left, right
        count, apart = n + k, other - mean
        share = k / maximum(count, 1.0)
        return count, mean + apart * share, squares + more + apart * apart * n * share

    def program(self, p: Any) -> None:
        shape = (self.warps * self.rows, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, shape[1])) as (j,), p.role("all", warps=self.warps):
            count, mean, squares = (p.full(who, "f32") for _ in range(3))
            with p.loop(self.m, step=shape[0]) as i:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                row = p.index(who.along(0), 0) + i
                there = p.cast(where(row < self.m, p.full(who.along(0), "s32", 1), 0), "f32")
                count += there
                apart = (x - mean) * there
                mean += apart / maximum(count, 1.0)
                squares += apart * (x - mean)
            _, mean, squares = p.reduce(Combine(self.merge), (count, mean, squares), axis=0, by=self.exchange)
            p.store(self.st, self.mean.row(j, shape[1]), mean)
            p.store(self.st, self.var.row(j, shape[1]), squares / self.m)

    @staticmethod
    def reference(x: Any) -> Any:
        mean = x.mean(axis=0)
        return {"mean": mean, "var": ((x - mean) ** 2).mean(axis=0)}
