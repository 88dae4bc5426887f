"""Machines whose rows are held by one warp or by many: sums, norms, the place of the largest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygpu.language import (
    Combine,
    Dim,
    InOut,
    Input,
    Machine,
    Output,
    Param,
    Require,
    Scalar,
    between,
    blocked,
    exp,
    reciprocal,
    uniform,
)
from tinygpu.ptx import isa


class RowSum(Machine):
    """y = sums of the rows of x; 1 to 16 warps hold a row, and a CTA has several"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m)

    together, beside, rows = Param(1, 2, 3, 4, 6, 8, 16), Param(1, 2), Param(1, 2)
    vector, step = Param(1, 4), Param(1, 2, 4)
    ld, st, add = isa.LdGlobal(vector), isa.StGlobal(1), isa.Add("f32")
    exchange = isa.Exchange("shuffles", "pairs")

    def program(self, p: Any) -> None:
        warps = self.together * self.beside
        shape = (self.beside * self.rows, 32 * self.together * self.vector * self.step)
        who = blocked(shape, threads=32 * warps, vector=self.vector, across=32 * self.together)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=warps):
            total = p.full(who, "f32")
            with p.loop(self.n, step=shape[1]) as j:
                p.apply(self.add, total, p.load(self.ld, self.x.tile(i, j, shape=shape), who), into=total)
            p.store(self.st, self.y.column(i, shape[0]), p.reduce(self.add, total, axis=1, by=self.exchange))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=1)


class ColumnCount(Machine):
    """y = sums of the columns of x, whole numbers: lanes hold columns, and warps meet"""

    m, n = Dim(), Dim()
    x = Input("s32", m, n)
    y = Output("s32", n)

    warps, vector, across, step = Param(1, 2, 3, 5, 8), Param(1, 2, 4), Param(8, 16, 32), Param(1, 2)
    ld, st, add, exchange = isa.LdGlobal(vector), isa.StGlobal(1), isa.Add("s32"), isa.Exchange()

    def program(self, p: Any) -> None:
        shape = (32 // self.across * self.warps * self.step, self.across * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        with p.grid((self.n, shape[1])) as (j,), p.role("all", warps=self.warps):
            total = p.full(who.reduced(0), "s32")
            with p.loop(self.m, step=shape[0]) as i:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                part = p.reduce(self.add, x, axis=0, by=self.exchange)
                p.apply(self.add, total, part, into=total)
            p.store(self.st, self.y.row(j, shape[1]), total)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=0, dtype=np.int32)


class RmsNorm(Machine):
    """y = x / sqrt(mean(x * x) + eps) * w: a row stays in the registers of several warps"""

    m, n = Dim(), Dim()
    eps = Scalar("f32", values=between(1e-6, 1e-4))
    x, w = Input("f32", m, n, values=uniform(-1, 1)), Input("f32", n, values=uniform(-1, 1))
    y = Output("f32", m, n)

    warps, vector, step, rows = Param(1, 2, 4, 8, 16, 32), Param(1, 2, 4), Param(1, 2, 4, 8), Param(1, 2)
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Exchange("shuffles", "pairs")
    add, mul, div, root = isa.Add("f32"), isa.Mul("f32"), isa.Div("f32"), isa.Rsqrt("f32")
    whole = Require(n <= 32 * warps * vector * step, "a row fits into one tile")
    exact, approximation = False, 2.0**-20

    def program(self, p: Any) -> None:
        shape = (self.rows, 32 * self.warps * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, 0, shape=shape), who)
            mean = p.apply(self.div, p.reduce(self.add, p.apply(self.mul, x, x), axis=1, by=self.exchange), self.n)
            w = p.load(self.ld, self.w.row(0, shape[1]), who.along(1))
            scaled = p.apply(self.mul, x, p.apply(self.root, p.apply(self.add, mean, self.eps)))
            p.store(self.st, self.y.tile(i, 0, shape=shape), p.apply(self.mul, scaled, w))

    @staticmethod
    def reference(x: Any, w: Any, eps: Any) -> Any:
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps) * w


