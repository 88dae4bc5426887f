"""Windows and places of images: interpolation, boxes, convolutions, steps of a stencil."""

from typing import Any

import numpy as np

from tinygpu.language import (
    AccessPattern,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Tracer,
    UnknownLayout,
    blocked,
    floor,
    maximum,
    minimum,
    one_of,
    uniform,
    where,
)
from tinygpu.ptx import isa


class Bilinear(Machine):
    """y[p, c] = x at (py[p], px[p]) of an image (h, w, c), between its four neighbours; beyond the edge it goes on"""

    h, w, c, n = Dim(), Dim(), Dim(), Dim()
    size = Dim(follows=lambda h, w: h * w)
    x, y = Input("f32", size, c), Output("f32", n, c)
    py, px = Input("f32", n, values=uniform(-1, h)), Input("f32", n, values=uniform(-1, w))
    warps, rows = Param(1, 2, 4), Param(1, 2)
    ld, single, st = isa.LdGlobalReadOnly(1), isa.LdGlobalReadOnly(1), isa.StGlobal(1)
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")
    exact = False

    def program(self, p: Tracer) -> None:
        shape = (self.warps * self.rows, 32)
        who = blocked(shape, threads=32 * self.warps)
        with p.grid((self.n, shape[0]), (self.c, 32)) as (i, j), p.role("all", warps=self.warps):
            v, u = (p.load(self.single, t.column(i, shape[0]), who.along(0)) for t in (self.py, self.px))
            top, left = floor(v), floor(u)
            dv, du = v - top, u - left
            row, column = p.cast(top, "s32"), p.cast(left, "s32")
            total = p.full(who, "f32")
            for down in (0, 1):
                for right in (0, 1):
                    r = minimum(maximum(row + down, 0), self.h - 1)
                    c = minimum(maximum(column + right, 0), self.w - 1)
                    x = p.load(self.ld, self.x.rows(r * self.w + c).tile(0, j, shape=shape), who)
                    total += x * ((dv if down else 1.0 - dv) * (du if right else 1.0 - du))
            p.store(self.st, self.y.tile(i, j, shape=shape), total)

    @staticmethod
    def reference(x: Any, py: Any, px: Any, h: Any, w: Any) -> Any:
        top, left = np.floor(py), np.floor(px)
        dv, du = (py - top)[:, None], (px - left)[:, None]
        total = 0
        for down in (0, 1):
            for right in (0, 1):
                r = np.clip(top.astype(np.int64) + down, 0, h - 1)
                c = np.clip(left.astype(np.int64) + right, 0, w - 1)
                total = total + x[r * w + c] * ((dv if down else 1 - dv) * (du if right else 1 - du))
        return total


class IoU(Machine):
    """y[i, j] = intersection over union of boxes a[i] and b[j] as (left, top, right, bottom)"""

    m, n = Dim(), Dim()
    a, b = Input("f32", m, 4, values=one_of(0, 1, 2, 5)), Input("f32", n, 4, values=one_of(0, 1, 2, 5))
    y = Output("f32", m, n)
    warps, rows = Param(1, 2, 4), Param(1, 2, 4)
    ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32")
    exact = False

    def program(self, p: Tracer) -> None:
        shape = (self.warps * self.rows, 32)
        who = blocked(shape, threads=32 * self.warps)
        with p.grid((self.m, shape[0]), (self.n, 32)) as (i, j), p.role("all", warps=self.warps):
            a = [p.load(self.ld, self.a.tile(i, e, shape=(shape[0], 1)), who.along(0)) for e in range(4)]
            b = [p.load(self.ld, self.b.tile(j, e, shape=(32, 1)).T, who.along(1)) for e in range(4)]
            wide = maximum(minimum(a[2], b[2]) - maximum(a[0], b[0]), 0.0)
            high = maximum(minimum(a[3], b[3]) - maximum(a[1], b[1]), 0.0)
            both = wide * high
            of_a, of_b = ((q[2] - q[0]) * (q[3] - q[1]) for q in (a, b))
            p.store(self.st, self.y.tile(i, j, shape=shape), both / (of_a + of_b - both + 1e-3))

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        a, b = a[:, None, :], b[None, :, :]
        wide = np.maximum(np.minimum(a[..., 2], b[..., 2]) - np.maximum(a[..., 0], b[..., 0]), 0)
        high = np.maximum(np.minimum(a[..., 3], b[..., 3]) - np.maximum(a[..., 1], b[..., 1]), 0)
        of_a, of_b = ((q[..., 2] - q[..., 0]) * (q[..., 3] - q[..., 1]) for q in (a, b))
        return wide * high / (of_a + of_b - wide * high + 1e-3)


