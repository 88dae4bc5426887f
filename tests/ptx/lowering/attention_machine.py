"""Attention as a small machine: two matrix products, a running softmax between them, and three pipelines."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygpu.language import (
    AccessPattern,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Require,
    UnknownLayout,
    blocked,
)
from tinygpu.ptx import isa

DEPTH = 64
SCALE = 1.4426950408889634 / math.sqrt(DEPTH)


class Attention(Machine):
    """o = softmax(q k^T / 8) v for one head of depth 64, with the softmax kept up to date"""

    h, m, n, d = Dim(), Dim(), Dim(), Dim()
    q = Input("f16", h, m, d)
    k, v = Input("f16", h, n, d), Input("f16", h, n, d)
    o = Output("f16", h, m, d)

    warps, bn, stages = Param(1, 2, 4), Param(16, 32, 64), Param(1, 2, 3)
    vector = Param(8)
    across = AccessPattern(4, 8)
    layout_q, layout_k, layout_v, layout_p = UnknownLayout(), UnknownLayout(), UnknownLayout(), UnknownLayout()
    copy, fragment, mma, st, put = isa.CpAsync(vector), isa.LdMatrix(), isa.MmaSync(), isa.StGlobal(2), isa.StShared(2)
    narrow, shuffle = isa.Cvt("f32", "f16"), isa.ShflBfly()
    larger, add, sub, mul = isa.Max("f32"), isa.Add("f32"), isa.Sub("f32"), isa.Mul("f32")
    depth_is_64 = Require(d == DEPTH, "the depth of the head is 64")
    whole = Require(n % bn == 0, "keys come in whole tiles")
    exact, approximation = False, 2.0**-9

    def program(self, p: Any) -> None:
        bm, bn, threads = self.warps * 16, self.bn, self.warps * 32
        s = p.tiled(self.mma, self.q.dtype, self.k.dtype, (bm, bn), (self.warps, 1))
        t = p.tiled(self.mma, self.q.dtype, self.v.dtype, (bm, DEPTH), (self.warps, 1))
        who_q = blocked((bm, DEPTH), threads=threads, vector=self.vector, across=self.across, name="q")
        who_k = blocked((bn, DEPTH), threads=threads, vector=self.vector, across=self.across, name="k")
        with (
            p.grid((self.h, 1), (self.m, bm)) as (h, i),
            p.pipeline("once", 1, q=p.smem("f16", (bm, DEPTH), layout=self.layout_q)) as once,
            p.pipeline(
                "ring",
                self.stages,
                k=p.smem("f16", (bn, DEPTH), layout=self.layout_k),
                v=p.smem("f16", (bn, DEPTH), layout=self.layout_v),
            ) as ring,
            p.pipeline("weights", 1, p=p.smem("f16", (bm, bn), layout=self.layout_p)) as weights,
            p.role("all", warps=self.warps),
        ):
            with once.produce() as slot:
                p.copy(self.copy, self.q.at(h).tile(i, 0, shape=(bm, DEPTH)), slot.q, who_q)
            with once.consume() as slot:
                queries = [p.load(self.fragment, slot.q.window((0, at), (bm, 16)), s.a) for at in range(0, DEPTH, 16)]
            with p.loop(self.n, step=bn) as j, ring.produce() as slot:
                p.copy(self.copy, self.k.at(h).tile(j, 0, shape=(bn, DEPTH)), slot.k, who_k)
                p.copy(self.copy, self.v.at(h).tile(j, 0, shape=(bn, DEPTH)), slot.v, who_k)
            out = p.full(t.c, "f32")
            top, total = p.full(s.c.along(0), "f32", -1e30), p.full(s.c.along(0), "f32")
            with p.loop(self.n, step=bn), ring.consume() as slot:
                scores = p.full(s.c, "f32")
                for at, query in zip(range(0, DEPTH, 16), queries, strict=True):
                    keys = p.load(self.fragment, slot.k.window((0, at), (bn, 16)), s.b.T).T
                    p.multiply(self.mma, scores, query, keys)
                scaled = p.apply(self.mul, scores, SCALE)
                higher = p.apply(self.larger, top, p.reduce(self.larger, scaled, axis=1, by=self.shuffle))
                e = p.apply(isa.Ex2("f32"), p.apply(self.sub, scaled, higher))
                shrink = p.apply(isa.Ex2("f32"), p.apply(self.sub, top, higher))
                p.apply(isa.Fma("f32"), total, shrink, p.reduce(self.add, e, axis=1, by=self.shuffle), into=total)
                p.apply(self.mul, out, shrink, into=out)
                p.apply(self.larger, top, higher, into=top)
                with weights.produce() as w:
                    p.store(self.put, w.p, p.apply(self.narrow, e))
                with weights.consume() as w, p.unroll(bn, step=16) as at:
                    share = p.load(self.fragment, w.p.window((0, at), (bm, 16)), t.a)
                    values = p.load(self.fragment, slot.v.window((at, 0), (16, DEPTH)), t.b)
                    p.multiply(self.mma, out, share, values)
            o = p.apply(self.mul, out, p.apply(isa.Rcp("f32"), total))
            p.store(self.st, self.o.at(h).tile(i, 0, shape=(bm, DEPTH)), p.apply(self.narrow, o))

    @staticmethod
    def reference(q: Any, k: Any, v: Any) -> Any:
        scores = q @ k.transpose(0, 2, 1) / 8
        e = np.exp(scores - scores.max(axis=2, keepdims=True))
        return e / e.sum(axis=2, keepdims=True) @ v
