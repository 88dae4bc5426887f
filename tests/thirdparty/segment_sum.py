"""Sums of segments whose sorted numbers come with values: a scan in each tile, one atomic a segment and tile."""

from typing import Any

import numpy as np

from tinygpu.language import (
    Combine,
    Dim,
    InOut,
    Input,
    Machine,
    Param,
    Tracer,
    ascending,
    blocked,
    equal,
    not_equal,
    where,
)
from tinygpu.ptx import isa


class SegmentSum(Machine):
    """y[s] += the sum of the values of segment s; segment numbers are sorted: one atomic a segment and tile"""

    n, g = Dim(), Dim()
    x, seg = Input("f32", n), Input("s32", n, values=ascending(0, g - 1))
    y = InOut("f32", g)

    warps, vector, step = Param(2, 4, 8), Param(1, 2, 4), Param(1, 2, 4)
    ld, single, put = isa.LdGlobal(vector), isa.LdGlobal(1), isa.RedGlobal("add")
    exchange = isa.Exchange("shuffles", "pairs")
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")

    def merge(self, p: Tracer, left: Any, right: Any) -> Any:
        (s, x), (t, y) = left, right
        return t, where(equal(s, t), x + y, y)

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps * self.vector * self.step,)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=shape), who)
            seg = p.load(self.ld, self.seg.tile(i, shape=shape), who, fill=-1)
            after = p.load(self.single, self.seg.tile(i + 1, shape=shape), who, fill=-1)
            _, total = p.scan(Combine(self.merge), (seg, x), axis=0, by=self.exchange)
            last = not_equal(seg, after) | equal(p.index(who, 0), shape[0] - 1)
            p.store(self.put, self.y.rows(where(last, seg, -1)).tile(0, shape=shape), total)

    @staticmethod
    def reference(x: Any, seg: Any, y: Any) -> Any:
        total = y.copy()
        np.add.at(total, seg, x)
        return total
