"""Machines over rows and vectors: norms, softmax, reductions by lanes and through shared memory, batches, options."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygpu.language import (
    AccessPattern,
    Choice,
    Dim,
    InOut,
    Input,
    Machine,
    Option,
    Output,
    Param,
    Require,
    Scalar,
    UnknownLayout,
    blocked,
)
from tinygpu.ptx import isa

LOG2_E = 1.4426950408889634


class RmsOfRows(Machine):
    """y[i, :] = x[i, :] / sqrt(mean(x[i, :] ** 2) + eps) * w"""

    m, n = Dim(), Dim()
    x = Input("f16", m, n)
    w = Input("f16", n)
    y = Output("f16", m, n)

    rows, columns = Param(1, 2, 4), Param(64, 128, 256, 512)
    warps, vector = Param(1, 2, 4), Param(1, 2, 4, 8)
    across = AccessPattern(8, 16, 32)
    ld, st = isa.LdGlobalReadOnly(vector), isa.StGlobal(vector)
    widen, narrow = isa.Cvt("f16", "f32"), isa.Cvt("f32", "f16")
    add, mul, div, rsqrt, shuffle = isa.Add("f32"), isa.Mul("f32"), isa.Div("f32"), isa.Rsqrt("f32"), isa.ShflBfly()

    whole_row = Require(columns >= n, "a row fits into one tile")
    exact, approximation = False, 2.0**-9

    def program(self, p: Any) -> None:
        shape = (self.rows, self.columns)
        who = blocked(shape, threads=self.warps * 32, vector=self.vector, across=self.across)
        with p.grid((self.m, self.rows)) as (i,), p.role("all", warps=self.warps):
            x = p.apply(self.widen, p.load(self.ld, self.x.tile(i, 0, shape=shape), who))
            w = p.apply(self.widen, p.load(self.ld, self.w.row(0, self.columns), who.along(1)))
            squares = p.reduce(self.add, p.apply(self.mul, x, x), axis=1, by=self.shuffle)
            scale = p.apply(self.rsqrt, p.apply(self.add, p.apply(self.div, squares, self.n), 1e-5))
            y = p.apply(self.mul, p.apply(self.mul, x, scale), w)
            p.store(self.st, self.y.tile(i, 0, shape=shape), p.apply(self.narrow, y))

    @staticmethod
    def reference(x: Any, w: Any) -> Any:
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-5) * w


class NormOfRows(Machine):
    """y[i, :] = (x - mean) / sqrt(var + eps) * w + b, over two passes of the row"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    w, b = Input("f32", n), Input("f32", n)
    y = Output("f32", m, n)

    rows, columns = Param(2, 4), Param(64, 128)
    warps, vector = Param(1, 2), Param(1, 2, 4)
    across = AccessPattern(8, 16, 32)
    ld, st = isa.LdGlobal(vector), isa.StGlobal(vector)
    add, sub, mul, div, fma = isa.Add("f32"), isa.Sub("f32"), isa.Mul("f32"), isa.Div("f32"), isa.Fma("f32")
    rsqrt, shuffle = isa.Rsqrt("f32"), isa.ShflBfly()
    exact, approximation = False, 2.0**-16

    def program(self, p: Any) -> None:
        shape = (self.rows, self.columns)
        who = blocked(shape, threads=self.warps * 32, vector=self.vector, across=self.across)
        with p.grid((self.m, self.rows)) as (i,), p.role("all", warps=self.warps):
            total, squares = p.full(who, "f32"), p.full(who, "f32")
            with p.loop(self.n, step=self.columns) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                p.apply(self.add, total, x, into=total)
                p.apply(self.fma, x, x, squares, into=squares)
            mean = p.apply(self.div, p.reduce(self.add, total, axis=1, by=self.shuffle), self.n)
            power = p.apply(self.div, p.reduce(self.add, squares, axis=1, by=self.shuffle), self.n)
            variance = p.apply(self.sub, power, p.apply(self.mul, mean, mean))
            scale = p.apply(self.rsqrt, p.apply(self.add, variance, 1e-2))
            with p.loop(self.n, step=self.columns) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                w = p.load(self.ld, self.w.row(j, self.columns), who.along(1))
                b = p.load(self.ld, self.b.row(j, self.columns), who.along(1))
                y = p.apply(self.mul, p.apply(self.sub, x, mean), scale)
                p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(self.fma, y, w, b))

    @staticmethod
    def reference(x: Any, w: Any, b: Any) -> Any:
        mean = x.mean(axis=1, keepdims=True)
        variance = (x * x).mean(axis=1, keepdims=True) - mean * mean
        return (x - mean) / np.sqrt(variance + 1e-2) * w + b


