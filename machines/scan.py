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

from tinygpu.language import Choice, Dim, Input, Machine, Option, Output, Param, Partition, Require, Tracer, blocked
from tinygpu.ptx import isa

KINDS = ("f32", "f16", "bf16", "s32")


class RowsOfPrefixes(Machine):
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

    @property
    def held(self) -> Partition:
        """A tile, and who has what of it."""
        shape = (32 * self.warps // self.across, self.across * self.vector * self.step)
        return blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)

    @property
    def sums(self) -> tuple[str, Any]:
        """The type in which values are combined, and by what."""
        kind = "s32" if self.x.dtype.name == "s32" else "f32"
        plus, larger = (self.plus, self.larger) if kind == "f32" else (self.plus_whole, self.larger_whole)
        return kind, plus if self.operation == "sum" else larger

    def scanned(self, p: Tracer, i: Any, j: Any, x: Any, **before: Any) -> None:
        """One tile, of which threads have x."""
        kind, combine = self.sums
        y = p.scan(combine, p.cast(x, kind), axis=1, exclusive=self.exclusive, by=self.exchange, **before)
        p.store(self.st, self.y.tile(i, j, shape=self.held.shape), p.cast(y, self.y.dtype))

    def loaded(self, p: Tracer, i: Any, j: Any) -> Any:
        return p.load(self.ld, self.x.tile(i, j, shape=self.held.shape), self.held)

    @staticmethod
    def reference(x: Any, operation: str, exclusive: bool) -> Any:
        y = np.cumsum(x, axis=1) if operation == "sum" else np.maximum.accumulate(x, axis=1)
        if not exclusive:
            return y
        nothing = 0 if operation == "sum" else -(2**31) if x.dtype.kind == "i" else -math.inf
        return np.concatenate([np.full_like(y[:, :1], nothing), y[:, :-1]], axis=1)


class RowScan(RowsOfPrefixes):
    """y[i, j] = the sum, or the largest, of x[i, k] over k <= j, or over k < j if exclusive; of rows by themselves"""

    ctas = Param(1, 2, 4, 8)  # of a cluster, that share a row
    full = Require(
        (ctas == 1) | (RowsOfPrefixes.across == 32 * RowsOfPrefixes.warps), "only whole CTAs share a row",
        kind="dominance", why="CTAs that have rows of their own need not meet",
    )  # fmt: skip
    ahead, stages = Choice("no tiles", "tiles in shared memory"), Param(2, 3, 4, 5)
    copy, ld_tile = isa.CpAsync(RowsOfPrefixes.vector), isa.LdShared(RowsOfPrefixes.vector)

    def program(self, p: Tracer) -> None:
        shape, kind = self.held.shape, self.sums[0]
        rows, columns = shape
        nothing = 0 if self.operation == "sum" else -math.inf if kind == "f32" else -(2**31)
        beside = self.ctas * columns
        grid = p.grid((self.m, rows), (beside, columns), cluster=(1, self.ctas))
        if self.ahead == "no tiles":
            with grid as (i, first), p.role("all", warps=self.warps):
                before = p.full(self.held.reduced(1), kind, nothing)
                with p.loop(self.n, step=beside) as j:
                    self.scanned(p, i, first + j, self.loaded(p, i, first + j), carry=before, cluster=1)
            return
        ring = p.pipeline("ring", self.stages, x=p.smem(self.x.dtype, shape))
        with grid as (i, first), ring as tiles, p.role("all", warps=self.warps):
            with p.loop(self.n, step=beside) as j, tiles.produce() as s:
                p.copy(self.copy, self.x.tile(i, first + j, shape=shape), s.x, self.held)
            before = p.full(self.held.reduced(1), kind, nothing)
            with p.loop(self.n, step=beside) as j, tiles.consume() as s:
                self.scanned(p, i, first + j, p.load(self.ld_tile, s.x, self.held), carry=before, cluster=1)


class LongScan(RowsOfPrefixes):
    """y[i, j] = the sum, or the largest, of x[i, k] over k <= j, or over k < j if exclusive; a CTA has one tile"""

    def program(self, p: Tracer) -> None:
        rows, columns = self.held.shape
        with p.grid((self.m, rows), (self.n, columns)) as (i, j), p.role("all", warps=self.warps):
            self.scanned(p, i, j, self.loaded(p, i, j), grid=1)
