"""Products of many matrices at once, c[z] = a[z] @ b[z], on Hopper.

As `matmul_hopper`, for short products: TMA brings boxes of the matrix z to a ring, warpgroups multiply by wgmma, and a
persistent grid goes over matrix after matrix, so that L2 has few at a time and the next tile is on its way while one is
stored. Every matrix lies where its strides say; both factors may be transposed. Searched are the tile, the ring and its
swizzle, clusters that share what they read, whether two warpgroups take turns at tiles, and how results are stored.
"""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import Any

import numpy as np

from tinygpu.language import Choice, Dim, Machine, Param, Tracer
from tinygpu.machines.operands import KINDS, factors, product
from tinygpu.ptx import isa


class BatchedMatmulHopper(Machine):
    """c[z] = a[z] @ b[z] for every matrix of a batch, strided in any way: TMA into a ring, wgmma, tiles in a row"""

    batch, m, n, k = Dim(), Dim(), Dim(), Dim()
    a, b = factors(m, n, k, *KINDS, batch=(batch,))
    c = product(a, batch, m, n)

    bm, bn, bk = Param(64, 128, 192, 256), Param(16, 32, 64, 96, 128, 192, 256), Param(32, 64, 128)
    stages, cluster_m, cluster_n = Param(2, 3, 4, 5, 6, 7, 8), Param(1, 2), Param(1, 2)
    swizzle, swizzle_c, vc = Param(32, 64, 128), Param(32, 64, 128), Param(1, 2)
    schedule, store = Choice("single", "in turns"), Choice("stmatrix", "staged", "direct")
    tma, wgmma, put, conversions = isa.TmaLoad(), isa.Wgmma(bn), isa.TmaStore(), isa.arithmetic("f32")
    st_matrix, st_fragment, st = isa.StMatrix(), isa.StShared(2), isa.StGlobal(vc)

    def program(self, p: Tracer) -> None:
        bm, bn, bk, kind = self.bm, self.bn, self.bk, self.a.dtype
        cluster, turns = (1, self.cluster_m, self.cluster_n), self.schedule == "in turns"
        a_stage = p.smem(kind, (bm, bk), contiguous=self.a.contiguous - 1, swizzle=self.swizzle)
        b_stage = p.smem(self.b.dtype, (bk, bn), contiguous=self.b.contiguous - 1, swizzle=self.swizzle)
        with (
            p.grid((self.batch, 1), (self.m, bm), (self.n, bn), cluster=cluster, persistent=True) as at,
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
        ):
            z, i, j = at
            producer = p.role("producer", warps=4, registers=40 if turns else 0)
            with producer, p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.at(z).tile(i, kk, shape=(bm, bk)), s.a, multicast=2)
                p.copy(self.tma, self.b.at(z).tile(kk, j, shape=(bk, bn)), s.b, multicast=1)
            if not turns:
                self.consume(p, at, "consumer", ring, nullcontext, first=4)
                return
            with p.pipeline("math", 1) as math:
                for r, name in enumerate(("ping", "pong")):
                    self.consume(p, at, name, ring, math.turn, first=4 + 4 * r, registers=232, share=(r, 2))

    def consume(self, p: Tracer, at: Any, name: str, ring: Any, turn: Any, **role: Any) -> None:
        """A warpgroup: multiplies what the ring brings, and stores its tile."""
        (z, i, j), bm, bn = at, self.bm, self.bn
        t = p.tiled(self.wgmma, self.a.dtype, self.b.dtype, (bm, bn), (1, 1))
        with ExitStack() as around:
            c_stage = p.smem(self.c.dtype, (bm, bn), swizzle=self.swizzle_c)
            out = None if self.store == "direct" else around.enter_context(p.pipeline(f"out_{name}", 1, c=c_stage))
            around.enter_context(p.role(name, warps=4, **role))
            total = p.full(t.c, self.wgmma.accumulator(self.a.dtype, self.b.dtype))
            with turn(), p.loop(self.k, step=self.bk), ring.consume() as s, p.unroll(self.bk, step=t.k) as kt:
                p.multiply(self.wgmma, total, s.a.window((0, kt), (bm, t.k)), s.b.window((kt, 0), (t.k, bn)))
            wide = total if self.c.dtype.name == "s32" else p.cast(total, "f32")  # whole sums become f32 first
            c, result = self.c.at(z).tile(i, j, shape=(bm, bn)), p.cast(wide, self.c.dtype)
            if out is None:
                p.store(self.st, c, result)
                return
            with out.produce() as s:
                p.store(self.st_matrix if self.store == "stmatrix" else self.st_fragment, s.c, result)
            with out.consume() as s:
                p.copy(self.put, s.c, c)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return np.matmul(a, b)
