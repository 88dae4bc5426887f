"""Attention on Hopper: one role brings queries, keys and values by TMA, warpgroups multiply them by wgmma.

Of the first product both operands lie in shared memory; its sums stay in the registers of their warpgroup, where they
are the left operand of the second one. While one warpgroup computes exponentials, the others multiply; overlapped, it
also does so itself: it asks for the scores of the next keys and for the sum of the last ones' values together, and
weighs the former while the latter goes on. Searched are this, the warpgroups (64 rows of queries each), how many keys
come at a time, the depth of the rings and the swizzle.
"""

from __future__ import annotations

from typing import Any

from tinygpu.language import Choice, Param, Require, Tracer, ceil_div
from tinygpu.machines.attention import Attention
from tinygpu.ptx import isa


class AttentionHopper(Attention):
    """o = softmax(scale * q @ k.T) @ v of every head, causal or not: TMA and wgmma, by roles"""

    groups = Choice(2, 3, 1)  # warpgroups that multiply
    overlapped = Choice(True, False)  # weights are computed while the products of the keys before go on
    bn, stages = Param(32, 64, 80, 96, 128, 144, 160, 176, 192), Param(1, 2, 3)
    columns, swizzle = Param(64, 128, 256), Param(64, 128)
    tma, scores, outputs = isa.TmaLoad(), isa.Wgmma(bn), isa.WgmmaRegisters(columns)

    wide = Require(
        columns == Attention.d, "one instruction multiplies for all columns of a head", kind="dominance",
        why="narrower ones take the same weights from registers once more for each part",
    )  # fmt: skip

    def program(self, p: Tracer) -> None:
        kind, bm, bn, d, swizzle = self.q.dtype, 64 * self.groups, self.bn, self.d, self.swizzle
        scores = p.tiled(self.scores, kind, kind, (bm, bn), (self.groups, 1))
        out = p.tiled(self.outputs, kind, kind, (bm, d), (self.groups, 1))
        queries, values = p.smem(kind, (bm, d), swizzle=swizzle), p.smem(kind, (bn, d), swizzle=swizzle)
        keys = p.smem(kind, (d, bn), contiguous=0, swizzle=swizzle)
        with (
            p.grid((self.b, 1), (self.h, 1), (self.g, 1), (self.s, bm), persistent=True) as (z, h, g, i),
            p.pipeline("once", 1, q=queries) as once,
            p.pipeline("ring_k", self.stages, k=keys) as ring_k,
            p.pipeline("ring_v", self.stages, v=values) as ring_v,
        ):
            end = self.keys_of(i, bm)
            with p.role("producer", warps=4, registers=32 if self.groups == 3 else 24):
                with once.produce() as a:
                    p.copy(self.tma, self.q.at(z, h, g).tile(i, 0, shape=(bm, d)), a.q)
                with p.loop(end, step=bn) as j:
                    with ring_k.produce() as f:
                        p.copy(self.tma, self.k.at(z, h).tile(j, 0, shape=(bn, d)).T, f.k)
                    with ring_v.produce() as f:
                        p.copy(self.tma, self.v.at(z, h).tile(j, 0, shape=(bn, d)), f.v)
            budget = 160 if self.groups == 3 else 240
            with p.role("consumer", warps=4 * self.groups, first=4, registers=budget), once.consume() as a:
                o, low, total = self.begin(p, scores.c, out.c)

                def score() -> Any:
                    w = p.full(scores.c, "f32")
                    with ring_k.consume() as f, p.unroll(d, step=scores.k) as kk:
                        left, right = a.q.window((0, kk), (bm, scores.k)), f.k.window((kk, 0), (scores.k, bn))
                        p.multiply(self.scores, w, left, right)
                    return w

                def add(weights: Any) -> None:
                    with ring_v.consume() as f, p.unroll(bn, step=out.k) as kk:
                        left = p.relayout(weights.window((0, kk), (bm, out.k)), out.a)  # nothing moves
                        p.multiply(self.outputs, o, left, f.v.window((kk, 0), (out.k, d)))

                if self.overlapped:
                    weights = p.cast(self.weigh(p, score(), low, total, i, 0, bn)[0], kind)
                    with p.loop(ceil_div(end, bn) - 1) as number:
                        w = score()
                        add(weights)  # goes on while the scores are weighed, which the next line waits for alone
                        more, keep = self.weigh(p, w, low, total, i, (number + 1) * bn, bn)
                        o *= keep
                        p.cast(more, kind, into=weights)
                    add(weights)
                else:
                    with p.loop(end, step=bn) as j:
                        weights, keep = self.weigh(p, score(), low, total, i, j, bn)
                        o *= keep
                        add(p.cast(weights, kind))
                p.store(self.st, self.o.at(z, h, g).tile(i, 0, shape=(bm, d)), o / total)
