"""Products of groups of rows with a matrix each, y[i] = x[i] @ w[the expert of row i], on data-centre Blackwell.

Tiles are dealt to experts as in `grouped_matmul`. Each role finds the expert of the CTA's tile by itself: one warp
brings boxes of its rows and of its matrix by TMA, one thread has them multiplied into tensor memory, and a warpgroup
takes the sums a piece of columns at a time and stores the rows that are the expert's: behind them a box has rows of the
next one, whose results are left out. Tiles that have no rows have no rounds. Searched are the tile (of 64 rows where
groups are small), the depth of the ring, the swizzle, the piece, how many rows of tiles are visited together, and
whether CTAs take each other over: those whose tiles have no rows are done at once.
"""

from __future__ import annotations

from typing import Any

from tinygpu.language import TMEM, Choice, Input, Param, Require, Tracer, integers, maximum, minimum
from tinygpu.machines.grouped_matmul import Grouped
from tinygpu.machines.operands import FACTORS, of, product
from tinygpu.ptx import isa

KINDS = ("f16", "bf16", "e4m3", "e5m2", "s8")


class GroupedMatmulBlackwell(Grouped):
    """y[i] = x[i] @ w[e], for rows offsets[e] to offsets[e + 1] of x: a mixture of experts, on TMA and tcgen05.mma"""

    m, n, k, experts = Grouped.m, Grouped.n, Grouped.k, Grouped.experts
    x = Input(KINDS, m, k)
    w = Input(of(FACTORS, *KINDS), experts, k, n, majors=("row", (experts, n, k)), follows=x)
    y = product(x, m, n)

    bn, bk = Param(32, 64, 96, 128, 160, 192, 224, 256), Param(32, 64, 128)
    stages = Param(2, 3, 4, 5, 6, 7, 8, 10, 12)
    tiles = Param(1, 2)  # whose sums are in tensor memory at a time
    launch_control = Param(0, 1)  # those that are done first take over the tiles of those that have not begun
    piece = Param(16, 32, 64)  # columns of a tile that are stored at a time
    swizzle, vy = Param(32, 64, 128), Param(1, 2, 4, 8)
    bm = Choice(128, 64)  # rows of a tile
    tma, mma, ld, st = isa.TmaLoad(), isa.Tcgen05Mma(bn), isa.Tcgen05Ld(), isa.StGlobal(vy)
    mma_64, ld_split = isa.Tcgen05Mma64(bn), isa.Tcgen05Ld("16x32bx2")  # of 64 rows, in half of the lanes
    conversions = isa.arithmetic("f32")
    countable = Require(m + experts * 128 < 2**31, "rows, with a tile more for each expert, are counted in 32 bits")

    def program(self, p: Tracer) -> None:
        bm, bn, bk, piece, kind, depth = self.bm, self.bn, self.bk, self.piece, self.x.dtype, 256 // self.x.dtype.bits
        x_stage = p.smem(kind, (bm, bk), swizzle=self.swizzle)
        w_stage = p.smem(self.w.dtype, (bk, bn), contiguous=self.w.contiguous - 1, swizzle=self.swizzle)
        mma, ld = (self.mma, self.ld) if bm == 128 else (self.mma_64, self.ld_split)
        sum_tile = p.buffer(TMEM, mma.accumulator(kind, self.w.dtype), (bm, bn), path=mma.path(bn))
        rows = ld.held((bm, piece), mma.path(piece), vector=self.vy, name="y")
        with (
            p.grid(
                (self.m, bm, self.experts), (self.n, bn), raster=self.raster, persistent=True,
                launch_control=self.launch_control,
            ) as (row, j),
            p.pipeline("ring", self.stages, x=x_stage, w=w_stage) as ring,
            p.pipeline("sums", self.tiles, y=sum_tile) as sums,
        ):
            with p.role("producer", warps=1):
                e, first, _, end = self.rows_of(p, row, 1)
                with p.loop(self.rounds(p, first, end), step=bk) as kk, ring.produce() as s:
                    p.copy(self.tma, self.x.tile(first, kk, shape=(bm, bk)), s.x)
                    p.copy(self.tma, self.w.at(e).tile(kk, j, shape=(bk, bn)), s.w)
            with p.role("multiplier", warps=1, first=1):
                _, first, _, end = self.rows_of(p, row, 1)
                rounds = self.rounds(p, first, end)
                with sums.produce() as t:
                    p.clear(t.y)
                    with p.loop(rounds, step=bk), ring.consume() as s, p.unroll(bk, step=depth) as kt:
                        x, w = s.x.window((0, kt), (bm, depth)), s.w.window((kt, 0), (depth, bn))
                        p.multiply(mma, t.y, x, w)
            with p.role("epilogue", warps=4, first=4):
                _, first, begin, end = self.rows_of(p, row, 4)
                results = self.y.segment(begin, end)
                with sums.consume() as t, p.unroll(bn, step=piece) as at:
                    total = p.load(ld, t.y.window((0, at), (bm, piece)), rows)
                    wide = total if self.y.dtype.name == "s32" else p.cast(total, "f32")  # whole sums are f32 first
                    p.store(self.st, results.tile(first - begin, j + at, shape=(bm, piece)), p.cast(wide, self.y.dtype))

    def rounds(self, p: Tracer, first: Any, end: Any) -> Any:
        """All of k where the tile has rows, else none: k times 1 or 0."""
        some = p.full(self.lanes(1).reduced(0), "s32", minimum(maximum(end - first, 0), 1))
        return p.until(self.k * p.number(some, integers(1, 2), "some"))
