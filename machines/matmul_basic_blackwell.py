"""Matmul on data-centre Blackwell in its simplest schedule: a tile's sums are in tensor memory, and nobody holds them.

One warp brings tiles of a and b by TMA into a ring of swizzled stages. One thread of a second warp has them multiplied
there by tcgen05.mma, straight from shared memory into columns of tensor memory, which is a ring as well: while a
warpgroup reads the sums of one tile and stores them, the next tile is added up beside it. Nobody writes a barrier, a
commit or a fence: the rings say who waits for whom. Searched are the tile, the depth of both rings, the swizzle under
which TMA and the tensor cores read a stage, the order of tiles, and how much of a row a thread holds at a time.
"""

from __future__ import annotations

from typing import Any

from tinygpu.language import TMEM, Dim, Machine, Param, Tracer, blocked
from tinygpu.machines.operands import factors, product
from tinygpu.ptx import isa


class MatmulBasicBlackwell(Machine):
    """c = a @ b: TMA into a ring, tcgen05.mma into a ring of tensor memory, stored by a warpgroup"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = factors(m, n, k, "f16", "bf16")
    c = product(a, m, n)

    bn, bk = Param(32, 64, 96, 128, 192, 256), Param(32, 64, 128)
    stages, tiles, raster, swizzle = Param(2, 3, 4, 5, 6, 7, 8), Param(1, 2), Param(1, 4, 8, 16), Param(32, 64, 128)
    piece, vc = Param(16, 32, 64), Param(1, 2, 4, 8)
    tma, mma, ld, st = isa.TmaLoad(), isa.Tcgen05Mma(bn), isa.Tcgen05Ld(), isa.StGlobal(vc)
    conversions, compute = isa.arithmetic("f32"), "f32"

    def program(self, p: Tracer) -> None:
        bm, bn, bk, piece, depth = 128, self.bn, self.bk, self.piece, 256 // self.a.dtype.bits
        a_stage = p.smem(self.a.dtype, (bm, bk), contiguous=self.a.contiguous, swizzle=self.swizzle)
        b_stage = p.smem(self.b.dtype, (bk, bn), contiguous=self.b.contiguous, swizzle=self.swizzle)
        rows = blocked((bm, piece), threads=128, vector=self.vc, across=1, name="c")
        with (
            p.grid((self.m, bm), (self.n, bn), raster=self.raster, persistent=True) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
            p.pipeline("sums", self.tiles, c=p.buffer(TMEM, "f32", (bm, bn))) as sums,
        ):
            with p.role("producer", warps=1), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a)
                p.copy(self.tma, self.b.tile(kk, j, shape=(bk, bn)), s.b)
            with p.role("multiplier", warps=1, first=1), sums.produce() as t:
                p.clear(t.c)
                with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=depth) as kt:
                    p.multiply(self.mma, t.c, s.a.window((0, kt), (bm, depth)), s.b.window((kt, 0), (depth, bn)))
            with p.role("epilogue", warps=4, first=4), sums.consume() as t, p.unroll(bn, step=piece) as at:
                values = p.load(self.ld, t.c.window((0, at), (bm, piece)), rows)
                p.store(self.st, self.c.tile(i, j + at, shape=(bm, piece)), values)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b
