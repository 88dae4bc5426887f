"""Machines whose tensors have more than two dims, strides of their own, constant dims and windows with steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import AccessPattern, Dim, Input, Machine, Option, Output, Param, UnknownLayout, blocked
from tinygpu.ptx import isa


def convolved(x: Any, f: Any, stride: int, dilation: int, pad: int, times: Any) -> Any:
    """The sum over the taps of a filter: of what lies under a tap in every image, times the tap."""
    x = np.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    p, q = ((x.shape[1 + a] - dilation * (f.shape[a] - 1) - 1) // stride * stride + 1 for a in (0, 1))
    return sum(
        times(x[:, r * dilation :, s * dilation :][:, :p:stride, :q:stride], f[r, s])
        for r in range(f.shape[0])
        for s in range(f.shape[1])
    )


class Permute(Machine):
    """y[e, c, a, d, b] = x[a, b, c, d, e]"""

    a, b, c, d, e = Dim(), Dim(), Dim(), Dim(), Dim()
    x = Input(("f32", "f16"), a, b, c, d, e)
    y = Output({"f32": ("f32",), "f16": ("f16",)}, e, c, a, d, b, follows=x)

    warps, vector, be, bb = Param(1, 4), Param(1, 2, 4), Param(8, 32), Param(8, 32)
    across = AccessPattern(8, 16, 32)
    ld, st = isa.LdGlobal(vector), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        shape = (1, self.bb, 1, 2, self.be)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        with (p.grid((self.a, 1), (self.b, self.bb), (self.c, 1), (self.d, 2), (self.e, self.be)) as (a, b, c, d, e),
              p.role("all", warps=self.warps)):
            x = p.load(self.ld, self.x.tile(a, b, c, d, e, shape=shape), who)
            out = self.y.tile(e, c, a, d, b, shape=(self.be, 1, 1, 2, self.bb))
            p.store(self.st, out, x.permute(4, 2, 0, 3, 1))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.transpose(4, 2, 0, 3, 1)


class Depthwise(Machine):
    """Depthwise 2-D convolution of NHWC images: every channel with a filter of its own"""

    n, h, w, c = Dim(), Dim(), Dim(), Dim()
    r, s = Dim(), Dim()
    p = Dim(follows=lambda h, r, stride, dilation, pad: (h + 2 * pad - dilation * (r - 1) - 1) // stride + 1)
    q = Dim(follows=lambda w, s, stride, dilation, pad: (w + 2 * pad - dilation * (s - 1) - 1) // stride + 1)
    stride, dilation, pad = Option(1, 2), Option(1, 3), Option(0, 1, 4)
    x = Input("f32", n, h, w, c)
    f = Input("f32", r, s, c)
    y = Output("f32", n, p, q, c)

    bw, bc, warps, vector = Param(2, 4, 8), Param(32, 64), Param(1, 2), Param(1, 2, 4)
    across = AccessPattern()
    ld, st, fma = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Fma("f32")

    def program(self, p: Any) -> None:
        shape = (1, 2, self.bw, self.bc)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        grid = p.grid((self.n, 1), (self.p, 2), (self.q, self.bw), (self.c, self.bc))
        with grid as (z, i, j, k), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(self.r) as r, p.loop(self.s) as s:
                x = self.x.tile(z, i * self.stride + r * self.dilation - self.pad,
                                j * self.stride + s * self.dilation - self.pad, k,
                                shape=shape, step=(1, self.stride, self.stride, 1))
                f = self.f.tile(r, s, k, shape=(1, 1, self.bc)).unsqueeze(0)
                p.apply(self.fma, p.load(self.ld, x, who), p.load(self.ld, f, who.along(3)), total, into=total)
            p.store(self.st, self.y.tile(z, i, j, k, shape=shape), total)

    @staticmethod
    def reference(x: Any, f: Any, stride: int, dilation: int, pad: int) -> Any:
        return convolved(x, f, stride, dilation, pad, np.multiply)



class BatchedAmpere(Machine):
    """c = a @ b for every matrix of a batch, on tensor cores by cp.async"""

    z, m, n, k = Dim(), Dim(), Dim(), Dim()
    a = Input("f16", z, m, k)
    b = Input("f16", z, k, n)
    c = Output("f16", z, m, n)

    bm, bn, bk = Param(32, 64), Param(32, 64), Param(16, 32)
    warps_m, warps_n, stages = Param(1, 2), Param(1, 2), Param(2, 3)
    va, vb, vc = Param(2, 4, 8), Param(2, 4, 8), Param(1, 2)
    across_a, across_b = AccessPattern(), AccessPattern()
    layout_a, layout_b = UnknownLayout(), UnknownLayout()
    copy_a, copy_b, fragment = isa.CpAsync(va), isa.CpAsync(vb), isa.LdMatrix()
    mma, cvt, st = isa.MmaSync(), isa.Cvt("f32", "f16"), isa.StGlobal(vc)

    def program(self, p: Any) -> None:
        bm, bn, bk, warps = self.bm, self.bn, self.bk, self.warps_m * self.warps_n
        who_a = blocked((bm, bk), threads=32 * warps, vector=self.va, across=self.across_a, name="a")
        who_b = blocked((bk, bn), threads=32 * warps, vector=self.vb, across=self.across_b, name="b")
        t = p.tiled(self.mma, "f16", "f16", (bm, bn), (self.warps_m, self.warps_n))
        stage_a, stage_b = p.smem("f16", (bm, bk), layout=self.layout_a), p.smem("f16", (bk, bn), layout=self.layout_b)
        with (p.grid((self.z, 1), (self.m, bm), (self.n, bn)) as (z, i, j), p.role("all", warps=warps),
              p.pipeline("ring", self.stages, a=stage_a, b=stage_b) as ring):
            acc = p.full(t.c, "f32")
            with p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.copy_a, self.a.at(z).tile(i, kk, shape=(bm, bk)), s.a, who_a)
                p.copy(self.copy_b, self.b.at(z).tile(kk, j, shape=(bk, bn)), s.b, who_b)
            with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                a = p.load(self.fragment, s.a.window((0, kt), (bm, t.k)), t.a)
                b = p.load(self.fragment, s.b.window((kt, 0), (t.k, bn)), t.b)
                p.multiply(self.mma, acc, a, b)
            p.store(self.st, self.c.at(z).tile(i, j, shape=(bm, bn)), p.apply(self.cvt, acc))

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b


class BatchedHopper(Machine):
    """c = a @ b for every matrix of a batch, by TMA and wgmma"""

    z, m, n, k = Dim(), Dim(), Dim(), Dim()
    a = Input("f16", z, m, k, majors=("row", (m, z, k)))
    b = Input("f16", z, k, n)
    c = Output("f16", z, m, n)

    bm, bn, bk, stages, swizzle = Param(64), Param(32, 64), Param(32, 64), Param(2, 3), Param(64, 128)
    tma, wgmma, cvt, st = isa.TmaLoad(), isa.Wgmma(bn), isa.Cvt("f32", "f16"), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        bm, bn, bk = self.bm, self.bn, self.bk
        t = p.tiled(self.wgmma, "f16", "f16", (bm, bn), (1, 1))
        stage_a, stage_b = p.smem("f16", (bm, bk), swizzle=self.swizzle), p.smem("f16", (bk, bn), swizzle=self.swizzle)
        with (p.grid((self.z, 1), (self.m, bm), (self.n, bn)) as (z, i, j),
              p.pipeline("ring", self.stages, a=stage_a, b=stage_b) as ring):
            with p.role("load", warps=4), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.at(z).tile(i, kk, shape=(bm, bk)), s.a)
                p.copy(self.tma, self.b.at(z).tile(kk, j, shape=(bk, bn)), s.b)
            with p.role("multiply", warps=4, first=4):
                acc = p.full(t.c, "f32")
                with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                    p.multiply(self.wgmma, acc, s.a.window((0, kt), (bm, t.k)), s.b.window((kt, 0), (t.k, bn)))
                p.store(self.st, self.c.at(z).tile(i, j, shape=(bm, bn)), p.apply(self.cvt, acc))

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b


class ConvHopper(Machine):
    """2-D convolution of images (n, h, w, c) without stride, by boxes of TMA and wgmma"""

    n, h, w, c = Dim(), Dim(), Dim(), Dim()
    r, s, k = Dim(), Dim(), Dim()
    dilation, pad = Option(1, 2), Option(0, 1, 5)
    p = Dim(follows=lambda h, r, dilation, pad: h + 2 * pad - dilation * (r - 1))
    q = Dim(follows=lambda w, s, dilation, pad: w + 2 * pad - dilation * (s - 1))
    x = Input("f16", n, h, w, c)
    f = Input("f16", r, s, c, k)
    y = Output("f16", n, p, q, k)

    bh, bw, bn, bk, stages, swizzle = Param(4, 8, 16), Param(4, 8, 16), Param(32, 64), Param(32), Param(2, 3), Param(64)
    tma, wgmma, cvt, st = isa.TmaLoad(), isa.Wgmma(bn), isa.Cvt("f32", "f16"), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        bm, bn, bk = self.bh * self.bw, self.bn, self.bk
        t = p.tiled(self.wgmma, "f16", "f16", (bm, bn), (1, 1))
        stage_x, stage_f = p.smem("f16", (bm, bk), swizzle=self.swizzle), p.smem("f16", (bk, bn), swizzle=self.swizzle)
        taps = (self.r, 1), (self.s, 1), (self.c, bk)
        with (p.grid((self.n, 1), (self.p, self.bh), (self.q, self.bw), (self.k, bn)) as (z, i, j, o),
              p.pipeline("ring", self.stages, x=stage_x, f=stage_f) as ring):
            with p.role("load", warps=4), p.loops(*taps) as (r, s, kk), ring.produce() as slot:
                h, w = i + r * self.dilation - self.pad, j + s * self.dilation - self.pad
                window = self.x.tile(z, h, w, kk, shape=(1, self.bh, self.bw, bk))
                p.copy(self.tma, window.as_matrix(), slot.x)
                p.copy(self.tma, self.f.at(r, s).tile(kk, o, shape=(bk, bn)), slot.f)
            with p.role("multiply", warps=4, first=4):
                acc = p.full(t.c, "f32")
                with p.loops(*taps), ring.consume() as slot, p.unroll(bk, step=t.k) as kt:
                    p.multiply(self.wgmma, acc, slot.x.window((0, kt), (bm, t.k)), slot.f.window((kt, 0), (t.k, bn)))
                y = self.y.tile(z, i, j, o, shape=(1, self.bh, self.bw, bn)).as_matrix()
                p.store(self.st, y, p.apply(self.cvt, acc))

    @staticmethod
    def reference(x: Any, f: Any, dilation: int, pad: int) -> Any:
        return convolved(x, f, 1, dilation, pad, np.matmul)
