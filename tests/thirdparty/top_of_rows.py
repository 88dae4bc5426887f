"""A product with the largest element of each of its rows."""

from typing import Any

import numpy as np

from tinygpu.language import (
    AccessPattern,
    Choice,
    Combine,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Route,
    Tracer,
    UnknownLayout,
    blocked,
    equal,
    maximum,
    minimum,
    uniform,
    where,
)
from tinygpu.ptx import isa


class MatmulTop(Machine):
    """c = a @ b in f16, and of each row the largest |c| and the first place where it is"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = Input("f16", m, k, values=uniform(-1, 1)), Input("f16", k, n, values=uniform(-1, 1))
    c, most, at = Output("f16", m, n), Output("f32", m), Output("s32", m)

    bm, bn, bk = Param(32, 64, 128), Param(32, 64, 128), Param(16, 32)
    warps_m, warps_n, stages = Param(1, 2, 4), Param(1, 2), Param(2, 3)
    va, vb, vc = Param(1, 2, 8), Param(1, 2, 8), Param(1, 2)
    across_a, across_b = AccessPattern(), AccessPattern()
    layout_a, layout_b = UnknownLayout(), UnknownLayout()
    copy_a = Choice(isa.CpAsync(va), Route(isa.LdGlobal(va), isa.StShared(va)))
    copy_b = Choice(isa.CpAsync(vb), Route(isa.LdGlobal(vb), isa.StShared(vb)))
    fragment, mma, st, single = isa.LdMatrix(), isa.MmaSync(), isa.StGlobal(vc), isa.StGlobal(1)
    arithmetic, whole, exchange = isa.arithmetic("f32"), isa.arithmetic("s32"), isa.Exchange("shuffles", "pairs")
    compute = "f32"

    def better(self, p: Tracer, left: Any, right: Any) -> Any:
        (x, i), (y, j) = left, right
        return maximum(x, y), where(equal(x, y), minimum(i, j), where(x > y, i, j))

    def program(self, p: Tracer) -> None:
        warps, bm, bn, bk = self.warps_m * self.warps_n, self.bm, self.bn, self.bk
        t = p.tiled(self.mma, "f16", "f16", (bm, bn), (self.warps_m, self.warps_n))
        who_a = blocked((bm, bk), threads=32 * warps, vector=self.va, across=self.across_a, name="a")
        who_b = blocked((bk, bn), threads=32 * warps, vector=self.vb, across=self.across_b, name="b")
        a, b = p.smem("f16", (bm, bk), layout=self.layout_a), p.smem("f16", (bk, bn), layout=self.layout_b)
        with (
            p.grid((self.m, bm)) as (i,),
            p.role("all", warps=warps),
            p.pipeline("ring", self.stages, a=a, b=b) as ring,
        ):
            most, at = p.full(t.c.reduced(1), "f32", -1.0), p.full(t.c.reduced(1), "s32")
            with p.loop(self.n, step=bn) as j:
                with p.loop(self.k, step=bk) as kk, ring.produce() as slot:
                    p.copy(self.copy_a, self.a.tile(i, kk, shape=(bm, bk)), slot.a, who_a)
                    p.copy(self.copy_b, self.b.tile(kk, j, shape=(bk, bn)), slot.b, who_b)
                c = p.full(t.c, "f32")
                with p.loop(self.k, step=bk), ring.consume() as slot, p.unroll(bk, step=t.k) as kt:
                    x = p.load(self.fragment, slot.a.window((0, kt), (bm, t.k)), t.a)
                    y = p.load(self.fragment, slot.b.window((kt, 0), (t.k, bn)), t.b)
                    p.multiply(self.mma, c, x, y)
                p.store(self.st, self.c.tile(i, j, shape=(bm, bn)), c)
                place = p.index(t.c, 1) + j
                found = p.reduce(Combine(self.better), (abs(c), place), axis=1, by=self.exchange)
                x, y = self.better(p, (most, at), found)
                p.cast(x, "f32", into=most)
                p.cast(y, "s32", into=at)
            p.store(self.single, self.most.column(i, bm), most)
            p.store(self.single, self.at.column(i, bm), at)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        c = a @ b
        return {"c": c, "most": np.abs(c).max(axis=1), "at": np.abs(c).argmax(axis=1).astype(np.int32)}
