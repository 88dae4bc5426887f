"""Matmul on consumer Blackwell: TMA into a ring of swizzled stages, ldmatrix, mma.sync, tile after tile.

RTX cards of this generation have Hopper's TMA and mbarriers, but neither wgmma nor tensor memory: warps multiply
fragments, as on Ampere. One warp brings tiles of a and b; the others read fragments of what arrives and multiply, all
of them one tile together, or two sets of them in turns, of which one multiplies while the other stores. A CTA takes
tile after tile, or shares some with others where there are too few for all SMs. There are no clusters: these cards have
no multicast, so neighbours could share nothing that L2 does not share anyway.

Searched are the tile and how warps divide it, the depth of the ring, the swizzle under which TMA writes a stage and
ldmatrix reads it, the order of tiles, who shares tiles, and the way of the results, which pass through the same 99 KiB
of shared memory as the ring: staged results cost stages, direct ones touch half sectors.
"""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import Any

from tinygpu.language import Choice, Dim, Param, Require, Tracer, ceil_div, symbol
from tinygpu.machines.epilogue import Epilogue
from tinygpu.machines.operands import KINDS, fragments, operands
from tinygpu.ptx import isa


class MatmulBlackwellConsumer(Epilogue):
    """c = activation(scale * (a @ b) + bias) + residual: TMA into a ring, mma.sync on fragments, TMA back"""

    m, n, k = Dim(), Dim(), Dim()
    a, b, bias, scales, c, residual = operands(m, n, k, *KINDS)

    bm, bn = Param(32, 64, 96, 128, 160, 192, 256), Param(32, 64, 96, 128, 160, 192, 256)
    bk = Param(32, 64, 128)
    warps_m, warps_n = Param(1, 2, 4), Param(1, 2, 4)  # warps along m and n of a tile
    stages = Param(2, 3, 4, 5, 6, 7, 8)
    raster = Param(1, 4, 8, 16)  # tile rows visited together, for L2
    split_k = Param(1, 2, 3, 4, 6, 8, 16)  # CTAs that share each tile, where there are too few tiles for all SMs
    stream_k = Param(0, 1)  # all CTAs do the same number of rounds, and share tiles wherever these end
    swizzle, swizzle_c = Param(32, 64, 128), Param(32, 64, 128)
    vr = Param(1, 2)  # neighbours that one thread stores, or reads of the residual, at once

    elsewhere = Require(
        symbol("device.cc") >= 120, "the GPU has neither wgmma nor tensor memory", kind="dominance",
        why="their products read shared memory without passing through registers, and beside the warps that store",
    )  # fmt: skip
    big_enough = Require(
        (bm * bn >= 32 * warps_m * warps_n * 16) | (ceil_div(m, bm) * ceil_div(n, bn) < symbol("device.sm_count")),
        "every thread accumulates at least 16 values, where the tiles fill the device",
        kind="dominance",
        why="fewer sums per thread read each operand more often from shared memory than a tile with fewer warps",
    )
    shared = Require(
        (split_k == 1)
        | ((ceil_div(m, bm) * ceil_div(n, bn) * split_k <= 2 * symbol("device.sm_count")) & (split_k * bk <= k)),
        "CTAs share tiles only where SMs would be idle (two CTAs for each at most), and each has rounds of its own",
        kind="dominance",
        why="the fix-up passes through L2 once more, which costs more than it brings where every SM has a tile",
    )

    tma, mma, put = isa.TmaLoad(), isa.MmaSync(), isa.TmaStore()
    fragment_a, fragment_b = fragments(), fragments()
    schedule = Choice("cooperative", "pingpong")  # all warps share each tile, or two sets of them take turns at tiles
    store = Choice("stmatrix", "staged", "direct")
    st_matrix, st_fragment, st_row = isa.StMatrix(), isa.StShared(2), isa.StGlobal(vr)
    ld_bias, ld_residual = isa.LdGlobal(1), isa.LdGlobal(vr)
    leave, take = isa.StGlobal(4), isa.LdGlobal(4)  # of what the CTAs that share a tile have of it

    def program(self, p: Tracer) -> None:
        bm, bn, bk, warps = self.bm, self.bn, self.bk, self.warps_m * self.warps_n
        t = p.tiled(self.mma, self.a.dtype, self.b.dtype, (bm, bn), (self.warps_m, self.warps_n))
        a_stage = p.smem(self.a.dtype, (bm, bk), contiguous=self.a.contiguous, swizzle=self.swizzle)
        b_stage = p.smem(self.b.dtype, (bk, bn), contiguous=self.b.contiguous, swizzle=self.swizzle)
        names = ("ping", "pong") if self.schedule == "pingpong" else ("consumer",)
        with (
            p.grid(
                (self.m, bm), (self.n, bn), raster=self.raster, persistent=True, slices=self.split_k,
                stream_k=self.stream_k,
            ) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
        ):
            with (
                p.role("producer", warps=1, first=warps * len(names)),
                p.loop(self.k, step=bk, divided=True) as kk,
                ring.produce() as s,
            ):
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a)
                p.copy(self.tma, self.b.tile(kk, j, shape=(bk, bn)), s.b)
            if len(names) == 1:
                self.consume(p, i, j, "consumer", t, warps, ring)
                return
            with p.pipeline("math", 1) as math:
                for r, name in enumerate(names):
                    self.consume(p, i, j, name, t, warps, ring, turns=math, first=r * warps, share=(r, 2))

    def consume(
        self, p: Tracer, i: Any, j: Any, name: str, t: Any, warps: Any, ring: Any, turns: Any = None, **role: Any
    ) -> None:
        """A role that multiplies what the ring brings, and stores its tile."""
        bm, bn, bk = self.bm, self.bn, self.bk
        out = None
        with ExitStack() as around:
            if self.store != "direct":
                stage = p.smem(self.c.dtype, (bm, bn), swizzle=self.swizzle_c)
                out = around.enter_context(p.pipeline(f"out_{name}", 1, c=stage))
            around.enter_context(p.role(name, warps=warps, **role))
            acc = p.full(t.c, self.mma.accumulator(self.a.dtype, self.b.dtype))
            mine = turns.turn() if turns else nullcontext()
            with mine, p.loop(self.k, step=bk, divided=True), ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                fa = p.load(self.fragment_a, s.a.window((0, kt), (bm, t.k)), t.a)
                fb = p.load(self.fragment_b, s.b.window((kt, 0), (t.k, bn)), t.b)
                p.multiply(self.mma, acc, fa, fb)
            acc = around.enter_context(p.fix_up(isa.Add(acc.dtype.name), self.leave, self.take, acc))
            result = self.finish(p, acc, i, j)
            if out is None:
                p.store(self.st_row, self.c.tile(i, j, shape=(bm, bn)), result)
                return
            with out.produce() as s:
                p.store(self.st_matrix if self.store == "stmatrix" else self.st_fragment, s.c, result)
            with out.consume() as s:
                p.copy(self.put, s.c, self.c.tile(i, j, shape=(bm, bn)))
