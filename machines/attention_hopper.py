"""Attention on Hopper: one role brings queries, keys and values by TMA, warpgroups multiply them by wgmma.

Of the first product both operands lie in shared memory; its sums stay in the registers of their warpgroup, where they
are the left operand of the second one. While one warpgroup computes exponentials, the others multiply; overlapped, it
also does so itself: it asks for the scores of the next keys and for the sum of the last ones' values together, and
weighs the former while the latter goes on. Searched are this, the warpgroups (64 rows of queries each), how many keys
come at a time, the depth of the rings and the swizzle.
"""

from __future__ import annotations

from typing import Any, ClassVar

from tinygpu.language import Choice, Param, Require, Tracer, ceil_div
from tinygpu.machines.attention import Attention
from tinygpu.ptx import isa


class AttentionHopper(Attention):
    """o = softmax(scale * q @ k.T) @ v of every head, causal or not: TMA and wgmma, by roles"""

    groups = Choice(2, 3, 1)  # warpgroups that multiply
    overlapped = Choice(True, False)  # weights are computed while the products of the keys before go on
    bn, stages = Param(32, 64, 80, 96, 128, 144, 160, 176, 192), Param(1, 2, 3)
    registers: ClassVar = {1: (24, 240), 2: (24, 240), 3: (32, 160)}  # of threads that bring, and compute
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
        few, many = self.registers[self.groups]
        with (
            p.grid(*self.tiles(bm), persistent=True) as (*at, i),
            p.pipeline("once", 1, q=queries) as once,
            p.pipeline("ring_k", self.stages, k=keys) as ring_k,
            p.pipeline("ring_v", self.stages, v=values) as ring_v,
        ):
            with p.role("producer", warps=4, registers=few):
                seen = self.seen(p, at, i, bm)
                with once.produce() as a:
                    p.copy(self.tma, self.queries(at, i, (bm, d)), a.q)
                with p.loop(seen.count, step=bn) as j:
                    k, v = self.keys(p, at, seen, seen.first + j, (bn, d))
                    with ring_k.produce() as f:
                        p.copy(self.tma, k.T, f.k)
                    with ring_v.produce() as f:
                        p.copy(self.tma, v, f.v)
            with p.role("consumer", warps=4 * self.groups, first=4, registers=many), once.consume() as a:
                seen = self.seen(p, at, i, bm)
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

                def weigh(w: Any, j: Any) -> Any:
                    return self.weights(p, w, low, total, (seen.first + j, bn), seen.end, seen.query)

                if self.overlapped:
                    weights = p.cast(weigh(score(), 0)[0], kind)
                    with p.loop(p.until(ceil_div(seen.count, bn) - 1)) as number:
                        w = score()
                        add(weights)  # goes on while the scores are weighed, which the next line waits for alone
                        more, keep = weigh(w, (number + 1) * bn)
                        o *= keep
                        p.cast(more, kind, into=weights)
                    add(weights)
                else:
                    with p.loop(seen.count, step=bn) as j:
                        weights, keep = weigh(score(), j)
                        o *= keep
                        add(p.cast(weights, kind))
                self.leave(p, at, i, o, low, total)
