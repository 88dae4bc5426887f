"""Rows along time: filters, windows, and what is kept from step to step."""

import math
from typing import Any

import numpy as np

from tinygpu.language import (
    Combine,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Scalar,
    Tracer,
    blocked,
    maximum,
    uniform,
    where,
)
from tinygpu.ptx import isa


class SlidingMax(Machine):
    """y[i, j] = the largest of x[i, j] to x[i, j + w - 1]"""

    m, n, w = Dim(), Dim(), Dim()
    k = Dim(follows=lambda n, w: n - w + 1)
    x, y = Input("f32", m, n), Output("f32", m, k)
    warps, rows = Param(1, 2, 4), Param(1, 2)
    ld, st, larger = isa.LdGlobal(1), isa.StGlobal(1), isa.Max("f32")

    def program(self, p: Tracer) -> None:
        shape = (self.warps * self.rows, 32)
        who = blocked(shape, threads=32 * self.warps)
        with p.grid((self.m, shape[0]), (self.k, 32)) as (i, j), p.role("all", warps=self.warps):
            top = p.full(who, "f32", -math.inf)
            with p.loop(self.w) as t:
                p.apply(
                    self.larger, top, p.load(self.ld, self.x.tile(i, j + t, shape=shape), who, fill=-math.inf), into=top
                )
            p.store(self.st, self.y.tile(i, j, shape=shape), top)

    @staticmethod
    def reference(x: Any, w: Any) -> Any:
        return np.stack([x[:, t : x.shape[1] - w + 1 + t] for t in range(w)]).max(axis=0)


class CumMax(Machine):
    """y, at = the largest of x[i, :j + 1], and the place of its first"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n, values=uniform(-3, 3))
    y, at = Output("f32", m, n), Output("s32", m, n)
    warps, vector = Param(1, 2, 4), Param(1, 2, 4)
    ld, st, st_at, exchange = isa.LdGlobal(vector), isa.StGlobal(vector), isa.StGlobal(1), isa.Exchange("shuffles")
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")

    def better(self, p: Tracer, left: Any, right: Any) -> Any:
        (x, i), (y, j) = left, right
        return maximum(x, y), where(y > x, j, i)

    def program(self, p: Tracer) -> None:
        shape = (1, 32 * self.warps * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=self.warps):
            before = p.full(who.reduced(1), "f32", -math.inf), p.full(who.reduced(1), "s32")
            with p.loop(self.n, step=shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who, fill=-math.inf)
                y, at = p.scan(Combine(self.better), (x, p.index(who, 1) + j), axis=1, by=self.exchange, carry=before)
                p.store(self.st, self.y.tile(i, j, shape=shape), y)
                p.store(self.st_at, self.at.tile(i, j, shape=shape), at)

    @staticmethod
    def reference(x: Any) -> Any:
        y = np.maximum.accumulate(x, axis=1)
        columns = np.arange(x.shape[1])
        fresh = np.concatenate([np.ones((len(x), 1), bool), x[:, 1:] > y[:, :-1]], axis=1)
        return {"y": y, "at": np.maximum.accumulate(np.where(fresh, columns, 0), axis=1)}


class Ema(Machine):
    """y[t] = alpha x[t] + (1 - alpha) y[t - 1], y[-1] = 0, along rows"""

    m, n = Dim(), Dim()
    alpha = Scalar("f32", values=uniform(0.01, 0.99))
    x, y = Input("f32", m, n), Output("f32", m, n)
    warps, vector = Param(1, 2, 4), Param(1, 2, 4)
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Exchange("shuffles")
    arithmetic = isa.arithmetic("f32")
    exact = False

    def merge(self, p: Tracer, left: Any, right: Any) -> Any:
        (a, x), (b, y) = left, right
        return a * b, x * b + y

    def program(self, p: Tracer) -> None:
        shape = (1, 32 * self.warps * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=self.warps):
            before = p.full(who.reduced(1), "f32", 1.0), p.full(who.reduced(1), "f32")
            with p.loop(self.n, step=shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who) * self.alpha
                _, y = p.scan(
                    Combine(self.merge),
                    (p.full(who, "f32", 1.0 - self.alpha), x),
                    axis=1,
                    by=self.exchange,
                    carry=before,
                )
                p.store(self.st, self.y.tile(i, j, shape=shape), y)

    @staticmethod
    def reference(x: Any, alpha: Any) -> Any:
        out, last = [], 0.0
        for t in range(x.shape[1]):
            last = alpha * x[:, t] + (1 - alpha) * last
            out.append(last)
        return np.stack(out, axis=1)


class Fir(Machine):
    """y[c, t] = sum over k of taps[k] * x[c, t - k], x before the beginning is 0"""

    c, t, k = Dim(), Dim(), Dim()
    x, taps, y = Input("f32", c, t), Input("f32", k), Output("f32", c, t)
    warps, vector = Param(1, 2, 4), Param(1, 2)
    ld, single, st, arithmetic = isa.LdGlobal(1), isa.LdGlobalReadOnly(1), isa.StGlobal(vector), isa.arithmetic("f32")
    contract = True

    def program(self, p: Tracer) -> None:
        shape = (self.warps, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.c, shape[0]), (self.t, shape[1])) as (i, j), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(self.k) as k:
                tap = p.load(self.single, self.taps.row(k, 1), who.reduced(0).reduced(1))
                total += tap * p.load(self.ld, self.x.tile(i, j - k, shape=shape), who)
            p.store(self.st, self.y.tile(i, j, shape=shape), total)

    @staticmethod
    def reference(x: Any, taps: Any) -> Any:
        wide = np.pad(x, ((0, 0), (len(taps) - 1, 0)))
        return sum(taps[k] * wide[:, len(taps) - 1 - k : wide.shape[1] - k] for k in range(len(taps)))
