"""A machine whose threads go over a row and leave one number: the smallest that has a loop at run time."""

from __future__ import annotations

from typing import Any

from tinygpu.language import Dim, Input, Machine, Output, Param, Tracer, blocked
from tinygpu.ptx import isa


class RowSums(Machine):
    """y[i] = sum of row i"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m)
    vector = Param(1, 4)
    ld, st, add, shuffle = isa.LdGlobal(vector), isa.StGlobal(1), isa.Add("f32"), isa.ShflBfly()

    def program(self, p: Tracer) -> None:
        shape = (1, 32 * self.vector)
        who = blocked(shape, threads=32, vector=self.vector)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            total = p.full(who, "f32")
            with p.loop(self.columns(), step=shape[1]) as j:
                total += p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            p.store(self.st, self.y.column(i, 1), p.reduce(self.add, total, axis=1, by=self.shuffle))

    def columns(self) -> Any:
        return self.n

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=1)
