"""Products of tiles on tensor cores, and what is made of them."""

import math
from typing import Any

import numpy as np

from tinygpu.language import (
    TMEM,
    AccessPattern,
    Combine,
    Dim,
    InOut,
    Input,
    Machine,
    Output,
    Param,
    Scalar,
    Tracer,
    UnknownLayout,
    blocked,
    equal,
    integers,
    maximum,
    minimum,
    tanh,
    uniform,
    where,
)
from tinygpu.ptx import isa


class KMeans(Machine):
    """at[i] = the nearest of k centres to x[i], the first of equals: least |c|^2 - 2 x c"""

    n, k, d = Dim(), Dim(), Dim(32, 64)
    x, c, at = Input("f16", n, d, values=integers(-8, 9)), Input("f16", k, d, values=integers(-8, 9)), Output("s32", n)
    norms = Input("f32", k, values=integers(0, 512))
    warps, bn = Param(1, 2, 4), Param(32, 64)
    layout_x, layout_c, vector = UnknownLayout(), UnknownLayout(), Param(8)
    across_x, across_c = AccessPattern(), AccessPattern()
    copy, fragment, mma = isa.CpAsync(vector), isa.LdMatrix(), isa.MmaSync()
    ld, st, shuffle = isa.LdGlobalReadOnly(1), isa.StGlobal(1), isa.ShflBfly()
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")

    def better(self, p: Tracer, left: Any, right: Any) -> Any:
        (x, i), (y, j) = left, right
        first = where(equal(x, y), minimum(i, j), j)
        return minimum(x, y), where(x < y, i, first)

    def program(self, p: Tracer) -> None:
        bm = 16 * self.warps
        t = p.tiled(self.mma, "f16", "f16", (bm, self.bn), (self.warps, 1))
        who_x = blocked((bm, self.d), threads=32 * self.warps, vector=self.vector, across=self.across_x, name="x")
        who_c = blocked((self.bn, self.d), threads=32 * self.warps, vector=self.vector, across=self.across_c, name="c")
        x_stage, c_stage = (
            p.smem("f16", (bm, self.d), layout=self.layout_x),
            p.smem("f16", (self.bn, self.d), layout=self.layout_c),
        )
        with (
            p.grid((self.n, bm)) as (i,),
            p.role("all", warps=self.warps),
            p.pipeline("points", 1, x=x_stage) as points,
        ):
            with points.produce() as f:
                p.copy(self.copy, self.x.tile(i, 0, shape=(bm, self.d)), f.x, who_x)
            rows = t.c.reduced(1)
            least, at = p.full(rows, "f32", math.inf), p.full(rows, "s32", 0)
            with points.consume() as held, p.pipeline("centres", 2, c=c_stage) as ring:
                with p.loop(self.k, step=self.bn) as j, ring.produce() as f:
                    p.copy(self.copy, self.c.tile(j, 0, shape=(self.bn, self.d)), f.c, who_c)
                with p.loop(self.k, step=self.bn) as j, ring.consume() as f:
                    products = p.full(t.c, "f32")
                    with p.unroll(self.d, step=t.k) as kt:
                        a = p.load(self.fragment, held.x.window((0, kt), (bm, t.k)), t.a)
                        b = p.load(self.fragment, f.c.window((0, kt), (self.bn, t.k)), t.b.T).T
                        p.multiply(self.mma, products, a, b)
                    norms = p.load(self.ld, self.norms.row(j, self.bn), t.c.along(1), fill=math.inf)
                    column = p.index(t.c, 1) + j
                    far = norms - products * 2.0
                    near, best = p.reduce(Combine(self.better), (far, column), axis=1, by=self.shuffle)
                    closer = near < least
                    p.where(closer, best, at, into=at)
                    p.where(closer, near, least, into=least)
            p.store(self.st, self.at.column(i, bm), at)

    @staticmethod
    def reference(x: Any, c: Any, norms: Any) -> Any:
        return (norms - 2 * (x @ c.T)).argmin(axis=1).astype(np.int32)


