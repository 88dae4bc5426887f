"""Scans of rows: what all elements up to each one have together, with the element itself or without it.

Both machines pass a row once, tile after tile: each thread scans its own elements, lanes and warps that share a row
tell one another what theirs have together. Of many rows each is one CTA's, or of a cluster, whose CTAs meet too, and
what stands before a tile is carried on in registers. Of few long rows the tiles are many CTAs', and what stands before
a tile is found by looking back at what those before it have published. Searched are who shares a row (many short rows
want few lanes each, few long ones all of a cluster), how much of it at a time (larger tiles meet less often, and take
more registers), and whether the next tiles of a row come to shared memory meanwhile.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygpu.language import Ahead, Choice, Input, Option, Output, Param, Tracer
from tinygpu.machines.rows import ClusterRows, Rows
from tinygpu.ptx import isa

KINDS = ("f32", "f16", "bf16", "s32")


class Prefixes(Rows):
    """y[i, j] = the sum, or the largest, of x[i, k] over k <= j, or over k < j if exclusive"""

    x = Input(KINDS, Rows.m, Rows.n)
    y = Output({kind: (kind,) for kind in KINDS}, Rows.m, Rows.n, follows=x)
    operation, exclusive = Option("sum", "max"), Option(False, True)

    step, arithmetic, whole = Param(1, 2, 4, 8), isa.arithmetic("f32"), isa.arithmetic("s32")
    plus, larger = isa.Add("f32"), isa.Max("f32")
    plus_whole, larger_whole = isa.Add("s32"), isa.Max("s32")

    @property
    def kind(self) -> str:
        """The type in which values are combined."""
        return "s32" if self.x.dtype.name == "s32" else "f32"

    def scanned(self, p: Tracer, at: Any, x: Any, **before: Any) -> None:
        """One tile, of which threads have x."""
        plus, larger = (self.plus, self.larger) if self.kind == "f32" else (self.plus_whole, self.larger_whole)
        combine = plus if self.operation == "sum" else larger
        y = p.scan(combine, p.cast(x, self.kind), axis=1, exclusive=self.exclusive, by=self.exchange, **before)
        p.store(self.st, self.y.tile(*at, shape=x.shape), p.cast(y, self.y.dtype))

    @staticmethod
    def reference(x: Any, operation: str, exclusive: bool) -> Any:
        y = np.cumsum(x, axis=1) if operation == "sum" else np.maximum.accumulate(x, axis=1)
        if not exclusive:
            return y
        nothing = 0 if operation == "sum" else -(2**31) if x.dtype.kind == "i" else -math.inf
        return np.concatenate([np.full_like(y[:, :1], nothing), y[:, :-1]], axis=1)


class RowScan(Prefixes, ClusterRows):
    """y[i, j] = the sum, or the largest, of x[i, k] over k <= j, or over k < j if exclusive; of rows by themselves"""

    ahead, stages = Choice("no tiles", "tiles in shared memory"), Param(2, 3, 4, 5)
    copy, ld_tile = isa.CpAsync(Rows.vector), isa.LdShared(Rows.vector)

    def program(self, p: Tracer) -> None:
        by = self.ld if self.ahead == "no tiles" else Ahead(self.stages, self.copy, self.ld_tile)
        nothing = 0 if self.operation == "sum" else -math.inf if self.kind == "f32" else -(2**31)
        with self.row(p, held=False) as row:
            before = p.full(row.part.reduced(1), self.kind, nothing)
            with row.tiles(row.load(by, self.x)) as (at, x):
                self.scanned(p, at, x, carry=before, cluster=1)


class LongScan(Prefixes):
    """y[i, j] = the sum, or the largest, of x[i, k] over k <= j, or over k < j if exclusive; a CTA has one tile"""

    def program(self, p: Tracer) -> None:
        who = self.tile(self.step)
        with p.grid((self.m, self.height), (self.n, who.shape[1])) as at, p.role("all", warps=self.warps):
            self.scanned(p, at, p.load(self.ld, self.x.tile(*at, shape=who.shape), who), grid=1)
