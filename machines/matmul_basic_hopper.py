"""Matmul on Hopper in its one simplest schedule, to be read before matmul_hopper.py, which searches many.

One warp brings tiles of a and b by TMA into a ring of swizzled stages; a warpgroup multiplies what it finds there,
straight from shared memory, by wgmma; when all of k has passed, it stores its accumulators. Nobody writes a barrier:
the ring says who waits for whom. Searched are the tile, the depth of the ring and the swizzle, under which both TMA and
wgmma read a stage, and the order in which tiles are visited, so that they meet in L2; neighbours that a thread holds
are stored together where the rows of c are aligned.
"""

from __future__ import annotations

from typing import Any

from tinygpu.language import Dim, Machine, Param, Tracer
from tinygpu.machines.operands import factors, product
from tinygpu.ptx import isa


class MatmulBasicHopper(Machine):
    """c = a @ b: one warp feeds a ring by TMA, a warpgroup multiplies by wgmma and stores from registers"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = factors(m, n, k, "f16", "bf16")
    c = product(a, m, n)

    bm, bn, bk = Param(64, 128, 192, 256), Param(32, 64, 96, 128, 192, 256), Param(32, 64, 128)
    stages, raster, swizzle, vc = Param(2, 3, 4, 5, 6, 7, 8), Param(1, 4, 8, 16), Param(32, 64, 128), Param(1, 2)
    tma, wgmma, st = isa.TmaLoad(), isa.Wgmma(bn), isa.StGlobal(vc)
    conversions, compute = isa.arithmetic("f32"), "f32"

    def program(self, p: Tracer) -> None:
        bm, bn, bk = self.bm, self.bn, self.bk
        t = p.tiled(self.wgmma, self.a.dtype, self.b.dtype, (bm, bn), (1, 1))
        a_stage = p.smem(self.a.dtype, (bm, bk), contiguous=self.a.contiguous, swizzle=self.swizzle)
        b_stage = p.smem(self.b.dtype, (bk, bn), contiguous=self.b.contiguous, swizzle=self.swizzle)
        with (
            p.grid((self.m, bm), (self.n, bn), raster=self.raster) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
        ):
            with p.role("consumer", warps=4):
                acc = p.full(t.c, "f32")
                with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                    p.multiply(self.wgmma, acc, s.a.window((0, kt), (bm, t.k)), s.b.window((kt, 0), (t.k, bn)))
                p.store(self.st, self.c.tile(i, j, shape=(bm, bn)), acc)
            with p.role("producer", warps=1, first=4), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a)
                p.copy(self.tma, self.b.tile(kk, j, shape=(bk, bn)), s.b)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b
