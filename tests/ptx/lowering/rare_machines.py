"""Machines for forms that few operations need: each is small, and what it computes is plain."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygpu.expressions import minimum
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa

ROWS, COLUMNS, WIDE = 4, 32, 128
WHO = blocked((ROWS, COLUMNS), threads=32, across=32)


class GroupedBatch(Machine):
    """y = -x for a batch of matrices, whose tiles are visited in groups of rows"""

    b, m, n = Dim(), Dim(), Dim()
    x = Input("f32", b, m, n)
    y = Output("f32", b, m, n)
    group = Param(1, 2, 3)
    ld, st, neg = isa.LdGlobal(1), isa.StGlobal(1), isa.Neg("f32")

    def program(self, p: Any) -> None:
        grid = p.grid((self.b, 1), (self.m, ROWS), (self.n, COLUMNS), raster=self.group)
        with grid as (b, i, j), p.role("all", warps=1):
            x = p.load(self.ld, self.x.at(b).tile(i, j, shape=(ROWS, COLUMNS)), WHO)
            p.store(self.st, self.y.at(b).tile(i, j, shape=(ROWS, COLUMNS)), p.apply(self.neg, x))

    @staticmethod
    def reference(x: Any) -> Any:
        return -x


class Bytes(Machine):
    """y = x + 1 in 8-bit integers, which are computed in f32 and packed again; 1 is a parameter"""

    m, n = Dim(), Dim()
    x = Input("s8", m, n)
    y = Output("s8", m, n)
    one = Param(1)
    ld, st = isa.LdGlobal(8), isa.StGlobal(8)
    widen, add, narrow = isa.Cvt("s8", "f32"), isa.Add("f32"), isa.Cvt("f32", "s8")

    def program(self, p: Any) -> None:
        shape = (ROWS, 64)
        who = blocked(shape, threads=32, vector=8, across=8)
        with p.grid((self.m, ROWS), (self.n, 64)) as (i, j), p.role("all", warps=1):
            wide = p.apply(self.widen, p.load(self.ld, self.x.tile(i, j, shape=shape), who))
            p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(self.narrow, p.apply(self.add, wide, self.one)))

    @staticmethod
    def reference(x: Any) -> Any:
        return np.clip(x.astype(np.float64) + 1, -128, 127)


class FewRounds(Machine):
    """y = the sum of x over two tiles, or as many as come before, and over windows that begin at the tile's rows"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    ld, st, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        with p.grid((self.m, ROWS), (self.n, COLUMNS)) as (i, j), p.role("all", warps=1):
            total = p.full(WHO, "f32")
            with p.loop(minimum(i // ROWS, 2)) as r:
                x = p.load(self.ld, self.x.tile(r * ROWS, j, shape=(ROWS, COLUMNS)), WHO)
                p.apply(self.add, total, x, into=total)
            with p.loop(i // ROWS % 3) as r:
                x = p.load(self.ld, self.x.tile(i + r, j, shape=(ROWS, COLUMNS)), WHO)
                p.apply(self.add, total, x, into=total)
            p.store(self.st, self.y.tile(i, j, shape=(ROWS, COLUMNS)), total)

    @staticmethod
    def reference(x: Any) -> Any:
        tiles = -(-x.shape[0] // ROWS)
        rows = np.zeros(((tiles + 1) * ROWS, x.shape[1]), x.dtype)
        rows[: x.shape[0]] = x
        out = np.zeros((tiles, ROWS, x.shape[1]), x.dtype)
        for t in range(tiles):
            for first in [r * ROWS for r in range(min(t, 2))] + [t * ROWS + r for r in range(t % 3)]:
                out[t] += rows[first : first + ROWS]
        return out.reshape(-1, x.shape[1])[: x.shape[0]]


class RowInShared(Machine):
    """y = sums over the columns of 32 of a tile, one after another, whose windows of shared memory move at run time"""

    n = Dim()
    x = Input("f32", n)
    y = Output("f32", n)
    group = Param(1, 2)
    ld, st, put, get, add = (
        isa.LdGlobal(1), isa.StGlobal(1), isa.StShared(1), isa.LdShared(1), isa.Add("f32")
    )  # fmt: skip

    def program(self, p: Any) -> None:
        who, part = blocked((WIDE,), threads=32), blocked((COLUMNS,), threads=32)
        with (
            p.grid((self.n, WIDE), raster=self.group) as (i,),
            p.pipeline("turn", 1, t=p.smem("f32", (WIDE,))) as ring,
            p.role("all", warps=1),
        ):
            with ring.produce() as s:
                p.store(self.put, s.t, p.load(self.ld, self.x.tile(i, shape=(WIDE,)), who))
            with ring.consume() as s:
                total = p.full(part, "f32")
                with p.loop(WIDE, step=COLUMNS) as j:
                    p.apply(self.add, total, p.load(self.get, s.t.window((j,), (COLUMNS,)), part), into=total)
                    p.store(self.st, self.y.tile(i + j, shape=(COLUMNS,)), total)

    @staticmethod
    def reference(x: Any) -> Any:
        tiles = np.zeros((-(-x.size // WIDE), WIDE // COLUMNS, COLUMNS), x.dtype)
        tiles.reshape(-1)[: x.size] = x
        return np.cumsum(tiles, axis=1).reshape(-1)[: x.size]


class OneTileRoles(Machine):
    """y = x through a slot between two roles, each with one tile of its own: the grid is not persistent"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    stages = Param(1, 2)
    tma, ld, st = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        who, shape = blocked((8, COLUMNS), threads=32, across=32), (8, COLUMNS)
        stage = p.smem("f32", shape, swizzle=128)
        with p.grid((self.m, 8)) as (i,), p.pipeline("ring", self.stages, x=stage) as ring:
            with p.role("consumer", warps=1), p.loop(self.n, step=COLUMNS) as j, ring.consume() as s:
                p.store(self.st, self.y.tile(i, j, shape=shape), p.load(self.ld, s.x, who))
            with p.role("producer", warps=1, first=1), p.loop(self.n, step=COLUMNS) as j, ring.produce() as s:
                p.copy(self.tma, self.x.tile(i, j, shape=shape), s.x)

    @staticmethod
    def reference(x: Any) -> Any:
        return x


class OneSlot(Machine):
    """c = a @ b by wgmma from one slot, which is given back before the next round"""

    m, n, k = Dim(), Dim(), Dim()
    a = Input("bf16", m, k)
    b = Input("bf16", k, n)
    c = Output("f32", m, n)
    stages = Param(1, 2)
    tma, wgmma, st = isa.TmaLoad(), isa.Wgmma(32), isa.StGlobal(2)

    def program(self, p: Any) -> None:
        t = p.tiled(self.wgmma, self.a.dtype, self.b.dtype, (64, 32), (1, 1))
        a_stage, b_stage = p.smem("bf16", (64, 64), swizzle=128), p.smem("bf16", (64, 32), swizzle=64)
        with (
            p.grid((self.m, 64), (self.n, 32), persistent=True) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
        ):
            with p.role("consumer", warps=4):
                acc = p.full(t.c, "f32")
                with p.loop(self.k, step=64), ring.consume() as s, p.unroll(64, step=t.k) as kt:
                    p.multiply(self.wgmma, acc, s.a.window((0, kt), (64, t.k)), s.b.window((kt, 0), (t.k, 32)))
                p.store(self.st, self.c.tile(i, j, shape=(64, 32)), acc)
            with p.role("producer", warps=1, first=4), p.loop(self.k, step=64) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(64, 64)), s.a)
                p.copy(self.tma, self.b.tile(kk, j, shape=(64, 32)), s.b)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b


class SpansInTurn(Machine):
    """y = sums over the columns of 64 of a tile, one after another, whose windows are spans of a swizzled buffer"""

    m, n = Dim(), Dim()
    x = Input("f16", m, n)
    y = Output("f16", m, n)
    span = Param(64, 128)
    tma, ld, st, add = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1), isa.Add("f16")

    def program(self, p: Any) -> None:
        whole, part = (8, 128), (8, 64)
        who = blocked(part, threads=32, across=32)
        stage = p.smem("f16", whole, swizzle=self.span)
        with p.grid((self.m, 8), (self.n, 128)) as (i, j), p.pipeline("ring", 1, x=stage) as ring:
            with p.role("consumer", warps=1), ring.consume() as s:
                total = p.full(who, "f16")
                with p.loop(128, step=64) as c:
                    p.apply(self.add, total, p.load(self.ld, s.x.window((0, c), part), who), into=total)
                    p.store(self.st, self.y.tile(i, j + c, shape=part), total)
            with p.role("producer", warps=1, first=1), ring.produce() as s:
                p.copy(self.tma, self.x.tile(i, j, shape=whole), s.x)

    @staticmethod
    def reference(x: Any) -> Any:
        tiles = np.zeros((x.shape[0], -(-x.shape[1] // 128), 2, 64), x.dtype)
        tiles.reshape(len(x), -1)[:, : x.shape[1]] = x
        return np.cumsum(tiles, axis=2).reshape(len(x), -1)[:, : x.shape[1]]


class OddBytes(Machine):
    """y = x in bytes of which a thread holds too few to fill a word"""

    m, n = Dim(), Dim()
    x = Input(("s8", "u8"), m, n)
    y = Output({"s8": ("s8",), "u8": ("u8",)}, m, n, follows=x)
    vector, each = Param(1, 2), Param(1, 2, 3)
    ld, st = isa.LdGlobal(vector), isa.StGlobal(vector)

    def program(self, p: Any) -> None:
        shape = (self.each, 32 * self.vector)
        who = blocked(shape, threads=32, vector=self.vector, across=32)
        with p.grid((self.m, self.each), (self.n, shape[1])) as (i, j), p.role("all", warps=1):
            p.store(self.st, self.y.tile(i, j, shape=shape), p.load(self.ld, self.x.tile(i, j, shape=shape), who))

    @staticmethod
    def reference(x: Any) -> Any:
        return x


class Again(Machine):
    """y = the greatest of x and x, compared as often as a dim says that no tensor has"""

    m, n, times = Dim(), Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    ld, st, most = isa.LdGlobal(1), isa.StGlobal(1), isa.Max("f32")

    def program(self, p: Any) -> None:
        with p.grid((self.m, ROWS), (self.n, COLUMNS)) as (i, j), p.role("all", warps=1):
            x, top = p.load(self.ld, self.x.tile(i, j, shape=(ROWS, COLUMNS)), WHO), p.full(WHO, "f32", -math.inf)
            with p.loop(self.times):
                p.apply(self.most, top, x, into=top)
            p.store(self.st, self.y.tile(i, j, shape=(ROWS, COLUMNS)), top)

    @staticmethod
    def reference(x: Any) -> Any:
        return x


class Shifted(Machine):
    """y[b] = x[b + 1] moved down and to the right: windows that begin before the tensor, or lie behind it"""

    b, m, n = Dim(), Dim(), Dim()
    x = Input("f32", b, m, n)
    y = Output("f32", b, m, n)
    ld, st = isa.LdGlobal(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        with p.grid((self.b, 1), (self.m, ROWS), (self.n, COLUMNS)) as (b, i, j), p.role("all", warps=1):
            x = self.x.at(b + 1).tile(i - 1, j - 3, shape=(ROWS, COLUMNS))
            p.store(self.st, self.y.at(b).tile(i, j, shape=(ROWS, COLUMNS)), p.load(self.ld, x, WHO))

    @staticmethod
    def reference(x: Any) -> Any:
        return np.pad(x, ((0, 1), (1, 0), (3, 0)))[1:, : x.shape[1], : x.shape[2]]


# Each with sizes that leave tiles cut off, and tiles before and after others.
MACHINES: dict[type[Machine], dict[str, int]] = {
    GroupedBatch: {"b": 2, "m": 18, "n": 70},
    Bytes: {"m": 6, "n": 72},
    FewRounds: {"m": 25, "n": 32},
    RowInShared: {"n": 300},
    OneTileRoles: {"m": 12, "n": 72},
    OneSlot: {"m": 64, "n": 40, "k": 136},
    SpansInTurn: {"m": 9, "n": 200},
    OddBytes: {"m": 5, "n": 50},
    Again: {"m": 6, "n": 40, "times": 3},
    Shifted: {"b": 2, "m": 10, "n": 70},
}