class LayerNorm(Machine):
    """y = (x - mean) / sqrt(var + eps), mean and variance in one pass by Welford's combine"""

    m, n = Dim(), Dim()
    eps = Scalar("f32", values=between(1e-6, 1e-4))
    x = Input("f32", m, n, values=uniform(-1, 1))
    y = Output("f32", m, n)

    warps, vector, step, rows = Param(1, 2, 4, 6), Param(1, 2, 4), Param(1, 2, 4), Param(1, 2)
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Exchange("shuffles", "pairs")
    add, sub, mul, div, root = isa.Add("f32"), isa.Sub("f32"), isa.Mul("f32"), isa.Div("f32"), isa.Rsqrt("f32")
    fma, larger, below, choose = isa.Fma("f32"), isa.Max("f32"), isa.Compare("s32", "<"), isa.Select("f32")
    whole = Require(n <= 32 * warps * vector * step, "a row fits into one tile")
    exact, approximation = False, 2.0**-20

    def merge(self, p: Any, left: Any, right: Any) -> Any:
        (a, m, n), (b, o, k) = left, right
        total = p.apply(self.add, n, k)
        share = p.apply(self.div, k, p.apply(self.larger, total, 1.0))
        delta = p.apply(self.sub, b, a)
        between = p.apply(self.mul, p.apply(self.mul, delta, delta), p.apply(self.mul, n, share))
        return p.apply(self.fma, delta, share, a), p.apply(self.add, p.apply(self.add, m, o), between), total

    def program(self, p: Any) -> None:
        shape = (self.rows, 32 * self.warps * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, 0, shape=shape), who)
            zero = p.full(who, "f32")
            one = p.where(p.apply(self.below, p.index(who, 1), self.n), p.full(who, "f32", 1.0), zero)
            mean, m2, count = p.reduce(Combine(self.merge), (x, zero, one), axis=1, by=self.exchange)
            scale = p.apply(self.root, p.apply(self.add, p.apply(self.div, m2, count), self.eps))
            p.store(self.st, self.y.tile(i, 0, shape=shape), p.apply(self.mul, p.apply(self.sub, x, mean), scale))

    @staticmethod
    def reference(x: Any, eps: Any) -> Any:
        return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + eps)


class ArgMax(Machine):
    """y = the place of the largest value of each row of x, the first of equals, over any number of tiles"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n, values=uniform(-100, 100))
    y = Output("s32", m)

    warps, vector, step, rows = Param(1, 2, 3, 4, 8), Param(1, 2, 4), Param(1, 2), Param(1, 2)
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(1), isa.Exchange("shuffles", "pairs")
    more, equal, count = isa.Compare("f32", ">"), isa.Compare("f32", "=="), isa.Add("s32")
    larger, lower, choose = isa.Max("f32"), isa.Min("s32"), isa.Select("s32")

    def better(self, p: Any, left: Any, right: Any) -> Any:
        (x, i), (y, j) = left, right
        first = p.where(p.apply(self.equal, x, y), p.apply(self.lower, i, j), j)
        return p.apply(self.larger, x, y), p.where(p.apply(self.more, x, y), i, first)

    def program(self, p: Any) -> None:
        shape = (self.rows, 32 * self.warps * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        best = Combine(self.better)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            top, at = p.full(who.reduced(1), "f32", -math.inf), p.full(who.reduced(1), "s32")
            with p.loop(self.n, step=shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who, fill=-math.inf)
                found, k = p.reduce(best, (x, p.apply(self.count, p.index(who, 1), j)), axis=1, by=self.exchange)
                further = p.where(p.apply(self.more, found, top), k, at)
                p.apply(self.larger, top, found, into=top)
                p.apply(self.lower, further, further, into=at)
            p.store(self.st, self.y.column(i, shape[0]), at)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.argmax(axis=1).astype(np.int32)


class PrefixSum(Machine):
    """y[i, j] = the sum of x[i, k] over k <= j: tile after tile, with what stands before a tile carried on"""

    m, n = Dim(), Dim()
    x, y = Input("s32", m, n), Output("s32", m, n)

    warps, vector, step, rows = Param(1, 2, 3, 4, 8), Param(1, 2, 4), Param(1, 2, 4), Param(1, 2)
    ld, st, add, exchange = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Add("s32"), isa.Exchange()

    def program(self, p: Any) -> None:
        shape = (self.rows, 32 * self.warps * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            before = p.full(who.reduced(1), "s32")
            with p.loop(self.n, step=shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                y = p.scan(self.add, x, axis=1, by=self.exchange, carry=before)
                p.store(self.st, self.y.tile(i, j, shape=shape), y)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.cumsum(axis=1, dtype=np.int32)


class ClusterSoftmax(Machine):
    """y = softmax of each row of x; the CTAs of a cluster share a row"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)

    ctas, warps, rows = Param(1, 2, 3, 4, 8), Param(1, 2, 4), Param(1, 2)
    vector, step = Param(1, 4), Param(1, 2)
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Exchange("shuffles", "pairs")
    larger, add, arithmetic = isa.Max("f32"), isa.Add("f32"), isa.arithmetic("f32")
    whole = Require(n <= 32 * ctas * warps * vector * step, "a row fits into the tiles of a cluster")
    exact, approximation = False, 2.0**-20

    def program(self, p: Any) -> None:
        shape = (self.rows, 32 * self.warps * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        tiles = (self.m, shape[0]), (self.n, shape[1])
        with p.grid(*tiles, cluster=(1, self.ctas)) as (i, j), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who, fill=-math.inf)
            e = exp(x - p.reduce(self.larger, x, axis=1, by=self.exchange, cluster=1))
            total = p.reduce(self.add, e, axis=1, by=self.exchange, cluster=1)
            p.store(self.st, self.y.tile(i, j, shape=shape), e * reciprocal(total))

    @staticmethod
    def reference(x: Any) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)