class Syrk(Machine):
    """c -= a @ a.T, of the lower triangle of c alone"""

    n, k = Dim(), Dim()
    a, c = Input("f16", n, k), InOut("f32", n, n)
    side, warps_m, warps_n, bk, vector = Param(32, 64), Param(1, 2), Param(1, 2), Param(16, 32), Param(2, 4, 8)
    across, layout_a, layout_b = AccessPattern(), UnknownLayout(), UnknownLayout()
    copy, fragment, mma, ld, st = isa.CpAsync(vector), isa.LdMatrix(), isa.MmaSync(), isa.LdGlobal(1), isa.StGlobal(1)
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")

    def program(self, p: Tracer) -> None:
        warps, shape = self.warps_m * self.warps_n, (self.side, self.bk)
        t = p.tiled(self.mma, "f16", "f16", (self.side, self.side), (self.warps_m, self.warps_n))
        who = blocked(shape, threads=32 * warps, vector=self.vector, across=self.across)
        a_stage, b_stage = p.smem("f16", shape, layout=self.layout_a), p.smem("f16", shape, layout=self.layout_b)
        grid = p.grid((self.n, self.side), (self.n, self.side))
        with (
            grid as (i, j),
            p.pipeline("ring", 2, a=a_stage, b=b_stage) as ring,
            p.role("all", warps=warps),
            p.when(j <= i),
        ):
            with p.loop(self.k, step=self.bk) as kk, ring.produce() as f:
                p.copy(self.copy, self.a.tile(i, kk, shape=shape), f.a, who)
                p.copy(self.copy, self.a.tile(j, kk, shape=shape), f.b, who)
            total = p.full(t.c, "f32")
            with p.loop(self.k, step=self.bk), ring.consume() as f, p.unroll(self.bk, step=t.k) as kt:
                a = p.load(self.fragment, f.a.window((0, kt), (self.side, t.k)), t.a)
                b = p.load(self.fragment, f.b.window((0, kt), (self.side, t.k)), t.b.T).T
                p.multiply(self.mma, total, a, b)
            tile = self.c.tile(i, j, shape=(self.side, self.side))
            old = p.load(self.ld, tile, t.c)
            below = p.index(t.c.along(1), 1) + j <= p.index(t.c.along(0), 0) + i
            p.store(self.st, tile, where(below, old - total, old))

    @staticmethod
    def reference(a: Any, c: Any) -> Any:
        return np.where(np.tril(np.ones(c.shape)) > 0, c - a @ a.T, c)


