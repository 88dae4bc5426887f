"""A tile scheduler of one's own, and a machine that searches it: rows of tiles are walked there and back.

Two CTAs that run at the same time at the end of a row then share a column, and not only a row: the tile below comes
next, where row by row it is the first one of the next row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, any_of
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa
from tinygpu.schedulers.run_time import RunTime, Value
from tinygpu.schedulers.scheduler import TileScheduler, Walk, Work


@dataclass(frozen=True, slots=True)
class ThereAndBack(Walk):
    """Items are tiles in the order in which they are walked; every other row goes back."""

    def work(self, run: RunTime, item: Value) -> Work:
        columns = run.along(1)
        row, column = run.div(item, columns), run.rem(item, columns)
        back = run.sub(run.sub(columns, 1), column)
        odd = run.equal(run.rem(row, 2), 1)
        return Work(run.add(run.mul(row, columns), run.select(back, column, odd)), 0)


@dataclass(frozen=True, slots=True, eq=False)
class Snake(TileScheduler):
    """As many CTAs as are resident take the tiles in turn, along a line that goes there and back where `on` is 1."""

    on: Expr

    @property
    def title(self) -> str:
        return f" persistent, there and back: {self.on}"

    @property
    def persistent(self) -> bool:
        return True

    def conditions(self) -> tuple[Constraint, ...]:
        values = any_of([self.on == v for v in (0, 1)])
        return (Constraint("snake", values, "on is 0 or 1", source="partition", judge="emulator"),)

    def walk(self, run: RunTime, share: tuple[int, int]) -> Walk:
        rest, every = share
        clusters = run.launched()
        begin, step = run.add(run.own(), run.mul(clusters, rest)), run.mul(clusters, every)
        return (ThereAndBack if int(self.on) else Walk)(begin, step, run.tiles())


class Scaled(Machine):
    """y = 2 x, tile by tile through a ring of slots"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    stages, back = Param(1, 2, 3), Param(0, 1)
    bring, get, put, add = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        shape, who = (8, 32), blocked((8, 32), threads=32, across=32)
        with (
            p.grid((self.m, 8), (self.n, 32), scheduler=Snake(self.back)) as (i, j),
            p.pipeline("ring", self.stages, x=p.smem("f32", shape, swizzle=128)) as ring,
        ):
            with p.role("bring", warps=1), ring.produce() as s:
                p.copy(self.bring, self.x.tile(i, j, shape=shape), s.x)
            with p.role("scale", warps=1, first=1), ring.consume() as s:
                x = p.load(self.get, s.x, who)
                p.store(self.put, self.y.tile(i, j, shape=shape), p.apply(self.add, x, x))

    @staticmethod
    def reference(x: Any) -> Any:
        return np.asarray(x) + np.asarray(x)
