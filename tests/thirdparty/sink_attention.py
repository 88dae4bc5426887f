"""Attention whose scores are capped, and whose heads have a learned score without a value."""

import math
from typing import Any

import numpy as np

from tinygpu.language import (
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Scalar,
    Tracer,
    UnknownLayout,
    between,
    blocked,
    exp2,
    maximum,
    minimum,
    tanh,
    uniform,
    where,
)
from tinygpu.ptx import isa

LOG2E = 1.4426950408889634


class SinkAttention(Machine):
    """Causal attention whose logits are capped, with a learned logit of each head that has no value"""

    b, h, s = Dim(), Dim(), Dim()
    d = Dim(64, 128)
    cap = Scalar("f32", values=between(4, 50))
    q, k = Input("f16", b, h, s, d), Input("f16", b, h, s, d)
    v = Input("f16", b, h, s, d, values=uniform(-4, 4))  # finite: keys behind a query weigh 0, or are not looked at
    sink = Input("f32", h)
    o = Output("f16", b, h, s, d)

    bm, bn, warps, stages = Param(32, 64, 128), Param(32, 64), Param(2, 4), Param(1, 2)
    layout_q, layout_k, layout_v = UnknownLayout(), UnknownLayout(), UnknownLayout()
    copy, fragment, mma = isa.CpAsync(8), isa.LdMatrix(), isa.MmaSync()
    single, st = isa.LdGlobal(1), isa.StGlobal(2)
    arithmetic, whole, shuffle = isa.arithmetic("f32"), isa.arithmetic("s32"), isa.ShflBfly()
    add, larger = isa.Add("f32"), isa.Max("f32")
    compute, exact, approximation = "f32", False, 2.0**-9

    def program(self, p: Tracer) -> None:
        bm, bn, d, threads = self.bm, self.bn, self.d, 32 * self.warps
        ts = p.tiled(self.mma, "f16", "f16", (bm, bn), (self.warps, 1))
        to = p.tiled(self.mma, "f16", "f16", (bm, d), (self.warps, 1))
        who_q = blocked((bm, d), threads=threads, vector=8, name="q")
        who_k = blocked((bn, d), threads=threads, vector=8, name="k")
        q = p.smem("f16", (bm, d), layout=self.layout_q)
        k = p.smem("f16", (d, bn), contiguous=0, layout=self.layout_k)
        v = p.smem("f16", (bn, d), layout=self.layout_v)
        scale = 1 / math.sqrt(d)
        with (
            p.grid((self.b, 1), (self.h, 1), (self.s, bm)) as (z, h, i),
            p.role("all", warps=self.warps),
            p.pipeline("queries", 1, q=q) as queries,
            p.pipeline("keys", self.stages, k=k, v=v) as keys,
        ):
            end = minimum(self.s, i + bm)
            with queries.produce() as slot:
                p.copy(self.copy, self.q.at(z, h).tile(i, 0, shape=(bm, d)), slot.q, who_q)
            with queries.consume() as mine:
                out = p.full(to.c, "f32")
                most = p.full(ts.c.reduced(1), "f32")
                most += p.load(self.single, self.sink.row(h, 1), ts.c.reduced(1).reduced(0))
                total = p.full(ts.c.reduced(1), "f32", 1.0)
                with p.loop(end, step=bn) as j, keys.produce() as slot:
                    p.copy(self.copy, self.k.at(z, h).tile(j, 0, shape=(bn, d)).T, slot.k, who_k.T)
                    p.copy(self.copy, self.v.at(z, h).tile(j, 0, shape=(bn, d)), slot.v, who_k)
                with p.loop(end, step=bn) as j, keys.consume() as slot:
                    scores = p.full(ts.c, "f32")
                    with p.unroll(d, step=ts.k) as kt:
                        x = p.load(self.fragment, mine.q.window((0, kt), (bm, ts.k)), ts.a)
                        y = p.load(self.fragment, slot.k.window((kt, 0), (ts.k, bn)), ts.b)
                        p.multiply(self.mma, scores, x, y)
                    logits = self.cap * tanh(scores * scale / self.cap)
                    row, column = p.index(ts.c.along(0), 0) + i, p.index(ts.c.along(1), 1) + j
                    logits = where(column <= row, logits, -math.inf)
                    top = maximum(most, p.reduce(self.larger, logits, axis=1, by=self.shuffle))
                    keep = exp2((most - top) * LOG2E)
                    weights = exp2((logits - top) * LOG2E)
                    total *= keep
                    total += p.reduce(self.add, weights, axis=1, by=self.shuffle)
                    p.cast(top, "f32", into=most)
                    out *= keep
                    narrow = p.cast(weights, "f16")
                    with p.unroll(bn, step=to.k) as kk:
                        left = p.relayout(narrow.window((0, kk), (bm, to.k)), to.a)
                        p.multiply(self.mma, out, left, p.load(self.fragment, slot.v.window((kk, 0), (to.k, d)), to.b))
            p.store(self.st, self.o.at(z, h).tile(i, 0, shape=(bm, d)), out / total)

    @staticmethod
    def reference(cap: Any, q: Any, k: Any, v: Any, sink: Any) -> Any:
        s = q.shape[2]
        logits = cap * np.tanh(q @ k.swapaxes(2, 3) / math.sqrt(q.shape[3]) / cap)
        logits = np.where(np.arange(s)[:, None] >= np.arange(s), logits, -np.inf)
        most = np.maximum(logits.max(axis=-1, keepdims=True), sink[:, None, None])
        e = np.exp(logits - most)
        total = e.sum(axis=-1, keepdims=True) + np.exp(sink[:, None, None] - most)
        return e.astype(q.dtype) @ v / total
