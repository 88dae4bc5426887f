"""Softmax of rows: they stay in registers, of one warp or of many, of one CTA or of a cluster, or are read three times.

A row is held by as many lanes as lie side by side along it: lanes of a warp meet by shuffles, warps of the CTA through
a little shared memory, and CTAs of a cluster through each other's. Rows that all their registers cannot hold are passed
over for the largest element, for the sum, and for the result, CTAs of a cluster tile by tile; what was read last is
still in L2. Searched are who holds a row (few long ones want many SMs each), how much of it at a time, and which way.
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
    ctas = Param(1, 2, 4, 8)  # of a cluster, that share a row
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Exchange("shuffles", "pairs")
    arithmetic = isa.arithmetic("f32", approximate=True)
    larger, plus = isa.Max("f32"), isa.Add("f32")
    reads = Choice("once", "three times")

    lanes = Require(across <= 32 * warps, "the threads along a row are threads of the CTA")
    whole = Require(n <= ctas * across * vector * step, "a row fits into the tiles of a cluster", only=(reads, "once"))
    full = Require(
        (ctas == 1) | (across == 32 * warps), "only whole CTAs share a row", kind="dominance",
        why="CTAs that have rows of their own need not meet",
    )  # fmt: skip
    compute, exact, approximation = "f32", False, 2.0**-19

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps // self.across, self.across * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        across = {"axis": 1, "by": self.exchange, "cluster": 1}
        cut = (self.n, shape[1]) if self.reads == "once" else (self.ctas * shape[1], shape[1])
        with p.grid((self.m, shape[0]), cut, cluster=(1, self.ctas)) as (i, first), p.role("all", warps=self.warps):
            if self.reads == "once":
                x = p.cast(p.load(self.ld, self.x.tile(i, first, shape=shape), who, fill=-math.inf), "f32")
                top = p.reduce(self.larger, x, **across)
                e = exp(x - top)
                total = p.reduce(self.plus, e, **across)
                y = x - (top + log(total)) if self.logarithm else e / total
                p.store(self.st, self.y.tile(i, first, shape=shape), y)
                return
            tops, sums = p.full(who, "f32", -math.inf), p.full(who, "f32")
            with p.loop(self.n, step=self.ctas * shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, first + j, shape=shape), who, fill=-math.inf)
                p.apply(self.larger, tops, p.cast(x, "f32"), into=tops)
            top = p.reduce(self.larger, tops, **across)
            with p.loop(self.n, step=self.ctas * shape[1]) as j:
                sums += exp(p.load(self.ld, self.x.tile(i, first + j, shape=shape), who, fill=-math.inf) - top)
            total = p.reduce(self.plus, sums, **across)
            with p.loop(self.n, step=self.ctas * shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, first + j, shape=shape), who)
                y = x - (top + log(total)) if self.logarithm else exp(x - top) / total
                p.store(self.st, self.y.tile(i, first + j, shape=shape), y)

    @staticmethod
    def reference(x: Any, logarithm: bool) -> Any:
        x = x.astype(np.float32)
        shifted = x - x.max(axis=1, keepdims=True)
        e = np.exp(shifted)
        return shifted - np.log(e.sum(axis=1, keepdims=True)) if logarithm else e / e.sum(axis=1, keepdims=True)
