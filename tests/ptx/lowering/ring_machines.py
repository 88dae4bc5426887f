"""Machines whose rings are used as few operations use them: parts of slots, slots read twice, tensors of a batch."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import numpy as np

from tinygpu.language import Choice, Dim, Input, Machine, Output, Param, Route, blocked
from tinygpu.ptx import isa

ROWS, COLUMNS = 8, 32
SHAPE = (ROWS, COLUMNS)
WHO = blocked(SHAPE, threads=32, across=32)


class BatchByTma(Machine):
    """y[b] = x[b] + x[0]: boxes of a batch of matrices, one of them always of the first"""

    b, m, n = Dim(), Dim(), Dim()
    x = Input("f32", b, m, n)
    y = Output("f32", b, m, n)
    stages = Param(1, 2)
    tma, ld, st, add = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        own, first = p.smem("f32", SHAPE, swizzle=128), p.smem("f32", SHAPE, swizzle=64)
        with (
            p.grid((self.b, 1), (self.m, ROWS)) as (b, i),
            p.pipeline("ring", self.stages, x=own, z=first) as ring,
        ):
            with p.role("consumer", warps=1), p.loop(self.n, step=COLUMNS) as j, ring.consume() as s:
                x = p.apply(self.add, p.load(self.ld, s.x, WHO), p.load(self.ld, s.z, WHO))
                p.store(self.st, self.y.at(b).tile(i, j, shape=SHAPE), x)
            with p.role("producer", warps=1, first=1), p.loop(self.n, step=COLUMNS) as j, ring.produce() as s:
                p.copy(self.tma, self.x.at(b).tile(i, j, shape=SHAPE), s.x)
                p.copy(self.tma, self.x.at(0).tile(i, j, shape=SHAPE), s.z)

    @staticmethod
    def reference(x: Any) -> Any:
        return x + x[:1]


class RowByTma(Machine):
    """y = x, a vector whose box is one row as wide as the swizzle"""

    n = Dim()
    x = Input("f32", n)
    y = Output("f32", n)
    tma, ld, st = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        who, stage = blocked((1, COLUMNS), threads=32), p.smem("f32", (1, COLUMNS), swizzle=128)
        with p.grid((self.n, COLUMNS), persistent=True) as (i,), p.pipeline("ring", 1, x=stage) as ring:
            with p.role("consumer", warps=1), ring.consume() as s:
                p.store(self.st, self.y.row(i, COLUMNS), p.load(self.ld, s.x, who))
            with p.role("producer", warps=1, first=1), ring.produce() as s:
                p.copy(self.tma, self.x.row(i, COLUMNS), s.x)

    @staticmethod
    def reference(x: Any) -> Any:
        return x


class NarrowProducts(Machine):
    """c = a @ b by wgmma that is narrower than its tile, in two windows, both operands contiguous along m and n"""

    m, n, k = Dim(), Dim(), Dim()
    a = Input("bf16", m, k, majors=("row", "col"))
    b = Input("bf16", k, n, majors=("row", "col"))
    c = Output("f32", m, n)
    wide, groups, swizzle = Param(16, 32), Param(1, 2), Param(32, 64, 128)
    tma, wgmma, st = isa.TmaLoad(), isa.Wgmma(wide), isa.StGlobal(2)

    def program(self, p: Any) -> None:
        rows, half = 64 * self.groups, (64 * self.groups, 32)
        t = p.tiled(self.wgmma, self.a.dtype, self.b.dtype, half, (self.groups, 1))
        a_stage = p.smem("bf16", (rows, 64), contiguous=self.a.contiguous, swizzle=self.swizzle)
        b_stage = p.smem("bf16", (64, 64), contiguous=self.b.contiguous, swizzle=self.swizzle)
        with (
            p.grid((self.m, rows), (self.n, 64), persistent=True) as (i, j),
            p.pipeline("ring", 2, a=a_stage, b=b_stage) as ring,
        ):
            with p.role("consumer", warps=4 * self.groups):
                parts = (p.full(t.c, "f32"), p.full(t.c, "f32"))
                with p.loop(self.k, step=64), ring.consume() as s, p.unroll(64, step=t.k) as kt:
                    for number, part in enumerate(parts):
                        b = s.b.window((kt, 32 * number), (t.k, 32))
                        p.multiply(self.wgmma, part, s.a.window((0, kt), (rows, t.k)), b)
                for number, part in enumerate(parts):
                    p.store(self.st, self.c.tile(i, j, shape=(rows, 64)).window((0, 32 * number), half), part)
            with p.role("producer", warps=1, first=4 * self.groups), p.loop(self.k, step=64) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(rows, 64)), s.a)
                p.copy(self.tma, self.b.tile(kk, j, shape=(64, 64)), s.b)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b


class ReadTwice(Machine):
    """c = a @ b, d = a: what wgmma reads, threads read from the same slots, which CTAs of a cluster bring"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = Input("bf16", m, k), Input("bf16", k, n)
    c, d = Output("f32", m, n), Output("bf16", m, k)
    stages, along_m, along_n = Param(1, 2), Param(1, 2), Param(1, 2)
    tma, wgmma, ld, st, st_a = isa.TmaLoad(), isa.Wgmma(32), isa.LdShared(1), isa.StGlobal(2), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        t = p.tiled(self.wgmma, self.a.dtype, self.b.dtype, (64, 32), (1, 1))
        who = blocked((64, 64), threads=128, across=64)
        a_stage, b_stage = p.smem("bf16", (64, 64), swizzle=128), p.smem("bf16", (64, 32), swizzle=64)
        cluster = (self.along_m, self.along_n)
        with (
            p.grid((self.m, 64), (self.n, 32), persistent=True, cluster=cluster) as (i, j),
            p.pipeline("ring", self.stages, a=a_stage, b=b_stage) as ring,
        ):
            with p.role("consumer", warps=4):
                acc = p.full(t.c, "f32")
                with p.loop(self.k, step=64) as kk, ring.consume() as s:
                    with p.unroll(64, step=t.k) as kt:
                        p.multiply(self.wgmma, acc, s.a.window((0, kt), (64, t.k)), s.b.window((kt, 0), (t.k, 32)))
                    p.store(self.st_a, self.d.tile(i, kk, shape=(64, 64)), p.load(self.ld, s.a, who))
                p.store(self.st, self.c.tile(i, j, shape=(64, 32)), acc)
            with p.role("producer", warps=1, first=4), p.loop(self.k, step=64) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(64, 64)), s.a, multicast=1)
                p.copy(self.tma, self.b.tile(kk, j, shape=(64, 32)), s.b, multicast=0)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return {"c": a @ b, "d": a}