class Conv3D(Machine):
    """y = 3-D convolution of x (t, h, w, c) by f (3, 3, 3, c, k), zero beyond the edges"""

    t, h, w, c, k = Dim(), Dim(), Dim(), Dim(), Dim()
    x, f, y = Input("f16", t, h, w, c), Input("f16", 27, c, k), Output("f16", t, h, w, k)
    bh, bw, bn, bk = Param(4), Param(8, 16), Param(32, 64), Param(16, 32)
    warps_m, warps_n, stages = Param(1, 2), Param(1, 2), Param(2, 3)
    vector_x, vector_f, vector_y = Param(2, 4, 8), Param(2, 4, 8), Param(1, 2)
    across_x, across_f = AccessPattern(), AccessPattern()
    layout_x, layout_f = UnknownLayout(), UnknownLayout()
    copy_x, copy_f = isa.CpAsync(vector_x), isa.CpAsync(vector_f)
    fragment, mma, cvt, st = isa.LdMatrix(), isa.MmaSync(), isa.Cvt("f32", "f16"), isa.StGlobal(vector_y)

    def program(self, p: Tracer) -> None:
        bm, bn, bk, warps = self.bh * self.bw, self.bn, self.bk, self.warps_m * self.warps_n
        who_x = blocked((bm, bk), threads=32 * warps, vector=self.vector_x, across=self.across_x, name="x")
        who_f = blocked((bk, bn), threads=32 * warps, vector=self.vector_f, across=self.across_f, name="f")
        t = p.tiled(self.mma, "f16", "f16", (bm, bn), (self.warps_m, self.warps_n))
        x_stage, f_stage = p.smem("f16", (bm, bk), layout=self.layout_x), p.smem("f16", (bk, bn), layout=self.layout_f)
        grid = p.grid((self.t, 1), (self.h, self.bh), (self.w, self.bw), (self.k, bn))
        with (
            grid as (z, i, j, o),
            p.role("all", warps=warps),
            p.pipeline("ring", self.stages, x=x_stage, f=f_stage) as ring,
        ):
            total = p.full(t.c, "f32")
            with p.loops((27, 1), (self.c, bk)) as (tap, kk), ring.produce() as slot:
                at = z + tap // 9 - 1, i + tap // 3 % 3 - 1, j + tap % 3 - 1, kk
                p.copy(self.copy_x, self.x.tile(*at, shape=(1, self.bh, self.bw, bk)).as_matrix(), slot.x, who_x)
                p.copy(self.copy_f, self.f.at(tap).tile(kk, o, shape=(bk, bn)), slot.f, who_f)
            with p.loops((27, 1), (self.c, bk)), ring.consume() as slot, p.unroll(bk, step=t.k) as kt:
                a = p.load(self.fragment, slot.x.window((0, kt), (bm, t.k)), t.a)
                b = p.load(self.fragment, slot.f.window((kt, 0), (t.k, bn)), t.b)
                p.multiply(self.mma, total, a, b)
            y = self.y.tile(z, i, j, o, shape=(1, self.bh, self.bw, bn)).as_matrix()
            p.store(self.st, y, p.apply(self.cvt, total))

    @staticmethod
    def reference(x: Any, f: Any) -> Any:
        t, h, w, _ = x.shape
        wide = np.pad(x, ((1, 1), (1, 1), (1, 1), (0, 0)))
        taps = [(a, b, c) for a in range(3) for b in range(3) for c in range(3)]
        return sum(wide[a : a + t, b : b + h, c : c + w] @ f[9 * a + 3 * b + c] for a, b, c in taps)


