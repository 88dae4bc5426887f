"""Matmul on Hopper: TMA into a ring of swizzled stages, wgmma, roles, tiles of clusters one after another."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import Any

from tinygpu.language import Choice, Dim, Param, Require, Tracer, ceil_div, symbol
from tinygpu.machines.epilogue import Epilogue
from tinygpu.machines.operands import KINDS, operands
from tinygpu.ptx import isa


class MatmulHopper(Epilogue):
    """c = activation(scale * (a @ b) + bias) + residual: TMA into a ring, wgmma by warpgroups, TMA back"""

    m, n, k = Dim(), Dim(), Dim()
    a, b, bias, scales, c, residual = operands(m, n, k, *KINDS)

    bm, bn = Param(64, 128, 192, 256), Param(16, 32, 64, 96, 128, 160, 192, 224, 256)
    bk = Param(32, 64, 128)
    stages = Param(2, 3, 4, 5, 6, 7, 8)
    cluster_m, cluster_n = Param(1, 2), Param(1, 2)
    raster = Param(1, 4, 8, 16)  # rows of clusters visited together, for L2
    split_k = Param(1, 2, 3, 4, 6, 8, 16)  # CTAs that share each tile, where there are too few tiles for all SMs
    stream_k = Param(0, 1)  # all CTAs do the same number of rounds, and share tiles wherever these end
    swizzle, swizzle_c = Param(32, 64, 128), Param(32, 64, 128)
    piece = Param(16, 32, 64, 128)  # columns of a tile that leave it at a time
    outs = Param(1, 2)  # such pieces on their way out: with two, one is stored while the next one comes
    vr = Param(1, 2)  # neighbours of the residual that one thread reads at once

    shared = Require(
        (split_k == 1)
        | ((ceil_div(m, bm) * ceil_div(n, bn) * split_k <= 2 * symbol("device.sm_count")) & (split_k * bk <= k)),
        "CTAs share tiles only where SMs would be idle (two CTAs for each at most), and each has rounds of its own",
        kind="dominance",
        why="the fix-up passes through L2 once more, which costs more than it brings where every SM has a tile",
    )

    tma, wgmma, put = isa.TmaLoad(), isa.Wgmma(bn), isa.TmaStore()
    # wgmma reads an a whose elements have not 16 bits along k only: where it is contiguous along m, threads bring it
    wgmma_fragments, ld_fragment = isa.WgmmaRegisters(bn), isa.LdShared(1)
    # one warpgroup multiplies; two share each tile; two take turns at tiles, and while one multiplies the other stores
    schedule = Choice("single", "cooperative", "pingpong")
    # by TMA from shared memory, where fragments become matrices (results of 16 bits) or are stored pair by pair; or
    # straight from registers
    store = Choice("stmatrix", "staged", "direct")
    st_matrix, st_fragment, st_row = isa.StMatrix(), isa.StShared(2), isa.StGlobal(2)
    ld_bias, ld_residual = isa.LdGlobal(1), isa.LdGlobal(vr)
    leave, take = isa.StGlobal(4), isa.LdGlobal(4)  # of what the CTAs that share a tile have of it

    def program(self, p: Tracer) -> None:
        bm, bn, bk = self.bm, self.bn, self.bk
        groups = 2 if self.schedule == "cooperative" else 1
        several = self.schedule != "single"
        wgmma = self.wgmma if self.a.contiguous == 1 or self.a.dtype.bits == 16 else self.wgmma_fragments
        t = p.tiled(wgmma, self.a.dtype, self.b.dtype, (bm, bn), (groups, 1))
        a_stage = p.smem(self.a.dtype, (bm, bk), contiguous=self.a.contiguous, swizzle=self.swizzle)
        b_stage = p.smem(self.b.dtype, (bk, bn), contiguous=self.b.contiguous, swizzle=self.swizzle)

        with (
            p.grid(
                (self.m, bm), (self.n, bn), raster=self.raster, cluster=(self.cluster_m, self.cluster_n),
                persistent=True, slices=self.split_k, stream_k=self.stream_k,
            ) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
        ):
            with (
                p.role("producer", warps=4, registers=40 if several else 0),
                p.loop(self.k, step=bk, divided=True) as kk,
                ring.produce() as s,
            ):
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a, multicast=1)
                p.copy(self.tma, self.b.tile(kk, j, shape=(bk, bn)), s.b, multicast=0)
            if self.schedule != "pingpong":
                self.consume(p, i, j, "consumer", wgmma, t, groups, ring, first=4, registers=232 if several else 0)
                return
            with p.pipeline("math", 1) as math:
                for r, name in enumerate(("ping", "pong")):
                    place: dict[str, Any] = {"first": 4 + 4 * r, "registers": 232, "share": (r, 2)}
                    self.consume(p, i, j, name, wgmma, t, 1, ring, turns=math, **place)

    def consume(
        self, p: Tracer, i: Any, j: Any, name: str, wgmma: Any, t: Any, groups: int, ring: Any, turns: Any = None,
        **role: Any,
    ) -> None:
        """A role of one or two warpgroups: multiplies what the ring brings, and stores its tile."""
        bm, bn, bk = self.bm, self.bn, self.bk
        out = None
        with ExitStack() as around:
            if self.store != "direct":
                stage = p.smem(self.c.dtype, (bm, self.piece), swizzle=self.swizzle_c)
                out = around.enter_context(p.pipeline(f"out_{name}", self.outs, c=stage))
            around.enter_context(p.role(name, warps=4 * groups, **role))
            acc = p.full(t.c, wgmma.accumulator(self.a.dtype, self.b.dtype))
            mine = turns.turn() if turns else nullcontext()
            with mine, p.loop(self.k, step=bk, divided=True), ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                a, b = s.a.window((0, kt), (bm, t.k)), s.b.window((kt, 0), (t.k, bn))
                p.multiply(wgmma, acc, a if wgmma is self.wgmma else p.load(self.ld_fragment, a, t.a), b)
            acc = around.enter_context(p.fix_up(isa.Add(acc.dtype.name), self.leave, self.take, acc))
            if out is None:
                p.store(self.st_row, self.c.tile(i, j, shape=(bm, bn)), self.finish(p, acc, i, j))
                return
            at = around.enter_context(p.unroll(bn, step=self.piece))
            result = self.finish(p, acc.window((0, at), (bm, self.piece)), i, j + at)
            with out.produce() as s:
                p.store(self.st_matrix if self.store == "stmatrix" else self.st_fragment, s.c, result)
            with out.consume() as s:
                p.copy(self.put, s.c, self.c.tile(i, j + at, shape=(bm, self.piece)))
