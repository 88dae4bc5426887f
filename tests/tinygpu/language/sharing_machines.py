"""Machines whose CTAs share tiles, clusters and warps in every way that there is, to be traced only."""

from __future__ import annotations

from typing import Any

from asynchronous_machines import TmaLoad

from tinygpu.language import (
    AccessPattern,
    Choice,
    Dim,
    InOut,
    Input,
    Machine,
    Option,
    Output,
    Param,
    Require,
    Route,
    Scalar,
    blocked,
    register_blocked,
    symbol,
)
from tinygpu.ptx import isa


class WeighedRows(Machine):
    """y = alpha * x @ w: CTAs divide the columns of a tile, in parts or in rounds that follow each other"""

    m, k = Dim(), Dim()
    alpha = Scalar("f32")
    x = Input(("f32", "s32"), m, k, majors=("row", "col"))
    w = Input("f32", k)
    y = Output("f32", m)

    rows, columns, warps = Param(2, 4), Param(64, 128), Param(1, 2)
    vector, across = Param(1, 2, 4), AccessPattern(8, 16, 32)
    parts, stream_k, cluster = Param(1, 2, 4), Param(0, 1), Param(1, 2)

    few = Require(parts * rows <= 8, "few parts", kind="dominance", why="the machine's own")
    any_device = Require(symbol("device.cc") >= 80, "the machine's own")

    ld, one, st, leave, take = isa.LdGlobal(vector), isa.LdGlobal(1), isa.StGlobal(1), isa.StGlobal(2), isa.LdGlobal(2)
    fma, mul, add, sub, shuffle = isa.Fma("f32"), isa.Mul("f32"), isa.Add("f32"), isa.Sub("f32"), isa.ShflBfly()

    def program(self, p: Any) -> None:
        shape = (self.rows, self.columns)
        threads = self.warps * 32
        who = blocked(shape, threads=threads, vector=self.vector, across=self.across, name="x")
        with (
            p.grid(
                (self.m, self.rows), (self.k, self.columns), raster=2, cluster=(1, self.cluster), persistent=True,
                slices=self.parts, stream_k=self.stream_k,
            ) as (i, j),
            p.role("all", warps=self.warps),
        ):
            total = p.full(who, "f32", 0.5)
            p.apply(self.add, total, j + p.rank(1), into=total)
            with p.loop(self.k, step=self.columns, divided=True) as kk:
                x = p.load(self.ld, self.x.tile(i, 2 * kk - 6, shape=shape), who, fill=2.0)
                w = p.load(self.ld, self.w.row(kk, self.columns), who.along(1))
                p.apply(self.fma, x, w, total, into=total)
            with p.fix_up(self.add, self.leave, self.take, total) as whole:
                y = p.reduce(self.add, whole, axis=1, by=self.shuffle)
                less = p.apply(self.sub, whole, y)  # a column beside every column
                y = p.apply(self.mul, p.reduce(self.add, less, axis=1, by=self.shuffle), self.alpha)
                p.store(self.st, self.y.column(i, self.rows), y)

    @staticmethod
    def reference(alpha: Any, x: Any, w: Any) -> Any:
        return alpha * (x @ w)


class TurnedCopies(Machine):
    """y += x.T: one role brings tiles by an engine, or would by threads, and two others take turns at them"""

    m, n = Dim(), Dim()
    x = Input("f16", m, n)
    y = InOut("f16", n, m)

    bm, bn, stages = Param(8, 12, 64), Param(32, 64), Param(1, 2, 3)
    vector, pad, span = Param(1, 2, 8), Param(0, 8), Param(32, 64)
    cluster = Param(1, 2)
    how = Option("engine", "threads")
    bring: Any = Choice(isa.CpAsync(vector), Route(isa.LdGlobal(vector), isa.StShared(vector)), ordered="no registers")
    tma, get, put = TmaLoad(), isa.LdShared(1), isa.StGlobal(1)
    read, add = isa.LdGlobal(1), isa.Add("f16")

    def program(self, p: Any) -> None:
        shape = (self.bm, self.bn)
        who = blocked(shape, threads=128, vector=self.vector, name="x")
        halves = register_blocked(shape, threads=(8, 16), block=(1, 2), name="y")
        engine = self.how == "engine"
        layout: dict[str, Any] = {"swizzle": self.span} if engine else {"pad": self.pad}
        with (
            p.grid((self.m, self.bm), (self.n, self.bn), cluster=self.cluster, persistent=True) as (i, j),
            p.pipeline("ring", self.stages, t=p.smem("f16", shape, **layout)) as ring,
            p.pipeline("order", 1) as order,
        ):
            with p.role("bring", warps=4, registers=40), p.loop(4), ring.produce() as s:
                x = self.x.tile(i, j, shape=shape)
                if engine:
                    p.copy(self.tma, x, s.t)
                else:
                    p.copy(self.bring, x, s.t, who)
            for r, name in enumerate(("ping", "pong")):
                with p.role(name, warps=4, first=4 + 4 * r, registers=160, share=(r, 2)), order.turn(), p.loop(4):
                    with ring.consume() as s:
                        tile = p.load(self.get, s.t, halves)
                    target = self.y.tile(j, i, shape=shape[::-1]).T
                    p.store(self.put, target, p.apply(self.add, tile, p.load(self.read, target, halves)))

    @staticmethod
    def reference(x: Any, y: Any, how: Any) -> Any:
        return y + x.T