class OneProduct(Machine):
    """c = the first 64 columns of a times those rows of b: slots of several that no loop drains"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = Input("bf16", m, k), Input("bf16", k, n)
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
                with ring.consume() as s, p.unroll(64, step=t.k) as kt:
                    p.multiply(self.wgmma, acc, s.a.window((0, kt), (64, t.k)), s.b.window((kt, 0), (t.k, 32)))
                p.store(self.st, self.c.tile(i, j, shape=(64, 32)), acc)
            with p.role("producer", warps=1, first=4), ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, 0, shape=(64, 64)), s.a)
                p.copy(self.tma, self.b.tile(0, j, shape=(64, 32)), s.b)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a[:, :64] @ b[:64]


class PartOfSlot(Machine):
    """y = the sum of four columns of tiles of x, each of which is brought to rows of its own in a slot"""

    m, n, w = Dim(), Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, w)
    stages = Param(1, 2, 3)
    route = Route(isa.LdGlobal(1), isa.StShared(1))
    get, st, add = isa.LdShared(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        stage = p.smem("f32", (4 * ROWS, COLUMNS))
        with (
            p.grid((self.m, ROWS)) as (i,),
            p.pipeline("ring", self.stages, x=stage) as ring,
            p.role("all", warps=1),
        ):
            with p.loop(4) as r, ring.produce() as s:
                p.copy(self.route, self.x.tile(i, r * COLUMNS, shape=SHAPE), s.x.window((r * ROWS, 0), SHAPE), WHO)
            total = p.full(WHO, "f32")
            with p.loop(4) as r, ring.consume() as s:
                p.apply(self.add, total, p.load(self.get, s.x.window((r * ROWS, 0), SHAPE), WHO), into=total)
            p.store(self.st, self.y.tile(i, 0, shape=SHAPE), total)

    @staticmethod
    def reference(x: Any) -> Any:
        wide = np.zeros((x.shape[0], 4 * COLUMNS), x.dtype)
        wide[:, : x.shape[1]] = x
        return wide.reshape(x.shape[0], 4, COLUMNS).sum(axis=1)


class TwoRings(Machine):
    """y = x less the sum of its columns of 32: a ring for the sums, then one for the differences"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    stages, again = Param(1, 2, 3), Param(1, 2)
    cp, get, st, add, sub = isa.CpAsync(1), isa.LdShared(1), isa.StGlobal(1), isa.Add("f32"), isa.Sub("f32")

    def program(self, p: Any) -> None:
        stage = p.smem("f32", SHAPE)
        with (
            p.grid((self.m, ROWS)) as (i,),
            p.pipeline("one", self.stages, x=stage) as one,
            p.pipeline("two", self.again, x=stage) as two,
            p.role("all", warps=1),
        ):
            total = p.full(WHO, "f32")
            with p.loop(self.n, step=COLUMNS) as j, one.produce() as s:
                p.copy(self.cp, self.x.tile(i, j, shape=SHAPE), s.x, WHO)
            with p.loop(self.n, step=COLUMNS), one.consume() as s:
                p.apply(self.add, total, p.load(self.get, s.x, WHO), into=total)
            with p.loop(self.n, step=COLUMNS) as j, two.produce() as s:
                p.copy(self.cp, self.x.tile(i, j, shape=SHAPE), s.x, WHO)
            with p.loop(self.n, step=COLUMNS) as j, two.consume() as s:
                y = p.apply(self.sub, p.load(self.get, s.x, WHO), total)
                p.store(self.st, self.y.tile(i, j, shape=SHAPE), y)

    @staticmethod
    def reference(x: Any) -> Any:
        wide = np.pad(x, ((0, 0), (0, -x.shape[1] % COLUMNS)))
        total = wide.reshape(x.shape[0], -1, COLUMNS).sum(axis=1, keepdims=True)
        return (wide.reshape(x.shape[0], -1, COLUMNS) - total).reshape(wide.shape)[:, : x.shape[1]]


