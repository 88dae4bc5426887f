"""Constants of rows beside the sums of 128, 64 and 32 rows: random candidates, proofs, wrong kernels, refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from proving import right_and_proved
from row_constants import SHAPES, WORDS, Neighbours, ScaledRows
from text_edits import TextEdit, exchanged, without

from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language import SMEM, TMEM
from tinygpu.language.buffer import Buffer
from tinygpu.language.data_paths import columns_taken, held
from tinygpu.language.tile import Tile
from tinygpu.layouts.layout import Layout
from tinygpu.ptx import isa
from tinygpu.ptx.emulator.units.tensor_memory_maps import COPY_SHAPES
from tinygpu.ptx.isa.tcgen05_cp import SHAPES as ALL
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

B200 = device("b200")


@pytest.mark.parametrize("rows", list(SHAPES))
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.end_to_end
def test_random_candidates_are_right_and_proved(seed: int, rows: str, draw_candidate: Any) -> None:
    problem = ScaledRows.problem(m=(128, 300, 77)[seed], n=(64, 200, 33)[seed])
    space = build_space(ScaledRows, problem, B200)
    restricted = replace(space, space=space.space.restrict({"rows": rows}))
    kernel = right_and_proved(space, draw_candidate(restricted, seed), ("late", "random"))
    assert f"tcgen05.cp.cta_group::1.{SHAPES[rows]} " in kernel.ptx


@pytest.mark.parametrize("m", [1, 64, 150])
@pytest.mark.parametrize("slots", [1, 2])
def test_rows_of_neighbouring_warps_are_the_same_and_stored_once(slots: int, m: int) -> None:
    problem = Neighbours.problem(m=m)
    space = build_space(Neighbours, problem, B200)
    (point,) = space.space.restrict({"slots": slots}).sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    assert verify(kernel, Neighbours, problem).passed
    assert verify_wrong(kernel, Neighbours, problem, exchanged(r"::01_23 \[", "::02_13 ["))


def verify_wrong(kernel: Kernel, machine: Any, problem: Any, edit: TextEdit) -> bool:
    """Whether the edited kernel is found to be wrong."""
    return not verify(replace(kernel, ptx=edit(kernel.ptx)), machine, problem, orders=("late",)).passed


@cache
def small() -> tuple[Any, Kernel]:
    problem = ScaledRows.problem(m=300, n=200)
    space = build_space(ScaledRows, problem, B200)
    chosen = {"rows": "64", "stages": 1, "slots": 1, "bn": 64}
    (point,) = space.space.restrict(chosen).sample(1, np.random.default_rng(0))
    return problem, build(space.program(point), problem, point, SolverCache()).kernel


WRONG: dict[str, TextEdit] = {
    "rows of other lanes": exchanged(r"::02_13 \[", "::01_23 ["),
    "rows of half of the lanes": exchanged(r"64x128b\.warpx2::02_13 \[", "32x128b.warpx4 ["),
    "rows to columns further": exchanged(r"(tcgen05\.cp\.\S+) \[(%r\d+)\]", r"\1 [\2+4]"),
    "rows are not copied": without(r"tcgen05\.cp\.cta"),
    "rows are copied before they have come": without("try_wait", 2),
    "rows are copied over those that are read": without("try_wait", 3),
    "rows are read before they are there": without("try_wait", 6),
    "nobody is told that rows were read": without("mbarrier.arrive.shared", 1),
    "nobody is told that rows were copied": without("tcgen05.commit", 0),
    "nobody is told that rows are there": without("tcgen05.commit", 1),
    "no fence behind the wait for room": without("fence::after_thread_sync", 2),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_refused(name: str) -> None:
    problem, kernel = small()
    assert verify_wrong(kernel, ScaledRows, problem, WRONG[name])


@pytest.mark.parametrize("shape", [s.name for s in ALL])
def test_rows_go_where_the_emulator_lays_them(shape: str) -> None:
    cp, laid = isa.Tcgen05CpRows(shape), COPY_SHAPES[shape]
    path = cp.path(1)
    found = path.coordinates(("lane", "column")).reshape(len(laid.lanes), cp.rows, 2)
    assert found[:, :, 0].tolist() == [list(lanes) for lanes in laid.lanes]
    assert (cp.rows, cp.row_bytes) == (laid.rows, laid.row_bytes)
    assert int(columns_taken(cp.path(12))) == 12


@pytest.mark.parametrize("shape", [s.name for s in ALL])
@pytest.mark.parametrize("ld", ["32x32b", "16x32bx2", "16x64b", "16x128b", "16x256b"])
def test_who_reaches_the_same_row_holds_the_same(ld: str, shape: str) -> None:
    """Of every shape of tcgen05.ld: the rows that a thread holds are those that were laid into its lanes."""
    cp, get, columns = isa.Tcgen05CpRows(shape), isa.Tcgen05Ld(ld), 8
    path = cp.path(columns)
    row = {int(lane): number % cp.rows for number, (lane, _) in enumerate(cp.path(1).coordinates(("lane", "column")))}
    who = get.held((cp.rows, columns), path)
    again = {lane: number for lane, number in row.items() if lane < 128}
    assert len(again) == 128
    reached = get.held((128, columns)).coordinates()  # of 128 rows, row r in lane r
    assert who.coordinates()[:, :, 1].tolist() == reached[:, :, 1].tolist()
    assert who.coordinates()[:, :, 0].tolist() == np.vectorize(again.__getitem__)(reached[:, :, 0]).tolist()


def test_lanes_in_which_nothing_lies_are_held_by_nobody() -> None:
    assert held(Layout.parse("(32,4):(1@lane,1@column)"), Layout.parse("(32,4,2):(1@lane,1@column,32@lane)")) is None


def test_shapes_that_there_are_not_are_refused() -> None:
    with pytest.raises(ValueError) as error:
        isa.Tcgen05CpRows("4x256b")
    assert str(error.value) == (
        "tcgen05.cp of rows has the shapes 128x256b, 128x128b, 64x128b.warpx2::02_13, 64x128b.warpx2::01_23 or "
        "32x128b.warpx4, not '4x256b'"
    )


def cells(kind: str, path: Layout | None) -> Tile:
    """64 rows in tensor memory, along a path."""
    shape = (expr(64), expr(WORDS))
    buffer = Buffer("beside.x", TMEM, dtype(kind), shape, 1, expr(0), "", expr(1), path=path)
    return Tile("beside.x", TMEM, dtype(kind), shape, (expr(0), expr(0)), buffer=buffer)


def stage(kind: str) -> Tile:
    shape = (expr(64), expr(WORDS))
    buffer = Buffer("stage.x", SMEM, dtype(kind), shape, 1, expr(0), "", expr(1), expr(16))
    return Tile("stage.x", SMEM, dtype(kind), shape, (expr(0), expr(0)), buffer=buffer)


SOME, OTHER = isa.Tcgen05CpRows("64x128b.warpx2::02_13"), isa.Tcgen05CpRows("64x128b.warpx2::01_23")
LAID = (
    "tcgen05.cp.rows.64x128b.warpx2::02_13 lays rows as (64,4,2):(1@lane,1@column,64@lane) says, and beside.x has {}: "
    "give its buffer path=path(columns) of the instruction"
)
ELSEWHERE = {
    "no path": (SOME, "f32", None, LAID.format("row r in lane r")),
    "a path with other lanes": (
        SOME, "f32", OTHER.path(WORDS), LAID.format("((32,2),4,2):((1@lane,64@lane),1@column,32@lane)"),
    ),
    "sums of 64 rows": (
        SOME, "f32", isa.Tcgen05Mma64().path(WORDS), LAID.format("((16,4),4):((1@lane,32@lane),1@column)"),
    ),
    "two to a cell": (
        SOME, "f16", SOME.path(WORDS),
        "tcgen05.cp.rows.64x128b.warpx2::02_13 lays elements of 16 bits side by side in a cell, and those of beside.x "
        "have one each: copy elements of 32 bits, or leave its path out",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ELSEWHERE)
def test_rows_that_lie_otherwise_are_refused(name: str) -> None:
    cp, kind, path, sentence = ELSEWHERE[name]
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        cp.legality(stage(kind), cells(kind, path))


def test_rows_where_they_are_laid_are_whole_pieces_and_as_many() -> None:
    rows, columns = SOME.legality(stage("f32"), cells("f32", SOME.path(WORDS)))
    assert rows.condition.same(True)
    assert columns.condition.same(True)
    assert rows.sentence == "stage.x and beside.x have 64 rows, and as many columns"
    assert columns.sentence == "each instruction copies 16 bytes of every row of stage.x"
    wide = isa.Tcgen05CpRows().legality(stage("f32"), replace(cells("f32", None), shape=(expr(128), expr(WORDS))))
    assert [rule.condition.same(False) for rule in wide] == [True, True]
