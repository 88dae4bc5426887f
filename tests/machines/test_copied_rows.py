"""Rows that tcgen05.cp brings to tensor memory: random candidates, proved rings, wrong kernels, refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from copied_rows import KINDS, Held, HeldByPairs, HeldInParts, K
from proving import right_and_proved
from text_edits import TextEdit, exchanged, without

from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language import TMEM, DeclarationError, Dim, Input, Machine, Output, Tracer, blocked
from tinygpu.language.data_paths import rows_in_lanes
from tinygpu.language.tile import Tile
from tinygpu.ptx import isa
from tinygpu.ptx.cards.specimen import COLUMNS, ROWS, smem_operand, swizzled_operand
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.end_to_end
def test_random_candidates_are_right_and_proved(seed: int, kind: str, draw_candidate: Any) -> None:
    machine = (Held, HeldInParts, HeldByPairs)[seed]
    problem = machine.problem(m=(128, 300, 77)[seed], n=(64, 200, 33)[seed], dtypes={"a": kind})
    space = build_space(machine, problem, device("b200"))
    kernel = right_and_proved(space, draw_candidate(space, seed), ("late", "random"))
    copies = [line for line in kernel.ptx.split("\n") if ".128x256b" in line]
    assert len(copies) == K * dtype(kind).bits // 8 // 32 == int(machine.cp.pieces(128 * K * dtype(kind).bits // 8))


@pytest.mark.parametrize(("kind", "widths"), [("f16", {32, 64, 128}), ("tf32", {32, 64, 128}), ("e4m3", {32, 64})])
@pytest.mark.end_to_end
def test_every_width_of_the_swizzle_is_read_as_tma_brings_it(kind: str, widths: set[int]) -> None:
    problem = Held.problem(m=130, n=32, dtypes={"a": kind})
    space = build_space(Held, problem, device("b200"))
    points = {int(point["width"]): point for point in space.space}
    assert set(points) == widths
    for point in points.values():
        kernel = build(space.program(point), problem, point, SolverCache()).kernel
        assert verify(kernel, Held, problem, orders=("late",)).passed, point


def test_copies_of_half_of_each_piece_are_found_wrong() -> None:
    problem = Held.problem(m=200, n=96)
    space = build_space(Held, problem, device("b200"))
    (point,) = space.space.sample(1, np.random.default_rng(0))
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    wrong = replace(kernel, ptx=kernel.ptx.replace(".128x256b", ".128x128b"))
    found = verify(wrong, Held, problem, orders=("late",))
    assert not found.passed
    assert "multiplied what nobody had written of A" in str(found)


def test_no_role_multiplies_the_rows_that_it_copies() -> None:
    """The copy is over when a commit says so, which whoever issued it does not wait for."""
    with pytest.raises(DeclarationError) as refused:

        class OneRole(Held):
            """the same, by a role fewer"""

            def program(self, p: Tracer) -> None:
                rows = blocked((128, self.bn), threads=128, vector=1, across=1, name="c")
                with (
                    p.grid((self.m, 128), persistent=True) as (i,),
                    p.pipeline("brought", 1, a=p.smem("f16", (128, K), swizzle=128)) as brought,
                    p.pipeline("ring", 1, b=p.smem("f16", (K, self.bn), swizzle=64, contiguous=0)) as ring,
                    p.pipeline("left", 1, a=p.buffer(TMEM, "f16", (128, K))) as left,
                    p.pipeline("sums", 1, c=p.buffer(TMEM, "f32", (128, self.bn))) as sums,
                ):
                    with p.role("producer", warps=1):
                        with brought.produce() as s:
                            p.copy(self.tma, self.a.tile(i, 0, shape=(128, K)), s.a)
                        with ring.produce() as s:
                            p.copy(self.tma, self.b.tile(0, 0, shape=(K, self.bn)), s.b)
                    with p.role("multiplier", warps=1, first=2):
                        with brought.consume() as s, left.produce() as f:
                            self.copy_rows(p, s.a, f.a)
                        with left.consume() as f, ring.consume() as s, sums.produce() as t, p.unroll(K, step=16) as kt:
                            p.clear(t.c)
                            b = s.b.window((kt, 0), (16, self.bn))
                            p.multiply(self.mma, t.c, f.a.window((0, kt), (128, 16)), b)
                    with p.role("epilogue", warps=4, first=4), sums.consume() as t:
                        p.store(self.st, self.c.tile(i, 0, shape=rows.shape), p.load(self.get, t.c, rows))

    assert str(refused.value) == (
        "OneRole.program: role multiplier fills 'left' in tensor memory and consumes it itself, and a commit tells "
        "another role that it is full; give one of the two to another role"
    )


@pytest.mark.parametrize(("kind", "parts"), [("f16", {16, 32, 64}), ("tf32", {8, 16, 32, 64}), ("e4m3", {32, 64})])
def test_parts_are_whole_pieces(kind: str, parts: set[int]) -> None:
    space = build_space(HeldInParts, HeldInParts.problem(m=130, n=32, dtypes={"a": kind}), device("b200")).space
    assert {int(point["part"]) for point in space.restrict({"bn": 32, "stages": 1, "slots": 1})} == parts


def test_windows_begin_at_whole_pieces() -> None:
    sentence = (
        "Askew.program: it can never work, whatever the parameters: the windows of brought.a begin at multiples of the "
        "32 bytes of a row that tcgen05.cp.rows copies"
    )
    with pytest.raises(DeclarationError, match=f"^{re.escape(sentence)}($|\n)"):

        class Askew(Held):
            """16 columns that begin in the middle of a piece"""

            def copy_rows(self, p: Any, rows: Any, cells: Any) -> None:
                p.copy(self.cp, rows.window((0, 8), (128, 16)), cells.window((0, 8), (128, 16)))


@cache
def by_pairs() -> tuple[Any, Kernel]:
    problem = HeldByPairs.problem(m=300, n=96)
    space = build_space(HeldByPairs, problem, device("b200"))
    (point,) = space.space.restrict({"bn": 32, "stages": 1, "slots": 1}).sample(1, np.random.default_rng(0))
    return problem, build(space.program(point), problem, point, SolverCache()).kernel


# behind the two waits of the producer for slots to fill come two for slots that late commits give back
WRONG_PAIRS: dict[str, TextEdit] = {
    "rows of half of each piece": exchanged(r"\.128x256b \[", ".128x128b ["),
    "rows of the first CTA alone": exchanged(r"tcgen05\.cp\.cta_group::2", "tcgen05.cp.cta_group::1"),
    "rows are copied before they have come": without("try_wait", 4),
    "rows are copied over those that are multiplied": without("try_wait", 5),
    "rows are multiplied before they are there": without("try_wait", 6),
    "nobody is told that rows were copied": without("tcgen05.commit", 0),
    "nobody is told that rows are there": without("tcgen05.commit", 1),
    "nobody is told that rows were multiplied": without("tcgen05.commit", 4),
    "the descriptor says 128 rows": exchanged(r"(kind::f16 .*, )0x10", r"\g<1>0x08"),
}


@pytest.mark.parametrize("name", WRONG_PAIRS)
def test_wrong_kernels_of_pairs_are_refused(name: str) -> None:
    problem, kernel = by_pairs()
    assert verify(kernel, HeldByPairs, problem, orders=("late",)).passed
    wrong = replace(kernel, ptx=WRONG_PAIRS[name](kernel.ptx))
    assert not verify(wrong, HeldByPairs, problem, orders=("late",)).passed


def test_copies_and_products_are_of_as_many_ctas() -> None:
    sentence = (
        "Alone.program: cp copies in one CTA and others in pairs; tcgen05 instructions of a kernel are all of one CTA, "
        "or all of two"
    )
    with pytest.raises(DeclarationError, match=f"^{re.escape(sentence)}($|\n)"):

        class Alone(HeldByPairs):
            """rows are copied in one CTA, and multiplied by two"""

            cp = isa.Tcgen05CpRows()


def test_a_left_operand_whose_elements_have_cells_of_their_own_is_refused() -> None:
    sentence = (
        "Spread.program: mma (tcgen05.mma.cells) reads left.a with row r in lane r, 32 bits along k in a cell, and "
        "each of its elements has a cell at (128,16):(1@lane,1@column); leave the path of its buffer out"
    )
    with pytest.raises(DeclarationError, match=f"^{re.escape(sentence)}($|\n)"):

        class Spread(Machine):
            """halves with a cell each, as sums of f16 have them"""

            m = Dim()
            b, c = Input("f16", 16, 64, majors=("col",)), Output("f32", m, 64)
            tma, mma, put = isa.TmaLoad(), isa.Tcgen05MmaCells(64), isa.Tcgen05St(packed=True)

            def program(self, p: Any) -> None:
                path = rows_in_lanes(128, 16)
                with (
                    p.grid((self.m, 128)),
                    p.pipeline("ring", 1, b=p.smem("f16", (16, 64), swizzle=32, contiguous=0)) as ring,
                    p.pipeline("left", 1, a=p.buffer(TMEM, "f16", (128, 16), path=path)) as left,
                    p.pipeline("sums", 1, c=p.buffer(TMEM, "f32", (128, 64))) as sums,
                ):
                    with p.role("producer", warps=1), ring.produce() as s:
                        p.copy(self.tma, self.b.tile(0, 0, shape=(16, 64)), s.b)
                    with p.role("stores", warps=4, first=4), left.produce() as f:
                        p.store(self.put, f.a, p.full(self.put.held((128, 16), path), "f16", 1.0))
                    with (
                        p.role("multiplier", warps=1, first=1), left.consume() as f, ring.consume() as s,
                        sums.produce() as t,
                    ):  # fmt: skip
                        p.clear(t.c)
                        p.multiply(self.mma, t.c, f.a, s.b)

            @staticmethod
            def reference(b: Any) -> Any:
                return np.ones((1, 16)) @ b


def test_rows_are_moved_by_no_partition() -> None:
    with pytest.raises(DeclarationError, match=r"moves whole tiles by itself; leave the partition out"):

        class Split(Held):
            """the same, by threads"""

            def copy_rows(self, p: Any, rows: Any, cells: Any) -> None:
                p.copy(self.cp, rows, cells, blocked((128, K), threads=32, vector=2))


def together(tile: Tile) -> Tile:
    """The same under a swizzle that leaves 32 bytes together."""
    assert tile.buffer is not None
    return replace(tile, buffer=replace(tile.buffer, atom_bytes=32))


CELLS = Tile("x", TMEM, dtype("f16"), (ROWS, COLUMNS), (expr(0), expr(0)))
ELSEWHERE = {
    "contiguous along the rows": (swizzled_operand(dtype("f16"), contiguous=0), "contiguous along their columns: give"),
    "without a swizzle": (smem_operand(dtype("f16")), "moves rows that lie under a swizzle"),
    "padded": (swizzled_operand(dtype("e2m1"), padded=True), "and stage lies padded"),
    "32 bytes together": (together(swizzled_operand(dtype("tf32"))), "a swizzle that leaves 32 bytes together"),
}


@pytest.mark.parametrize("name", list(ELSEWHERE))
def test_rows_that_lie_otherwise_are_refused(name: str) -> None:
    source, sentence = ELSEWHERE[name]
    with pytest.raises(ValueError, match=sentence):
        isa.Tcgen05CpRows().legality(source, CELLS)


@pytest.mark.parametrize(("rows", "columns", "legal"), [(128, 16, True), (64, 16, False), (128, 8, False)])
def test_pieces_are_whole(rows: int, columns: int, legal: bool) -> None:
    rules = isa.Tcgen05CpRows().legality(swizzled_operand(dtype("f16")), CELLS)
    assert all(bool(rule.condition.substitute({"rows": rows, "columns": columns}).sympy) for rule in rules) == legal
