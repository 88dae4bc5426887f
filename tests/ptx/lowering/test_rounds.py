"""Loops whose rounds depend on the tile: some tiles have none, and what a kernel records is what the largest has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.emulator import Order
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

WHO = blocked((4, 32), threads=32, across=32)


WIDE = blocked((8, 32), threads=32, across=32)


def before(x: Any, rows: int = 4) -> Any:
    """For each row of a tile: the sum of the same rows of all tiles before it."""
    blocks = np.zeros((-(-x.shape[0] // rows) * rows, x.shape[1]), x.dtype)
    blocks[: x.shape[0]] = x
    tiles = blocks.reshape(-1, rows, x.shape[1])
    above = np.concatenate([np.zeros_like(tiles[:1]), np.cumsum(tiles, axis=0)[:-1]])
    return above.reshape(blocks.shape)[: x.shape[0]]


def before_eight(x: Any) -> Any:
    return before(x, 8)


class Rows(Machine):
    """y = the sum of x over the tiles before"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    ld, st, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32")
    reference = staticmethod(before)

    def program(self, p: Any) -> None:
        with p.grid((self.m, 4), (self.n, 32)) as (i, j), p.role("all", warps=1):
            total = p.full(WHO, "f32")
            with p.loop(i, step=4) as r:
                p.apply(self.add, total, p.load(self.ld, self.x.tile(r, j, shape=(4, 32)), WHO), into=total)
            p.store(self.st, self.y.tile(i, j, shape=(4, 32)), total)


class RowsAhead(Machine):
    """The same, through a ring that its warps fill ahead"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    stages = Param(1, 2, 4)
    cp, ld, st, add = isa.CpAsync(1), isa.LdShared(1), isa.StGlobal(1), isa.Add("f32")
    reference = staticmethod(before)

    def program(self, p: Any) -> None:
        stage = p.smem("f32", (4, 32))
        with (
            p.grid((self.m, 4), (self.n, 32)) as (i, j),
            p.pipeline("ring", self.stages, x=stage) as ring,
            p.role("all", warps=1),
        ):
            with p.loop(i, step=4) as r, ring.produce() as s:
                p.copy(self.cp, self.x.tile(r, j, shape=(4, 32)), s.x, WHO)
            total = p.full(WHO, "f32")
            with p.loop(i, step=4), ring.consume() as s:
                p.apply(self.add, total, p.load(self.ld, s.x, WHO), into=total)
            p.store(self.st, self.y.tile(i, j, shape=(4, 32)), total)


class RowsBetweenRoles(Machine):
    """The same for tiles of 8 rows, through a ring between roles"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    stages = Param(1, 2, 4)
    tma, ld, st, add = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1), isa.Add("f32")
    reference = staticmethod(before_eight)

    def program(self, p: Any) -> None:
        stage = p.smem("f32", (8, 32), swizzle=128)
        with (
            p.grid((self.m, 8), (self.n, 32), persistent=True) as (i, j),
            p.pipeline("ring", self.stages, x=stage) as ring,
        ):
            with p.role("consumer", warps=1):
                total = p.full(WIDE, "f32")
                with p.loop(i, step=8), ring.consume() as s:
                    p.apply(self.add, total, p.load(self.ld, s.x, WIDE), into=total)
                p.store(self.st, self.y.tile(i, j, shape=(8, 32)), total)
            with p.role("producer", warps=1, first=1), p.loop(i, step=8) as r, ring.produce() as s:
                p.copy(self.tma, self.x.tile(r, j, shape=(8, 32)), s.x)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("machine", [Rows, RowsAhead, RowsBetweenRoles])
@pytest.mark.parametrize("m", [3, 32, 43])
@pytest.mark.parametrize("orders", [("late",), pytest.param(("early", "random"), marks=pytest.mark.slow)])
def test_tiles_without_rounds_skip_their_loop(machine: type[Machine], m: int, orders: tuple[Order, ...]) -> None:
    problem = machine.problem(m=m, n=64)
    space = build_space(machine, problem, device("h100"))
    for point in space.space:
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        found = verify(kernel, machine, problem, orders=orders, thorough=True)
        assert found.passed, str(found)
        assert all(ring.dims == {"m"} for ring in kernel.rings)


class Swizzled(Machine):
    """y = x through slots of few rows"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    rows, columns, stages = Param(4, 8), Param(32, 64), Param(1, 2)
    tma, ld, st = isa.TmaLoad(), isa.LdShared(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        who = blocked((self.rows, self.columns), threads=32, across=32)
        stage = p.smem("f32", (self.rows, self.columns), swizzle=128)
        with (
            p.grid((self.m, self.rows), (self.n, self.columns), persistent=True) as (i, j),
            p.pipeline("ring", self.stages, x=stage) as ring,
        ):
            shape = (self.rows, self.columns)
            with p.role("consumer", warps=1), ring.consume() as s:
                p.store(self.st, self.y.tile(i, j, shape=shape), p.load(self.ld, s.x, who))
            with p.role("producer", warps=1, first=1), ring.produce() as s:
                p.copy(self.tma, self.x.tile(i, j, shape=shape), s.x)

    @staticmethod
    def reference(x: Any) -> Any:
        return x


def test_swizzled_slots_begin_where_the_pattern_does() -> None:
    """Slots of 4 rows are admitted where there is one slot as wide as the swizzle, and what is admitted is right."""
    problem = Swizzled.problem(m=35, n=160)
    space = build_space(Swizzled, problem, device("h100"))
    points = list(space.space)
    few = [(p["columns"], p["stages"]) for p in points if p["rows"] == 4]
    assert few == [(32, 1)]
    assert len(points) == 5
    for point in points:
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        found = verify(kernel, Swizzled, problem)
        assert found.passed, str(found)
    (refused,) = space.space.explain({"rows": 4, "columns": 32, "stages": 2})
    assert refused.sentence == (
        "rows of a swizzle (partition): slots of ring.x are whole atoms of the swizzle: they have a "
        "multiple of 8 rows; none of these holds: 4 mod 8 = 4 != 0, (stages = 2 != 1)"
    )