class SharedSum(Machine):
    """y = sums of the rows of x, which several CTAs share: each has the sum of its part, made by several warps"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m)

    parts, warps, step = Param(1, 3), Param(1, 4, 6), Param(1, 2)
    ld, st, take, add = isa.LdGlobal(1), isa.StGlobal(1), isa.LdGlobal(1), isa.Add("f32")
    exchange = isa.Exchange("shuffles", "pairs")

    def program(self, p: Any) -> None:
        shape = (2, 32 * self.warps * self.step)
        who = blocked(shape, threads=32 * self.warps)
        with p.grid((self.m, shape[0]), slices=self.parts) as (i,), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(self.n, step=shape[1], divided=True) as j:
                p.apply(self.add, total, p.load(self.ld, self.x.tile(i, j, shape=shape), who), into=total)
            own = p.reduce(self.add, total, axis=1, by=self.exchange)
            with p.fix_up(self.add, self.st, self.take, own) as whole:
                p.store(self.st, self.y.column(i, shape[0]), whole)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=1)


class AllSum(Machine):
    """y += the sum of x, by whichever CTA comes"""

    n, one = Dim(), Dim(1)
    x = Input("f32", n)
    y = InOut("f32", one)
    warps, vector, step = Param(1, 4, 7), Param(1, 4), Param(1, 3)
    ld, add, exchange = isa.LdGlobal(vector), isa.Add("f32"), isa.Exchange("shuffles", "pairs")
    red = isa.RedGlobal("add")

    def program(self, p: Any) -> None:
        shape = (32 * self.warps * self.vector * self.step,)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=shape), who)
            p.store(self.red, self.y.tile(0, shape=(1,)), p.reduce(self.add, x, axis=0, by=self.exchange))

    @staticmethod
    def reference(x: Any, y: Any) -> Any:
        return y + x.sum()


class MiddleSum(Machine):
    """y[b, n] = the sum of x[b, m, n] over m"""

    b, m, n = Dim(), Dim(), Dim()
    x, y = Input("f32", b, m, n), Output("f32", b, n)
    warps, across, deep = Param(1, 2, 4), Param(8, 16, 32), Param(1, 2)
    ld, st, add, exchange = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32"), isa.Exchange("shuffles", "pairs")

    def program(self, p: Any) -> None:
        shape = (self.deep, 32 * self.warps // self.across * 2, self.across * 2)
        who = blocked(shape, threads=32 * self.warps, across=self.across)
        with p.grid((self.b, shape[0]), (self.n, shape[2])) as (z, j), p.role("all", warps=self.warps):
            total = p.full(who.reduced(1), "f32")
            with p.loop(self.m, step=shape[1]) as i:
                x = p.load(self.ld, self.x.tile(z, i, j, shape=shape), who)
                total += p.reduce(self.add, x, axis=1, by=self.exchange)
            p.store(self.st, self.y.tile(z, j, shape=(shape[0], shape[2])), total.squeeze(1))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=1)
