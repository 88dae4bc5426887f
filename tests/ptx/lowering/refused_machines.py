"""Small machines that a test bends until lowering could not write them: each says what may be other than it should."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bulk_rows import BulkLoad

from tinygpu.language import (
    GMEM,
    SMEM,
    BulkTransfer,
    Dim,
    E,
    Input,
    Layout,
    Machine,
    Output,
    Param,
    Partition,
    blocked,
)
from tinygpu.ptx import isa

TILE = (4, 32)


def plain(
    read: Callable[..., Any] | None = None,
    operand: Callable[..., Any] | None = None,
    rounds: Callable[..., Any] | None = None,
    **grid: Any,
) -> type[Machine]:
    """y = x, or what is done with it, tile by tile."""

    class Plain(Machine):
        """y = x"""

        m, n = Dim(), Dim()
        x, y = Input("f32", m, n), Output("f32", m, n)
        w = Param(1, 2)
        ld, st, mul, add = isa.LdGlobal(1), isa.StGlobal(1), isa.Mul("f32"), isa.Add("f32")

        def program(self, p: Any) -> None:
            who = blocked(TILE, threads=32)
            axes = grid.pop("axes", None) or (lambda s: ((s.m, 4), (s.n, 32)))
            with p.grid(*axes(self), **grid) as (i, j), p.role("all", warps=1):
                begin = read(self, p, i, j) if read else (i, j)
                x = p.load(self.ld, self.x.tile(*begin, shape=TILE), who)
                if operand is not None:
                    x = p.apply(self.mul, x, operand(self, p, i, j))
                if rounds is not None:
                    total = p.full(who, "f32")
                    with p.loop(rounds(self, p)):
                        p.apply(self.add, x, total, into=total)
                    x = total
                p.store(self.st, self.y.tile(i, j, shape=TILE), x)

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return Plain


def held(first: Any, then: Callable[..., Any], w: Any = None) -> type[Machine]:
    """y of x, loaded under a partition of 64 elements that is written by hand."""

    class Held(Machine):
        """y = x + x"""

        n = Dim()
        x, y = Input("f32", n), Output("f32", n)
        w = Param(1, 2)
        ld, st, add, shuffle = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32"), isa.ShflIdx()

        def program(self, p: Any) -> None:
            who, some = blocked((64 * self.w,), threads=32), first(self)
            with p.grid((self.n, 64 * self.w)) as (i,), p.role("all", warps=1):
                window = self.x.tile(i, shape=(64 * self.w,))
                a, b = p.load(self.ld, window, who), p.load(self.ld, window, some)
                p.store(self.st, self.y.tile(i, shape=(64 * self.w,)), then(self, p, a, b, who))

        @staticmethod
        def reference(x: Any) -> Any:
            return x + x

    return Held


@dataclass(frozen=True, eq=False)
class Box(BulkTransfer):
    """A load of boxes that states what its family asks for, and nothing besides."""

    reads, writes, completion = GMEM, SMEM, "mbarrier"
    target, isa, label, source = 90, (8, 0), "box", "PTX ISA, cp.async.bulk.tensor"

    def statement(self, rank: int, shared: str, tensor: str, barrier: str = "", ctas: str = "") -> str:
        return isa.TmaLoad().statement(rank, shared, tensor, barrier, ctas)


def rows_by_hand() -> BulkTransfer:
    return BulkLoad()


def brought(
    copy: Any = None, shape: tuple[int, ...] = (16, 32), swizzle: int | None = 128, window: Any = None,
    stage: tuple[int, ...] | None = None, more: Any = None, multicast: int | None = None, **grid: Any,
) -> type[Machine]:
    """y = x: one role brings tiles, another stores them."""
    three = len(shape) == 3

    class Brought(Machine):
        """y = x"""

        m, n, b = Dim(), Dim(), Dim()
        dims = (b, m, n) if three else (m, n)
        x, y = Input("f32", *dims), Output("f32", *dims)
        copy_, get, st, by_threads = copy or Box(), isa.LdShared(1), isa.StGlobal(1), isa.CpAsync(4)

        def program(self, p: Any) -> None:
            who = blocked(shape, threads=32, across=32)
            buffer = p.smem("f32", stage or shape, **({} if swizzle is None else {"swizzle": swizzle}))
            axes = ((self.b, shape[0]), (self.m, shape[1])) if three else ((self.m, shape[0]),)
            cast = {} if multicast is None else {"multicast": multicast}

            def part(s: Any) -> Any:
                return s.t if stage is None else s.t.window((0,) * len(shape), shape)

            with p.grid(*axes, **grid) as at, p.pipeline("ring", 2, t=buffer) as ring:
                with p.role("bring", warps=1), p.loop(self.n, step=shape[-1]) as j, ring.produce() as s:
                    tile = window(self, at, j) if window else self.x.tile(*at, j, shape=shape)
                    p.copy(self.copy_, tile, part(s), **cast)
                    if more is not None:
                        more(self, p, at, j, s, who)
                with p.role("keep", warps=1, first=1), p.loop(self.n, step=shape[-1]) as j, ring.consume() as s:
                    p.store(self.st, self.y.tile(*at, j, shape=shape), p.load(self.get, part(s), who))

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return Brought


@dataclass(frozen=True, eq=False)
class Lax(isa.Wgmma):
    """wgmma that says nothing of where its operands lie."""

    def operand_rules(self, a: Any, b: Any) -> tuple[()]:
        return ()


@dataclass(frozen=True, eq=False)
class Narrow(Lax):
    """A product of 16 rows for a warpgroup, which no GPU has."""

    def shape(self, a: Any, b: Any) -> Any:
        return 16, 64, 16

    def fragments(self, a: Any, b: Any) -> Any:
        return None, None, Layout.parse("((4,8,4),2):((2@1,1@0,8@1),1@1)")


def multiplied(
    product: Any = None, warps: int = 4, tiles: tuple[int, int] = (1, 1), rows: int = 128, columns: int = 64,
    swizzle: int | None = 128, major: Any = "row", moving: bool = False, own: bool = False, registers: bool = False,
    begin: Callable[[Any], tuple[Any, Any]] | None = None, order: int = 0,
) -> type[Machine]:  # fmt: skip
    """c = a @ b by warpgroups, of operands that another role brings, or their own.

    begin  how far along k and n the windows of b begin in it, which then has more of both than what is multiplied
    order  the axis along which b is contiguous
    """

    class Multiplied(Machine):
        """c = a @ b"""

        m, n, k = Dim(), Dim(), Dim()
        a, b = Input("f16", m, k, majors=(major,)), Input("f16", k, n, majors=(("row", "col")[1 - order],))
        c = Output("f32", m, n)
        tma, mma, st = isa.TmaLoad(), product or isa.Wgmma(64), isa.StGlobal(1)
        shift = Param(4, 16)
        copy, get = isa.CpAsync(8), isa.LdShared(1)

        def program(self, p: Any) -> None:
            shape_a, along, (down, right) = (rows, 64), self.a.contiguous, begin(self) if begin else (0, 0)
            shape_b = (64, columns + 64 if begin else columns)
            t = p.tiled(self.mma, "f16", "f16", (rows, columns), tiles)
            cut = {} if swizzle is None else {"swizzle": swizzle}
            a_stage = p.smem("f16", shape_a, contiguous=along, **cut)
            b_stage = p.smem("f16", shape_b, contiguous=order, **cut)
            first = {"first": warps} if not own else {}
            bring = ("all", warps) if own else ("bring", 1)
            with (
                p.grid((self.m, rows), (self.n, columns)) as (i, j),
                p.pipeline("ring", 2, a=a_stage, b=b_stage) as ring,
            ):
                with p.role(bring[0], warps=bring[1], **first), p.loop(self.k, step=64) as kk, ring.produce() as s:
                    for x, stage, shape, axis in ((self.a.tile(i, kk, shape=shape_a), s.a, shape_a, along),
                                                  (self.b.tile(kk, j, shape=shape_b), s.b, shape_b, order)):
                        if own:
                            p.copy(self.copy, x, stage, blocked(shape, threads=32 * warps, vector=8, axis=axis))
                        else:
                            p.copy(self.tma, x, stage)
                with p.role("all", warps=warps):
                    total = p.full(t.c, "f32")
                    steps = p.loop if moving else p.unroll
                    with p.loop(self.k, step=64), ring.consume() as s, steps(32 if begin else 64, step=t.k) as kt:
                        a = s.a.window((0, kt), (rows, t.k))
                        a = p.load(self.get, a, t.a) if registers else a
                        p.multiply(self.mma, total, a, s.b.window((kt + down, right), (t.k, columns)))
                    p.store(self.st, self.c.tile(i, j, shape=(rows, columns)), total)

        @staticmethod
        def reference(a: Any, b: Any) -> Any:
            return a @ b

    return Multiplied


def dealt(extent: Callable[..., Any]) -> type[Machine]:
    """y = sums of x, whose rounds stream-K deals out."""

    class Dealt(Machine):
        """y = x"""

        m, n = Dim(), Dim()
        x, y = Input("f32", m, n), Output("f32", m)
        ld, st, add, shuffle = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32"), isa.ShflBfly()

        def program(self, p: Any) -> None:
            who = blocked(TILE, threads=32)
            with p.grid((self.m, 4), persistent=True, stream_k=1) as (i,), p.role("all", warps=1):
                total = p.full(who, "f32")
                with p.loop(extent(self), step=32, divided=True) as j:
                    p.apply(self.add, p.load(self.ld, self.x.tile(i, j, shape=TILE), who), total, into=total)
                own = p.reduce(self.add, total, axis=1, by=self.shuffle)
                with p.fix_up(self.add, self.st, self.ld, own) as found:
                    p.store(self.st, self.y.column(i, 4), found)

        @staticmethod
        def reference(x: Any) -> Any:
            return x.sum(axis=1)

    return Dealt


def by_turns(rows: tuple[int, int]) -> type[Machine]:
    """Two roles that take turns at tiles, and fix up what they have of them, in tiles of so many rows."""

    class Turns(Machine):
        """y = sums of x"""

        m, n = Dim(), Dim()
        x, y = Input("f32", m, n), Output("f32", m)
        ld, st, add, shuffle = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32"), isa.ShflBfly()

        def program(self, p: Any) -> None:
            with p.grid((self.m, 8), persistent=True, slices=2) as (i,):
                for number, tall in enumerate(rows):
                    who = blocked((tall, 32), threads=32)
                    with p.role(f"r{number}", warps=1, first=number, share=(number, 2)):
                        total = p.full(who, "f32")
                        with p.loop(self.n, step=32, divided=True) as j:
                            x = p.load(self.ld, self.x.tile(i, j, shape=(tall, 32)), who)
                            p.apply(self.add, x, total, into=total)
                        own = p.reduce(self.add, total, axis=1, by=self.shuffle)
                        with p.fix_up(self.add, self.st, self.ld, own) as found:
                            p.store(self.st, self.y.column(i, tall), found)

        @staticmethod
        def reference(x: Any) -> Any:
            return x.sum(axis=1)

    return Turns


def half(self: Any) -> Partition:
    """The first half of the elements, and nobody has the others."""
    return Partition((64 * self.w,), Layout.of([(32, E(0))], [(self.w, 32 * E(0))]))



def left_loop(s: Any, p: Any) -> Any:
    with p.loop(4) as index:
        p.store(s.st, s.y.tile(0, 0, shape=TILE), p.full(blocked(TILE, threads=32), "f32"))
    return index
