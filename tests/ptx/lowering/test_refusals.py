"""What lowering cannot write is refused when a machine is declared, or is no candidate.

Every `raise LoweringError` of the room is listed, with the declaration that refuses it first, or with why nothing can
reach it. A place that is added without an entry fails the first test.
"""

from __future__ import annotations

import ast
import itertools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.expressions import expr
from tinygpu.language import (
    GMEM,
    SMEM,
    BulkTransfer,
    DeclarationError,
    Dim,
    E,
    Input,
    Layout,
    Machine,
    Output,
    Param,
    Partition,
    blocked,
    maximum,
    minimum,
    symbol,
)
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

ROOM = Path(__file__).parents[3] / "ptx" / "lowering"
sys.path.append(str(Path(__file__).parents[2] / "thirdparty"))

# --- machines -----------------------------------------------------------------------------------------------------

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
    from bulk_rows import BulkLoad

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
) -> type[Machine]:  # fmt: skip
    """c = a @ b by warpgroups, of operands that another role brings, or their own."""

    class Multiplied(Machine):
        """c = a @ b"""

        m, n, k = Dim(), Dim(), Dim()
        a, b = Input("f16", m, k, majors=(major,)), Input("f16", k, n, majors=("col",))
        c = Output("f32", m, n)
        tma, mma, st = isa.TmaLoad(), product or isa.Wgmma(64), isa.StGlobal(1)
        copy, get = isa.CpAsync(8), isa.LdShared(1)

        def program(self, p: Any) -> None:
            shape_a, shape_b, along = (rows, 64), (64, columns), self.a.contiguous
            t = p.tiled(self.mma, "f16", "f16", (rows, columns), tiles)
            cut = {} if swizzle is None else {"swizzle": swizzle}
            a_stage = p.smem("f16", shape_a, contiguous=along, **cut)
            b_stage = p.smem("f16", shape_b, contiguous=0, **cut)
            first = {"first": warps} if not own else {}
            bring = ("all", warps) if own else ("bring", 1)
            with (
                p.grid((self.m, rows), (self.n, columns)) as (i, j),
                p.pipeline("ring", 2, a=a_stage, b=b_stage) as ring,
            ):
                with p.role(bring[0], warps=bring[1], **first), p.loop(self.k, step=64) as kk, ring.produce() as s:
                    for x, stage, shape, axis in ((self.a.tile(i, kk, shape=shape_a), s.a, shape_a, along),
                                                  (self.b.tile(kk, j, shape=shape_b), s.b, shape_b, 0)):
                        if own:
                            p.copy(self.copy, x, stage, blocked(shape, threads=32 * warps, vector=8, axis=axis))
                        else:
                            p.copy(self.tma, x, stage)
                with p.role("all", warps=warps):
                    total = p.full(t.c, "f32")
                    steps = p.loop if moving else p.unroll
                    with p.loop(self.k, step=64), ring.consume() as s, steps(64, step=t.k) as kt:
                        a = s.a.window((0, kt), (rows, t.k))
                        a = p.load(self.get, a, t.a) if registers else a
                        p.multiply(self.mma, total, a, s.b.window((kt, 0), (t.k, columns)))
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


# --- what is refused first ----------------------------------------------------------------------------------------

COMPUTES = "a kernel computes with + - * // %, minimum and maximum of dims, leading dimensions and indices"
LATE = "is known at launch only; give it in numbers and parameters"
BEGIN = "windows that threads move begin at sums of multiples of indices, dims, and quotients and remainders of these"
NEVER = "it can never work, whatever the parameters"
EXIST = "copy_ (cp.async.bulk) moves rows that exist, and the windows of x along axis"

REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "fact": (
        lambda: plain(operand=lambda s, p, i, j: symbol("x.align")),
        f"an operand of mul is x.align, and a kernel does not know x.align there; {COMPUTES}",
    ),
    "moving part": (
        lambda: plain(operand=lambda s, p, i, j: p.full(blocked((4, 32), threads=32), "f32").window((i, 0), (2, 32))),
        "%v2[4*tile0:+2, 0:+32] begins at 4*tile0 along axis 0, and which registers hold it has to be known before the "
        "launch; tile0 is not: let p.unroll give it",
    ),
    "device": (
        lambda: plain(rounds=lambda s, p: symbol("device.sm_count")),
        f"the trip count of a loop is device.sm_count, and a kernel does not know device.sm_count there; {COMPUTES}",
    ),
    "outside": (
        lambda: plain(read=lambda s, p, i, j: (left_loop(s, p), j)),
        f"the offset of a window of x is i1, and a kernel does not know i1 there; {COMPUTES}",
    ),
    "comparison": (
        lambda: plain(operand=lambda s, p, i, j: s.n > 5),
        f"an operand of mul is n > 5; {COMPUTES}",
    ),
    "product": (
        lambda: plain(read=lambda s, p, i, j: (i * s.n, j)),
        f"a window of x begins at 4*n*tile0; {BEGIN}",
    ),
    "size of a tile": (
        lambda: plain(axes=lambda s: ((s.m, s.n), (s.n, 32))),
        f"n is a size of a tile along m, and n {LATE}",
    ),
    "axis": (
        lambda: plain(axes=lambda s: ((2 * s.m, 8), (s.n, 32))),
        "p.grid runs over 2*m; each of its axes runs over a Dim of the machine, or over what numbers and parameters "
        "make",
    ),
    "threads": (
        lambda: held(
            lambda s: blocked((64 * s.w,), threads=32, vector=2), lambda s, p, a, b, who: p.apply(s.add, a, b)
        ),
        f"{NEVER}: each thread holds the values of v2 that add combines with its own",
    ),
    "no swizzle": (
        lambda: brought(swizzle=None),
        "ring.t is moved by TMA: give the width of its swizzle, swizzle=32, 64 or 128",
    ),
    "part of a buffer": (lambda: brought(stage=(32, 32)), "box moves to or from all of ring.t, not a window of it"),
    "a box with steps": (
        lambda: brought(window=lambda s, at, j: s.x.tile(0, j, shape=(8, 32), step=(2, 1)), shape=(8, 32)),
        "box moves boxes, and x[0:+8:2, 32*i1:+32] is none: copy it thread by thread",
    ),
    "multicast": (
        lambda: brought(
            multicast=0, cluster=3, shape=(8, 32), window=lambda s, at, j: s.x.tile(0, j, shape=(8, 32))
        ),
        f"{NEVER}: each CTA of the cluster brings the same number of rows of x, a multiple of 128 bytes",
    ),
    "one row of all": (
        lambda: brought(rows_by_hand(), swizzle=None, window=lambda s, at, j: s.x.tile(0, j, shape=(16, 32))),
        f"{EXIST} 0, which begin at 0, do not follow one another over m",
    ),
    "one part of a batch": (
        lambda: brought(
            rows_by_hand(), (1, 8, 32), None, lambda s, at, j: s.x.at(3).tile(at[1], j, shape=(8, 32)).unsqueeze(0)
        ),
        f"{EXIST} 0, which begin at 3, do not follow one another over b",
    ),
    "more than copies": (
        lambda: brought(
            more=lambda s, p, at, j, slot, who: p.store(
                isa.StShared(1), slot.t, p.load(isa.LdGlobal(1), s.x.tile(*at, j, shape=(16, 32)), who)
            )
        ),
        "'ring' is produced by TMA, and its produce() does more than copy by TMA: %v3 = ld.global "
        "x[16*tile0:+16, 32*i1:+32]",
    ),
    "two completions": (
        lambda: brought(
            more=lambda s, p, at, j, slot, who: p.copy(s.by_threads, s.x.tile(*at, j, shape=(16, 32)), slot.t, who)
        ),
        "slots of 'ring' are completed by mbarrier (token2(ring.t: mbarrier): ring.t[0:+16, 0:+32] = copy_ "
        "x[16*tile0:+16, 32*i1:+32]) and by commit group (token3(ring.t: commit group): ring.t[0:+16, 0:+32] = "
        "by_threads x[16*tile0:+16, 32*i1:+32]); give what completes otherwise a pipeline of its own",
    ),
    "stream-K": (
        lambda: dealt(lambda s: s.n * 2),
        "a loop over 2*n is divided, and stream-K deals out the rounds of loops over a dim; write p.loop(DIM, "
        "divided=True)",
    ),
    "turns": (
        lambda: by_turns((8, 4)),
        "the roles r0 and r1 take turns at tiles, and add fixes up 256 values in one and 128 in the other; they "
        "share a workspace",
    ),
    "plain operands": (
        lambda: multiplied(Lax(64), swizzle=None, own=True),
        "mma (wgmma) reads ring.a by descriptors, and it has no swizzle; give its width, swizzle=32, 64 or 128",
    ),
    "moving operands": (
        lambda: multiplied(moving=True),
        "the window of ring.a moves with i6 at run time, and mma multiplies windows that stand still or move in "
        "p.unroll",
    ),
    "idle warpgroups": (
        lambda: multiplied(warps=8),
        f"{NEVER}: the warpgroups of the role divide the rows of %v4, and each has all columns",
    ),
    "columns": (
        lambda: multiplied(warps=8, tiles=(1, 2), columns=128),
        f"{NEVER}: the warpgroups of the role divide the rows of %v4, and each has all columns",
    ),
    "narrow": (
        lambda: multiplied(Narrow(64), 8, (2, 1), 32, swizzle=64, major="col"),
        f"{NEVER}: the rows of ring.a that a warpgroup multiplies are whole widths of its swizzle",
    ),
    "own operands": (
        lambda: multiplied(own=True),
        "mma (wgmma) reads ring.a from shared memory, which threads fill; another role brings it there by TMA",
    ),
    "own right operand": (
        lambda: multiplied(isa.WgmmaRegisters(64), own=True, registers=True),
        "mma (wgmma.registers) reads ring.b from shared memory, which threads fill; another role brings it there by "
        "TMA",
    ),
}


