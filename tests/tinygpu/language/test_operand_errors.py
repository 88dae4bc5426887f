"""Operands that an instruction cannot take, and clusters that a tile cannot go to: told when the class is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from asynchronous_machines import TmaLoad, TmaStore
from negation import Later, Program, around, refused, thing

from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import symbol
from tinygpu.language import InOut, Layout, Partition, Route, UnknownLayout, blocked
from tinygpu.language.instruction import Fragment, MatrixMultiply
from tinygpu.language.memories import RMEM, SMEM, Memory
from tinygpu.language.partition import expr
from tinygpu.ptx import isa

MORE = {"put": isa.StShared(1), "get": isa.LdShared(1), "add": isa.Add("f32"), "tma": TmaLoad(), "out": TmaStore()}
MMA = isa.MmaSync()


@dataclass(frozen=True, eq=False)
class InPlaces(MatrixMultiply):
    """A product of 16 x 8 x 8, of operands in given memories."""

    a: Memory = RMEM
    b: Memory = RMEM
    c: Memory = RMEM
    shared_by: int = 1
    traced_only: ClassVar[bool] = True

    @property
    def label(self) -> str:
        return "product"

    @property
    def places(self) -> tuple[Memory, Memory, Memory]:  # type: ignore[override]
        return self.a, self.b, self.c

    @property
    def ctas(self) -> int:  # type: ignore[override]
        return self.shared_by

    def shape(self, a: DType, b: DType) -> tuple[int, int, int]:
        return 16, 8, 8

    def accumulator(self, a: DType, b: DType) -> DType:
        return dtype("f32")

    def fragments(self, a: DType, b: DType) -> tuple[Fragment, Fragment, Fragment]:
        return None, None, None


def held(rows: int, columns: int) -> Partition:
    return blocked((rows, columns), threads=32)


def product(
    instruction: Any = MMA, a: Any = ("f16", 16, 8), b: Any = ("f16", 8, 8), c: Any = ("f32", 16, 8)
) -> Callable[..., None]:
    """accumulator += a @ b of constants in registers."""

    def inner(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        tiles = [p.full(held(rows, columns), kind) for kind, rows, columns in (a, b, c)]
        p.multiply(instruction, tiles[2], tiles[0], tiles[1])

    return inner


@pytest.mark.parametrize(
    ("inner", "sentence"),
    [
        (product(a=("f16", 16, 8), b=("bf16", 8, 8)), "{mma}"),
        (product(c=("f16", 16, 8)), "mma.sync on f16 x f16 accumulates in f32, not in f16"),
        (product(a=("f16", 16, 9)), "mma.sync multiplies 16x9 by 8x8 into 16x8"),
        (product(a=("f16", 17, 8)), "mma.sync multiplies 17x8 by 8x8 into 16x8"),
        (product(c=("f32", 16, 9)), "mma.sync multiplies 16x8 by 8x8 into 16x9"),
        (product(InPlaces(shared_by=2)), "product multiplies 16x8 by 8x8 shared by 2 CTAs into 16x8"),
        *(
            (
                product(InPlaces(**{place: SMEM})),
                f"product (product) has {what} in SMEM, but v{number} lies in RMEM: an instruction from RMEM to SMEM "
                "is missing",
            )
            for number, (place, what) in enumerate((("a", "a"), ("b", "b"), ("c", "its accumulator")), 1)
        ),
        (lambda self, p, x, y, who: p.multiply(self.neg, x, x, x), "p.multiply takes a MatrixMultiply, not {neg}"),
        (
            lambda self, p, x, y, who: p.tiled(self.neg, "f16", "f16", (16, 8), (1, 1)),
            "p.tiled takes a MatrixMultiply, not {neg}",
        ),
        (
            lambda self, p, x, y, who: p.tiled(isa.Wgmma(64), "f16", "f16", (64, 64), (4, 1)),
            "p.tiled: 4 warpgroups with 64 rows of wgmma each have more than the 64 rows of the tile",
        ),
        (
            lambda self, p, x, y, who: p.tiled(isa.MmaSync(), "f16", "f16", (64, 4), (2, 1)),
            "p.tiled: 1 warp with 8 columns of mma.sync each have more than the 4 columns of the tile",
        ),
        (lambda self, p, x, y, who: p.apply(self.ld, x), "p.apply takes an Elementwise, not {ld}"),
        (
            lambda self, p, x, y, who: p.apply("max", x),
            "p.apply takes an Elementwise, not 'max'; the machine's body declares it (ld = isa.LdGlobal(4)), and the "
            "program names it self.ld",
        ),
        (lambda self, p, x, y, who: p.apply(self.neg, x), "neg computes on registers, and x lies in GMEM"),
        (
            lambda self, p, x, y, who: p.apply(isa.Add("f16"), p.full(who, "f16"), self.n),
            "add.rn.f16 takes f16 here; the number n can be f32, s32 or u32",
        ),
        (
            lambda self, p, x, y, who: p.apply(self.neg, p.load(self.ld, x, who), into=p.full(who, "f16")),
            "neg gives f32, and v2 is f16 in RMEM",
        ),
        (
            lambda self, p, x, y, who: p.apply(self.neg, p.load(self.ld, x, who), into=y),
            "neg gives f32, and y is f32 in GMEM",
        ),
        (
            lambda self, p, x, y, who: p.apply(self.add, p.load(self.ld, x, who), p.full(held(1, 32), "f32")),
            "add mixes tiles with 2 and 1 axes",
        ),
        (
            lambda self, p, x, y, who: p.apply(self.add, p.load(self.ld, x, who), True),
            "add takes tiles, scalars, dims and numbers, not True",
        ),
        (
            lambda self, p, x, y, who: p.apply(self.add, p.load(self.ld, x, who)),
            "add takes 2 operands, not 1",
        ),
        (lambda self, p, x, y, who: p.store(self.st, y, x), "st stores registers, and x lies in GMEM"),
        (
            lambda self, p, x, y, who: p.store(self.neg, y, x),
            "p.store takes a Transfer, MatrixStore or CellStore, not {neg}",
        ),
        (
            lambda self, p, x, y, who: p.copy(self.neg, x, y),
            "p.copy takes a Transfer, Route, BulkTransfer or CellCopy, not {neg}",
        ),
        (
            lambda self, p, x, y, who: p.copy(Route(self.ld, self.st), y, x, who),
            "ld.global+st.global writes x, which is declared Input; declare it Output or InOut",
        ),
        (
            lambda self, p, x, y, who: p.copy(Route(self.get, self.st), x, y, who),
            "get (ld.shared) reads SMEM, but the operand lies in GMEM: no instruction brings it from GMEM to SMEM",
        ),
        (
            lambda self, p, x, y, who: p.copy(Route(self.ld, self.st), x, y),
            "ld.global+st.global moves thread by thread: say who moves what, with a partition",
        ),
        (
            lambda self, p, x, y, who: p.copy(Route(self.ld, self.st), x, y.window((0,), (5,)), who),
            "ld.global+st.global moves y as 5, but its partition is for 32*warps",
        ),
        (
            lambda self, p, x, y, who: p.copy(Route(self.ld, self.st), x, y, who, multicast=0),
            "ld.global+st.global (ld.global+st.global) serves one CTA; only a BulkTransfer is multicast",
        ),
        (
            lambda self, p, x, y, who: p.reduce(self.add, p.full(who, "f32"), axis=0, by=self.add),
            "p.reduce exchanges by a Shuffle or an ExchangePlan, not {add}",
        ),
        (
            lambda self, p, x, y, who: p.reduce(self.add, p.full(who, "f32"), axis=0, by=isa.Exchange()),
            "p.reduce exchanges by what the search chooses; declare the choice in the class, and give self.NAME",
        ),
        (
            lambda self, p, x, y, who: p.reduce(self.add, x, axis=0, by=isa.ShflBfly()),
            "add reduces registers, and x lies in GMEM",
        ),
        (
            lambda self, p, x, y, who: p.reduce(isa.Add("f32"), p.full(who, "s8"), axis=0, by=isa.ShflBfly()),
            "add.rn.f32 reduces s8, and threads exchange values of 16, 32 or 64 bits; convert it to f32 or s32 first",
        ),
        (
            lambda self, p, x, y, who: p.reduce(isa.Add("s32"), p.full(who, "f32"), axis=0, by=isa.ShflBfly()),
            "add.s32 cannot reduce f32: it takes s32, s32 and gives s32",
        ),
        (
            lambda self, p, x, y, who: p.reduce(self.add, p.full(held(4, 8), "f32"), axis=-1, by=isa.ShflBfly()),
            "add reduces along axis -1, and %v1 has the axes 0 to 1",
        ),
        (
            lambda self, p, x, y, who: p.apply(self.add, p.full(held(4, 8), "f32").window((0, 2), (4, 4)), 1.0),
            "%v1[0:+4, 2:+4] begins at 2 along axis 1; a window of registers begins at a multiple of its extent, 4",
        ),
        (
            lambda self, p, x, y, who: p.apply(
                self.add, p.full(held(4, 8), "f32").window((0, symbol("tile0")), (4, 1)), 1.0
            ),
            "%v1[0:+4, tile0:+1] begins at tile0 along axis 1, and which registers hold it has to be known before the "
            "launch; tile0 is not: let p.unroll give it",
        ),
        (
            lambda self, p, x, y, who: p.apply(
                self.add, p.full(held(4, 8), "f32"), 2.0, into=p.full(held(4, 8), "f32").window((0, 0), (4, 4))
            ),
            "%v2[0:+4, 0:+4] is a window of registers, which is read; a statement changes whole values",
        ),
        (lambda self, p, x, y, who: x.window((0,), (1, 1)), "x has 1 axes; the window gives 1 and 2"),
        (lambda self, p, x, y, who: x.window((0, 0), (1,)), "x has 1 axes; the window gives 2 and 1"),
        (lambda self, p, x, y, who: p.rank(1), "there is no axis 1 of the grid along which a CTA has a rank"),
        (lambda self, p, x, y, who: p.rank(-1), "there is no axis -1 of the grid along which a CTA has a rank"),
        (
            lambda self, p, x, y, who: p.smem("f32", (8, 32), swizzle=64, pad=4),
            "a buffer has a swizzle, or a layout and padding of its own, not both",
        ),
        (
            lambda self, p, x, y, who: p.smem("f32", (8, 32), swizzle=64, layout=UnknownLayout()),
            "a buffer has a swizzle, or a layout and padding of its own, not both",
        ),
        (lambda self, p, x, y, who: p.buffer(RMEM, "f32", (32,)), "a buffer lies in SMEM or TMEM, not in RMEM"),
    ],
)
def test_an_operand_that_cannot_be_is_explained(inner: Callable[..., Any], sentence: str) -> None:
    made = {**MORE, "ld": isa.LdGlobal(1), "neg": isa.Neg("f32")}
    with pytest.raises(TypeError) as unknown:
        MMA.accumulator(dtype("f16"), dtype("bf16"))
    said = sentence.format(mma=f"mma.sync: {unknown.value}", **{k: repr(v) for k, v in made.items()})
    refused(lambda: thing(around(inner), **made), f"Thing.program: {said}")


def test_threads_that_hold_other_values_do_not_combine_them() -> None:
    def inner(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        one = Partition((expr(4), expr(8)), Layout.parse("(32,4):(1@1,1@0)"))
        p.apply(self.add, p.full(held(4, 8), "f32"), p.full(one, "f32"))

    refused(
        lambda: thing(around(inner), **MORE),
        "Thing.program: add combines tiles that are held by other threads: [4x8] (32,4):(1@1,1@0) and "
        "[4x8] ((8,4),1):((1@1,1@0),0)",
    )


def test_what_the_program_writes_is_not_read_through_the_read_only_path() -> None:
    def inner(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        p.store(self.st, y, p.load(self.ld, y, who))

    attributes = {"ld": isa.LdGlobalReadOnly(1), "y": Later(lambda n: InOut("f32", n))}
    refused(
        lambda: thing(around(inner), reference=staticmethod(lambda x, y: y), **attributes),
        "Thing.program: ld (ld.global.nc) reads y through the read-only path, and the program writes it; load it with "
        "ld.global",
    )
    read = thing(leave_out=(), ld=isa.LdGlobalReadOnly(1))
    assert read.dim_names() == ("n",)


def test_what_follows_a_role_stands_outside_of_it() -> None:
    def program(self: Any, p: Any) -> None:
        with p.grid((self.n, 32)):
            with p.role("all", warps=1):
                value = p.full(blocked((32,), threads=32), "f32")
            p.apply(self.neg, value)

    refused(
        lambda: thing(program),
        "Thing.program: neg stands outside a role; say which warps do it with `with p.role(...)`",
    )


def copied(
    rows: int = 64, multicast: int | None = None, cluster: Any = 1, partition: bool = False, kind: str = "f32",
    **more: Any,
) -> Program:  # fmt: skip
    """A tile of 32 elements by TMA into a slot, and from there in registers to y; along axis 1 nothing moves."""

    def program(self: Any, p: Any) -> None:
        who = blocked((32,), threads=32)
        with (
            p.grid((self.n, 32), (self.n, 32), cluster=cluster) as (i, _),
            p.pipeline("ring", 2, t=p.smem(kind, (rows,))) as ring,
        ):
            with p.role("a", warps=1), ring.produce() as s:
                mine = self.x.tile(i, shape=(32,))
                p.copy(self.tma, mine, s.t, who if partition else None, multicast=multicast, **more)
            with p.role("b", warps=1, first=1), ring.consume() as s:
                p.store(self.st, self.y.tile(i, shape=(32,)), p.load(self.get, s.t, who))

    return program


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (copied(64), "tma copies 32 of x to 64 of ring.t"),
        (copied(32, kind="f16"), "tma copies f32 to f16; a copy keeps the type"),
        (
            copied(32, None, 1, True),
            "tma (cp.async.bulk.tensor) moves the whole tile by itself; leave the partition out",
        ),
        (copied(32, 2, 2), "tma is multicast along axis 2 of the grid, along which there is no cluster"),
        (copied(32, -1, (2, 2)), "tma is multicast along axis -1 of the grid, along which there is no cluster"),
        (copied(32, 1, 2), "tma is multicast along axis 1 of the grid, along which there is no cluster"),
        (
            copied(32, 0, 2),
            "tma is multicast along axis 0 of the grid, but its window of x moves along that axis",
        ),
        (
            copied(32, 0, 4, every=2),
            "tma is multicast along axis 0 of the grid, but its window of x moves along that axis from one of every "
            "two CTAs to the next",
        ),
        (
            copied(32, 1, (1, 4), every=3),
            "tma is multicast to every CTA along axis 1 or to every second one, not 3",
        ),
        (copied(32, every=2), "tma brings a tile to one CTA, and every=2 says which of a cluster need it"),
        (
            copied(32, 1, (1, 4), every=2),
            "tma brings ring.t to every second CTA along axis 1; that is for slots that CTAs multiply in pairs, along "
            "the last axis, 1: leave out every= here",
        ),
    ],
)
def test_a_copy_of_a_whole_tile_that_cannot_be_is_explained(program: Program, sentence: str) -> None:
    refused(lambda: thing(program, **MORE), f"Thing.program: {sentence}")


def test_a_copy_of_a_whole_tile_is_declared() -> None:
    for asked in ((32, None, 1), (32, 1, (1, 2)), (32, 1, (2, 4))):
        thing(copied(*asked), **MORE)


def test_a_role_is_declared_once() -> None:
    """Opened again it is the same one, whether its budget and share are said again or not."""

    def twice(first: dict[str, Any], second: dict[str, Any]) -> Program:
        def program(self: Any, p: Any) -> None:
            with p.grid((self.n, 32), persistent=True) as (i,):
                for more in (first, second):
                    with p.role("a", warps=4, **more):
                        value = p.load(self.ld, self.x.tile(i, shape=(32,)), blocked((32,), threads=32))
                        p.store(self.st, self.y.tile(i, shape=(32,)), value)
                with p.role("b", warps=4, first=4, share=(1, 2)):
                    pass

        return program

    budget = {"registers": 40, "share": (0, 2)}
    for second in (budget, {}):
        thing(twice(budget, second))
    for second in ({"registers": 48, "share": (0, 2)}, {"registers": 40}, {"share": (0, 2)}):
        sentence = "Thing.program: role 'a' is declared twice with different registers or shares"
        refused(lambda second=second: thing(twice(budget, second)), sentence)
