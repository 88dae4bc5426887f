"""Machines whose values are indices: rows by ids, sums into rows, counts, masks by position."""

from typing import Any

import numpy as np

from tinygpu.language import Dim, InOut, Input, Machine, Output, Param, Require, Scalar, blocked, integers
from tinygpu.ptx import isa


class Embedding(Machine):
    """y[i] = table[ids[i]], and zeros where there is no such row"""

    m, n, v = Dim(), Dim(), Dim()
    ids = Input(("s32", "u32"), m)
    table = Input("f32", v, n)
    y = Output("f32", m, n)

    warps, vector, rows = Param(1, 2, 4), Param(1, 2, 4), Param(8, 32)
    ld, st, ld_index = isa.LdGlobalReadOnly(vector), isa.StGlobal(vector), isa.LdGlobalReadOnly(1)

    def program(self, p: Any) -> None:
        shape = (self.rows, 64)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, self.rows), (self.n, 64)) as (i, j), p.role("all", warps=self.warps):
            ids = p.load(self.ld_index, self.ids.column(i, self.rows), who.along(0))
            x = p.load(self.ld, self.table.rows(ids).tile(0, j, shape=shape), who)
            p.store(self.st, self.y.tile(i, j, shape=shape), x)

    @staticmethod
    def reference(ids: Any, table: Any) -> Any:
        there = (ids >= 0) & (ids < len(table))
        return np.where(there[:, None], table[np.where(there, ids, 0)], 0)


class EmbeddingInSlots(Machine):
    """y[i] = table[ids[i]], by way of shared memory; no id is outside the table"""

    m, n, v = Dim(), Dim(), Dim()
    ids = Input("s32", m, values=integers(0, v))
    table = Input("f16", v, n)
    y = Output("f16", m, n)

    warps, vector, rows, stages = Param(1, 2), Param(1, 2, 8), Param(8, 32), Param(1, 2, 3)
    copy, st, get, ld_index = isa.CpAsync(8), isa.StGlobal(vector), isa.LdShared(vector), isa.LdGlobalReadOnly(1)

    def program(self, p: Any) -> None:
        shape = (self.rows, 64)
        brought, who = (blocked(shape, threads=32 * self.warps, vector=v) for v in (8, self.vector))
        buffer = p.smem("f16", shape, pad=8)
        with (
            p.grid((self.m, self.rows)) as (i,), p.role("all", warps=self.warps),
            p.pipeline("ring", self.stages, t=buffer) as ring,
        ):  # fmt: skip
            ids = p.load(self.ld_index, self.ids.column(i, self.rows), brought.along(0))
            with p.loop(self.n, step=64) as j:
                with ring.produce() as slot:
                    p.copy(self.copy, self.table.rows(ids).tile(0, j, shape=shape), slot.t, brought)
                with ring.consume() as slot:
                    p.store(self.st, self.y.tile(i, j, shape=shape), p.load(self.get, slot.t, who))

    @staticmethod
    def reference(ids: Any, table: Any) -> Any:
        return table[ids]


class ScatterAdd(Machine):
    """y[ids[i]] += x[i]"""

    m, n, v = Dim(), Dim(), Dim()
    ids = Input("s32", m, values=integers(0, v))
    x = Input("f32", m, n)
    y = InOut("f32", v, n)

    warps, vector, rows = Param(1, 2, 4), Param(1, 2, 4), Param(8, 32)
    ld, add, ld_index = isa.LdGlobalReadOnly(vector), isa.RedGlobal("add"), isa.LdGlobalReadOnly(1)

    def program(self, p: Any) -> None:
        shape = (self.rows, 64)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, self.rows), (self.n, 64)) as (i, j), p.role("all", warps=self.warps):
            ids = p.load(self.ld_index, self.ids.column(i, self.rows), who.along(0), fill=-1)
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            p.store(self.add, self.y.rows(ids).tile(0, j, shape=shape), x)

    @staticmethod
    def reference(ids: Any, x: Any, y: Any) -> Any:
        np.add.at(y, ids, x)
        return y


class Histogram(Machine):
    """counts[k] += how many of x are k"""

    m, v = Dim(), Dim()
    x = Input("s32", m, values=integers(0, v))
    counts = InOut(("s32", "f32"), v)

    warps, each = Param(1, 2, 4), Param(1, 2, 4)
    ld, add = isa.LdGlobal(each), isa.RedGlobal("add")

    def program(self, p: Any) -> None:
        shape = (32 * self.warps * self.each,)
        who = blocked(shape, threads=32 * self.warps, vector=self.each)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=shape), who, fill=-1)
            p.store(self.add, self.counts.rows(x).tile(0, shape=shape), p.full(who, self.counts.dtype, 1))

    @staticmethod
    def reference(x: Any, counts: Any) -> Any:
        return counts + np.bincount(x, minlength=len(counts))


