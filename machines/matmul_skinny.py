"""Matmul of few rows (decoding): the weights stream through a deep ring, each element once, and k is shared out.

The product is taken transposed, c^T = b^T a^T: the columns of b, of which there are thousands, lie along the 64 (or 16)
rows of an instruction, and the few rows of a along its columns, of which there are as few as eight.
"""

from __future__ import annotations

from tinygpu.language import SMEM, Choice, Dim, Param, Require, Tracer, ceil_div, maximum, symbol
from tinygpu.machines.epilogue import Epilogue
from tinygpu.machines.operands import KINDS, operands
from tinygpu.ptx import isa


class MatmulSkinny(Epilogue):
    """c = activation(scale * (a @ b) + bias) + residual for up to 64 rows of a: b streams once, shared out along k"""

    m, n, k = Dim(), Dim(), Dim()
    a, b, bias, scales, c, residual = operands(m, n, k, *KINDS)

    bm, bn = Param(8, 16, 24, 32, 48, 64), Param(16, 32, 64, 128, 256)
    bk = Param(32, 64, 128, 256, 512)
    warps = Param(1, 2, 4, 8)  # that share the columns of each tile
    stages = Param(2, 3, 4, 5, 6, 8, 10, 12, 16)
    split_k = Param(1, 2, 3, 4, 5, 6, 7, 8, 12, 16)  # CTAs that share each tile, so that all SMs have work
    swizzle = Param(32, 64, 128)

    rows = Require(
        m <= 64, "a has at most 64 rows", kind="dominance",
        why="with more rows than 64 the product takes the time, not the stream of b: larger tiles of a share more of b",
    )  # fmt: skip
    once = Require(
        (m <= bm) | (n < 64 * symbol("device.sm_count")),
        "all rows of a fit into one tile, so that b is read once, where b has two tiles of 32 columns for every SM",
        kind="dominance",
        why="every further tile of rows reads all of b again; where b has fewer columns, tiles of rows give SMs work "
        "that parts of k would give them only with sums to fix up",
    )
    tight = Require(
        (bm == 8) | (bm < m + 16) | (bm == 32 * ceil_div(m, 32)),
        "a tile of a has fewer than 16 rows too many, or m rounded up to 32 rows, which wide swizzles need where they "
        "are contiguous",
        kind="dominance",
        why="rows of zeros are multiplied too, and shared memory that holds them holds fewer stages",
    )  # fmt: skip
    few = Require(
        bm * bn <= 32 * 32 * warps, "a thread has at most 32 sums", kind="dominance",
        why="more of them take the registers of other CTAs on the SM, which would wait for b at other times",
    )  # fmt: skip
    large = Require(
        bn * bk >= 2048, "a round brings at least 2,048 elements of b", kind="dominance",
        why="each round waits for a barrier and starts its boxes anew, whatever they hold",
    )  # fmt: skip
    shared = Require(
        (split_k == 1) | ((ceil_div(n, bn) * split_k <= 32 * symbol("device.sm_count")) & (split_k * bk <= k)),
        "each CTA that shares a tile has rounds of its own, and there are not many times more of them than SMs",
        kind="dominance",
        why="the fix-up passes through L2 once more; beyond some per SM, more parts do not even out the load",
    )

    tma, ld_matrix = isa.TmaLoad(), isa.LdMatrix()
    # tiles of both operands straight from shared memory; or as fragments, where there is no wgmma
    product = Choice(isa.Wgmma(bm), isa.MmaSync())
    st_row, ld_bias, ld_residual = isa.StGlobal(1), isa.LdGlobal(1), isa.LdGlobal(1)
    leave, take = isa.StGlobal(4), isa.LdGlobal(4)  # of what the CTAs that share a tile have of it

    def program(self, p: Tracer) -> None:
        bm, bn, bk = self.bm, self.bn, self.bk
        whole = SMEM in self.product.places
        along = maximum(self.warps // 4, 1) if whole else self.warps
        t = p.tiled(self.product, self.b.dtype, self.a.dtype, (bn, bm), (along, 1))
        b_stage = p.smem(self.b.dtype, (bn, bk), contiguous=1 - self.b.contiguous, swizzle=self.swizzle)
        a_stage = p.smem(self.a.dtype, (bk, bm), contiguous=1 - self.a.contiguous, swizzle=self.swizzle)
        with (
            p.grid((self.m, bm), (self.n, bn), persistent=True, slices=self.split_k) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
        ):
            with p.role("consumer", warps=self.warps):
                acc = p.full(t.c, self.product.accumulator(self.b.dtype, self.a.dtype))
                with p.loop(self.k, step=bk, divided=True), ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                    b, a = s.b.window((0, kt), (bn, t.k)), s.a.window((kt, 0), (t.k, bm))
                    if not whole:
                        b, a = p.load(self.ld_matrix, b, t.a), p.load(self.ld_matrix, a, t.b)
                    p.multiply(self.product, acc, b, a)
                with p.fix_up(isa.Add(acc.dtype.name), self.leave, self.take, acc) as total:
                    p.store(self.st_row, self.c.tile(i, j, shape=(bm, bn)), self.finish(p, total.T, i, j))
            with (
                p.role("producer", warps=1, first=self.warps),
                p.loop(self.k, step=bk, divided=True) as kk,
                ring.produce() as s,
            ):
                p.copy(self.tma, self.b.tile(kk, j, shape=(bk, bn)).T, s.b)
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)).T, s.a)
