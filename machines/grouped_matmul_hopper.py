"""Products of groups of rows with a matrix each, y[i] = x[i] @ w[the expert of row i], on Hopper.

Tiles are dealt to experts as in `grouped_matmul`. One warp finds the expert of the CTA's tile and brings boxes of its
rows and of its matrix by TMA: where they begin is a coordinate, which may be any number. Warpgroups find the same
expert, multiply by wgmma, and store from registers the rows that are the expert's: behind them a box has rows of the
next one, whose results are left out. Tiles that have no rows have no rounds. Searched are the tile, one or two
warpgroups, the swizzle, the depth of the ring, and how many rows of tiles are visited together.
"""

from __future__ import annotations

from typing import Any

from tinygpu.language import Input, Param, Require, Tracer, integers, maximum, minimum
from tinygpu.machines.grouped_matmul import Grouped
from tinygpu.machines.operands import FACTORS, of, product
from tinygpu.ptx import isa

KINDS = ("f16", "bf16", "e4m3", "e5m2", "s8")


class GroupedMatmulHopper(Grouped):
    """y[i] = x[i] @ w[e], for rows offsets[e] to offsets[e + 1] of x: a mixture of experts, on TMA and wgmma"""

    m, n, k, experts = Grouped.m, Grouped.n, Grouped.k, Grouped.experts
    x = Input(KINDS, m, k)
    w = Input(of(FACTORS, *KINDS), experts, k, n, majors=("row", (experts, n, k)), follows=x)
    y = product(x, m, n)

    bm, bn, bk = Param(64, 128, 192, 256), Param(16, 32, 64, 96, 128, 192, 256), Param(32, 64, 128)
    groups, stages, swizzle, vy = Param(1, 2), Param(2, 3, 4, 5, 6, 7, 8), Param(32, 64, 128), Param(1, 2)
    tma, wgmma, st, conversions = isa.TmaLoad(), isa.Wgmma(bn), isa.StGlobal(vy), isa.arithmetic("f32")
    countable = Require(m + experts * bm < 2**31, "rows, with a tile more for each expert, are counted in 32 bits")

    def program(self, p: Tracer) -> None:
        bm, bn, bk, kind = self.bm, self.bn, self.bk, self.x.dtype
        t = p.tiled(self.wgmma, kind, self.w.dtype, (bm, bn), (self.groups, 1))
        x_stage = p.smem(kind, (bm, bk), swizzle=self.swizzle)
        w_stage = p.smem(self.w.dtype, (bk, bn), contiguous=self.w.contiguous - 1, swizzle=self.swizzle)
        with (
            p.grid((self.m, bm, self.experts), (self.n, bn), raster=self.raster, persistent=True) as (row, j),
            p.pipeline("ring", self.stages, x=x_stage, w=w_stage) as ring,
        ):
            with p.role("producer", warps=1):
                e, first, _, end = self.rows_of(p, row, 1)
                with p.loop(self.rounds(p, first, end, 1), step=bk) as kk, ring.produce() as s:
                    p.copy(self.tma, self.x.tile(first, kk, shape=(bm, bk)), s.x)
                    p.copy(self.tma, self.w.at(e).tile(kk, j, shape=(bk, bn)), s.w)
            with p.role("consumer", warps=4 * self.groups, first=4):
                _, first, begin, end = self.rows_of(p, row, 4 * self.groups)
                total = p.full(t.c, self.wgmma.accumulator(kind, self.w.dtype))
                rounds = self.rounds(p, first, end, 4 * self.groups)
                with p.loop(rounds, step=bk), ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                    p.multiply(self.wgmma, total, s.x.window((0, kt), (bm, t.k)), s.w.window((kt, 0), (t.k, bn)))
                wide = total if self.y.dtype.name == "s32" else p.cast(total, "f32")  # whole sums become f32 first
                results = self.y.segment(begin, end).tile(first - begin, j, shape=(bm, bn))
                p.store(self.st, results, p.cast(wide, self.y.dtype))

    def rounds(self, p: Tracer, first: Any, end: Any, warps: Any) -> Any:
        """All of k where the tile has rows, else none: k times 1 or 0."""
        some = p.full(self.lanes(warps).reduced(0), "s32", minimum(maximum(end - first, 0), 1))
        return p.until(self.k * p.number(some, integers(1, 2), "some"))
