"""Matmul on data-centre Blackwell: TMA into a ring of swizzled stages, tcgen05.mma into tensor memory, TMA back.

Three kinds of warps go on beside each other: one brings tiles of a and b, for all CTAs of a cluster at once; one thread
has them multiplied into a ring of tensor memory; a warpgroup takes the sums of a tile, a piece of its columns at a
time, through the epilogue and out. A CTA takes tile after tile, and with two slots of sums it multiplies the next tile
while it stores the one before. Two CTAs may multiply as a pair: each has 128 rows, and brings half of b for both, so
that a tile of b passes through L2 and is read in shared memory half as often.

The sums of a row lie in one lane, so a thread has a whole row of a piece: stored from its registers it would touch a
sector of every row, so pieces pass through shared memory, from where TMA stores rows. Searched are the tile, pairs, the
depth of the rings, clusters that share what they bring, the order of tiles, CTAs that share tiles (split-K, stream-K),
the piece, the swizzles, and whether results pass through shared memory.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tinygpu.language import TMEM, Choice, Dim, Param, Require, Tracer, blocked, ceil_div, symbol
from tinygpu.machines.epilogue import Epilogue
from tinygpu.machines.operands import KINDS, operands
from tinygpu.ptx import isa


class MatmulBlackwell(Epilogue):
    """c = activation(scale * (a @ b) + bias) + residual: TMA into a ring, tcgen05.mma into tensor memory, TMA back"""

    m, n, k = Dim(), Dim(), Dim()
    a, b, bias, scales, c, residual = operands(m, n, k, *KINDS)

    bn, bk = Param(32, 64, 96, 128, 160, 192, 224, 256), Param(32, 64, 128)
    stages = Param(2, 3, 4, 5, 6, 7, 8, 9, 10, 12)
    tiles = Param(1, 2)  # whose sums are in tensor memory at a time
    cluster_m, cluster_n = Param(1, 2, 4), Param(1, 2)
    raster = Param(1, 4, 8, 16)  # rows of clusters visited together, for L2
    split_k = Param(1, 2, 3, 4, 6, 8)  # CTAs that share each tile, where there are too few tiles for all SMs
    stream_k = Param(0, 1)  # all CTAs do the same number of rounds, and share tiles wherever these end
    launch_control = Param(0, 1)  # those that are done first take over the tiles of those that have not begun
    piece = Param(16, 32, 64, 128)  # columns of a tile that the epilogue takes at a time
    outs = Param(1, 2)  # such pieces on their way out: with two, one is stored while the next one comes
    swizzle, swizzle_c = Param(32, 64, 128), Param(32, 64, 128)
    vc = Param(1, 2, 4, 8)  # neighbours that one thread stores at once

    shared = Require(
        (split_k == 1)
        | ((ceil_div(m, 128) * ceil_div(n, bn) * split_k <= 2 * symbol("device.sm_count")) & (split_k * bk <= k)),
        "CTAs share tiles only where SMs would be idle (two CTAs for each at most), and each has rounds of its own",
        kind="dominance",
        why="the fix-up passes through L2 once more, which costs more than it brings where every SM has a tile",
    )

    taken_over = Require(
        (launch_control == 0) | (ceil_div(m, 128) * ceil_div(n, bn) * split_k > symbol("device.sm_count")),
        "CTAs take each other over only where some do not begin at once: there are more of them than SMs",
        kind="dominance",
        why="where all begin at once, every answer is a no, for which each tile waits",
    )
    ctas, store = Choice("one", "pairs"), Choice("staged", "direct")

    tma, ld, put = isa.TmaLoad(), isa.Tcgen05Ld(), isa.TmaStore()
    mma, mma_pair = isa.Tcgen05Mma(bn), isa.Tcgen05MmaPair(bn)
    st_stage, st_row = isa.StShared(vc), isa.StGlobal(vc)
    ld_bias, ld_residual = isa.LdGlobal(1), isa.LdGlobal(1)
    leave, take = isa.StGlobal(4), isa.LdGlobal(4)  # of what the CTAs that share a tile have of it

    def program(self, p: Tracer) -> None:
        bm, bn, bk, piece, depth = 128, self.bn, self.bk, self.piece, 256 // self.a.dtype.bits
        pairs = self.ctas == "pairs"
        mma, part = (self.mma_pair, bn // 2) if pairs else (self.mma, bn)
        a_stage = p.smem(self.a.dtype, (bm, bk), contiguous=self.a.contiguous, swizzle=self.swizzle)
        b_stage = p.smem(self.b.dtype, (bk, part), contiguous=self.b.contiguous, swizzle=self.swizzle)
        c_tile = p.buffer(TMEM, mma.accumulator(self.a.dtype, self.b.dtype), (bm, bn))
        rows = blocked((bm, piece), threads=bm, vector=self.vc, across=1, name="c")
        with (
            p.grid(
                (self.n, bn), (self.m, bm), raster=self.raster, cluster=(self.cluster_n, self.cluster_m),
                persistent=True, slices=self.split_k, stream_k=self.stream_k, launch_control=self.launch_control,
            ) as (j, i),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
            p.pipeline("sums", self.tiles, c=c_tile) as sums,
            ExitStack() as around,
        ):
            with p.role("producer", warps=1), p.loop(self.k, step=bk, divided=True) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a, multicast=0)
                mine = j + p.rank(1) % 2 * part if pairs else j
                p.copy(self.tma, self.b.tile(kk, mine, shape=(bk, part)), s.b, multicast=None if pairs else 1)
            with p.role("multiplier", warps=1, first=1), sums.produce() as t:
                p.clear(t.c)
                with (
                    p.loop(self.k, step=bk, divided=True), ring.consume() as s, p.unroll(bk, step=depth) as kt,
                ):
                    p.multiply(mma, t.c, s.a.window((0, kt), (bm, depth)), s.b.window((kt, 0), (depth, part)))
            out = None
            if self.store == "staged":
                out = around.enter_context(
                    p.pipeline("out", self.outs, c=p.smem(self.c.dtype, (bm, piece), swizzle=self.swizzle_c))
                )
            with p.role("epilogue", warps=4, first=4), sums.consume() as t, p.unroll(bn, step=piece) as at:
                values = p.load(self.ld, t.c.window((0, at), (bm, piece)), rows)
                with p.fix_up(isa.Add(values.dtype.name), self.leave, self.take, values) as total:
                    self.put_away(p, out, total, i, j + at)

    def put_away(self, p: Tracer, out: Any, total: Any, i: Any, j: Any) -> None:
        """A piece of the sums through the epilogue, and out."""
        result, target = self.finish(p, total, i, j), self.c.tile(i, j, shape=total.shape)
        if out is None:
            p.store(self.st_row, target, result)
            return
        with out.produce() as s:
            p.store(self.st_stage, s.c, result)
        with out.consume() as s:
            p.copy(self.put, s.c, target)
