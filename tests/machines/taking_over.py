"""Small machines whose clusters take each other over: between roles, in one role of several warps, and of slices."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa

SHAPE = (8, 32)


class Handed(Machine):
    """y = 2 x, tile by tile through a ring of slots, by one warp that brings and two that scale"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    stages, across, down, raster, control = Param(1, 2, 3), Param(1, 2), Param(1, 2), Param(1, 2), Param(0, 1)
    bring, get, put, add = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        who = blocked(SHAPE, threads=64, across=32)
        with (
            p.grid(
                (self.m, 8), (self.n, 32), raster=self.raster, cluster=(self.down, self.across), persistent=True,
                launch_control=self.control,
            ) as (i, j),
            p.pipeline("ring", self.stages, x=p.smem("f32", SHAPE, swizzle=128)) as ring,
        ):
            with p.role("bring", warps=1), ring.produce() as s:
                p.copy(self.bring, self.x.tile(i, j, shape=SHAPE), s.x)
            with p.role("scale", warps=2, first=1), ring.consume() as s:
                x = p.load(self.get, s.x, who)
                p.store(self.put, self.y.tile(i, j, shape=SHAPE), p.apply(self.add, x, x))

    @staticmethod
    def reference(x: Any) -> Any:
        return np.asarray(x) * 2


class Alone(Machine):
    """y = 2 x by all warps, none of which hands anything to another"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    warps, down = Param(1, 4), Param(1, 2)
    ld, st, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        who = blocked(SHAPE, threads=32 * self.warps, across=32)
        with (
            p.grid((self.m, 8), (self.n, 32), cluster=(self.down, 1), persistent=True, launch_control=1) as (i, j),
            p.role("all", warps=self.warps),
        ):
            x = p.load(self.ld, self.x.tile(i, j, shape=SHAPE), who)
            p.store(self.st, self.y.tile(i, j, shape=SHAPE), p.apply(self.add, x, x))

    @staticmethod
    def reference(x: Any) -> Any:
        return np.asarray(x) * 2


class Shared(Machine):
    """y[i] = the sum of row i, a part of it by each of several CTAs, which leave their parts in any order"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m)
    parts = Param(1, 2, 3)
    ld, st, take = isa.LdGlobal(1), isa.StGlobal(1), isa.LdGlobal(1)
    add, shuffle = isa.Add("f32"), isa.ShflBfly()

    def program(self, p: Any) -> None:
        who = blocked((4, 32), threads=128, across=32)
        grid = p.grid((self.m, 4), persistent=True, slices=self.parts, launch_control=1)
        with grid as (i,), p.role("all", warps=4):
            total = p.full(who, "f32")
            with p.loop(self.n, step=32, divided=True) as j:
                p.apply(self.add, p.load(self.ld, self.x.tile(i, j, shape=(4, 32)), who), total, into=total)
            own = p.reduce(self.add, total, axis=1, by=self.shuffle)
            with p.fix_up(self.add, self.st, self.take, own) as found:
                p.store(self.st, self.y.column(i, 4), found)

    @staticmethod
    def reference(x: Any) -> Any:
        return np.asarray(x).sum(axis=1)
