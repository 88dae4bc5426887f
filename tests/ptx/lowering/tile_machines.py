"""Machines over tiles: transposes through shared memory, few threads, batches, pipelines inside loops."""

from __future__ import annotations

from typing import Any

from tinygpu.language import (
    AccessPattern,
    Choice,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Route,
    UnknownLayout,
    blocked,
)
from tinygpu.ptx import isa


class Transpose(Machine):
    """y[j, i] = x[i, j], through a square of shared memory"""

    m, n = Dim(), Dim()
    x = Input(("f32", "f16", "s8", "f64"), m, n)
    y = Output({"f32": ("f32",), "f16": ("f16",), "s8": ("s8",), "f64": ("f64",)}, n, m, follows=x)

    bm, bn = Param(16, 32, 64), Param(16, 32, 64)
    warps, vector = Param(1, 2, 4, 8), Param(1, 2, 4)
    across, across_out = AccessPattern(), AccessPattern()
    pad = Param(0, 1, 2)
    layout = UnknownLayout()
    ld, st = isa.LdGlobal(vector), isa.StGlobal(vector)
    put, get = isa.StShared(1), isa.LdShared(1)

    def program(self, p: Any) -> None:
        bm, bn, threads = self.bm, self.bn, self.warps * 32
        rows = blocked((bm, bn), threads=threads, vector=self.vector, across=self.across, name="x")
        columns = blocked((bm, bn), threads=threads, vector=self.vector, axis=0, across=self.across_out, name="y")
        stage = p.smem(self.x.dtype, (bm, bn), layout=self.layout, pad=self.pad)
        with (
            p.grid((self.m, bm), (self.n, bn)) as (i, j),
            p.pipeline("turn", 1, t=stage) as ring,
            p.role("all", warps=self.warps),
        ):
            with ring.produce() as s:
                p.store(self.put, s.t, p.load(self.ld, self.x.tile(i, j, shape=(bm, bn)), rows))
            with ring.consume() as s:
                p.store(self.st, self.y.tile(j, i, shape=(bn, bm)).T, p.load(self.get, s.t, columns))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.T


class TransposeColumns(Machine):
    """y[j, i] = x[i, j] with the buffer's columns contiguous, read by vectors; grouped grid"""

    m, n = Dim(), Dim()
    x = Input("s32", m, n)
    y = Output("s32", n, m)

    bm, bn = Param(16, 32), Param(16, 32)
    warps, vector, group = Param(1, 2), Param(1, 2, 4), Param(1, 2, 3)
    across, across_out = AccessPattern(), AccessPattern()
    layout = UnknownLayout()
    ld, st = isa.LdGlobal(1), isa.StGlobal(vector)
    put, get = isa.StShared(1), isa.LdShared(vector)

    def program(self, p: Any) -> None:
        bm, bn, threads = self.bm, self.bn, self.warps * 32
        rows = blocked((bm, bn), threads=threads, across=self.across, name="x")
        columns = blocked((bm, bn), threads=threads, vector=self.vector, axis=0, across=self.across_out, name="y")
        stage = p.smem("s32", (bm, bn), layout=self.layout, contiguous=0)
        with (
            p.grid((self.m, bm), (self.n, bn), raster=self.group) as (i, j),
            p.pipeline("turn", 1, t=stage) as ring,
            p.role("all", warps=self.warps),
        ):
            with ring.produce() as s:
                p.store(self.put, s.t, p.load(self.ld, self.x.tile(i, j, shape=(bm, bn)), rows))
            with ring.consume() as s:
                p.store(self.st, self.y.tile(j, i, shape=(bn, bm)).T, p.load(self.get, s.t, columns))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.T


