"""Sums of f16 in tensor memory, two of which come in a register: a machine over every way in which they lie and come.

Also elements that warps store to cells of their own, kernels that are wrong, and what such a machine may not say.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language import TMEM, Choice, DeclarationError, Dim, Input, Machine, Output, Param, blocked
from tinygpu.language.buffer import Buffer
from tinygpu.language.data_paths import rows_in_lanes
from tinygpu.language.tile import Tile
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.trial import rounding_of
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

B200 = device("b200")


class HalfSums(Machine):
    """c = a @ b, added up in f16: 128 rows, 64 rows in half of the lanes, or 64 in each of two CTAs"""

    m, n, k = Dim(), Dim(), Dim()
    a, b, c = Input("f16", m, k), Input("f16", k, n, majors=("row", "col")), Output(("f16", "f32"), m, n)
    bn, stages, tiles, vc = Param(32, 64, 96), Param(2, 3), Param(1, 2), Param(1, 2, 4)
    rows = Choice("128", "64", "pair of 64")
    mma, mma_64 = isa.Tcgen05Mma(bn, half=True), isa.Tcgen05Mma64(bn, half=True)
    mma_pair = isa.Tcgen05MmaPair64(bn, half=True)
    tma, ld, ld_split, st = isa.TmaLoad(), isa.Tcgen05Ld(packed=True), isa.Tcgen05Ld("16x32bx2", True), isa.StGlobal(vc)
    conversions = isa.arithmetic("f32")

    def program(self, p: Any) -> None:
        bm, pairs = 128 if self.rows == "128" else 64, self.rows == "pair of 64"
        mma = {"128": self.mma, "64": self.mma_64, "pair of 64": self.mma_pair}[self.rows]
        ld, part = self.ld_split if self.rows == "64" else self.ld, self.bn // 2 if pairs else self.bn
        a = p.smem("f16", (bm, 64), swizzle=64)
        b = p.smem("f16", (64, part), contiguous=self.b.contiguous, swizzle=32)
        path = mma.path(self.bn)
        who = ld.held((bm, self.bn), path, vector=self.vc)
        with (
            p.grid((self.n, self.bn), (self.m, bm), cluster=(1, 2) if pairs else (1, 1), persistent=True) as (j, i),
            p.pipeline("ring", self.stages, a=a, b=b) as ring,
            p.pipeline("sums", self.tiles, c=p.buffer(TMEM, "f16", (bm, self.bn), path=path)) as sums,
        ):
            with p.role("bring", warps=1), p.loop(self.k, step=64) as kk, ring.produce() as s:
                mine = j + p.rank(1) % 2 * part if pairs else j
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, 64)), s.a)
                p.copy(self.tma, self.b.tile(kk, mine, shape=(64, part)), s.b)
            with p.role("multiply", warps=1, first=1), sums.produce() as t:
                p.clear(t.c)
                with p.loop(self.k, step=64), ring.consume() as s, p.unroll(64, step=16) as kt:
                    p.multiply(mma, t.c, s.a.window((0, kt), (bm, 16)), s.b.window((kt, 0), (16, part)))
            with p.role("keep", warps=4, first=4), sums.consume() as t:
                total = p.load(ld, t.c.window((0, 0), (bm, self.bn)), who)
                p.store(self.st, self.c.tile(i, j, shape=(bm, self.bn)), p.cast(total, self.c.dtype))

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b


@cache
def made(rows: str, seed: int, k: int = 200) -> tuple[Any, Kernel]:
    problem = HalfSums.problem(
        m=136, n=104, k=k, majors={"b": ("row", "col")[seed % 2]}, dtypes={"c": ("f16", "f32")[seed // 2 % 2]}
    )
    space = build_space(HalfSums, problem, B200)
    (point,) = space.space.restrict({"rows": rows}).sample(1, np.random.default_rng(seed))
    return problem, build(space.program(point), problem, point, SolverCache()).kernel


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rows", HalfSums.rows.options)
@pytest.mark.end_to_end
def test_random_candidates_are_right_and_assemble(rows: str, seed: int) -> None:
    problem, kernel = made(rows, seed)
    found = verify(kernel, HalfSums, problem, orders=(("late", "early")[seed % 2],))
    assert found.passed, str(found)
    assert ".pack::16b.b32" in kernel.ptx
    assert assemble(kernel.ptx, kernel.assembled_for("sm_100")).spill_store_bytes == 0


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"\.pack::16b", ""),  # registers have whole cells, of which the upper halves are nobody's
        (r"(tcgen05\.ld\S+ \{[^}]*\}, \[%r\d+)\]", r"\1+1]"),  # from the second column on
        (r"(kind::f16 .*, 0x[0-9a-f]*)00,", r"\g<1>10,"),  # the descriptor says sums of f32
    ],
)
def test_wrong_kernels_are_refused(old: str, new: str) -> None:
    problem, kernel = made("128", 0)
    text, count = re.subn(old, new, kernel.ptx)
    assert count, old
    assert not verify(replace(kernel, ptx=text), HalfSums, problem, orders=("late",)).passed


def test_sums_are_as_far_off_as_f16_is_and_no_further() -> None:
    problem, _ = made("128", 0)
    assert rounding_of(HalfSums, problem).unit == 2.0**-11
    program_of = build_space(HalfSums, problem, B200)
    rng = np.random.default_rng(0)
    a, b = (rng.uniform(-1, 1, shape).astype(np.float16) for shape in ((136, 200), (200, 104)))
    point = program_of.space.restrict({"rows": "128"}).sample(1, rng)[0]
    got = program_of.program(point).run({"a": a, "b": b})["c"].astype(np.float64)
    wide = a.astype(np.float64) @ b.astype(np.float64)
    off, once = np.abs(got - wide), np.abs(wide.astype(np.float16).astype(np.float64) - wide)
    terms = np.abs(a).astype(np.float64) @ np.abs(b).astype(np.float64)
    assert once.max() < off.max()  # more than by one rounding at the end
    assert (off <= rounding_of(HalfSums, problem).sum(200) * terms).all()


def test_other_types_are_not_added_up_in_f16() -> None:
    with pytest.raises(TypeError) as error:
        isa.Tcgen05Mma(64, half=True).accumulator(dtype("bf16"), dtype("bf16"))
    assert str(error.value) == "tcgen05.mma adds up f16 by f16 in f16, and not bf16 by bf16"
    with pytest.raises(ValueError) as error:
        isa.Tcgen05MmaScaled(64, half=True)
    assert str(error.value) == "tcgen05.mma with scales adds up in f32: leave half= out"


# -- cells that warps fill ---------------------------------------------------------------------------------------------


SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")


class ThroughCells(Machine):
    """y = x: one role stores elements into cells of their own, another loads them as it likes"""

    m = Dim()
    x, y = Input("f16", m, 64), Output("f16", m, 64)
    slots = Param(1, 2)
    put = Choice(*(isa.Tcgen05St(shape, packed=True) for shape in SHAPES))
    get = Choice(*(isa.Tcgen05Ld(shape, packed=True) for shape in SHAPES))
    ld, st = isa.LdGlobal(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        path, shape = rows_in_lanes(128, 64), (128, 64)
        with (
            p.grid((self.m, 128), persistent=True) as (i,),
            p.pipeline("rows", self.slots, x=p.buffer(TMEM, "f16", shape, path=path)) as ring,
        ):
            with p.role("first", warps=4):
                value = p.load(self.ld, self.x.tile(i, 0, shape=shape), self.put.held(shape, path))
                with ring.produce() as s:
                    p.store(self.put, s.x, value)
            with p.role("second", warps=4, first=4), ring.consume() as s:
                p.store(self.st, self.y.tile(i, 0, shape=shape), p.load(self.get, s.x, self.get.held(shape, path)))

    @staticmethod
    def reference(x: Any) -> Any:
        return x


@pytest.mark.parametrize("number", range(5))
@pytest.mark.end_to_end
def test_elements_come_as_they_went_whatever_the_shapes(number: int) -> None:
    problem = ThroughCells.problem(m=200)
    space = build_space(ThroughCells, problem, B200)
    put, get = SHAPES[number], SHAPES[(2 * number + 1) % 5]
    named = {f"tcgen05.{w}{'' if s == '32x32b' else f'.{s}'}.packed" for w, s in (("st", put), ("ld", get))}
    chosen = [pt for pt in space.space.points() if {str(pt["put"]), str(pt["get"])} == named]
    kernel = build(space.program(chosen[0]), problem, chosen[0], SolverCache()).kernel
    assert verify(kernel, ThroughCells, problem, orders=("late",)).passed
    for said in (f"tcgen05.st.sync.aligned.{put}.x", ".unpack::16b.b32", ".pack::16b.b32"):
        assert said in kernel.ptx
    text = kernel.ptx.replace(".unpack::16b", "")
    assert not verify(replace(kernel, ptx=text), ThroughCells, problem, orders=("late",)).passed


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (
            {"put": isa.Tcgen05St(), "get": isa.Tcgen05Ld(packed=True)},
            "tcgen05.st stores two elements of 16 bits to a cell, and those of rows.x have one each: leave the "
            "buffer's path out, or take a form that unpacks",
        ),
    ],
)
def test_elements_with_cells_of_their_own_are_stored_one_to_each(facts: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError) as error:
        type("Own", (ThroughCells,), {"__module__": __name__, "__doc__": ThroughCells.__doc__} | facts)
    assert str(error.value).endswith(f": {said}")


@pytest.mark.parametrize(
    ("ld", "path", "kind", "holds"),
    [
        (isa.Tcgen05Ld(packed=True), True, "f16", True),
        (isa.Tcgen05Ld(packed=True), False, "f16", False),  # two share a cell
        (isa.Tcgen05Ld(packed=True), True, "f32", False),
        (isa.Tcgen05Ld(), True, "f32", True),
        (isa.Tcgen05Ld(), True, "f16", False),
        (isa.Tcgen05Ld(), False, "f16", False),
    ],
)
def test_who_loads_elements_asks_for_cells_of_theirs(ld: Any, path: bool, kind: str, holds: bool) -> None:
    extents = (expr(128), expr(32))
    buffer = Buffer(
        "x", TMEM, dtype(kind), extents, 1, expr(0), "", expr(1), path=rows_in_lanes(128, 32) if path else None
    )
    tile = Tile("x", TMEM, dtype(kind), extents, (expr(0), expr(0)), buffer=buffer)
    rule = ld.legality(tile, blocked((128, 32), threads=128, across=1))[1]
    assert rule.condition.same(holds)
    two = "have 16 bits and a cell each, two of which make a register"
    assert rule.sentence == f"elements of x {two if ld.packed else 'fill a cell of 32 bits each'}"
