"""Attention on data-centre Blackwell: scores and outputs in tensor memory, to which those who weigh hand weights back.

One thread has everything multiplied. Scores of a tile of queries come up in tensor memory, and a warpgroup takes them,
a row in each thread, so that no row is shared; the weights that it makes of them it stores back into tensor memory, as
the left operand of the second product. That product is added up in tensor memory as well: where a row has got a larger
score, the warpgroup scales what is there before the next weights are multiplied. Two tiles of queries are under way:
while one warpgroup computes exponentials, the tensor cores multiply for the other; and the scores of the next keys are
multiplied before the weights of these. Nobody holds outputs in registers until the last keys were seen.

Searched are how many tiles of queries a CTA has, how many keys come at a time, the depth of the rings, the swizzle, and
how many columns of the outputs are scaled and stored at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from tinygpu.language import TMEM, Choice, Param, Require, Tracer, blocked, ceil_div
from tinygpu.machines.attention import LOG2_E, NOTHING_YET, Attention
from tinygpu.ptx import isa

ROWS = 128  # of queries: the lanes of tensor memory, and the threads of a warpgroup
FEW, MANY = 40, 216  # registers of threads that bring or ask for products, and of those that compute


class AttentionBlackwell(Attention):
    """o = softmax(scale * q @ k.T) @ v of every head, causal or not: TMA and tcgen05, by roles, in tensor memory"""

    groups = Choice(2, 1)  # tiles of queries, each with a warpgroup that weighs its scores
    bn, stages = Param(32, 48, 64, 80, 96, 112, 128, 160, 192), Param(1, 2, 3, 4)
    piece, columns, swizzle = Param(16, 32, 64), Param(64, 128), Param(64, 128)
    tma, scores, outputs = isa.TmaLoad(), isa.Tcgen05Mma(bn), isa.Tcgen05MmaCells(columns)
    ld, put, st = isa.Tcgen05Ld(), isa.Tcgen05St(), isa.StGlobal(8)

    wide = Require(
        columns == Attention.d, "one instruction multiplies for all columns of a head", kind="dominance",
        why="narrower ones take the same weights from tensor memory once more for each part",
    )  # fmt: skip

    def program(self, p: Tracer) -> None:
        bn, d, kind, swizzle, bm = self.bn, self.d, self.q.dtype, self.swizzle, ROWS * self.groups
        queries, values = p.smem(kind, (bm, d), swizzle=swizzle), p.smem(kind, (bn, d), swizzle=swizzle)
        keys = p.smem(kind, (d, bn), contiguous=0, swizzle=swizzle)
        cells: dict[str, tuple[Any, Any]] = {"scores": ("f32", bn), "weights": (kind, bn), "sums": ("f32", d)}
        with (
            p.grid(*self.tiles(bm), persistent=True) as (*at, i),
            p.pipeline("once", 1, q=queries) as once,
            p.pipeline("ring_k", self.stages, k=keys) as ring_k,
            p.pipeline("ring_v", self.stages, v=values) as ring_v,
            ExitStack() as around,
        ):
            groups = [
                [
                    around.enter_context(p.pipeline(f"{name}{g}", 1, t=p.buffer(TMEM, of, (ROWS, wide))))
                    for name, (of, wide) in cells.items()
                ]
                for g in range(self.groups)
            ]
            with p.role("producer", warps=4, registers=FEW):
                seen = self.seen(p, at, i, bm)
                with once.produce() as a:
                    p.copy(self.tma, self.queries(at, i, (bm, d)), a.q)
                with p.loop(seen.count, step=bn) as j:
                    k, v = self.keys(p, at, seen, seen.first + j, (bn, d))
                    with ring_k.produce() as f:
                        p.copy(self.tma, k.T, f.k)
                    with ring_v.produce() as f:
                        p.copy(self.tma, v, f.v)
            with p.role("multiplier", warps=4, first=4, registers=FEW), once.consume() as a:
                rounds = ceil_div(self.seen(p, at, i, bm).count, bn)
                self.score(p, a.q, ring_k, groups)
                with p.loop(p.until(rounds - 1)) as number:
                    self.score(p, a.q, ring_k, groups)
                    self.add(p, ring_v, groups, number == 0)
                self.add(p, ring_v, groups, rounds == 1)
            for g, rings in enumerate(groups):
                with p.role(f"weigher{g}", warps=4, first=8 + 4 * g, registers=MANY):
                    self.weigh(p, at, i, bm, ROWS * g, *rings)

    def score(self, p: Tracer, queries: Any, ring_k: Any, groups: Sequence[Any]) -> None:
        """The scores of the next keys, for all tiles of queries."""
        step = 256 // self.q.dtype.bits
        with ring_k.consume() as f:
            for g, (scores, _, _) in enumerate(groups):
                with scores.produce() as s:
                    p.clear(s.t)
                    with p.unroll(self.d, step=step) as kk:
                        left, right = queries.window((ROWS * g, kk), (ROWS, step)), f.k.window((kk, 0), (step, self.bn))
                        p.multiply(self.scores, s.t, left, right)

    def add(self, p: Tracer, ring_v: Any, groups: Sequence[Any], first: Any) -> None:
        """Values by their weights, added to what there is of earlier keys: nothing at the `first` ones."""
        step = 256 // self.q.dtype.bits
        with ring_v.consume() as f:
            for _, weights, sums in groups:
                with weights.consume() as w, sums.produce() as s:
                    with p.when(first):
                        p.clear(s.t)
                    with p.unroll(self.bn, step=step) as kk:
                        left, right = w.t.window((0, kk), (ROWS, step)), f.v.window((kk, 0), (step, self.d))
                        p.multiply(self.outputs, s.t, left, right)

    def weigh(
        self, p: Tracer, at: Any, i: Any, bm: Any, first: int, scores: Any, weights: Any, sums: Any
    ) -> None:
        """What a warpgroup does with the queries from `first` on of a tile."""
        row, part = (
            blocked((ROWS, wide), threads=ROWS, vector=8, across=1, name=name)
            for wide, name in ((self.bn, "scores"), (self.piece, "outputs"))
        )
        seen, each = self.seen(p, at, i, bm), row.reduced(1)
        low, total = p.full(each, "f32", -NOTHING_YET * LOG2_E), p.full(each, "f32")

        def weighed(j: Any) -> Any:
            with scores.consume() as s:
                w = p.load(self.ld, s.t, row)
            query = None if seen.query is None else seen.query + first
            made, keep = self.weights(p, w, low, total, (seen.first + j, self.bn), seen.end, query)
            with weights.produce() as s:
                p.store(self.put, s.t, p.cast(made, self.q.dtype))
            return keep

        weighed(0)
        with p.loop(p.until(ceil_div(seen.count, self.bn) - 1)) as number:
            keep = weighed((number + 1) * self.bn)
            with sums.consume() as s, p.unroll(self.d, step=self.piece) as c:
                some = s.t.window((0, c), (ROWS, self.piece))
                p.store(self.put, some, p.load(self.ld, some, part) * keep)
        with sums.consume() as s, p.unroll(self.d, step=self.piece) as c:
            some = p.load(self.ld, s.t.window((0, c), (ROWS, self.piece)), part)
            p.store(self.st, self.o.at(*at).tile(i + first, c, shape=(ROWS, self.piece)), some / total)