class OnlineSoftmax(Machine):
    """y[i, :] = softmax: one pass for maximum and sum, one for the result, rows of any length"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)

    rows, columns = Param(2, 4), Param(32, 64, 128)
    warps, vector = Param(1, 2), Param(1, 2, 4)
    across = AccessPattern(8, 16, 32)
    ld, st = isa.LdGlobal(vector), isa.StGlobal(vector)
    larger, add, sub, mul, fma = isa.Max("f32"), isa.Add("f32"), isa.Sub("f32"), isa.Mul("f32"), isa.Fma("f32")
    exp, rcp, shuffle = isa.Ex2("f32"), isa.Rcp("f32"), isa.ShflBfly()
    exact, approximation = False, 2.0**-18

    def program(self, p: Any) -> None:
        shape = (self.rows, self.columns)
        who = blocked(shape, threads=self.warps * 32, vector=self.vector, across=self.across)
        with p.grid((self.m, self.rows)) as (i,), p.role("all", warps=self.warps):
            top, total = p.full(who.along(0), "f32", -1e30), p.full(who.along(0), "f32")
            with p.loop(self.n, step=self.columns) as j:
                x = p.apply(self.mul, p.load(self.ld, self.x.tile(i, j, shape=shape), who, fill=-math.inf), LOG2_E)
                higher = p.apply(self.larger, top, p.reduce(self.larger, x, axis=1, by=self.shuffle))
                part = p.reduce(self.add, p.apply(self.exp, p.apply(self.sub, x, higher)), axis=1, by=self.shuffle)
                shrink = p.apply(self.exp, p.apply(self.sub, top, higher))
                p.apply(self.fma, total, shrink, part, into=total)
                p.apply(self.larger, top, higher, into=top)
            share = p.apply(self.rcp, total)
            with p.loop(self.n, step=self.columns) as j:
                x = p.apply(self.mul, p.load(self.ld, self.x.tile(i, j, shape=shape), who), LOG2_E)
                e = p.apply(self.exp, p.apply(self.sub, x, top))
                p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(self.mul, e, share))

    @staticmethod
    def reference(x: Any) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)


class Gemv(Machine):
    """y = a @ x: rows by threads side by side along k"""

    m, k = Dim(), Dim()
    a = Input(("f32", "f16", "bf16"), m, k, majors=("row",))
    x = Input({"f32": ("f32",), "f16": ("f16",), "bf16": ("bf16",)}, k, follows=a)
    y = Output("f32", m)

    rows, columns = Param(1, 2, 4, 8), Param(32, 64, 128, 256)
    warps, vector = Param(1, 2, 4, 8), Param(1, 2, 4)
    across = AccessPattern(8, 16, 32)
    ld, st = isa.LdGlobalReadOnly(vector), isa.StGlobal(1)
    fma, add, shuffle = isa.Fma("f32"), isa.Add("f32"), isa.ShflBfly()

    def program(self, p: Any) -> None:
        shape = (self.rows, self.columns)
        kind = self.a.dtype.name
        who = blocked(shape, threads=self.warps * 32, vector=self.vector, across=self.across)

        def wide(tile: Any) -> Any:
            return tile if kind == "f32" else p.apply(isa.Cvt(kind, "f32"), tile)

        with p.grid((self.m, self.rows)) as (i,), p.role("all", warps=self.warps):
            partial = p.full(who, "f32")
            with p.loop(self.k, step=self.columns) as j:
                a = wide(p.load(self.ld, self.a.tile(i, j, shape=shape), who))
                x = wide(p.load(self.ld, self.x.row(j, self.columns), who.along(1)))
                p.apply(self.fma, a, x, partial, into=partial)
            p.store(self.st, self.y.column(i, self.rows), p.reduce(self.add, partial, axis=1, by=self.shuffle))

    @staticmethod
    def reference(a: Any, x: Any) -> Any:
        return a @ x


class VectorSum(Machine):
    """y[i] = sum of x[i, :]: vectors of every thread meet in shared memory, and one warp adds them"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m)

    warps, vector, rows = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2)
    layout = UnknownLayout()
    ld, st = isa.LdGlobal(vector), isa.StGlobal(1)
    put, get, add, shuffle = isa.StShared(vector), isa.LdShared(vector), isa.Add("f32"), isa.ShflBfly()

    def program(self, p: Any) -> None:
        threads = self.warps * 32
        shape = (self.rows, threads * self.vector)
        who = blocked(shape, threads=threads, vector=self.vector, across=threads)
        again = blocked(shape, threads=32, vector=self.vector, across=32)
        with (
            p.grid((self.m, self.rows)) as (i,),
            p.pipeline("meet", 1, t=p.smem("f32", shape, layout=self.layout)) as meet,
            p.role("all", warps=self.warps),
        ):
            total = p.full(who, "f32")
            with p.loop(self.n, step=shape[1]) as j:
                p.apply(self.add, total, p.load(self.ld, self.x.tile(i, j, shape=shape), who), into=total)
            with meet.produce() as s:
                p.store(self.put, s.t, total)
            with meet.consume() as s:
                y = p.reduce(self.add, p.load(self.get, s.t, again), axis=1, by=self.shuffle)
                p.store(self.st, self.y.column(i, self.rows), y)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=1)