class ManyTiles(Machine):
    """y = x.T through the same slot again and again: a pipeline in a loop, drained by other threads"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", n, m)

    b, stages, warps = Param(16, 32), Param(1, 2, 3), Param(1, 2)
    ld, st, put, get = isa.LdGlobal(1), isa.StGlobal(1), isa.StShared(1), isa.LdShared(1)

    def program(self, p: Any) -> None:
        b, threads = self.b, self.warps * 32
        rows = blocked((b, b), threads=threads, across=16)
        columns = blocked((b, b), threads=threads, axis=0, across=16)
        with (
            p.grid((self.m, b)) as (i,),
            p.pipeline("turn", self.stages, t=p.smem("f32", (b, b), pad=1)) as ring,
            p.role("all", warps=self.warps),
        ):
            with p.loop(self.n, step=b) as j, ring.produce() as s:
                p.store(self.put, s.t, p.load(self.ld, self.x.tile(i, j, shape=(b, b)), rows))
            with p.loop(self.n, step=b) as j, ring.consume() as s:
                p.store(self.st, self.y.tile(j, i, shape=(b, b)).T, p.load(self.get, s.t, columns))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.T


class FewThreads(Machine):
    """y = -x by 8 threads of a warp, 16 rows"""

    m, n = Dim(), Dim()
    x = Input("bf16", m, n)
    y = Output("bf16", m, n)

    vector = Param(1, 2, 3, 4)
    ld, st, neg = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Neg("bf16")

    def program(self, p: Any) -> None:
        shape = (16, 12)
        who = blocked(shape, threads=8, vector=self.vector, across=1)
        with p.grid((self.m, 16), (self.n, 12)) as (i, j), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(self.neg, x))

    @staticmethod
    def reference(x: Any) -> Any:
        return -x


class BatchedAdd(Machine):
    """y[b] = x[b] + z, a matrix added to every matrix of a batch"""

    b, m, n = Dim(), Dim(), Dim()
    x = Input("f32", b, m, n)
    z = Input("f32", m, n)
    y = Output("f32", b, m, n)

    warps, vector = Param(1, 2, 4), Param(1, 2, 4)
    rows, columns = Param(1, 2, 4), Param(32, 64, 128)
    across = AccessPattern()
    ld, st, add = isa.LdGlobalReadOnly(vector), isa.StGlobal(vector), isa.Add("f32")

    def program(self, p: Any) -> None:
        shape = (self.rows, self.columns)
        who = blocked(shape, threads=self.warps * 32, vector=self.vector, across=self.across)
        with (
            p.grid((self.b, 1), (self.m, self.rows), (self.n, self.columns)) as (b, i, j),
            p.role("all", warps=self.warps),
        ):
            x = p.load(self.ld, self.x.at(b).tile(i, j, shape=shape), who)
            z = p.load(self.ld, self.z.tile(i, j, shape=shape), who)
            p.store(self.st, self.y.at(b).tile(i, j, shape=shape), p.apply(self.add, x, z))

    @staticmethod
    def reference(x: Any, z: Any) -> Any:
        return x + z


class BatchedMatmul(Machine):
    """c[b] = a[b] @ w: mma.sync, one matrix of a batch per CTA"""

    b, m, n, k = Dim(), Dim(), Dim(), Dim()
    a = Input("f16", b, m, k)
    w = Input("f16", k, n)
    bias = Input("f32", b, n)
    c = Output("f32", b, m, n)

    bm, bn, bk = Param(32, 64), Param(32, 64), Param(16, 32)
    stages, va, vb = Param(1, 2, 3), Param(2, 8), Param(2, 8)
    across_a, across_b = AccessPattern(2, 4, 8, 16), AccessPattern(2, 4, 8, 16)
    layout_a, layout_b = UnknownLayout(), UnknownLayout()
    copy_a, copy_b = Choice(isa.CpAsync(va), Route(isa.LdGlobal(va), isa.StShared(va))), isa.CpAsync(vb)
    fragment, mma, st, ld_bias, add = isa.LdMatrix(), isa.MmaSync(), isa.StGlobal(1), isa.LdGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        bm, bn, bk = self.bm, self.bn, self.bk
        t = p.tiled(self.mma, self.a.dtype, self.w.dtype, (bm, bn), (2, 2))
        who_a = blocked((bm, bk), threads=128, vector=self.va, across=self.across_a, name="a")
        who_b = blocked((bk, bn), threads=128, vector=self.vb, across=self.across_b, name="b")
        a_stage = p.smem("f16", (bm, bk), layout=self.layout_a)
        b_stage = p.smem("f16", (bk, bn), layout=self.layout_b)
        with (
            p.grid((self.b, 1), (self.m, bm), (self.n, bn)) as (z, i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
        ):
            with p.role("all", warps=4), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.copy_a, self.a.at(z).tile(i, kk, shape=(bm, bk)), s.a, who_a)
                p.copy(self.copy_b, self.w.tile(kk, j, shape=(bk, bn)), s.b, who_b)
            with p.role("all", warps=4):
                acc = p.full(t.c, "f32")
                with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                    fa = p.load(self.fragment, s.a.window((0, kt), (bm, t.k)), t.a)
                    fb = p.load(self.fragment, s.b.window((kt, 0), (t.k, bn)), t.b)
                    p.multiply(self.mma, acc, fa, fb)
                bias = p.load(self.ld_bias, self.bias.at(z).row(j, bn), t.c.along(1))
                p.store(self.st, self.c.at(z).tile(i, j, shape=(bm, bn)), p.apply(self.add, acc, bias))

    @staticmethod
    def reference(a: Any, w: Any, bias: Any) -> Any:
        return a @ w + bias[:, None, :]


class PanelMatmul(Machine):
    """c = a @ w: a CTA walks over all columns of its rows, with the pipeline inside an outer loop"""

    m, n, k = Dim(), Dim(), Dim()
    a = Input("f16", m, k)
    w = Input("f16", k, n)
    c = Output("f32", m, n)

    bm, bn, bk = Param(32, 64), Param(32, 64), Param(16, 32)
    stages, va, vb = Param(1, 2, 3), Param(2, 8), Param(2, 8)
    across_a, across_b = AccessPattern(2, 4, 8, 16), AccessPattern(2, 4, 8, 16)
    copy = Choice("async", "through registers")
    fragment, mma, st = isa.LdMatrix(), isa.MmaSync(), isa.StGlobal(1)
    async_a, async_b = isa.CpAsync(va), isa.CpAsync(vb)
    route_a, route_b = Route(isa.LdGlobal(va), isa.StShared(va)), Route(isa.LdGlobal(vb), isa.StShared(vb))

    def program(self, p: Any) -> None:
        bm, bn, bk = self.bm, self.bn, self.bk
        t = p.tiled(self.mma, self.a.dtype, self.w.dtype, (bm, bn), (2, 2))
        who_a = blocked((bm, bk), threads=128, vector=self.va, across=self.across_a, name="a")
        who_b = blocked((bk, bn), threads=128, vector=self.vb, across=self.across_b, name="b")
        a_stage = p.smem("f16", (bm, bk), pad=8)
        b_stage = p.smem("f16", (bk, bn), pad=8)
        ca, cb = (self.async_a, self.async_b) if self.copy == "async" else (self.route_a, self.route_b)
        with (
            p.grid((self.m, bm)) as (i,),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
            p.role("all", warps=4),
            p.loop(self.n, step=bn) as j,
        ):
            with p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(ca, self.a.tile(i, kk, shape=(bm, bk)), s.a, who_a)
                p.copy(cb, self.w.tile(kk, j, shape=(bk, bn)), s.b, who_b)
            acc = p.full(t.c, "f32")
            with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                fa = p.load(self.fragment, s.a.window((0, kt), (bm, t.k)), t.a)
                fb = p.load(self.fragment, s.b.window((kt, 0), (t.k, bn)), t.b)
                p.multiply(self.mma, acc, fa, fb)
            p.store(self.st, self.c.tile(i, j, shape=(bm, bn)), acc)

    @staticmethod
    def reference(a: Any, w: Any) -> Any:
        return a @ w
