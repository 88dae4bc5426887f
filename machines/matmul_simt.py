"""Matmul without tensor cores: shared-memory tiles and an outer product in registers."""

from __future__ import annotations

from tinygpu.language import (
    AccessPattern,
    Choice,
    Dim,
    Param,
    Require,
    Route,
    Tracer,
    UnknownLayout,
    blocked,
    ceil_div,
    register_blocked,
    symbol,
)
from tinygpu.machines.epilogue import Epilogue
from tinygpu.machines.operands import operands
from tinygpu.ptx import isa


class MatmulSimt(Epilogue):
    """c = activation(scale * (a @ b) + bias) + residual in f32: each thread an outer product of registers"""

    m, n, k = Dim(), Dim(), Dim()
    a, b, bias, scales, c, residual = operands(m, n, k, "f32")

    bm, bn, bk = Param(32, 64, 96, 128), Param(32, 64, 96, 128), Param(8, 16, 32)
    threads_m, threads_n = Param(4, 8, 16), Param(8, 16, 32)  # threads along m and n
    vm, vn = Param(1, 2, 4), Param(1, 2, 4)  # neighbouring rows and columns of one thread
    stages = Param(1, 2, 3, 4)
    raster = Param(1, 4, 8)
    va, vb, vc, vr = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 4)
    across_a, across_b = AccessPattern(1, 2, 4, 8, 16, 32), AccessPattern(1, 2, 4, 8, 16, 32)
    pad = Param(0, 4)
    layout_a, layout_b = UnknownLayout(), UnknownLayout()

    copy_a = Choice(isa.CpAsync(va), Route(isa.LdGlobal(va), isa.StShared(1)))
    copy_b = Choice(isa.CpAsync(vb), Route(isa.LdGlobal(vb), isa.StShared(1)))
    ld_a, ld_b, fma = isa.LdShared(vm), isa.LdShared(vn), isa.Fma("f32")
    ld_bias, ld_residual, st_row = isa.LdGlobal(1), isa.LdGlobal(vr), isa.StGlobal(vc)

    whole_warps = Require((threads_m * threads_n) % 32 == 0, "the threads form whole warps")
    big_enough = Require(
        (bm * bn >= threads_m * threads_n * 16) | (ceil_div(m, bm) * ceil_div(n, bn) < symbol("device.sm_count")),
        "every thread accumulates at least 16 values, where the tiles fill the device",
        kind="dominance",
        why="below 4 x 4 accumulators the loads from shared memory outnumber half of the FMAs",
    )

    def program(self, p: Tracer) -> None:
        bm, bn, bk, threads = self.bm, self.bn, self.bk, self.threads_m * self.threads_n
        who_c = register_blocked((bm, bn), threads=(self.threads_m, self.threads_n), block=(self.vm, self.vn), name="c")
        row_a, row_b = self.a.contiguous, self.b.contiguous
        who_a = blocked((bm, bk), threads=threads, vector=self.va, axis=row_a, across=self.across_a, name="a")
        who_b = blocked((bk, bn), threads=threads, vector=self.vb, axis=row_b, across=self.across_b, name="b")
        a_stage = p.smem("f32", (bm, bk), contiguous=0, pad=self.pad, layout=self.layout_a)
        b_stage = p.smem("f32", (bk, bn), contiguous=1, pad=self.pad, layout=self.layout_b)

        with p.grid((self.m, bm), (self.n, bn), raster=self.raster) as (i, j):
            with p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring:
                with p.role("all", warps=threads // 32), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                    p.copy(self.copy_a, self.a.tile(i, kk, shape=(bm, bk)), s.a, who_a)
                    p.copy(self.copy_b, self.b.tile(kk, j, shape=(bk, bn)), s.b, who_b)
                with p.role("all", warps=threads // 32):
                    acc = p.full(who_c, "f32")
                    with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk) as kt:
                        column = p.load(self.ld_a, s.a.window((0, kt), (bm, 1)), who_c.along(0))
                        row = p.load(self.ld_b, s.b.window((kt, 0), (1, bn)), who_c.along(1))
                        p.apply(self.fma, column, row, acc, into=acc)
            with p.role("all", warps=threads // 32):
                p.store(self.st_row, self.c.tile(i, j, shape=(bm, bn)), self.finish(p, acc, i, j))
