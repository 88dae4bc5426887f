"""Left operands that slide in tensor memory, lane by lane: random candidates, proofs, wrong kernels, refusals."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from proving import right_and_proved
from sliding_rows import K, Sliding, SlidingByPairs
from text_edits import TextEdit, exchanged, without

from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.expressions import expr
from tinygpu.language import TMEM, DeclarationError, RowShift, Tracer
from tinygpu.language.tile import Tile
from tinygpu.ptx import isa
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.cards.specimen import COLUMNS, swizzled_operand
from tinygpu.ptx.emulator.instructions.tcgen05_copies import shift_rows
from tinygpu.ptx.emulator.state.tensor_memory import CtaTensorMemory
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

B200 = device("b200")
# Sequences, places, columns, taps: less than a tile of each, several tiles, one tap, more taps than a tile has places.
SIZES = ((4, 32, 32, 2), (5, 70, 40, 3), (3, 33, 65, 1))


@pytest.mark.parametrize("machine", [Sliding, SlidingByPairs])
@pytest.mark.parametrize("seed", range(len(SIZES)))
@pytest.mark.end_to_end
def test_random_candidates_are_right_and_proved(seed: int, machine: Any, draw_candidate: Any) -> None:
    problem = machine.problem(**dict(zip("sint", SIZES[seed], strict=True)))
    space = build_space(machine, problem, B200)
    right_and_proved(space, draw_candidate(space, seed), ("late", "random"))


@cache
def small() -> tuple[Any, Kernel]:
    problem = Sliding.problem(s=5, i=70, n=40, t=4)
    space = build_space(Sliding, problem, B200)
    (point,) = space.space.restrict({"stages": 1, "bn": 32}).sample(1, np.random.default_rng(0))
    return problem, build(space.program(point), problem, point, SolverCache()).kernel


def test_a_piece_is_four_shifts_and_a_copy_and_the_kernel_is_of_one_architecture() -> None:
    _, kernel = small()
    pieces = K * 2 // 32
    assert len(re.findall(r"tcgen05\.shift\.cta_group::1\.down \[", kernel.ptx)) == 4 * pieces
    assert len(re.findall(r"tcgen05\.cp\.cta_group::1\.4x256b \[", kernel.ptx)) == pieces
    assert int(isa.Tcgen05Shift().pieces(expr(4 * K * 2))) == 5 * pieces
    assert kernel.architecture == "sm_100a"
    assert assemble(kernel.ptx, "sm_100a").spill_store_bytes == 0


WRONG: dict[str, TextEdit] = {
    "the rows of a warp do not move": without(r"tcgen05\.shift\.cta", 2),
    "no new rows": without(r"4x256b \[", 1),
    "new rows come to lane 30": exchanged(r"add\.u32 (%r\d+), (%r\d+), 2031616;", r"add.u32 \1, \2, 1966080;"),
    "rows are copied before they have come": without("try_wait", 3),
    "rows are copied over those that are multiplied": without("try_wait", 4),
    "new rows are copied before they have come": without("try_wait", 5),
    "rows move while they are multiplied": without("try_wait", 6),
    "rows are multiplied before they are there": without("try_wait", 7),
    "nobody is told that rows were copied": without("tcgen05.commit", 0),
    "nobody is told that rows are there": without("tcgen05.commit", 1),
    "nobody is told that new rows were copied": without("tcgen05.commit", 2),
    "nobody is told that rows have moved": without("tcgen05.commit", 3),
    "no fence behind the wait for products": without("fence::after_thread_sync", 4),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.end_to_end
def test_wrong_kernels_are_refused(name: str) -> None:
    problem, kernel = small()
    assert not verify(replace(kernel, ptx=WRONG[name](kernel.ptx)), Sliding, problem, orders=("late",)).passed


def test_new_rows_copied_in_front_of_the_shift_are_refused() -> None:
    """One thread's shift and copy are ordered, its copy and shift are not."""
    problem, kernel = small()
    lines = kernel.ptx.splitlines()
    shift = next(i for i, line in enumerate(lines) if "tcgen05.shift.cta" in line)
    lines[shift : shift + 5] = [lines[shift + 4], *lines[shift : shift + 4]]
    found = verify(replace(kernel, ptx="\n".join(lines)), Sliding, problem, orders=("late",))
    assert not found.passed
    assert "these two are not carried out in order of issue" in str(found)


def test_rows_move_as_the_emulator_moves_them() -> None:
    rng = np.random.default_rng(0)
    there, new = (rng.integers(0, 1 << 32, (rows, 8), np.uint32) for rows in (128, 4))
    memory = CtaTensorMemory()
    memory.cells[:, :8] = there
    for warp in range(4):
        shift_rows(memory, 32 * warp, 0)
        memory.cells[32 * warp + 31, :8] = new[warp]
    assert np.array_equal(isa.Tcgen05Shift().combine(there, new), memory.cells[:, :8])


