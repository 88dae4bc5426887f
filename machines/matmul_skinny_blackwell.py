"""Matmul of few rows (decoding) on data-centre Blackwell: the weights stream through a deep ring into tensor memory.

The product is taken transposed, c^T = b^T a^T: 128 columns of b, of which there are thousands, fill the lanes of tensor
memory, and the few rows of a are the columns of an instruction, of which there are as few as 16. One warp brings tiles
by TMA, one thread has them multiplied, and a warpgroup takes the sums of a tile to registers: a thread has all rows of
one column of c, so that a warp stores neighbours of a row. Where b has too few columns for all SMs, CTAs share tiles
along k. Searched are the rows of a tile, the depth of a round and of the ring, parts of k, and the swizzle.
"""

from __future__ import annotations

from tinygpu.language import TMEM, Dim, Param, Require, Tracer, blocked, ceil_div, symbol
from tinygpu.machines.epilogue import Epilogue
from tinygpu.machines.operands import MORE_FACTORS, MORE_KINDS, operands, stage
from tinygpu.ptx import isa


class MatmulSkinnyBlackwell(Epilogue):
    """c = activation(scale * (a @ b) + bias) + residual for up to 64 rows of a: b streams once, by tcgen05.mma"""

    m, n, k = Dim(), Dim(), Dim()
    a, b, bias, scales, c, residual = operands(m, n, k, *MORE_KINDS, table=MORE_FACTORS)

    bm, bk = Param(16, 32, 48, 64), Param(32, 64, 128, 256, 512)
    stages, tiles = Param(2, 3, 4, 5, 6, 8, 10, 12, 16), Param(1, 2)  # tiles whose sums are in tensor memory at a time
    split_k = Param(1, 2, 3, 4, 5, 6, 7, 8, 12, 16)  # CTAs that share each tile, so that all SMs have work
    swizzle = Param(32, 64, 128)

    rows = Require(
        m <= 64, "a has at most 64 rows", kind="dominance",
        why="with more rows than 64 the product takes the time, not the stream of b: larger tiles of a share more of b",
    )  # fmt: skip
    once = Require(
        (m <= bm) | (n < 256 * symbol("device.sm_count")),
        "all rows of a fit into one tile, so that b is read once, where b has two tiles of columns for every SM",
        kind="dominance",
        why="every further tile of rows reads all of b again; where b has fewer columns, tiles of rows give SMs work "
        "that parts of k would give them only with sums to fix up",
    )
    tight = Require(
        (bm == 16) | (bm < m + 16) | (bm == 32 * ceil_div(m, 32)),
        "a tile of a has fewer than 16 rows too many, or m rounded up to 32 rows, which wide swizzles need where they "
        "are contiguous",
        kind="dominance",
        why="rows of zeros are multiplied too, and shared memory that holds them holds fewer stages",
    )  # fmt: skip
    shared = Require(
        (split_k == 1) | ((ceil_div(n, 128) * split_k <= 32 * symbol("device.sm_count")) & (split_k * bk <= k)),
        "each CTA that shares a tile has rounds of its own, and there are not many times more of them than SMs",
        kind="dominance",
        why="the fix-up passes through L2 once more; beyond some per SM, more parts do not even out the load",
    )

    tma, mma, ld = isa.TmaLoad(), isa.Tcgen05Mma(bm), isa.Tcgen05Ld()
    st_row, ld_bias, ld_residual = isa.StGlobal(1), isa.LdGlobal(1), isa.LdGlobal(1)
    leave, take = isa.StGlobal(4), isa.LdGlobal(4)  # of what the CTAs that share a tile have of it

    def program(self, p: Tracer) -> None:
        bm, bn, bk, types = self.bm, 128, self.bk, (self.b.dtype, self.a.dtype)
        depth = self.mma.shape(*types)[2]
        b_stage = stage(p, self.mma, types, 0, (bn, bk), 1 - self.b.contiguous, self.swizzle)
        a_stage = stage(p, self.mma, types, 1, (bk, bm), 1 - self.a.contiguous, self.swizzle)
        c_tile = p.buffer(TMEM, self.mma.accumulator(*types), (bn, bm))
        who = blocked((bn, bm), threads=bn, across=1, name="c")
        with (
            p.grid((self.m, bm), (self.n, bn), persistent=True, slices=self.split_k) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
            p.pipeline("sums", self.tiles, c=c_tile) as sums,
        ):
            with p.role("producer", warps=1), p.loop(self.k, step=bk, divided=True) as kk, ring.produce() as s:
                p.copy(self.tma, self.b.tile(kk, j, shape=(bk, bn)).T, s.b)
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)).T, s.a)
            with p.role("multiplier", warps=1, first=1), sums.produce() as t:
                p.clear(t.c)
                with p.loop(self.k, step=bk, divided=True), ring.consume() as s, p.unroll(bk, step=depth) as kt:
                    p.multiply(self.mma, t.c, s.b.window((0, kt), (bn, depth)), s.a.window((kt, 0), (depth, bm)))
            with p.role("epilogue", warps=4, first=4):
                with sums.consume() as t:
                    acc = p.load(self.ld, t.c.window((0, 0), (bn, bm)), who)
                with p.fix_up(isa.Add(acc.dtype.name), self.leave, self.take, acc) as total:
                    p.store(self.st_row, self.c.tile(i, j, shape=(bm, bn)), self.finish(p, total.T, i, j))
