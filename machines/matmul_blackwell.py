"""Matmul on data-centre Blackwell: TMA into a ring of swizzled stages, tcgen05.mma into tensor memory, TMA back.

Three kinds of warps go on beside each other: one brings tiles of a and b, for all CTAs of a cluster at once; one thread
has them multiplied into a ring of tensor memory; a warpgroup takes the sums of a tile, a piece of its columns at a
time, through the epilogue and out. A CTA takes tile after tile, and with two slots of sums it multiplies the next tile
while it stores the one before. Two CTAs may multiply as a pair: each has 128 rows, and brings half of b for both, so
that a tile of b passes through L2 and is read in shared memory half as often. In clusters of several pairs those that
need the same columns share each half, as CTAs share tiles. Of 64 rows in each CTA the sums lie otherwise, and are read
so.

Searched are the tile, pairs, the depth of the rings, clusters that share what they bring, the order of tiles, CTAs that
share tiles (split-K, stream-K) or take each other over, the piece of columns that is stored at a time, the swizzles,
and whether results pass through shared memory.
"""

from __future__ import annotations

from contextlib import ExitStack

from tinygpu.language import TMEM, Choice, Dim, Param, Require, Tracer
from tinygpu.machines.operands import MORE_FACTORS, MORE_KINDS, operands, stage
from tinygpu.machines.tensor_sums import TensorSums, where_idle, where_queued, widest_pieces
from tinygpu.ptx import isa


class MatmulBlackwell(TensorSums):
    """c = activation(scale * (a @ b) + bias) + residual: TMA into a ring, tcgen05.mma into tensor memory, TMA back"""

    m, n, k = Dim(), Dim(), Dim()
    a, b, bias, scales, c, residual = operands(m, n, k, *MORE_KINDS, table=MORE_FACTORS)

    bn, bk = Param(*range(8, 257, 8)), Param(32, 64, 128, 256)
    stages, swizzle = Param(2, 3, 4, 5, 6, 7, 8, 10, 12), Param(32, 64, 128)
    piece = Param(8, 16, 32, 64, 128)  # columns of a tile that the epilogue takes at a time
    shared, taken_over = where_idle(m, n, k, bn, bk), where_queued(m, n, bn)
    widest = widest_pieces(piece)
    narrow = Require(
        (piece > 8) | (bn % 16 == 8), "pieces of 8 columns are of tiles of which no wider ones are parts",
        kind="dominance", why="an instruction more for the same columns, and vectors of half the width",
    )  # fmt: skip

    bm = Choice(128, 64)  # rows of a tile in each CTA
    ctas = Choice("one", "pairs")
    mma, mma_pair = isa.Tcgen05Mma(bn), isa.Tcgen05MmaPair(bn)
    mma_64, mma_pair_64, ld_split = isa.Tcgen05Mma64(bn), isa.Tcgen05MmaPair64(bn), isa.Tcgen05Ld("16x32bx2")

    def program(self, p: Tracer) -> None:
        bm, bn, bk, pairs, types = self.bm, self.bn, self.bk, self.ctas == "pairs", (self.a.dtype, self.b.dtype)
        whole, pair = (self.mma, self.mma_pair) if bm == 128 else (self.mma_64, self.mma_pair_64)
        mma, part = (pair, bn // 2) if pairs else (whole, bn)
        depth = mma.shape(*types)[2]
        # Sums of 64 rows are in half of the lanes; those of pairs have one half of the columns below the other.
        ld = self.ld_split if bm == 64 and not pairs else self.ld
        piece = bn if bm == 64 and pairs else self.piece
        a_stage = stage(p, mma, types, 0, (bm, bk), self.a.contiguous, self.swizzle)
        b_stage = stage(p, mma, types, 1, (bk, part), self.b.contiguous, self.swizzle)
        c_tile = p.buffer(TMEM, mma.accumulator(*types), (bm, bn), path=mma.path(bn))
        rows = ld.held((bm, piece), mma.path(piece), vector=self.vc, name="c")
        with (
            self.dealt(p, self.m, self.n, bm, bn) as (j, i),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
            p.pipeline("sums", self.tiles, c=c_tile) as sums,
            ExitStack() as around,
        ):
            with p.role("producer", warps=1), p.loop(self.k, step=bk, divided=True) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a, multicast=0)
                mine = j + p.rank(1) % 2 * part if pairs else j
                p.copy(self.tma, self.b.tile(kk, mine, shape=(bk, part)), s.b, multicast=1, every=2 if pairs else 1)
            with p.role("multiplier", warps=1, first=1), sums.produce() as t:
                p.clear(t.c)
                with (
                    p.loop(self.k, step=bk, divided=True), ring.consume() as s, p.unroll(bk, step=depth) as kt,
                ):
                    p.multiply(mma, t.c, s.a.window((0, kt), (bm, depth)), s.b.window((kt, 0), (depth, part)))
            self.take_sums(p, sums, ld, rows, self.out(p, around, rows), i, j, bn)