class IntMax(Machine):
    """y[i] = max of row i of integers, and where it is reached in a power of two"""

    m, n = Dim(), Dim()
    x = Input("s32", m, n)
    y = Output("s32", m)

    warps, vector, across = Param(1, 2), Param(1, 2, 4), Param(4, 16, 32)
    ld, st, larger, shuffle = isa.LdGlobal(vector), isa.StGlobal(1), isa.Max("s32"), isa.ShflBfly()

    def program(self, p: Any) -> None:
        shape = (self.warps * 32 // self.across, self.across * self.vector)
        who = blocked(shape, threads=self.warps * 32, vector=self.vector, across=self.across)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            top = p.full(who, "s32", -(2**31))
            with p.loop(self.n, step=shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who, fill=-(2**31))
                p.apply(self.larger, top, x, into=top)
            p.store(self.st, self.y.column(i, shape[0]), p.reduce(self.larger, top, axis=1, by=self.shuffle))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.max(axis=1)


class ScaleRows(Machine):
    """y *= s[i] for every row, in place; s is read as a column, and y may be column-major"""

    m, n = Dim(), Dim()
    s = Input("f32", m)
    y = InOut("f32", m, n, majors=("row", "col"))

    bm, bn = Param(8, 32), Param(8, 32)
    warps, vector = Param(1, 2), Param(1, 2, 4)
    across = AccessPattern()
    ld, one, st, mul = isa.LdGlobal(vector), isa.LdGlobal(1), isa.StGlobal(vector), isa.Mul("f32")

    def program(self, p: Any) -> None:
        shape = (self.bm, self.bn)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, axis=self.y.contiguous, across=self.across)
        with p.grid((self.m, self.bm), (self.n, self.bn)) as (i, j), p.role("all", warps=self.warps):
            y = p.load(self.ld, self.y.tile(i, j, shape=shape), who)
            s = p.load(self.one, self.s.column(i, self.bm), who.along(0))
            p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(self.mul, y, s))

    @staticmethod
    def reference(s: Any, y: Any) -> Any:
        return y * s[:, None]


class BatchSum(Machine):
    """y = sum over b of x[b]: the loop runs over the batch"""

    b, n = Dim(), Dim()
    x = Input("f32", b, n)
    y = InOut("f32", n)

    warps, vector = Param(1, 2, 4), Param(1, 2, 4)
    ld, st, add = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Add("f32")

    def program(self, p: Any) -> None:
        shape = (self.warps * 32 * self.vector,)
        who = blocked(shape, threads=self.warps * 32, vector=self.vector)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            total = p.load(self.ld, self.y.tile(i, shape=shape), who)
            with p.loop(self.b) as b:
                p.apply(self.add, total, p.load(self.ld, self.x.at(b).tile(i, shape=shape), who), into=total)
            p.store(self.st, self.y.tile(i, shape=shape), total)

    @staticmethod
    def reference(x: Any, y: Any) -> Any:
        return y + x.sum(axis=0)


class Choose(Machine):
    """y = max(x, z) or x + z by an option; a copy or a load by a choice; scalars of all kinds"""

    n = Dim()
    a, b = Scalar("f32"), Scalar("u32")
    x, z = Input("f32", n), Input("f32", n)
    y = Output("f32", n)
    how = Option("max", "add")

    warps, vector = Param(1, 2), Param(1, 2, 4)
    path = Choice("plain", "twice")
    ld, st = Choice(isa.LdGlobal(vector), isa.LdGlobalReadOnly(vector)), isa.StGlobal(vector)
    larger, add, mul, real = isa.Max("f32"), isa.Add("f32"), isa.Mul("f32"), isa.Cvt("u32", "f32")

    def program(self, p: Any) -> None:
        shape = (self.warps * 32 * self.vector,)
        who = blocked(shape, threads=self.warps * 32, vector=self.vector)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x, z = (p.load(self.ld, t.tile(i, shape=shape), who) for t in (self.x, self.z))
            y = p.apply(self.larger if self.how == "max" else self.add, x, z)
            y = p.apply(self.mul, y, self.a)
            if self.path == "twice":
                y = p.apply(self.add, p.apply(self.mul, y, 0.5), p.apply(self.mul, y, 0.5))
            number = p.apply(self.real, p.full(who, "u32", 3))
            p.store(self.st, self.y.tile(i, shape=shape), p.apply(self.add, y, number))

    @staticmethod
    def reference(a: Any, b: Any, x: Any, z: Any, how: str) -> Any:
        return (np.maximum(x, z) if how == "max" else x + z) * a + 3
