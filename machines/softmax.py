"""Softmax of rows: they stay in registers, of one warp or of many, or are read three times.

A row is held by as many lanes as lie side by side along it: lanes of a warp meet by shuffles, warps of the CTA through
a little shared memory. Rows that registers cannot hold are passed over for the largest element, for the sum, and for
the result; what was read last is still in L2. Searched are who holds a row, how much of it at a time, and which way.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygpu.language import Choice, Dim, Input, Machine, Option, Output, Param, Require, Tracer, blocked, exp, log
from tinygpu.ptx import isa

KINDS = ("f32", "f16", "bf16")
ALIKE: dict[str, tuple[str, ...]] = {kind: (kind,) for kind in KINDS}


class Softmax(Machine):
    """y = softmax of each row of x, or its logarithm"""

    m, n = Dim(), Dim()
    x = Input(KINDS, m, n)
    y = Output(ALIKE, m, n, follows=x)
    logarithm = Option(False, True)

    warps, across = Param(1, 2, 4, 8, 16), Param(4, 8, 16, 32, 64, 128, 256, 512)
    vector, step = Param(1, 2, 4, 8), Param(1, 2, 4, 8, 16)
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Exchange("shuffles", "pairs")
    arithmetic = isa.arithmetic("f32", approximate=True)
    larger, plus = isa.Max("f32"), isa.Add("f32")
    reads = Choice("once", "three times")

    lanes = Require(across <= 32 * warps, "the threads along a row are threads of the CTA")
    whole = Require(n <= across * vector * step, "a row fits into one tile", only=(reads, "once"))
    compute, exact, approximation = "f32", False, 2.0**-19

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps // self.across, self.across * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            if self.reads == "once":
                x = p.cast(p.load(self.ld, self.x.tile(i, 0, shape=shape), who, fill=-math.inf), "f32")
                top = p.reduce(self.larger, x, axis=1, by=self.exchange)
                e = exp(x - top)
                total = p.reduce(self.plus, e, axis=1, by=self.exchange)
                y = x - (top + log(total)) if self.logarithm else e / total
                p.store(self.st, self.y.tile(i, 0, shape=shape), y)
                return
            tops, sums = p.full(who, "f32", -math.inf), p.full(who, "f32")
            with p.loop(self.n, step=shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who, fill=-math.inf)
                p.apply(self.larger, tops, p.cast(x, "f32"), into=tops)
            top = p.reduce(self.larger, tops, axis=1, by=self.exchange)
            with p.loop(self.n, step=shape[1]) as j:
                sums += exp(p.load(self.ld, self.x.tile(i, j, shape=shape), who, fill=-math.inf) - top)
            total = p.reduce(self.plus, sums, axis=1, by=self.exchange)
            with p.loop(self.n, step=shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                y = x - (top + log(total)) if self.logarithm else exp(x - top) / total
                p.store(self.st, self.y.tile(i, j, shape=shape), y)

    @staticmethod
    def reference(x: Any, logarithm: bool) -> Any:
        x = x.astype(np.float32)
        shifted = x - x.max(axis=1, keepdims=True)
        e = np.exp(shifted)
        return shifted - np.log(e.sum(axis=1, keepdims=True)) if logarithm else e / e.sum(axis=1, keepdims=True)
