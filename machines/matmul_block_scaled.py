"""Matmul of factors with block scales, mxfp8, mxfp4 and nvfp4, on consumer Blackwell: cp.async, ldmatrix, mma.sync.

So many neighbours along k share a scale, in a as in b, and tensor cores multiply by scales while they add up: a thread
holds registers of four scales of a row, and every instruction names the one with which its block begins. Factors of 4
bits stay packed from memory to the tensor cores, so both factors lie along k. cp.async brings a stage of factors with
its scales into a ring of shared memory; scales of a whole stage are read once, and fragments step by step.

Of mx factors (e4m3, e5m2 or e2m1) 32 neighbours share a power of two, whose exponent plus 127 is a u8. Of nvfp4 (e2m1)
16 share an e4m3 that is not negative; the whole product has one scale more, by `scaling="number"`. Searched are the
tile and how warps divide it, the depth of the ring, vectors and their patterns, and how stages lie.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import (
    AccessPattern,
    Dim,
    E,
    Input,
    Layout,
    Output,
    Param,
    Partition,
    Require,
    Tracer,
    UnknownLayout,
    blocked,
    ceil_div,
    integers,
    symbol,
    uniform,
)  # fmt: skip
from tinygpu.machines.epilogue import Epilogue
from tinygpu.machines.operands import RESIDUALS, copied, of
from tinygpu.ptx import isa

RESULTS = ("bf16", "f16", "f32")
# Types of b that go with those of a.
MX: dict[str, tuple[str, ...]] = {"e4m3": ("e4m3", "e5m2"), "e5m2": ("e5m2", "e4m3"), "e2m1": ("e2m1",)}


class BlockScaled(Epilogue):
    """c = activation(scale * (a * scales of a) @ (b * scales of b) + bias) + residual"""

    m, n, k = Dim(), Dim(), Dim()
    bm, bn = Param(32, 64, 96, 128, 192, 256), Param(32, 64, 96, 128, 192, 256)
    bk = Param(64, 128, 256)
    warps_m, warps_n, stages = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 3, 4, 5, 6)
    raster = Param(1, 4, 8, 16)  # tile rows visited together, for L2
    va, vb = Param(1, 2, 4, 8, 16, 32), Param(1, 2, 4, 8, 16, 32)
    vs, vc = Param(1, 2, 4, 8, 16), Param(1, 2)
    across_a, across_b = AccessPattern(), AccessPattern()
    layout_a, layout_b = UnknownLayout(), UnknownLayout()
    copy_a, copy_b, copy_s = copied(va), copied(vb), copied(vs)
    fragment, scale_of, st = isa.LdMatrix(), isa.LdShared(4), isa.StGlobal(vc)
    ld_bias, ld_residual = isa.LdGlobal(1), isa.LdGlobal(vc)

    big_enough = Require(
        (bm * bn >= 32 * warps_m * warps_n * 16) | (ceil_div(m, bm) * ceil_div(n, bn) < symbol("device.sm_count")),
        "every thread accumulates at least 16 values, where the tiles fill the device", kind="dominance",
        why="fewer sums per thread read each operand more often from shared memory than a tile with fewer warps",
    )  # fmt: skip

    block: int
    mma: Any
    b: Any
    scales_a: Any
    scales_b: Any

    def multiply(self, p: Tracer) -> None:
        bm, bn, bk, warps, blocks = self.bm, self.bn, self.bk, self.warps_m * self.warps_n, self.bk // self.block
        t = p.tiled(self.mma, self.a.dtype, self.b.dtype, (bm, bn), (self.warps_m, self.warps_n), depth=bk)
        who_a = blocked((bm, bk), threads=32 * warps, vector=self.va, across=self.across_a, name="a")
        who_b = blocked((bk, bn), threads=32 * warps, vector=self.vb, axis=0, across=self.across_b, name="b")
        vectors = [(self.vs, E(1)), (blocks // self.vs, self.vs * E(1))]
        rows = Partition((bm, blocks), Layout.of([(bm, E(0))], vectors))
        columns = Partition((bn, blocks), Layout.of([(bn, E(0))], vectors)).T
        stage = {
            "a": p.smem(self.a.dtype, (bm, bk), layout=self.layout_a),
            "b": p.smem(self.b.dtype, (bk, bn), contiguous=0, layout=self.layout_b),
            "sa": p.smem(self.scales_a.dtype, (bm, blocks)),
            "sb": p.smem(self.scales_b.dtype, (blocks, bn), contiguous=0),
        }
        with (
            p.grid((self.m, bm), (self.n, bn), raster=self.raster) as (i, j),
            p.pipeline("ring", self.stages, **stage) as ring,
            p.role("all", warps=warps),
        ):
            with p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.copy_a, self.a.tile(i, kk, shape=(bm, bk)), s.a, who_a)
                p.copy(self.copy_b, self.b.tile(kk, j, shape=(bk, bn)), s.b, who_b)
                p.copy(self.copy_s, self.scales_a.tile(i, kk // self.block, shape=(bm, blocks)), s.sa, rows)
                p.copy(self.copy_s, self.scales_b.tile(kk // self.block, j, shape=(blocks, bn)), s.sb, columns)
            acc = p.full(t.c, "f32")
            with p.loop(self.k, step=bk), ring.consume() as s:
                scales = p.load(self.scale_of, s.sa, t.scales[0]), p.load(self.scale_of, s.sb, t.scales[1])
                with p.unroll(bk, step=t.k) as kt:
                    fa = p.load(self.fragment, s.a.window((0, kt), (bm, t.k)), t.a)
                    fb = p.load(self.fragment, s.b.window((kt, 0), (t.k, bn)), t.b)
                    p.multiply(self.mma, acc, fa, fb, scales=scales, at=kt)
            p.store(self.st, self.c.tile(i, j, shape=(bm, bn)), self.finish(p, acc, i, j))


    @staticmethod
    def scaled(x: Any, scales: Any) -> Any:
        """Rows of x times the scales of their blocks, of which the last may be shorter; codes are powers of two."""
        numbers, block = (np.ldexp(1.0, scales.astype(int) - 127), 32) if scales.dtype.kind == "u" else (scales, 16)
        return x * np.repeat(numbers, block, axis=1)[:, : x.shape[1]]

    @staticmethod
    def reference(
        a: Any, b: Any, with_bias: bool = False, activation: str = "none", scaling: str = "none",
        with_residual: bool = False, scale: Any = None, bias: Any = None, scales: Any = None, residual: Any = None,
        scales_a: Any = None, scales_b: Any = None,
    ) -> Any:  # fmt: skip
        a, b = BlockScaled.scaled(a, scales_a), BlockScaled.scaled(b.T, scales_b.T).T
        return Epilogue.reference(a, b, with_bias, activation, scaling, with_residual, scale, bias, scales, residual)


class MatmulMx(BlockScaled):
    """c = activation(scale * (a * scales of a) @ (b * scales of b) + bias) + residual, of mxfp8 and mxfp4"""

    m, n, k, block, mma = BlockScaled.m, BlockScaled.n, BlockScaled.k, 32, isa.MmaScaled(32)
    blocks = Dim(follows=lambda k: -(-k // 32))
    a, scales_a = Input(tuple(MX), m, k), Input("u8", m, blocks, values=integers(117, 138))
    b = Input(MX, k, n, majors=("col",), follows=a)
    scales_b = Input("u8", blocks, n, majors=("col",), values=integers(117, 138))
    c = Output(dict.fromkeys(MX, RESULTS), m, n, follows=a)
    bias, scales, residual = Input("f32", n), Input("f32", n), Input(of(RESIDUALS, *RESULTS), m, n, follows=c)

    def program(self, p: Tracer) -> None:
        self.multiply(p)


class MatmulNvfp4(BlockScaled):
    """c = activation(scale * (a * scales of a) @ (b * scales of b) + bias) + residual, of nvfp4"""

    m, n, k, block, mma = BlockScaled.m, BlockScaled.n, BlockScaled.k, 16, isa.MmaScaled(16)
    blocks = Dim(follows=lambda k: -(-k // 16))
    a, scales_a = Input("e2m1", m, k), Input("e4m3", m, blocks, values=uniform(0.25, 4))
    b, scales_b = Input("e2m1", k, n, majors=("col",)), Input(
        "e4m3", blocks, n, majors=("col",), values=uniform(0.25, 4)
    )
    c = Output(RESULTS, m, n)
    bias, scales, residual = Input("f32", n), Input("f32", n), Input(of(RESIDUALS, *RESULTS), m, n, follows=c)

    def program(self, p: Tracer) -> None:
        self.multiply(p)
