"""Matmul on tensor cores as of Ampere: cp.async into a ring of stages, ldmatrix, mma.sync."""

from __future__ import annotations

from tinygpu.language import (
    AccessPattern,
    Choice,
    Dim,
    Param,
    Require,
    Tracer,
    UnknownLayout,
    blocked,
    ceil_div,
    symbol,
)
from tinygpu.machines.epilogue import Epilogue
from tinygpu.machines.operands import KINDS, copied, fragments, operands
from tinygpu.ptx import isa


class MatmulAmpere(Epilogue):
    """c = activation(scale * (a @ b) + bias) + residual: mma.sync, fed by cp.async through a ring of stages"""

    m, n, k = Dim(), Dim(), Dim()
    a, b, bias, scales, c, residual = operands(m, n, k, *KINDS)

    bm, bn = Param(32, 64, 96, 128, 160, 192, 256), Param(32, 64, 96, 128, 160, 192, 256)
    bk = Param(16, 32, 64, 128)
    warps_m, warps_n = Param(1, 2, 4), Param(1, 2, 4)  # warps along m and n
    stages = Param(1, 2, 3, 4, 5, 6)
    prefetch = Param(0, 1)  # k-steps whose fragments are loaded a round ahead
    raster = Param(1, 4, 8, 16)  # tile rows visited together, for L2
    va, vb, vc, vr = Param(1, 2, 4, 8, 16), Param(1, 2, 4, 8, 16), Param(1, 2, 4, 8), Param(1, 2)
    across_a, across_b, across_c = AccessPattern(), AccessPattern(), AccessPattern()
    pad = Param(0, 8, 16)  # elements added to every row of shared memory
    layout_a, layout_b, layout_c = UnknownLayout(), UnknownLayout(), UnknownLayout()

    copy_a, copy_b, fragment_a, fragment_b = copied(va), copied(vb), fragments(), fragments()
    mma = isa.MmaSync()
    store = Choice("direct", "staged")
    st_fragment, ld_row, st_row = isa.StShared(2), isa.LdShared(vc), isa.StGlobal(vc)
    ld_bias, ld_residual = isa.LdGlobal(1), isa.LdGlobal(vr)

    big_enough = Require(
        (bm * bn >= 32 * warps_m * warps_n * 16) | (ceil_div(m, bm) * ceil_div(n, bn) < symbol("device.sm_count")),
        "every thread accumulates at least 16 values, where the tiles fill the device",
        kind="dominance",
        why=(
            "fewer accumulators per thread read each operand more often from shared memory than a tile with fewer warps"
        ),
    )

    def program(self, p: Tracer) -> None:
        bm, bn, bk, warps = self.bm, self.bn, self.bk, self.warps_m * self.warps_n
        t = p.tiled(self.mma, self.a.dtype, self.b.dtype, (bm, bn), (self.warps_m, self.warps_n))
        threads = 32 * warps
        row_a, row_b = self.a.contiguous, self.b.contiguous
        who_a = blocked((bm, bk), threads=threads, vector=self.va, axis=row_a, across=self.across_a, name="a")
        who_b = blocked((bk, bn), threads=threads, vector=self.vb, axis=row_b, across=self.across_b, name="b")
        a_stage = p.smem(self.a.dtype, (bm, bk), contiguous=row_a, pad=self.pad, layout=self.layout_a)
        b_stage = p.smem(self.b.dtype, (bk, bn), contiguous=row_b, pad=self.pad, layout=self.layout_b)

        with p.grid((self.m, bm), (self.n, bn), raster=self.raster) as (i, j):
            with p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring:
                with p.role("all", warps=warps), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                    p.copy(self.copy_a, self.a.tile(i, kk, shape=(bm, bk)), s.a, who_a)
                    p.copy(self.copy_b, self.b.tile(kk, j, shape=(bk, bn)), s.b, who_b)
                with p.role("all", warps=warps):
                    acc = p.full(t.c, self.mma.accumulator(self.a.dtype, self.b.dtype))
                    with p.loop(self.k, step=bk), ring.consume(self.prefetch) as s, p.unroll(bk, step=t.k) as kt:
                        fa = p.load(self.fragment_a, s.a.window((0, kt), (bm, t.k)), t.a)
                        fb = p.load(self.fragment_b, s.b.window((kt, 0), (t.k, bn)), t.b)
                        p.multiply(self.mma, acc, fa, fb)

            with p.role("all", warps=warps):
                out = self.finish(p, acc, i, j)
                if self.store == "direct":
                    p.store(self.st_row, self.c.tile(i, j, shape=(bm, bn)), out)
            if self.store == "staged":
                stage = p.smem(self.c.dtype, (bm, bn), pad=self.pad, layout=self.layout_c)
                who_c = blocked((bm, bn), threads=threads, vector=self.vc, across=self.across_c, name="c")
                with p.pipeline("out", 1, c=stage) as ring, p.role("all", warps=warps):
                    with ring.produce() as s:
                        p.store(self.st_fragment, s.c, out)
                    with ring.consume() as s:
                        p.store(self.st_row, self.c.tile(i, j, shape=(bm, bn)), p.load(self.ld_row, s.c, who_c))
