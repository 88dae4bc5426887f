"""Scatter-add: rows are added to rows that their numbers name, y[ids[i]] += x[i]; and the histogram, which adds ones.

Rows may be named many times, by any CTA: memory itself adds, by `red.global`, in any order, and in f32 whatever the
rows are. Searched is how wide a row lies across lanes, and how many rows each thread has under way.

A histogram of few bins is counted by each CTA in its own shared memory first, over a stretch of x, and then added to
that of all: there are as many global atomics as CTAs have bins, not as x has elements. Of many bins every element is
one global atomic. Which way, and how much one CTA counts, is searched.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import Choice, Dim, InOut, Input, Machine, Param, Require, Tracer, blocked, integers
from tinygpu.ptx import isa


class ScatterAdd(Machine):
    """y[ids[i]] += x[i]"""

    m, n, v = Dim(), Dim(), Dim()
    x = Input(("f32", "f16", "bf16"), m, n)
    ids = Input("s32", m, values=integers(0, v))
    y = InOut("f32", v, n)

    warps, across = Param(1, 2, 4, 8), Param(1, 2, 4, 8, 16, 32, 64, 128, 256)
    vector, step, rows = Param(1, 2, 4, 8), Param(1, 2, 4), Param(1, 2, 4)
    ld, ld_id, add = isa.LdGlobal(vector), isa.LdGlobalReadOnly(1), isa.RedGlobal("add")
    arithmetic = isa.arithmetic("f32")
    exact = False  # sums in any order

    lanes = Require(across <= 32 * warps, "the threads along a row are threads of the CTA")

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps // self.across * self.rows, self.across * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            ids = p.load(self.ld_id, self.ids.column(i, shape[0]), who.along(0), fill=-1)
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            p.store(self.add, self.y.rows(ids).tile(0, j, shape=shape), p.cast(x, "f32"))

    @staticmethod
    def reference(x: Any, ids: Any, y: Any) -> Any:
        total = y.astype(np.float64)
        np.add.at(total, ids, x.astype(np.float64))
        return total


class Histogram(Machine):
    """counts[k] += how many of x are k"""

    m, v = Dim(), Dim()
    x = Input("s32", m, values=integers(0, v))
    counts = InOut(("s32", "u32"), v)

    warps, vector, rounds, bins = Param(2, 4, 8), Param(1, 2, 4), Param(1, 4, 16, 64), Param(256, 1024, 4096)
    ld, put, get = isa.LdGlobal(vector), isa.StShared(1), isa.LdShared(1)
    count, add = isa.RedShared("add"), isa.RedGlobal("add")
    counted = Choice("in shared memory", "in global memory")
    enough = Require(v <= bins, "every value has a bin of the CTA's own", only=(counted, "in shared memory"))

    def program(self, p: Tracer) -> None:
        threads, tile = 32 * self.warps, 32 * self.warps * self.vector
        who, own = blocked((tile,), threads=threads, vector=self.vector), blocked((self.bins,), threads=threads)
        with p.grid((self.m, tile * self.rounds)) as (i,), p.role("all", warps=self.warps):
            if self.counted == "in global memory":
                with p.loop(tile * self.rounds, step=tile) as r:
                    x = p.load(self.ld, self.x.tile(i + r, shape=(tile,)), who, fill=-1)
                    p.store(self.add, self.counts.rows(x).tile(0, shape=(tile,)), p.full(who, self.counts.dtype, 1))
                return
            with p.pipeline("bins", 1, h=p.smem(self.counts.dtype, (self.bins,))) as bins:
                with bins.produce() as slot:
                    p.store(self.put, slot.h, p.full(own, self.counts.dtype))
                    with p.loop(tile * self.rounds, step=tile) as r:
                        x = p.load(self.ld, self.x.tile(i + r, shape=(tile,)), who, fill=-1)
                        p.store(self.count, slot.h.rows(x).tile(0, shape=(tile,)), p.full(who, self.counts.dtype, 1))
                with bins.consume() as slot:
                    found = p.load(self.get, slot.h, own)
                    p.store(self.add, self.counts.tile(0, shape=(self.bins,)), found)

    @staticmethod
    def reference(x: Any, counts: Any) -> Any:
        return counts + np.bincount(x, minlength=len(counts)).astype(counts.dtype)