class HistogramInSlots(Machine):
    """counts[k] += how many of x are k: each CTA counts in shared memory first"""

    m, v = Dim(), Dim()
    x = Input("s32", m, values=integers(0, v))
    counts = InOut("s32", v)

    warps, rounds, bins = Param(1, 2, 4), Param(1, 4), Param(128, 256, 512)
    ld, put, get = isa.LdGlobal(1), isa.StShared(1), isa.LdShared(1)
    count, add = isa.RedShared("add"), isa.RedGlobal("add")
    enough = Require(v <= bins, "every value has a bin")

    def program(self, p: Any) -> None:
        threads = 32 * self.warps
        who, own = blocked((threads,), threads=threads), blocked((self.bins,), threads=threads)
        with (
            p.grid((self.m, threads * self.rounds)) as (i,), p.role("all", warps=self.warps),
            p.pipeline("bins", 1, h=p.smem("s32", (self.bins,))) as bins,
        ):  # fmt: skip
            with bins.produce() as slot:
                p.store(self.put, slot.h, p.full(own, "s32"))
                with p.unroll(self.rounds) as r:
                    x = p.load(self.ld, self.x.tile(i + r * threads, shape=(threads,)), who, fill=-1)
                    p.store(self.count, slot.h.rows(x).tile(0, shape=(threads,)), p.full(who, "s32", 1))
            with bins.consume() as slot:
                p.store(self.add, self.counts.tile(0, shape=(self.bins,)), p.load(self.get, slot.h, own))

    @staticmethod
    def reference(x: Any, counts: Any) -> Any:
        return counts + np.bincount(x, minlength=len(counts))


class Lookup(Machine):
    """y = table[codes], of a table that every CTA keeps in shared memory; zeros where it has no such place"""

    m, v = Dim(), Dim()
    codes = Input("s32", m, values=integers(-1, v + 1))
    table = Input("f32", v)
    y = Output("f32", m)

    warps, each, places = Param(1, 2, 4), Param(1, 2, 4), Param(128, 512)
    ld, st, ld_code = isa.LdGlobal(1), isa.StGlobal(each), isa.LdGlobal(each)
    put, get = isa.StShared(1), isa.LdShared(1)
    enough = Require(v <= places, "the table has a place for everything")

    def program(self, p: Any) -> None:
        threads = 32 * self.warps
        shape = (threads * self.each,)
        who, own = blocked(shape, threads=threads, vector=self.each), blocked((self.places,), threads=threads)
        with (
            p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps),
            p.pipeline("kept", 1, t=p.smem("f32", (self.places,))) as kept,
        ):  # fmt: skip
            with kept.produce() as slot:
                p.store(self.put, slot.t, p.load(self.ld, self.table.tile(0, shape=(self.places,)), own))
            with kept.consume() as slot:
                codes = p.load(self.ld_code, self.codes.tile(i, shape=shape), who)
                found = p.load(self.get, slot.t.rows(codes).tile(0, shape=shape), who)
                p.store(self.st, self.y.tile(i, shape=shape), found)

    @staticmethod
    def reference(codes: Any, table: Any) -> Any:
        there = (codes >= 0) & (codes < len(table))
        return np.where(there, table[np.where(there, codes, 0)], 0)


class Causal(Machine):
    """y = x on and below the diagonal, and a number above it"""

    m, n = Dim(), Dim()
    above = Scalar("f32")
    x = Input("f32", m, n)
    y = Output("f32", m, n)

    warps, vector = Param(1, 2, 4), Param(1, 2, 4)
    ld, st = isa.LdGlobal(vector), isa.StGlobal(vector)
    add, at_least, select = isa.Add("s32"), isa.Compare("s32", ">="), isa.Select("f32")

    def program(self, p: Any) -> None:
        shape = (16, 64)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, 16), (self.n, 64)) as (i, j), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            row = p.apply(self.add, p.index(who.along(0), 0), i)
            column = p.apply(self.add, p.index(who.along(1), 1), j)
            kept = p.where(p.apply(self.at_least, row, column), x, self.above)
            p.store(self.st, self.y.tile(i, j, shape=shape), kept)

    @staticmethod
    def reference(x: Any, above: Any) -> Any:
        return np.where(np.arange(len(x))[:, None] >= np.arange(x.shape[1]), x, above)