def left_loop(s: Any, p: Any) -> Any:
    with p.loop(4) as index:
        p.store(s.st, s.y.tile(0, 0, shape=TILE), p.full(blocked(TILE, threads=32), "f32"))
    return index


def stored(kind: str, into: str, then: Callable[..., Any] | None = None, fill: float = 0.0) -> type[Machine]:
    class Stored(Machine):
        """y = x"""

        n = Dim()
        x, y = Input(kind, n), Output(into, n)
        ld, st = isa.LdGlobal(1), isa.StGlobal(1)

        def program(self, p: Any) -> None:
            with p.grid((self.n, 64)) as (i,), p.role("all", warps=1):
                x = p.load(self.ld, self.x.tile(i, shape=(64,)), blocked((64,), threads=32), fill=fill)
                p.store(self.st, self.y.tile(i, shape=(64,)), then(self, p, x) if then else x)

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return Stored


KINDS = ("f16", "bf16", "e4m3", "e5m2", "s8", "u8", "f32")


@pytest.mark.parametrize(("kind", "into"), [*itertools.permutations(KINDS, 2)])
def test_a_store_keeps_the_type(kind: str, into: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        stored(kind, into)
    assert str(refused.value) == f"Stored.program: st stores {kind} values into y, which is {into}; convert first"


WHOLE = "holds whole numbers from"


@pytest.mark.parametrize(
    ("kind", "number", "why"),
    [
        ("s32", float("-inf"), f"s32 {WHOLE} -2,147,483,648 to 2,147,483,647"),
        ("s32", 0.5, f"s32 {WHOLE} -2,147,483,648 to 2,147,483,647"),
        ("s8", float("nan"), f"s8 {WHOLE} -128 to 127"),
        ("u32", -1, f"u32 {WHOLE} 0 to 4,294,967,295"),
        ("u32", 2**32, f"u32 {WHOLE} 0 to 4,294,967,295"),
        ("f16", 70000, "f16 holds numbers up to 65,504"),
        ("e4m3", float("inf"), "e4m3 has no infinities"),
        ("e5m2", -6e4, "e5m2 holds numbers up to 57,344"),
    ],
)
def test_numbers_that_a_type_does_not_hold_are_refused(kind: str, number: float, why: str) -> None:
    def told(then: Callable[..., Any]) -> str:
        with pytest.raises(DeclarationError) as refused:
            stored(kind, kind, then)
        return str(refused.value).removeprefix("Stored.program: ")

    who = blocked((64,), threads=32)
    assert told(lambda s, p, x: p.full(who, kind, number)) == f"the constant is {number}, and {why}"
    if kind in ("s32", "u32", "f16"):
        top = isa.Max(kind)
        assert told(lambda s, p, x: p.apply(top, x, number)) == f"an operand of {top.label} is {number}, and {why}"
    with pytest.raises(DeclarationError) as refused:
        stored(kind, kind, fill=number)
    assert str(refused.value) == f"Stored.program: what ld fills with is {number}, and {why}"


@pytest.mark.parametrize("kind", ["f64", "f32", "tf32", "f16", "bf16", "e4m3", "e5m2", "s32", "u32", "s8", "u8"])
def test_every_type_that_a_launch_has_is_moved_as_it_is(kind: str) -> None:
    """Infinities and extremes among them: what converts saturates, and what moves does not."""
    machine = stored(kind, kind)
    problem = machine.problem(n=70)
    kernel = build(build_space(machine, problem, device("a100")).program({}), problem, {}, SolverCache()).kernel
    assert verify(kernel, machine, problem, orders=("late",)).passed


def test_scales_of_blocks_are_no_arrays_of_a_launch() -> None:
    with pytest.raises(DeclarationError) as refused:
        stored("ue8m0", "ue8m0")
    assert str(refused.value) == "Stored.program: ld.global moves ue8m0 of x, and launches have none; use u8"


def test_tf32_is_stored_as_the_f32_that_it_is() -> None:
    stored("tf32", "f32")
    stored("f32", "tf32")


# --- sizes, and windows of buffers --------------------------------------------------------------------------------


def staged(
    stages: Any = 1, begin: Any = 0, extent: Any = 32, rounds: Any = 4, step: Any = 32, run_time: bool = False,
    cluster: Any = 1,
) -> type[Machine]:  # fmt: skip
    """y = x, by pieces of a slot of 128 elements."""

    class Staged(Machine):
        """y = x"""

        n = Dim()
        x, y = Input("f32", n), Output("f32", n)
        s, w, v = Param(0, 1, 2), Param(0, 2, 4), Param(32, 48)
        ld, st, put, get = isa.LdGlobal(1), isa.StGlobal(1), isa.StShared(1), isa.LdShared(1)

        def program(self, p: Any) -> None:
            def of(size: Any) -> Any:
                return size(self) if callable(size) else size

            who, part = blocked((128,), threads=32), blocked((of(extent),), threads=32)
            with (
                p.grid((self.n, 128), cluster=of(cluster)) as (i,),
                p.pipeline("ring", of(stages), x=p.smem("f32", (128,))) as ring,
                p.role("all", warps=1),
            ):
                with ring.produce() as s:
                    p.store(self.put, s.x, p.load(self.ld, self.x.tile(i, shape=(128,)), who))
                with ring.consume() as s, (p.loop if run_time else p.unroll)(of(rounds)) as k:
                    at = of(begin) + k * of(step)
                    piece = p.load(self.get, s.x.window((at,), (of(extent),)), part)
                    p.store(self.st, self.y.tile(i + at, shape=(of(extent),)), piece)

        @staticmethod
        def reference(x: Any) -> Any:
            return x

    return Staged


LIE = "the windows of ring.x along axis 0,"


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        ({"stages": 0}, "the stages of 'ring' has sizes of 1 or more, and one is 0"),
        ({"cluster": 0}, "the cluster along n has sizes of 1 or more, and one is 0"),
        ({"begin": 100, "rounds": 1}, f"{LIE} 32 from 32*u2 + 100 on, lie within its 128"),
        ({"begin": 1}, f"{LIE} 32 from 32*u2 + 1 on, lie within its 128"),
        ({"rounds": 5}, f"{LIE} 32 from 32*u2 on, lie within its 128"),
        ({"rounds": 5, "run_time": True}, f"{LIE} 32 from 32*i2 on, lie within its 128"),
    ],
)
def test_sizes_are_positive_and_windows_lie_within_their_buffers(made: dict[str, Any], sentence: str) -> None:
    with pytest.raises(DeclarationError) as refused:
        staged(**made)
    assert str(refused.value) == f"Staged.program: {sentence}"


