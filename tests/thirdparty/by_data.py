"""Machines whose data, or the place of a tile, decide how many rounds a loop has, where windows lie, what is done."""

from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, Param, blocked, integers
from tinygpu.ptx import isa


class RaggedSums(Machine):
    """y[i] = sum of the first lengths[i] elements of row i of x"""

    m, n = Dim(), Dim()
    lengths = Input("s32", m, values=integers(0, n + 1))
    x = Input("f32", m, n)
    y = Output("f32", m)

    vector = Param(1, 2, 4)
    ld, st, ld_length = isa.LdGlobalReadOnly(vector), isa.StGlobal(1), isa.LdGlobalReadOnly(1)
    less, select, plus = isa.Compare("s32", "<"), isa.Select("f32"), isa.Add("s32")
    add, shuffle = isa.Add("f32"), isa.ShflBfly()

    def program(self, p: Any) -> None:
        shape = (1, 32 * self.vector)
        who = blocked(shape, threads=32, vector=self.vector)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            total, length = p.full(who, "f32"), self.lengths[i]
            with p.loop(p.until(length), step=shape[1]) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                p.apply(self.add, total, p.where(p.index(who, 1) + j < length, x, 0.0), into=total)
            p.store(self.st, self.y.column(i, 1), p.reduce(self.add, total, axis=1, by=self.shuffle))

    @staticmethod
    def reference(lengths: Any, x: Any) -> Any:
        return np.where(np.arange(x.shape[1]) < lengths[:, None], x, 0).sum(axis=1)


class SegmentSums(Machine):
    """y[g] = sum of the rows begin[g] to end[g] of x, without the last"""

    g, m, n = Dim(), Dim(), Dim()
    begin, end = Input("s32", g, values=integers(0, m + 1)), Input("s32", g, values=integers(0, m + 1))
    x = Input("f32", m, n)
    y = Output("f32", g, n)

    warps, vector, rows = Param(1, 2), Param(1, 2, 4), Param(1, 2, 4)
    ld, st, ld_start = isa.LdGlobalReadOnly(vector), isa.StGlobal(vector), isa.LdGlobalReadOnly(1)
    add = isa.Add("f32")

    def program(self, p: Any) -> None:
        threads = 32 * self.warps
        wide = threads * self.vector
        who = blocked((1, wide), threads=threads, vector=self.vector, across=threads)
        with p.grid((self.g, 1), (self.n, wide)) as (i, j), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            begin, end = self.begin[i], self.end[i]
            mine = self.x.segment(begin, end)
            with p.loop(p.until(end - begin), step=self.rows) as r, p.unroll(self.rows) as k:
                x = p.load(self.ld, mine.tile(r + k, j, shape=(1, wide)), who)
                p.apply(self.add, total, x, into=total)
            p.store(self.st, self.y.tile(i, j, shape=(1, wide)), total)

    @staticmethod
    def reference(begin: Any, end: Any, x: Any) -> Any:
        return np.stack([x[int(a) : max(int(a), int(b))].sum(axis=0) for a, b in zip(begin, end, strict=True)])


class PagedSums(Machine):
    """y[z] = sum of the rows of the pages that pages[z] lists, as many as used[z]"""

    z, most, pages, n = Dim(), Dim(), Dim(), Dim()
    used = Input("s32", z, values=integers(0, most + 1))
    table = Input("s32", z, most, values=integers(0, pages))
    pool = Input("f32", pages, n)
    y = Output("f32", z, n)

    warps, stages = Param(1, 2), Param(1, 2, 3)
    copy, st, get, single = isa.CpAsync(4), isa.StGlobal(1), isa.LdShared(1), isa.LdGlobalReadOnly(1)
    add = isa.Add("f32")

    def program(self, p: Any) -> None:
        threads = 32 * self.warps
        shape = (1, 4 * threads)
        brought = blocked(shape, threads=threads, vector=4, across=threads)
        with (
            p.grid((self.z, 1), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps),
            p.pipeline("ring", self.stages, t=p.smem("f32", shape)) as ring,
        ):  # fmt: skip
            total = p.full(brought, "f32")
            with p.loop(p.until(self.used[i])) as k:
                with ring.produce() as slot:
                    page = self.table[i, k]
                    p.copy(self.copy, self.pool.tile(page, j, shape=shape), slot.t, brought)
                with ring.consume() as slot:
                    total += p.load(self.get, slot.t, brought)
            p.store(self.st, self.y.tile(i, j, shape=shape), total)

    @staticmethod
    def reference(used: Any, table: Any, pool: Any) -> Any:
        return np.stack([pool[table[i, : int(k)]].sum(axis=0) for i, k in enumerate(used)])


