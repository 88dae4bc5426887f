"""Attention on tensor cores as of Ampere: the first product's sums are the second one's left operand, in registers.

Tiles of keys and values come by cp.async through a ring; queries stay in shared memory. Each warp has rows of its own,
so that nothing but the columns of one row, held by four lanes, meets. Searched are the rows of a tile and how many keys
come at a time (more share each load of a fragment, and take registers), warps, and the depth of the ring.
"""

from __future__ import annotations

from tinygpu.language import AccessPattern, Param, Tracer, UnknownLayout, blocked
from tinygpu.machines.attention import Attention
from tinygpu.ptx import isa


class AttentionAmpere(Attention):
    """o = softmax(scale * q @ k.T) @ v of every head, causal or not: mma.sync, fed by cp.async"""

    warps, rows, bn, stages = Param(4, 8), Param(16, 32), Param(16, 32, 64, 128), Param(1, 2, 3)
    vector, across = Param(8), AccessPattern(4, 8, 16)
    layout_q, layout_k, layout_v = UnknownLayout(), UnknownLayout(), UnknownLayout()
    copy, fragment, mma = isa.CpAsync(vector), isa.LdMatrix(), isa.MmaSync()

    def program(self, p: Tracer) -> None:
        kind, bm, bn, d = self.q.dtype, self.rows * self.warps, self.bn, self.d
        scores = p.tiled(self.mma, kind, kind, (bm, bn), (self.warps, 1))
        out = p.tiled(self.mma, kind, kind, (bm, d), (self.warps, 1))
        who_q, who_k = (
            blocked((rows, d), threads=32 * self.warps, vector=self.vector, across=self.across) for rows in (bm, bn)
        )
        queries = p.smem(kind, (bm, d), layout=self.layout_q)
        keys = p.smem(kind, (d, bn), contiguous=0, layout=self.layout_k)
        values = p.smem(kind, (bn, d), layout=self.layout_v)
        with (
            p.grid((self.b, 1), (self.h, 1), (self.g, 1), (self.s, bm)) as (z, h, g, i),
            p.pipeline("once", 1, q=queries) as once,
            p.pipeline("ring", self.stages, k=keys, v=values) as ring,
            p.role("all", warps=self.warps),
        ):
            end = self.keys_of(i, bm)
            with once.produce() as a:
                p.copy(self.copy, self.q.at(z, h, g).tile(i, 0, shape=(bm, d)), a.q, who_q)
            with once.consume() as a:
                o, low, total = self.begin(p, scores.c, out.c)
                with p.loop(end, step=bn) as j, ring.produce() as f:
                    p.copy(self.copy, self.k.at(z, h).tile(j, 0, shape=(bn, d)).T, f.k, who_k.T)
                    p.copy(self.copy, self.v.at(z, h).tile(j, 0, shape=(bn, d)), f.v, who_k)
                with p.loop(end, step=bn) as j, ring.consume() as f:
                    w = p.full(scores.c, "f32")
                    with p.unroll(d, step=scores.k) as kk:
                        left = p.load(self.fragment, a.q.window((0, kk), (bm, scores.k)), scores.a)
                        right = p.load(self.fragment, f.k.window((kk, 0), (scores.k, bn)), scores.b)
                        p.multiply(self.mma, w, left, right)
                    weights, keep = self.weigh(p, w, low, total, i, j, bn)
                    o *= keep
                    weights = p.cast(weights, kind)
                    with p.unroll(bn, step=out.k) as kk:
                        left = p.relayout(weights.window((0, kk), (bm, out.k)), out.a)  # nothing moves
                        right = p.load(self.fragment, f.v.window((kk, 0), (out.k, d)), out.b)
                        p.multiply(self.mma, o, left, right)
            p.store(self.st, self.o.at(z, h, g).tile(i, 0, shape=(bm, d)), o / total)
