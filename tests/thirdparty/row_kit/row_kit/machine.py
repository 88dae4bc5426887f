"""A machine with an instruction of its own."""

from typing import Any

import numpy as np

from row_kit.instruction import Farther
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa


class RowPeak(Machine):
    """y[i] = the largest |x[i, j]|"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m)

    warps, rows, vector = Param(1, 2, 4), Param(1, 2), Param(1, 2, 4)
    ld, st, farther, shuffle = isa.LdGlobal(vector), isa.StGlobal(1), Farther(), isa.ShflBfly()

    def program(self, p: Any) -> None:
        threads = 32 * self.warps
        shape = (self.warps * self.rows, 32 * self.vector)
        who = blocked(shape, threads=threads, vector=self.vector, across=32)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            peak = p.full(who, "f32")
            with p.loop(self.n, step=shape[1]) as j:
                p.apply(self.farther, p.load(self.ld, self.x.tile(i, j, shape=shape), who), peak, into=peak)
            p.store(self.st, self.y.column(i, shape[0]), p.reduce(self.farther, peak, axis=1, by=self.shuffle))

    @staticmethod
    def reference(x: Any) -> Any:
        return np.abs(x).max(axis=1)