class TransposedConv(Machine):
    """y[n, k, t] = sum over c, r of x[n, c, (t - r) / 2] * w[c, k, r] where t - r is even, of r < 4: stride 2"""

    n, c, k, t = Dim(), Dim(), Dim(), Dim()
    u = Dim(follows=lambda t: 2 * t + 2)
    x, w, y = Input("f32", n, c, t), Input("f32", c, k, 4), Output("f32", n, k, u)
    warps = Param(1, 2, 4)
    ld, single, st = isa.LdGlobal(1), isa.LdGlobalReadOnly(1), isa.StGlobal(1)
    arithmetic, whole, contract = isa.arithmetic("f32"), isa.arithmetic("s32"), True

    def program(self, p: Tracer) -> None:
        half = blocked((1, self.warps, 32), threads=32 * self.warps)
        with p.grid((self.n, 1), (self.k, self.warps), (self.u, 64)) as (z, k, s), p.role("all", warps=self.warps):
            even, odd = p.full(half, "f32"), p.full(half, "f32")
            with p.loop(self.c) as c:
                for r in range(4):
                    x = p.load(self.ld, self.x.tile(z, c, s // 2 - r // 2, shape=(1, 1, 32)), half.reduced(1))
                    w = p.load(
                        self.single, self.w.at(c).tile(k, r, shape=(self.warps, 1)).unsqueeze(0), half.reduced(2)
                    )
                    if r % 2:
                        odd += x * w
                    else:
                        even += x * w
            for r, part in enumerate((even, odd)):
                p.store(self.st, self.y.tile(z, k, s + r, shape=(1, self.warps, 32), step=(1, 1, 2)), part)

    @staticmethod
    def reference(x: Any, w: Any) -> Any:
        wide = np.pad(x, ((0, 0), (0, 0), (1, 1)))
        now, before = wide[:, :, 1:], wide[:, :, :-1]
        even, odd = (
            np.einsum("nct,ck->nkt", now, w[:, :, r]) + np.einsum("nct,ck->nkt", before, w[:, :, r + 2]) for r in (0, 1)
        )
        return np.stack([even, odd], axis=3).reshape(len(x), w.shape[1], -1)


class TwoSteps(Machine):
    """two steps of y = (x + its four neighbours) / 4, zero beyond the edges, without a tensor between"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)
    warps = Param(1, 2, 4)
    ld, st, arithmetic, whole = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32"), isa.arithmetic("s32")

    def program(self, p: Tracer) -> None:
        shape = (self.warps, 32)
        who = blocked(shape, threads=32 * self.warps)
        near = ((0, 0), (-1, 0), (1, 0), (0, -1), (0, 1))
        with p.grid((self.m, shape[0]), (self.n, 32)) as (i, j), p.role("all", warps=self.warps):
            row, column = p.index(who.along(0), 0) + i, p.index(who.along(1), 1) + j
            loaded = {}
            total = p.full(who, "f32")
            for a, b in near:
                once = p.full(who, "f32")
                for c, d in near:
                    at = a + c, b + d
                    if at not in loaded:
                        loaded[at] = p.load(self.ld, self.x.tile(i + at[0], j + at[1], shape=shape), who)
                    once += loaded[at]
                r, s = row + a, column + b
                there = (r >= 0) & (r < self.m) & ((s >= 0) & (s < self.n))
                total += where(there, once * 0.25, 0.0)
            p.store(self.st, self.y.tile(i, j, shape=shape), total * 0.25)

    @staticmethod
    def reference(x: Any) -> Any:
        def step(x: Any) -> Any:
            wide = np.pad(x, 1)
            return (x + wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]) / 4

        return step(step(x))
