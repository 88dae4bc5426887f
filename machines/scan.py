"""Scans of rows: what all elements up to each one have together, with the element itself or without it.

A row is passed once, tile after tile: each thread scans its own elements, lanes and warps that share a row tell one
another what theirs have together, and what stands before a tile is carried on in registers. So rows are of any length,
and each element is read and written once. Searched are who shares a row (many short rows want few lanes each, few long
ones a whole CTA) and how much of it at a time: larger tiles meet less often, and take more registers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Option, Output, Param, Require, Tracer, blocked
from tinygpu.ptx import isa

KINDS = ("f32", "f16", "bf16", "s32")


class Scan(Machine):
    """y[i, j] = the sum, or the largest, of x[i, k] over k <= j, or over k < j if exclusive"""

    m, n = Dim(), Dim()
    x = Input(KINDS, m, n)
    y = Output({kind: (kind,) for kind in KINDS}, m, n, follows=x)
    operation = Option("sum", "max")
    exclusive = Option(False, True)

    warps, across = Param(1, 2, 4, 8, 16), Param(4, 8, 16, 32, 64, 128, 256, 512)
    vector, step = Param(1, 2, 4, 8), Param(1, 2, 4, 8)
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Exchange("shuffles", "pairs")
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")
    plus, larger = isa.Add("f32"), isa.Max("f32")
    plus_whole, larger_whole = isa.Add("s32"), isa.Max("s32")

    lanes = Require(across <= 32 * warps, "the threads along a row are threads of the CTA")

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps // self.across, self.across * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        kind = "s32" if self.x.dtype.name == "s32" else "f32"
        plus, larger = (self.plus, self.larger) if kind == "f32" else (self.plus_whole, self.larger_whole)
        combine = plus if self.operation == "sum" else larger
        nothing = 0 if self.operation == "sum" else -math.inf if kind == "f32" else -(2**31)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            before = p.full(who.reduced(1), kind, nothing)
            with p.loop(self.n, step=shape[1]) as j:
                x = p.cast(p.load(self.ld, self.x.tile(i, j, shape=shape), who), kind)
                y = p.scan(combine, x, axis=1, exclusive=self.exclusive, by=self.exchange, carry=before)
                p.store(self.st, self.y.tile(i, j, shape=shape), p.cast(y, self.y.dtype))

    @staticmethod
    def reference(x: Any, operation: str, exclusive: bool) -> Any:
        y = np.cumsum(x, axis=1) if operation == "sum" else np.maximum.accumulate(x, axis=1)
        if not exclusive:
            return y
        nothing = 0 if operation == "sum" else -(2**31) if x.dtype == "s32" else -math.inf
        return np.concatenate([np.full_like(y[:, :1], nothing), y[:, :-1]], axis=1)