class SlotsAgain(Machine):
    """y = x + z, twice: two slots are filled one after the other, drained, and filled again, without a loop"""

    m, n = Dim(), Dim()
    x, z = Input("f32", m, n), Input("f32", m, n)
    y = Output("f32", m, n)
    ld, put, get, st, add = isa.LdGlobal(1), isa.StShared(1), isa.LdShared(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        stage = p.smem("f32", SHAPE)
        with (
            p.grid((self.m, ROWS), (self.n, 2 * COLUMNS)) as (i, j),
            p.pipeline("one", 1, x=stage) as one,
            p.pipeline("two", 1, z=stage) as two,
            p.role("all", warps=1),
            p.unroll(2 * COLUMNS, step=COLUMNS) as part,
        ):
            with one.produce() as s:
                p.store(self.put, s.x, p.load(self.ld, self.x.tile(i, j + part, shape=SHAPE), WHO))
            with two.produce() as s:
                p.store(self.put, s.z, p.load(self.ld, self.z.tile(i, j + part, shape=SHAPE), WHO))
            with one.consume() as s:
                x = p.load(self.get, s.x, WHO)
            with two.consume() as s:
                y = p.apply(self.add, x, p.load(self.get, s.z, WHO))
                p.store(self.st, self.y.tile(i, j + part, shape=SHAPE), y)

    @staticmethod
    def reference(x: Any, z: Any) -> Any:
        return x + z


class SlotsInTurn(Machine):
    """y = -x: a role passes pieces of its tile through slots in turn, from where TMA takes them, or its own threads"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    stages, pieces = Param(1, 2, 3, 4, 6), Param(1, 2, 3, 4)
    rounds, way = Choice("unrolled", "loop", "branch"), Choice("bulk", "threads")
    tma, put, neg = isa.TmaLoad(), isa.TmaStore(), isa.Neg("f32")
    ld, st, out = isa.LdShared(1), isa.StShared(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        who = blocked(SHAPE, threads=64, across=32)
        tile = ROWS, self.pieces * COLUMNS
        with (
            p.grid((self.m, ROWS), (self.n, tile[1]), persistent=True) as (i, j),
            p.pipeline("ring", 2, x=p.smem("f32", SHAPE, swizzle=128)) as ring,
            p.pipeline("turn", self.stages, y=p.smem("f32", SHAPE, swizzle=128)) as turn,
        ):
            with p.role("producer", warps=1, first=2), p.loop(self.pieces) as k, ring.produce() as s:
                p.copy(self.tma, self.x.tile(i, j + k * COLUMNS, shape=SHAPE), s.x)
            with p.role("consumer", warps=2), ExitStack() as around:
                loop = p.loop if self.rounds == "loop" else p.unroll
                k = around.enter_context(loop(self.pieces))
                with ring.consume() as s:
                    x = p.load(self.ld, s.x, who)
                y = p.apply(self.neg, x)
                if self.rounds == "branch":
                    around.enter_context(p.when(j + k * COLUMNS < self.n))
                with turn.produce() as s:
                    p.store(self.st, s.y, y)
                with turn.consume() as s:
                    target = self.y.tile(i, j + k * COLUMNS, shape=SHAPE)
                    if self.way == "bulk":
                        p.copy(self.put, s.y, target)
                    else:
                        p.store(self.out, target, p.load(self.ld, s.y, who))

    @staticmethod
    def reference(x: Any) -> Any:
        return -x


class FilledMeanwhile(Machine):
    """y = a - b: slots of one ring come while those of the other are used, b of this round and a of the next one"""

    m, n = Dim(), Dim()
    a, b = Input("f32", m, n), Input("f32", m, n)
    y = Output("f32", m, n)
    stages, warps = Param(1, 2, 3), Param(1, 2)
    copy, ld, st, sub = isa.CpAsync(1), isa.LdShared(1), isa.StGlobal(1), isa.Sub("f32")

    def program(self, p: Any) -> None:
        who = blocked(SHAPE, threads=32 * self.warps, across=32)
        turned = blocked(SHAPE, threads=32 * self.warps, across=4 * self.warps)  # what others have brought
        with (
            p.grid((self.m, ROWS)) as (i,),
            p.pipeline("ring_a", self.stages, t=p.smem("f32", SHAPE)) as ring_a,
            p.pipeline("ring_b", self.stages, t=p.smem("f32", SHAPE)) as ring_b,
            p.role("all", warps=self.warps),
        ):
            with ring_a.produce() as s:
                p.copy(self.copy, self.a.tile(i, 0, shape=SHAPE), s.t, who)
            with p.loop(self.n, step=COLUMNS) as j:
                with ring_a.consume() as s:
                    with ring_b.produce() as t:
                        p.copy(self.copy, self.b.tile(i, j, shape=SHAPE), t.t, who)
                    a = p.load(self.ld, s.t, turned)
                with ring_b.consume() as s:
                    with ring_a.produce() as t:
                        p.copy(self.copy, self.a.tile(i, j + COLUMNS, shape=SHAPE), t.t, who)
                    y = p.apply(self.sub, a, p.load(self.ld, s.t, turned))
                    p.store(self.st, self.y.tile(i, j, shape=SHAPE), y)
            with ring_a.consume():
                pass  # beyond the end

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a - b


class TwoReaders(Machine):
    """y = x, z = -x: each slot is drained by two roles of different sizes"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y, z = Output("f32", m, n), Output("f32", m, n)
    stages = Param(1, 2)
    tma, ld, st, neg = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1), isa.Neg("f32")

    def program(self, p: Any) -> None:
        two = blocked(SHAPE, threads=64, across=32)
        with (
            p.grid((self.m, ROWS), (self.n, COLUMNS), persistent=True) as (i, j),
            p.pipeline("ring", self.stages, x=p.smem("f32", SHAPE, swizzle=128)) as ring,
        ):
            with p.role("one", warps=1), ring.consume() as s:
                p.store(self.st, self.y.tile(i, j, shape=SHAPE), p.load(self.ld, s.x, WHO))
            with p.role("two", warps=2, first=1), ring.consume() as s:
                p.store(self.st, self.z.tile(i, j, shape=SHAPE), p.apply(self.neg, p.load(self.ld, s.x, two)))
            with p.role("producer", warps=1, first=3), ring.produce() as s:
                p.copy(self.tma, self.x.tile(i, j, shape=SHAPE), s.x)

    @staticmethod
    def reference(x: Any) -> Any:
        return {"y": x, "z": -x}


