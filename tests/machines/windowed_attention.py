"""Attention whose scores are changed on the way: the last keys alone, a bias that falls with distance, a soft cap."""

from typing import Any

import numpy as np

from tinygpu.language import (
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Scalar,
    UnknownLayout,
    blocked,
    exp,
    maximum,
    minimum,
    tanh,
    uniform,
    where,
)
from tinygpu.ptx import isa


class WindowedAttention(Machine):
    """o = softmax(cap * tanh((q @ k.T * scale - slope * distance) / cap)) @ v, of the last `window` keys"""

    h, s, window = Dim(), Dim(), Dim()
    d = Dim(64, 128)
    scale, cap = Scalar("f32", values=uniform(0.05, 0.2)), Scalar("f32", values=uniform(5, 50))
    slope = Input("f32", h, values=uniform(0, 0.1))
    q, k = Input("f16", h, s, d), Input("f16", h, s, d)
    v = Input("f16", h, s, d, values=uniform(-2, 2))  # finite: keys outside the window weigh 0, or are not looked at
    o = Output("f16", h, s, d)

    bm, bn, warps, stages = Param(64, 128), Param(32, 64), Param(4, 8), Param(1, 2)
    layout_q, layout_k, layout_v = UnknownLayout(), UnknownLayout(), UnknownLayout()
    copy, fragment, mma, st = isa.CpAsync(8), isa.LdMatrix(), isa.MmaSync(), isa.StGlobal(2)
    add, larger, shuffle, single = isa.Add("f32"), isa.Max("f32"), isa.ShflBfly(), isa.LdGlobal(1)
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")
    exact, approximation = False, 2.0**-10  # tanh

    def program(self, p: Any) -> None:
        bm, bn, d, warps = self.bm, self.bn, self.d, self.warps
        t = p.tiled(self.mma, "f16", "f16", (bm, bn), (warps, 1))
        u = p.tiled(self.mma, "f16", "f16", (bm, d), (warps, 1))
        rows = blocked((bm, d), threads=32 * warps, vector=8, name="q")
        keys = blocked((bn, d), threads=32 * warps, vector=8, name="k")
        q = p.smem("f16", (bm, d), layout=self.layout_q)
        k, v = p.smem("f16", (d, bn), contiguous=0, layout=self.layout_k), p.smem("f16", (bn, d), layout=self.layout_v)
        with (
            p.grid((self.h, 1), (self.s, bm)) as (h, i),
            p.role("all", warps=warps),
            p.pipeline("once", 1, q=q) as once,
            p.pipeline("ring", self.stages, k=k, v=v) as ring,
        ):
            with once.produce() as slot:
                p.copy(self.copy, self.q.at(h).tile(i, 0, shape=(bm, d)), slot.q, rows)
            slope = p.load(self.single, self.slope.row(h, 1), u.c.reduced(0).reduced(1))
            top, total = p.full(t.c.reduced(1), "f32", -1e30), p.full(t.c.reduced(1), "f32")
            out, row = p.full(u.c, "f32"), p.index(t.c.along(0), 0) + i
            first = maximum(i - self.window + 1, 0) // bn * bn
            count = minimum(self.s, i + bm) - first
            with once.consume() as held:
                with p.loop(count, step=bn) as j, ring.produce() as slot:
                    p.copy(self.copy, self.k.at(h).tile(first + j, 0, shape=(bn, d)).T, slot.k, keys.T)
                    p.copy(self.copy, self.v.at(h).tile(first + j, 0, shape=(bn, d)), slot.v, keys)
                with p.loop(count, step=bn) as j, ring.consume() as slot:
                    scores = p.full(t.c, "f32")
                    with p.unroll(d, step=t.k) as kt:
                        left = p.load(self.fragment, held.q.window((0, kt), (bm, t.k)), t.a)
                        right = p.load(self.fragment, slot.k.window((kt, 0), (t.k, bn)), t.b)
                        p.multiply(self.mma, scores, left, right)
                    apart = row - (p.index(t.c.along(1), 1) + (first + j))
                    seen = (apart >= 0) & (apart < self.window)
                    x = scores * self.scale - slope * p.cast(apart, "f32")
                    x = where(seen, self.cap * tanh(x / self.cap), -1e30)
                    best = maximum(top, p.reduce(self.larger, x, axis=1, by=self.shuffle))
                    keep, e = exp(top - best), where(seen, exp(x - best), 0.0)
                    p.cast(best, "f32", into=top)
                    total *= keep
                    total += p.reduce(self.add, e, axis=1, by=self.shuffle)
                    out *= keep
                    weights = p.cast(e, "f16")
                    with p.unroll(bn, step=u.k) as kt:
                        left = p.relayout(weights.window((0, kt), (bm, u.k)), u.a)
                        p.multiply(self.mma, out, left, p.load(self.fragment, slot.v.window((kt, 0), (u.k, d)), u.b))
            p.store(self.st, self.o.at(h).tile(i, 0, shape=(bm, d)), p.cast(out / total, "f16"))

    @staticmethod
    def reference(scale: Any, cap: Any, slope: Any, q: Any, k: Any, v: Any, window: Any) -> Any:
        apart = np.arange(q.shape[1])[:, None] - np.arange(q.shape[1])
        x = np.einsum("hid,hjd->hij", q, k) * scale - slope[:, None, None] * apart
        x = np.where((apart >= 0) & (apart < window), cap * np.tanh(x / cap), -np.inf)
        e = np.exp(x - x.max(axis=2, keepdims=True))
        return np.einsum("hij,hjd->hid", e, v) / e.sum(axis=2, keepdims=True)
