"""Attention on data-centre Blackwell: scores, weights and outputs in tensor memory, which goes back and forth.

One thread has everything multiplied. Scores come up in tensor memory, and warpgroups weigh them, scale what was added
up before, and store weights (`attention_cells.py`). Where these lie in the scores' columns, a tile of queries has one
slot of tensor memory, handed over and back, and values are multiplied before the next scores: while one warpgroup
computes exponentials, the products of others run. Two tiles, of 128 keys each, and heads of 128 take all 512 columns.
Where weights have columns of their own, scores, weights and sums are handed over apart, and the next scores are
multiplied first: a warpgroup weighs some while its last ones are multiplied. Searched: this order, the tiles of
queries, who corrects, when, and who computes exponentials, how many keys come at a time, the depth of the rings, the
swizzle, and how many columns of the outputs are scaled and stored at a time.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tinygpu.language import TMEM, Choice, Input, Param, Require, Tracer, ceil_div, uniform
from tinygpu.machines.attention import ALIKE, Attention
from tinygpu.machines.attention_cells import AttendsInCells
from tinygpu.machines.attention_sums import ROWS, Cells
from tinygpu.ptx import isa

# Registers of threads that bring or ask for products, weigh, and correct: what as many warps have together.
REGISTERS = {"who weighs": (40, 216, 0), "a role": (24, 184, 64)}


class AttentionBlackwell(AttendsInCells):
    """o = softmax(scale * q @ k.T) @ v of every head, causal or not: TMA and tcgen05, by roles, in tensor memory"""

    # Sums that are scaled where scores have grown only may be 2^8 times what comes out: f32 lacks room for the largest.
    v = Input(ALIKE, Attention.b, Attention.h, Attention.t, Attention.d, follows=Attention.q, values=uniform(-256, 256))

    groups = Choice(2, 1)  # tiles of queries, each with a warpgroup that weighs its scores
    issued = Choice("values first", "scores first")  # the product with the values so far, or the next scores
    bn, stages = Param(32, 48, 64, 80, 96, 112, 128, 160, 192), Param(1, 2, 3, 4)
    piece, columns, swizzle = Param(16, 32, 64), Param(64, 128), Param(64, 128)
    tma, scores, outputs = isa.TmaLoad(), isa.Tcgen05Mma(bn), isa.Tcgen05MmaCells(columns)
    wide = Require(
        columns == Attention.d, "one instruction multiplies for all columns of a head", kind="dominance",
        why="narrower ones take the same weights from tensor memory once more for each part")  # fmt: skip

    def program(self, p: Tracer) -> None:
        bn, d, kind, swizzle, bm = self.bn, self.d, self.q.dtype, self.swizzle, ROWS * self.groups
        queries, values = p.smem(kind, (bm, d), swizzle=swizzle), p.smem(kind, (bn, d), swizzle=swizzle)
        keys = p.smem(kind, (d, bn), contiguous=0, swizzle=swizzle)
        apart, (few, many, some) = self.corrects == "a role", REGISTERS[self.corrects]
        with (
            p.grid(*self.tiles(bm), persistent=True) as (*at, i),
            p.pipeline("once", 1, q=queries) as once,
            p.pipeline("ring_k", self.stages, k=keys) as ring_k,
            p.pipeline("ring_v", self.stages, v=values) as ring_v,
            ExitStack() as around,
        ):
            cells = [self.cells(p, around, g) for g in range(self.groups)]
            factor = {"f": p.smem("f32", (ROWS, 1))}
            sent = [around.enter_context(p.pipeline(f"factors{g}", 1, **factor)) for g in range(self.groups * apart)]
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
            with p.role("multiplier", warps=4, first=4, registers=few), once.consume() as a:
                rounds = ceil_div(self.seen(p, at, i, bm).count, bn)
                with ring_k.consume() as f:
                    for g, ring in enumerate(cells):
                        self.score(p, ring, a.q, ROWS * g, f.k)
                with p.loop(p.until(rounds - 1)) as number, ring_v.consume() as now, ring_k.consume() as following:
                    for g, ring in enumerate(cells):
                        if not ring.together:
                            self.score(p, ring, a.q, ROWS * g, following.k)
                        self.add(p, ring, now.v, number == 0)
                        if ring.together:
                            self.score(p, ring, a.q, ROWS * g, following.k)
                with ring_v.consume() as f:
                    for ring in cells:
                        self.add(p, ring, f.v, rounds == 1)
            for g, ring in enumerate(cells):
                with p.role(f"weigher{g}", warps=4, first=8 + 4 * g, registers=many):
                    self.weigh(p, ring, at, i, bm, ROWS * g, sent[g] if apart else None)
            if apart:
                with p.role("corrector", warps=4, first=8 + 4 * self.groups, registers=some):
                    self.correct(p, cells, sent, at, i, bm)

    def cells(self, p: Tracer, around: ExitStack, g: int) -> Cells:
        """Where a tile of queries has its scores, weights and sums."""
        scores, sums = p.buffer(TMEM, "f32", (ROWS, self.bn)), p.buffer(TMEM, "f32", (ROWS, self.d))
        together = self.issued == "values first"
        weights = p.buffer(TMEM, self.q.dtype, (ROWS, self.bn), over="scores" if together else "")
        if together:
            ring = around.enter_context(p.pipeline(f"cells{g}", 1, scores=scores, sums=sums, weights=weights))
            return Cells(ring, ring, ring)
        each = {"scores": scores, "weights": weights, "sums": sums}
        return Cells(*(around.enter_context(p.pipeline(f"{name}{g}", 1, **{name: of})) for name, of in each.items()))

    def score(self, p: Tracer, ring: Any, queries: Any, first: int, keys: Any) -> None:
        """Scores of the queries from `first` on with the next keys."""
        step = 256 // self.q.dtype.bits
        with ring.scores.produce() as s:
            p.clear(s.scores)
            with p.unroll(self.d, step=step) as kk:
                left, right = queries.window((first, kk), (ROWS, step)), keys.window((kk, 0), (step, self.bn))
                p.multiply(self.scores, s.scores, left, right)

    def add(self, p: Tracer, ring: Any, values: Any, first: Any) -> None:
        """Values by their weights, added to what there is of earlier keys: nothing at the `first` ones."""
        step = 256 // self.q.dtype.bits
        with ring.summed() as (w, s):
            with p.when(first):
                p.clear(s.sums)
            with p.unroll(self.bn, step=step) as kk:
                left, right = w.weights.window((0, kk), (ROWS, step)), values.window((kk, 0), (step, self.d))
                p.multiply(self.outputs, s.sums, left, right)