class Int4Matmul(Machine):
    """c = a @ ((w - zero) * scale): w of 4 bits, a scale and a zero point for every 32 rows of a column"""

    m, n, k = Dim(), Dim(), Dim()
    groups = Dim(follows=lambda k: (k + 31) // 32)
    a, w = Input("f16", m, k), Input("u4", k, n)
    scale, zero = Input("f16", groups, n, values=uniform(0.5, 2)), Input("u8", groups, n, values=integers(0, 16))
    c = Output("f32", m, n)
    bm, bn, warps_m, warps_n = Param(16, 32), Param(32, 64), Param(1, 2), Param(1, 2)
    across, layout_a, layout_b = AccessPattern(), UnknownLayout(), UnknownLayout()
    ld_w, copy, single = isa.LdGlobal(8), isa.CpAsync(2), isa.LdGlobal(1)
    put, fragment, st = isa.StShared(8), isa.LdMatrix(), isa.StGlobal(1)
    mma, arithmetic = isa.MmaSync(), isa.arithmetic("f16")
    exact, approximation = False, 2.0**-10

    def program(self, p: Tracer) -> None:
        t = p.tiled(self.mma, "f16", "f16", (self.bm, self.bn), (self.warps_m, self.warps_n))
        warps = self.warps_m * self.warps_n
        who_a = blocked((self.bm, 32), threads=32 * warps, vector=2, across=self.across, name="a")
        who_w = blocked((32, self.bn), threads=32 * warps, vector=8, name="w")
        a_stage, b_stage = (
            p.smem("f16", (self.bm, 32), layout=self.layout_a),
            p.smem("f16", (32, self.bn), layout=self.layout_b),
        )
        grid = p.grid((self.m, self.bm), (self.n, self.bn))
        with grid as (i, j), p.pipeline("ring", 1, a=a_stage, b=b_stage) as ring, p.role("all", warps=warps):
            total = p.full(t.c, "f32")
            with p.loop(self.k, step=32) as kk:
                with ring.produce() as f:
                    p.copy(self.copy, self.a.tile(i, kk, shape=(self.bm, 32)), f.a, who_a)
                    w = p.cast(p.load(self.ld_w, self.w.tile(kk, j, shape=(32, self.bn)), who_w), "f16")
                    z, s = (
                        p.load(self.single, x.tile(kk // 32, j, shape=(1, self.bn)), who_w.along(1))
                        for x in (self.zero, self.scale)
                    )
                    p.store(self.put, f.b, (w - p.cast(z, "f16")) * s)
                with ring.consume() as f, p.unroll(32, step=t.k) as kt:
                    a = p.load(self.fragment, f.a.window((0, kt), (self.bm, t.k)), t.a)
                    b = p.load(self.fragment, f.b.window((kt, 0), (t.k, self.bn)), t.b)
                    p.multiply(self.mma, total, a, b)
            p.store(self.st, self.c.tile(i, j, shape=(self.bm, self.bn)), total)

    @staticmethod
    def reference(a: Any, w: Any, scale: Any, zero: Any, k: Any) -> Any:
        g = np.arange(k) // 32
        return a @ ((w - zero[g]) * scale[g]).astype(a.dtype)  # as its threads round them


class CappedProduct(Machine):
    """y = cap * tanh((a @ b + bias) / cap), on Blackwell: sums in tensor memory"""

    m, n, k = Dim(), Dim(), Dim()
    cap = Scalar("f32", values=uniform(5, 50))
    a, b, bias, y = Input("f16", m, k), Input("f16", k, n), Input("f32", n), Output("f16", m, n)
    stages, slots = Param(2, 4), Param(1, 2)
    tma, mma, ld, st = isa.TmaLoad(), isa.Tcgen05Mma(64), isa.Tcgen05Ld(), isa.StGlobal(2)
    single, arithmetic, compute = isa.LdGlobal(1), isa.arithmetic("f32"), "f32"
    exact, approximation = False, 2.0**-10

    def program(self, p: Tracer) -> None:
        a, b = p.smem("f16", (128, 32), swizzle=64), p.smem("f16", (32, 64), swizzle=64)
        rows = blocked((128, 64), threads=128, vector=2, across=1)
        with (
            p.grid((self.m, 128), (self.n, 64), persistent=True) as (i, j),
            p.pipeline("ring", self.stages, a=a, b=b) as ring,
            p.pipeline("sums", self.slots, c=p.buffer(TMEM, "f32", (128, 64))) as sums,
        ):
            with p.role("producer", warps=1), p.loop(self.k, step=32) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(128, 32)), s.a)
                p.copy(self.tma, self.b.tile(kk, j, shape=(32, 64)), s.b)
            with p.role("multiplier", warps=1, first=1), sums.produce() as t:
                p.clear(t.c)
                with p.loop(self.k, step=32), ring.consume() as s, p.unroll(32, step=16) as kt:
                    p.multiply(self.mma, t.c, s.a.window((0, kt), (128, 16)), s.b.window((kt, 0), (16, 64)))
            with p.role("epilogue", warps=4, first=4), sums.consume() as t:
                bias = p.load(self.single, self.bias.row(j, 64), rows.along(1))
                x = p.load(self.ld, t.c, rows) + bias
                p.store(self.st, self.y.tile(i, j, shape=(128, 64)), self.cap * tanh(x / self.cap))

    @staticmethod
    def reference(cap: Any, a: Any, b: Any, bias: Any) -> Any:
        return cap * np.tanh((a @ b + bias) / cap)


class RowsOfProducts(Machine):
    """y[i] = largest of row i of a @ b.T, and where, on Hopper: wgmma, several tiles of columns one after the other"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = Input("f16", m, k, values=integers(-4, 5)), Input("f16", n, k, values=integers(-4, 5))
    top, at = Output("f32", m), Output("s32", m)
    stages = Param(2, 3, 4)
    tma, mma, st, shuffle = isa.TmaLoad(), isa.Wgmma(64), isa.StGlobal(1), isa.ShflBfly()
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")

    def better(self, p: Tracer, left: Any, right: Any) -> Any:
        (x, i), (y, j) = left, right
        return maximum(x, y), where(x > y, i, where(equal(x, y), minimum(i, j), j))

    def program(self, p: Tracer) -> None:
        a, b = p.smem("f16", (64, 64), swizzle=128), p.smem("f16", (64, 64), contiguous=0, swizzle=128)
        t = p.tiled(self.mma, "f16", "f16", (64, 64), (1, 1))
        with p.grid((self.m, 64)) as (i,), p.pipeline("ring", self.stages, a=a, b=b) as ring:
            with (
                p.role("producer", warps=4),
                p.loop(self.n, step=64) as j,
                p.loop(self.k, step=64) as kk,
                ring.produce() as s,
            ):
                p.copy(self.tma, self.a.tile(i, kk, shape=(64, 64)), s.a)
                p.copy(self.tma, self.b.tile(j, kk, shape=(64, 64)).T, s.b)
            with p.role("consumer", warps=4, first=4):
                rows = t.c.reduced(1)
                top, at = p.full(rows, "f32", -math.inf), p.full(rows, "s32", 0)
                with p.loop(self.n, step=64) as j:
                    total = p.full(t.c, "f32")
                    with p.loop(self.k, step=64), ring.consume() as s, p.unroll(64, step=16) as kt:
                        p.multiply(self.mma, total, s.a.window((0, kt), (64, 16)), s.b.window((kt, 0), (16, 64)))
                    column = p.index(t.c, 1) + j
                    seen = where(column < self.n, total, -math.inf)
                    best, place = p.reduce(Combine(self.better), (seen, column), axis=1, by=self.shuffle)
                    more = best > top
                    p.where(more, place, at, into=at)
                    p.where(more, best, top, into=top)
                p.store(self.st, self.top.column(i, 64), top)
                p.store(self.st, self.at.column(i, 64), at)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        c = a @ b.T
        return {"top": c.max(axis=1), "at": c.argmax(axis=1)}
