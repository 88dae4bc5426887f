"""Products of many matrices at once, c[z] = a[z] @ b[z], on tensor cores as of Ampere.

Every matrix of the batch lies where its strides say: one behind the other, or as heads within rows. Both factors may be
transposed. A grid of batch by tiles of c, matrix after matrix so that L2 has few at a time, is all that is added to a
matmul: cp.async fills a ring of stages, ldmatrix brings fragments, mma.sync multiplies. Searched are the tile, who
multiplies which part, the depth of the ring, how the stages lie in shared memory, and whether results pass through it:
narrow ones fill a sector of 32 bytes only there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import (
    AccessPattern,
    Choice,
    Dim,
    Machine,
    Param,
    Require,
    Tracer,
    UnknownLayout,
    blocked,
    ceil_div,
    symbol,
)
from tinygpu.machines.operands import KINDS, copied, factors, fragments, product
from tinygpu.ptx import isa


class BatchedMatmul(Machine):
    """c[z] = a[z] @ b[z] for every matrix of a batch, strided in any way: mma.sync, fed by cp.async through a ring"""

    batch, m, n, k = Dim(), Dim(), Dim(), Dim()
    a, b = factors(m, n, k, *KINDS, batch=(batch,))
    c = product(a, batch, m, n)

    bm, bn, bk = Param(16, 32, 64, 96, 128, 192, 256), Param(16, 32, 64, 96, 128, 192, 256), Param(16, 32, 64, 128)
    warps_m, warps_n, stages = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 3, 4, 5)
    prefetch = Param(0, 1)  # k-steps whose fragments are loaded a round ahead
    va, vb, vc = Param(1, 2, 4, 8, 16), Param(1, 2, 4, 8, 16), Param(1, 2, 4, 8)
    across_a, across_b, across_c = AccessPattern(), AccessPattern(), AccessPattern()
    layout_a, layout_b, layout_c = UnknownLayout(), UnknownLayout(), UnknownLayout()
    copy_a, copy_b, fragment_a, fragment_b = copied(va), copied(vb), fragments(), fragments()
    mma, conversions, store = isa.MmaSync(), isa.arithmetic("f32"), Choice("direct", "staged")
    st_fragment, ld_row, st_row = isa.StShared(2), isa.LdShared(vc), isa.StGlobal(vc)
    big_enough = Require(
        (bm * bn >= 32 * warps_m * warps_n * 16)
        | (batch * ceil_div(m, bm) * ceil_div(n, bn) < symbol("device.sm_count")),
        "every thread accumulates at least 16 values, where the tiles fill the device",
        kind="dominance",
        why="fewer accumulators per thread read each operand more often from shared memory than fewer warps would",
    )

    def program(self, p: Tracer) -> None:
        bm, bn, bk, warps = self.bm, self.bn, self.bk, self.warps_m * self.warps_n
        kind_a, kind_b, row_a, row_b = self.a.dtype, self.b.dtype, self.a.contiguous - 1, self.b.contiguous - 1
        t = p.tiled(self.mma, kind_a, kind_b, (bm, bn), (self.warps_m, self.warps_n))
        who_a = blocked((bm, bk), threads=32 * warps, vector=self.va, axis=row_a, across=self.across_a, name="a")
        who_b = blocked((bk, bn), threads=32 * warps, vector=self.vb, axis=row_b, across=self.across_b, name="b")
        a_stage = p.smem(kind_a, (bm, bk), contiguous=row_a, layout=self.layout_a)
        b_stage = p.smem(kind_b, (bk, bn), contiguous=row_b, layout=self.layout_b)
        with p.grid((self.batch, 1), (self.m, bm), (self.n, bn)) as (z, i, j):
            with p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring, p.role("all", warps=warps):
                with p.loop(self.k, step=bk) as kk, ring.produce() as s:
                    p.copy(self.copy_a, self.a.at(z).tile(i, kk, shape=(bm, bk)), s.a, who_a)
                    p.copy(self.copy_b, self.b.at(z).tile(kk, j, shape=(bk, bn)), s.b, who_b)
                total = p.full(t.c, self.mma.accumulator(kind_a, kind_b))
                with p.loop(self.k, step=bk), ring.consume(self.prefetch) as s, p.unroll(bk, step=t.k) as kt:
                    a = p.load(self.fragment_a, s.a.window((0, kt), (bm, t.k)), t.a)
                    b = p.load(self.fragment_b, s.b.window((kt, 0), (t.k, bn)), t.b)
                    p.multiply(self.mma, total, a, b)
            c = self.c.at(z).tile(i, j, shape=(bm, bn))
            with p.role("all", warps=warps):
                wide = total if self.c.dtype.name == "s32" else p.cast(total, "f32")  # whole sums become f32 first
                out = p.cast(wide, self.c.dtype)
                if self.store == "direct":
                    p.store(self.st_row, c, out)
            if self.store == "staged":
                who_c = blocked((bm, bn), threads=32 * warps, vector=self.vc, across=self.across_c, name="c")
                c_stage = p.smem(self.c.dtype, (bm, bn), layout=self.layout_c)
                with p.pipeline("out", 1, c=c_stage) as staged, p.role("all", warps=warps):
                    with staged.produce() as s:
                        p.store(self.st_fragment, s.c, out)
                    with staged.consume() as s:
                        p.store(self.st_row, c, p.load(self.ld_row, s.c, who_c))

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return np.matmul(a, b)