def test_the_program_slides_them_as_well() -> None:
    problem = Sliding.problem(s=5, i=40, n=33, t=3)
    space = build_space(Sliding, problem, B200)
    (point,) = space.space.sample(1, np.random.default_rng(1))
    rng = np.random.default_rng(2)
    x, w = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((5, 40, K), (3, 33, K)))
    found = space.program(point).run({"x": x, "w": w})
    assert np.array_equal(found["y"], Sliding.reference(x, w))


def test_rows_that_slide_have_one_slot() -> None:
    sentence = (
        "TwoSlots.program: shift moves on the rows of left.x, which were there before, and 'left' has 2 slots; give it "
        "one"
    )
    with pytest.raises(DeclarationError, match=f"^{re.escape(sentence)}($|\n)"):

        class TwoSlots(Sliding):
            """rows in two slots"""

            slots = 2


def test_rows_that_slide_are_brought_before() -> None:
    sentence = (
        "Bare.program: shift moves on the rows of left.x, and nothing brings the first ones; copy them there before"
    )
    with pytest.raises(DeclarationError, match=f"^{re.escape(sentence)}($|\n)"):

        class Bare(Sliding):
            """nothing but new rows"""

            def fill(self, p: Tracer, rows: Any, cells: Any) -> None:
                p.copy(self.shift, rows.window((0, 0), (4, K)), cells)


def test_what_is_missing_of_an_own_shift_is_said() -> None:
    class Copies(isa.Tcgen05CpRows, RowShift):
        """copies rows, and does not say how those that are there move"""

    assert Copies().unwritten() == "does not state shift(), as a RowShift does"


def test_each_step_has_a_slot_of_its_own() -> None:
    sentence = (
        "{}.program: shift moves on the rows of left.x, and its produce() writes there besides, which no manual "
        "orders; give every step a produce() of its own"
    )
    with pytest.raises(DeclarationError, match=f"^{re.escape(sentence.format('Copied'))}($|\n)"):

        class Copied(Sliding):
            """rows that are copied and moved at once"""

            def fill(self, p: Tracer, rows: Any, cells: Any) -> None:
                p.copy(self.cp, rows, cells)
                p.copy(self.shift, rows.window((0, 0), (4, K)), cells)

    with pytest.raises(DeclarationError, match=f"^{re.escape(sentence.format('Looped'))}($|\n)"):

        class Looped(Sliding):
            """rows that move by two"""

            def slide(self, p: Tracer, rows: Any, cells: Any) -> None:
                with p.unroll(2):
                    p.copy(self.shift, rows, cells)


def test_rows_move_with_all_of_their_columns() -> None:
    sentence = "Half.program: shift: tcgen05.shift moves on all rows and columns of left.x, not a window of it"
    with pytest.raises(DeclarationError, match=f"^{re.escape(sentence)}($|\n)"):

        class Half(Sliding):
            """the left half of the columns"""

            def slide(self, p: Tracer, rows: Any, cells: Any) -> None:
                p.copy(self.shift, rows.window((0, 0), (4, K // 2)), cells.window((0, 0), (128, K // 2)))


def test_new_rows_begin_where_the_pattern_of_their_swizzle_does() -> None:
    sentence = (
        "Later.program: it can never work, whatever the parameters: the windows of next.x begin at multiples of 8 "
        "rows, as its swizzle does"
    )
    with pytest.raises(DeclarationError, match=f"^{re.escape(sentence)}($|\n)"):

        class Later(Sliding):
            """the rows of four sequences further"""

            new = 8

            def slide(self, p: Tracer, rows: Any, cells: Any) -> None:
                p.copy(self.shift, rows.window((4, 0), (4, K)), cells)


@pytest.mark.parametrize(
    ("rows", "there", "columns", "legal"),
    [(4, 128, 16, True), (8, 128, 16, False), (4, 64, 16, False), (4, 128, 8, False)],
)
def test_a_row_for_each_warp_comes_in_whole_pieces(rows: int, there: int, columns: int, legal: bool) -> None:
    cells = Tile("x", TMEM, dtype("f16"), (expr(there), COLUMNS), (expr(0), expr(0)))
    rules = isa.Tcgen05Shift().legality(swizzled_operand(dtype("f16")), cells)
    values = {"rows": rows, "columns": columns}
    assert all(bool(rule.condition.substitute(values).sympy) for rule in rules) == legal
    assert [rule.sentence for rule in rules] == [
        "stage has 4 rows, x has 128, and as many columns", "each instruction copies 32 bytes of every row of stage",
    ]  # fmt: skip