class SumsInTurn(Machine):
    """y = the sum of the columns of 32 of x: two roles take turns at tiles, and CTAs share each of them"""

    m, n, w = Dim(), Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, w)
    stages, parts, rounds = Param(1, 2), Param(1, 2), Param(0, 1)
    tma, ld, st, add = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1), isa.Add("f32")
    leave, take = isa.StGlobal(2), isa.LdGlobal(2)

    def program(self, p: Any) -> None:
        with (
            p.grid((self.m, ROWS), persistent=True, slices=self.parts, stream_k=self.rounds) as (i,),
            p.pipeline("ring", self.stages, x=p.smem("f32", SHAPE, swizzle=128)) as ring,
            p.pipeline("order", 1) as order,
        ):
            for number, name in enumerate(("ping", "pong")):
                with p.role(name, warps=1, first=number, share=(number, 2)):
                    total = p.full(WHO, "f32")
                    with order.turn(), p.loop(self.n, step=COLUMNS, divided=True), ring.consume() as s:
                        p.apply(self.add, total, p.load(self.ld, s.x, WHO), into=total)
                    with p.fix_up(self.add, self.leave, self.take, total) as found:
                        p.store(self.st, self.y.tile(i, 0, shape=SHAPE), found)
            with (
                p.role("producer", warps=1, first=2),
                p.loop(self.n, step=COLUMNS, divided=True) as j,
                ring.produce() as s,
            ):
                p.copy(self.tma, self.x.tile(i, j, shape=SHAPE), s.x)

    @staticmethod
    def reference(x: Any) -> Any:
        wide = np.pad(x, ((0, 0), (0, -x.shape[1] % COLUMNS)))
        return wide.reshape(x.shape[0], -1, COLUMNS).sum(axis=1)


# Each with sizes that leave tiles cut off, and rounds that go round in the slots.
MACHINES: dict[type[Machine], dict[str, int]] = {
    BatchByTma: {"b": 2, "m": 12, "n": 72},
    RowByTma: {"n": 72},
    NarrowProducts: {"m": 72, "n": 72, "k": 136},
    ReadTwice: {"m": 72, "n": 40, "k": 72},
    OneProduct: {"m": 72, "n": 72, "k": 64},
    PartOfSlot: {"m": 12, "n": 120, "w": 32},
    TwoRings: {"m": 12, "n": 72},
    SlotsAgain: {"m": 12, "n": 72},
    FilledMeanwhile: {"m": 12, "n": 72},
    TwoReaders: {"m": 12, "n": 72},
    SumsInTurn: {"m": 44, "n": 136, "w": 32},
}
