"""Attention on Hopper: one role brings queries, keys and values by TMA, warpgroups multiply them by wgmma.

Of the first product both operands lie in shared memory; its sums stay in the registers of their warpgroup, where they
are the left operand of the second one. While one warpgroup computes exponentials, the others multiply; overlapped, it
also does so itself: it asks for the scores of the next keys and for the sum of the last ones' values together, and
weighs the former while the latter goes on. In turns, warpgroups are roles of their own, and ask for products one after
the other, so that each computes while the others' products run. Where registers do not hold the weights of many keys
beside the next scores, weights go through shared memory, and the second product reads them there. Searched are these,
the warpgroups (64 rows of queries each), how many keys come at a time, the depth of the rings and the swizzle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any, ClassVar

from tinygpu.language import Choice, Param, Require, Tracer, ceil_div, where
from tinygpu.machines.attention import Attention
from tinygpu.ptx import isa

# Warpgroups that take turns: each asks for its products when the one before it has asked for its own.
IN_TURNS = {"2 in turns": 2, "3 in turns": 3}


class AttentionHopper(Attention):
    """o = softmax(scale * q @ k.T) @ v of every head, causal or not: TMA and wgmma, by roles"""

    groups = Choice(2, 3, 1, *IN_TURNS)  # warpgroups that multiply
    overlapped = Choice(True, False)  # weights are computed while the products of the keys before go on
    weights_in = Choice("registers", "shared memory")  # where the second product takes them from
    bn, stages = Param(32, 64, 80, 96, 112, 128, 144, 160, 176, 192), Param(1, 2, 3)
    registers: ClassVar = {1: (24, 240), 2: (24, 240), 3: (32, 160)}  # of threads that bring, and compute
    columns, swizzle = Param(64, 80, 96, 128, 160, 192, 224, 256), Param(32, 64, 128)
    tma, scores, outputs = isa.TmaLoad(), isa.Wgmma(bn), isa.WgmmaRegisters(columns)
    put, outputs_shared = isa.StMatrix(), isa.Wgmma(columns)

    wide = Require(
        columns == Attention.d, "one instruction multiplies for all columns of a head", kind="dominance",
        why="narrower ones take the same weights from registers once more for each part",
    )  # fmt: skip
    pieces = Require(
        (swizzle >= 64) | (Attention.d % 32 != 0), "rows are cut into pieces of 64 bytes where they can be",
        kind="dominance", why="pieces of 32 bytes are more copies, and lie in fewer banks",
    )  # fmt: skip
    def program(self, p: Tracer) -> None:
        groups, bn, d = IN_TURNS.get(self.groups, self.groups), self.bn, self.d
        kind, bm, swizzle = self.q.dtype, 64 * groups, self.swizzle
        queries, values = p.smem(kind, (bm, d), swizzle=swizzle), p.smem(kind, (bn, d), swizzle=swizzle)
        keys = p.smem(kind, (d, bn), contiguous=0, swizzle=swizzle)
        few, many = self.registers[groups]
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
            if self.groups not in IN_TURNS and self.weights_in == "registers":
                with p.role("consumer", warps=4 * groups, first=4, registers=many), once.consume() as a:
                    self.consume(p, at, i, bm, (0, bm), a.q, ring_k, ring_v, None, nullcontext)
                return
            with p.pipeline("turns", 1) if self.groups in IN_TURNS else nullcontext() as turns:
                for g in range(groups):
                    with (
                        self.between(p, f"weights{g}") as ring_w,
                        p.role(f"consumer{g}", warps=4, first=4 + 4 * g, registers=many), once.consume() as a,
                    ):  # fmt: skip
                        turn = nullcontext if turns is None else turns.turn
                        self.consume(p, at, i, bm, (64 * g, 64), a.q, ring_k, ring_v, ring_w, turn)

    def between(self, p: Tracer, name: str) -> Any:
        """Where a warpgroup's weights lie between the products: in a slot of shared memory, or (None) in registers."""
        if self.weights_in == "registers":
            return nullcontext()
        row = self.bn * 2  # bytes
        swizzle = where(row % 128 == 0, 128, where(row % 64 == 0, 64, 32))
        return p.pipeline(name, 1, w=p.smem(self.q.dtype, (64, self.bn), swizzle=swizzle))

    def consume(
        self, p: Tracer, at: Any, i: Any, bm: Any, own: Any, queries: Any, ring_k: Any, ring_v: Any, ring_w: Any,
        turn: Any,
    ) -> None:  # fmt: skip
        """What a role does with some rows of a tile, `own`: (the first, how many)."""
        (first, rows), kind, bn, d = own, self.q.dtype, self.bn, self.d
        outputs = self.outputs if ring_w is None else self.outputs_shared
        scores = p.tiled(self.scores, kind, kind, (rows, bn), (rows // 64, 1))
        out = p.tiled(outputs, kind, kind, (rows, d), (rows // 64, 1))
        seen = self.seen(p, at, i, bm)
        query = None if seen.query is None else seen.query + first
        o, low, total = self.begin(p, scores.c, out.c)

        def score() -> Any:
            w = p.full(scores.c, "f32")
            with ring_k.consume() as f, p.unroll(d, step=scores.k) as kk:
                left, right = queries.window((first, kk), (rows, scores.k)), f.k.window((kk, 0), (scores.k, bn))
                p.multiply(self.scores, w, left, right)
            return w

        @contextmanager
        def given(weights: Any) -> Iterator[Any]:
            """Weights as the second product takes them."""
            if ring_w is None:
                yield weights
                return
            with ring_w.produce() as s:
                p.store(self.put, s.w, weights)
            with ring_w.consume() as s:
                yield s.w

        def add(weights: Any) -> None:
            with ring_v.consume() as f, p.unroll(bn, step=out.k) as kk:
                left = weights.window((0, kk), (rows, out.k))
                left = p.relayout(left, out.a) if ring_w is None else left  # nothing moves
                p.multiply(outputs, o, left, f.v.window((kk, 0), (out.k, d)))

        def weigh(w: Any, j: Any) -> Any:
            return self.weights(p, w, low, total, (seen.first + j, bn), seen.end, query)

        if self.overlapped:
            weights = p.cast(weigh(score(), 0)[0], kind)
            with p.loop(p.until(ceil_div(seen.count, bn) - 1)) as number:
                with given(weights) as left, turn():
                    w = score()
                    add(left)  # goes on while the scores are weighed, which the next line waits for alone
                more, keep = weigh(w, (number + 1) * bn)
                o *= keep
                p.cast(more, kind, into=weights)
            with given(weights) as left:
                add(left)
        else:
            with p.loop(seen.count, step=bn) as j:
                with turn():
                    w = score()
                weights, keep = weigh(w, j)
                o *= keep
                with given(p.cast(weights, kind)) as left:
                    add(left)
        self.leave(p, at, i + first, o, low, total)