class RaggedTma(Machine):
    """y[i] = sum of the first lengths[i] rows of block i of x, by TMA"""

    b, m, n = Dim(), Dim(), Dim()
    lengths = Input("s32", b, values=integers(0, m + 1))
    x = Input("f32", b, m, n)
    y = Output("f32", b, n)
    stages = Param(2, 3)
    copy, get, st, single = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1), isa.LdGlobalReadOnly(1)
    less, select, plus = isa.Compare("s32", "<"), isa.Select("f32"), isa.Add("s32")
    add, shuffle = isa.Add("f32"), isa.ShflBfly()

    def program(self, p: Any) -> None:
        shape = (8, 32)
        who = blocked(shape, threads=32, vector=1, across=32)
        tile = p.smem("f32", shape, swizzle=128)
        with p.grid((self.b, 1), (self.n, 32)) as (i, j), p.pipeline("ring", self.stages, t=tile) as ring:
            with p.role("bring", warps=1):
                length = self.lengths[i]
                with p.loop(p.until(length), step=8) as r, ring.produce() as slot:
                    p.copy(self.copy, self.x.at(i).tile(r, j, shape=shape), slot.t)
            with p.role("keep", warps=1, first=1):
                total, length = p.full(who, "f32"), self.lengths[i]
                with p.loop(p.until(length), step=8) as r, ring.consume() as slot:
                    x = p.load(self.get, slot.t, who)
                    p.apply(self.add, total, p.where(p.index(who.along(0), 0) + r < length, x, 0.0), into=total)
                p.store(self.st, self.y.tile(i, j, shape=(1, 32)), p.reduce(self.add, total, axis=0, by=self.shuffle))

    @staticmethod
    def reference(lengths: Any, x: Any) -> Any:
        return np.stack([x[i, : int(k)].sum(axis=0) for i, k in enumerate(lengths)])


class LowerTriangle(Machine):
    """y = x on and below the diagonal, zeros above: tiles above it are not loaded"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)

    warps, vector = Param(1, 2), Param(1, 2, 4)
    ld, st = isa.LdGlobalReadOnly(vector), isa.StGlobal(vector)
    add, ge, select = isa.Add("s32"), isa.Compare("s32", ">="), isa.Select("f32")

    def program(self, p: Any) -> None:
        shape = (8, 64)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, 8), (self.n, 64)) as (i, j), p.role("all", warps=self.warps):
            x = p.full(who, "f32")
            with p.when(i + 8 > j):
                loaded = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                below = p.index(who.along(0), 0) + i >= p.index(who.along(1), 1) + j
                p.apply(self.select, below, loaded, 0.0, into=x)
            p.store(self.st, self.y.tile(i, j, shape=shape), x)

    @staticmethod
    def reference(x: Any) -> Any:
        return np.tril(x)


class PrefixRows(Machine):
    """y[i] = sum of x[0..i] of its row block: rounds that depend on the tile"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    warps, vector, stages = Param(1, 2), Param(1, 2, 4), Param(1, 2, 3)
    copy, st, get = isa.CpAsync(4), isa.StGlobal(vector), isa.LdShared(vector)
    add = isa.Add("f32")

    def program(self, p: Any) -> None:
        shape = (1, 128 * self.warps)
        brought = blocked(shape, threads=32 * self.warps, vector=4)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32 * self.warps)
        with (
            p.grid((self.m, 1), (self.n, 128 * self.warps)) as (i, j), p.role("all", warps=self.warps),
            p.pipeline("ring", self.stages, t=p.smem("f32", shape)) as ring,
        ):  # fmt: skip
            total = p.full(who, "f32")
            with p.loop(i + 1) as r:
                with ring.produce() as slot:
                    p.copy(self.copy, self.x.tile(r, j, shape=shape), slot.t, brought)
                with ring.consume() as slot:
                    p.apply(self.add, total, p.load(self.get, slot.t, who), into=total)
            p.store(self.st, self.y.tile(i, j, shape=shape), total)

    @staticmethod
    def reference(x: Any) -> Any:
        return np.cumsum(x, axis=0)