@pytest.mark.parametrize(
    ("made", "out"),
    [
        ({"stages": lambda m: m.s}, {"s": 0}),
        ({"cluster": lambda m: m.s}, {"s": 0}),
        ({"step": lambda m: m.v}, {"v": 48}),
        ({"rounds": lambda m: m.w, "step": lambda m: m.v, "run_time": True}, {"w": 4, "v": 48}),
    ],
)
@pytest.mark.parametrize("dims", [{"n": 128}, {"n": 300}])
def test_parameters_that_break_a_size_or_a_window_are_no_candidates(
    made: dict[str, Any], out: dict[str, int], dims: dict[str, int]
) -> None:
    machine = staged(**made)
    space = build_space(machine, machine.problem(**dims), device("h100"))
    points = [dict(point) for point in space.space.sample(30, np.random.default_rng(1))]
    assert points
    assert not any(out.items() <= point.items() for point in points)
    for point in {tuple(sorted(p.items())): p for p in points}.values():
        kernel = build(space.program(point), space.problem, point, SolverCache()).kernel
        covers = point.get("w", 4) * point.get("v", 32) >= 128  # else parts of y are left out, which is no matter here
        assert not covers or verify(kernel, machine, space.problem, orders=("late",)).passed


# Of which parameters may decide.
NO_CANDIDATE: dict[str, tuple[Callable[[], type[Machine]], str]] = {
    "values": (
        lambda: held(half, lambda s, p, a, b, who: p.apply(s.add, a, b)),
        "each thread holds the values of v2 that add combines with its own",
    ),
    "relayout": (
        lambda: held(half, lambda s, p, a, b, who: p.apply(s.add, a, p.relayout(b, who))),
        "the partitions of %v2 before and behind have all of its elements",
    ),
    "other threads": (
        lambda: held(
            lambda s: blocked((64 * s.w,), threads=32, vector=2),
            lambda s, p, a, b, who: p.apply(s.add, a, p.relayout(b, who)),
        ),
        "every thread has the values of %v2 that it is given; what exchanges them is said with by=",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_written_is_told_when_a_machine_is_declared(name: str) -> None:
    make, sentence = REFUSED[name]
    with pytest.raises(DeclarationError) as refused:
        make()
    assert str(refused.value).partition(".program: ")[2] == sentence


@pytest.mark.parametrize("name", NO_CANDIDATE)
def test_what_cannot_be_written_is_no_candidate(name: str) -> None:
    make, sentence = NO_CANDIDATE[name]
    space = build_space(make(), make().problem(n=100), device("a100")).space
    assert not space.size
    assert sentence in " ".join(v.sentence for v in space.explain({}))


# --- and every place that refuses has its entry -------------------------------------------------------------------

TYPE = "narrows a type: verbs take this family alone, and what is dispatched here is of it"
HANDOVER = "tinygpu.language.handover"
COMMITTED = "tinygpu.language.committed, and tests/machines/test_matmul_basic_blackwell.py tries it"
OPEN = "the state of lowering itself: a block is entered before what stands in it is written"
PLACES: dict[tuple[str, str], str] = {
    ("bulk", "{} is not moved to or from {} by TMA"): "no swizzle",
    ("bulk", "{} rows of {} are not divided among {} CTAs"): "multicast",
    ("bulk", "{} is not aligned to {} bytes, and a tensor map needs that"): "a rule of the family: strides of NAME",
    ("bulk", "{} is no window of a tensor"): TYPE,
    ("bulk", "{} ({}) cannot be written for this target yet"): "no swizzle",
    ("bulk", "{} ({}) moves no rows between a tensor and a buffer"): TYPE,
    ("across_ctas", "nothing is placed that CTAs exchange"): "every exchange of a cluster is placed",
    ("across_warps", "nothing is placed that warps exchange"): "every exchange between warps is placed",
    ("bulk", "the windows of {} may reach beyond it, and {} moves rows that exist"): "one row of all",
    ("compute", "{} does not lie in registers"): TYPE,
    ("broadcast", "%{} is held by other threads than the values that it is combined with"): "values",
    ("picked", "{} does not lie in registers"): TYPE,
    ("context", "{} cannot be computed in a kernel"): "comparison",
    ("context", "no role is open"): OPEN,
    ("context", "{} has no value here"): "outside",
    ("context", "{}"): "a scheduler of one's own that is not settled by a candidate: it says so itself",
    ("context", "the offset {} is not a sum of multiples of indices, quotients and remainders"): "product",
    ("control", "there is no PTX for the statement {}"): "a class of statements of one's own",
    ("control", "a branch that is never taken is not written"): "a block without rounds is left out before",
    ("fix_up", "{} fixes up a tile outside a role"): "p.fix_up stands in a role, or is refused",
    ("fix_up", "the roles that take turns at tiles fix up tiles of different sizes"): "turns",
    ("gmem", "{} is no window of a tensor"): TYPE,
    ("grid", "no tile is open"): OPEN,
    ("handover", "the roles that consume {} share the tiles in different ways"): HANDOVER,
    ("handover", "the roles that take turns at consuming {} have different numbers of warps"): HANDOVER,
    ("handover", "the roles that take turns at producing {} have different numbers of warps"): HANDOVER,
    ("handover", "role {} produces {} by TMA and consumes it itself; give it to another role"): HANDOVER,
    ("handover", "{} is produced by TMA, and its produce() does more than copy"): "more than copies",
    ("lower", "stream-K deals out the rounds of a loop over one dim, and this one has {}"): "stream-K",
    ("matrix", "{} does not load matrices"): TYPE,
    ("matrix", "{} does not store matrices"): TYPE,
    ("matrix", "{} ({}) has no form for {}"): "a rule of the family: transpose of NAME",
    ("matrix", "{} ({}) on operands outside registers cannot be written for a warp"): TYPE,
    ("moves", "{} is no window of a tensor"): TYPE,
    ("moves", "{} is not aligned to {} elements"): "a rule of the family: alignment of NAME",
    ("moves", "{} moves {} elements, and a thread holds {}"): "a rule of the family: vector along NAME",
    ("moves", "{} does not load thread by thread"): TYPE,
    ("moves", "{} does not store registers thread by thread"): TYPE,
    ("moves", "an access that never exists is not written"): OPEN,
    ("moves", "{} ({}) cannot be written for this target yet"): TYPE,
    ("moves", "{}: {} is not an instruction that lowering can write"): TYPE,
    ("moves", "{} needs a partition"): TYPE,
    ("reach", "{} is not lowered: {}; kernels are written for instructions that are not traced only"): (
        "what is traced only says so itself"
    ),
    ("relayout", "%{} cannot be given to other holders: {}"): "relayout",
    ("relayout", "%{} goes to other warps, and {} stays within a warp"): "other threads",
    ("relayout", "%{} goes to other threads, and nothing is said that brings it there"): "other threads",
    ("reduction", "%{} is held by several {} along axis {}, and nothing is said that lets them meet"): (
        "a rule of p.reduce: reduction of NAME"
    ),
    ("roles", "role {} has a register budget: its {} warps from warp {} on must be whole warpgroups"): (
        "a rule of p.role: warpgroups of NAME"
    ),
    ("context", "{} begins where no number is known before the launch"): "moving part",
    ("look_back", "nothing is said that shifts %{} between lanes"): "p.scan refuses it, in tests/tinygpu/language",
    ("scan", "nothing is said that shifts %{} between lanes"): "p.scan refuses it, in tests/tinygpu/language",
    ("smem", "{} does not lie in SMEM"): TYPE,
    ("tensor_memory", "an accumulator in tensor memory begins as 0, not as {}"): TYPE,
    ("tensor_memory", "the window of {} begins at no fixed column of all lanes"): COMMITTED,
    ("tensor_memory", "{} ({}) does not multiply into tensor memory"): TYPE,
    ("tensor_memory", "{} adds to {}, which begins as nothing: p.clear it before"): COMMITTED,
    ("tensor_memory", "{} does not load from tensor memory"): TYPE,
    ("tensor_memory", "{} does not store into tensor memory"): TYPE,
    ("tensor_memory", "neighbouring columns of a cell are not in one register"): "a rule of the family: cells of NAME",
    ("tensor_memory", "{} lies in no tensor memory"): TYPE,
    ("warpgroup", "{} is no operand of {}: it lies in no swizzled buffer"): "plain operands",
    ("warpgroup", "the window of {} moves at run time, and descriptors are made for fixed windows"): "moving operands",
    ("warpgroup", "the warpgroups' parts of {} do not begin at widths of its swizzle"): "narrow",
    ("warpgroup", "{} ({}) cannot be written here: no warpgroups multiply"): TYPE,
    ("warpgroup", "{}: {} warpgroups do not divide {} rows"): "idle warpgroups",
    ("warpgroup", "{} multiplies {}, which its own role produces; another role produces it by TMA"): (
        "own right operand"
    ),
}  # fmt: skip


def sentences() -> set[tuple[str, str]]:
    """(file, sentence) of every place of the room that raises a LoweringError."""
    found = set()
    for path in ROOM.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _is_ours(node.exc.func):
                parts = node.exc.args[0].values if isinstance(node.exc.args[0], ast.JoinedStr) else [node.exc.args[0]]
                text = "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in parts)
                found.add((path.stem, text))
    return found


def _is_ours(raised: ast.expr) -> bool:
    return isinstance(raised, ast.Name) and raised.id == "LoweringError"


def test_every_refusal_of_lowering_has_a_declaration_that_refuses_first_or_cannot_be_reached() -> None:
    assert sentences() == PLACES.keys()
    named = {why for why in PLACES.values() if " " not in why or why in {*REFUSED, *NO_CANDIDATE}}
    assert named <= {*REFUSED, *NO_CANDIDATE, HANDOVER}


# --- what stands next to a refusal is right -----------------------------------------------------------------------

RIGHT: dict[str, tuple[Callable[[], type[Machine]], dict[str, int]]] = {
    "maximum": (lambda: scaled(lambda s: maximum(s.m, s.n)), {"m": 8, "n": 40}),
    "minimum of three": (lambda: scaled(lambda s: minimum(s.m, s.n, 7)), {"m": 8, "n": 40}),
    "square": (lambda: scaled(lambda s: s.m * s.m), {"m": 5, "n": 40}),
    "boxes": (brought, {"m": 40, "n": 96, "b": 1}),
    "boxes of a batch": (lambda: brought(shape=(1, 8, 32)), {"b": 3, "m": 20, "n": 64}),
    "boxes of two": (lambda: brought(shape=(2, 8, 32)), {"b": 3, "m": 20, "n": 64}),
    "rows of a batch": (lambda: brought(rows_by_hand(), (2, 8, 32), None), {"b": 4, "m": 16, "n": 64}),
    "warpgroups": (lambda: multiplied(warps=8, tiles=(2, 1), major="col"), {"m": 128, "n": 64, "k": 128}),
    "registers": (lambda: multiplied(isa.WgmmaRegisters(64), registers=True), {"m": 128, "n": 64, "k": 128}),
    "turns": (lambda: by_turns((8, 8)), {"m": 40, "n": 70}),
}


def scaled(factor: Callable[[Any], Any]) -> type[Machine]:
    made = plain(operand=lambda s, p, i, j: factor(s))

    def reference(x: Any) -> Any:
        return x * int(expr(factor(SimpleNamespace(m=x.shape[0], n=x.shape[1]))))

    made.reference = staticmethod(reference)  # type: ignore[method-assign]
    return made


@pytest.mark.parametrize("name", RIGHT)
def test_what_can_be_written_is_right(name: str) -> None:
    make, dims = RIGHT[name]
    machine = make()
    space = build_space(machine, machine.problem(**dims), device("h100"))
    (point,) = map(dict, space.space.sample(1, np.random.default_rng(3)))
    kernel = build(space.program(point), space.problem, point, SolverCache()).kernel
    assert verify(kernel, machine, space.problem, orders=("late",)).passed
