"""Positions, conditions and choices that cannot be are told when the class is made."""

from __future__ import annotations

from typing import Any

import pytest
from negation import Later, around, refused, thing

from tinygpu.language import Input, Output, blocked
from tinygpu.ptx import isa

MORE = {
    "less": isa.Compare("f32", "<"), "pick": isa.Select("f32"), "add": isa.Add("s32"), "ge": isa.Compare("s32", ">="),
    "both": isa.And("pred"),
}  # fmt: skip


def told(inner: Any, sentence: str, **more: Any) -> None:
    attributes: dict[str, Any] = {**MORE, **more}
    refused(lambda: thing(around(inner), **attributes), f"Thing.program: {sentence}")


def test_an_index_runs_along_an_axis_that_there_is() -> None:
    told(lambda self, p, x, y, who: p.index(who, 1), "p.index counts along axis 1, and the tile has axis 0 only")
    told(lambda self, p, x, y, who: p.index(who, -1), "p.index counts along axis -1, and the tile has axis 0 only")
    wrong = "p.index: partition must be a partition, as blocked(...) and p.tiled(...) give them, not 3"
    told(lambda self, p, x, y, who: p.index(3, 0), wrong)
    told(lambda self, p, x, y, who: p.index(who, 0), "an index (%v1) is never used; store it, or leave it out")


def test_a_choice_is_by_predicates_and_by_what_the_machine_declares() -> None:
    def by_number(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        loaded = p.load(self.ld, x, who)
        p.where(loaded, loaded, 0.0)

    def of_numbers(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        loaded = p.load(self.ld, x, who)
        p.where(p.apply(self.less, loaded, 0.0), 1.0, 0.0)

    def of_indices(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        loaded = p.load(self.ld, x, who)
        p.where(p.apply(self.less, loaded, 0.0), p.index(who, 0), 0)

    by = "p.where chooses by a tile of predicates, and %v1 is f32; compare first, with an isa.Compare"
    told(by_number, by)
    told(of_numbers, "p.where chooses between two numbers, whose type nothing says; make one a tile by p.full")
    none = "p.where chooses between values of s32, and the machine declares no instruction for that; "
    told(of_indices, f"{none}declare one, as isa.Select('s32')")


def test_predicates_stay_in_registers() -> None:
    def stored(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        p.store(self.st, y, p.apply(self.less, p.load(self.ld, x, who), 0.0))

    def moved(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        p.relayout(p.apply(self.less, p.load(self.ld, x, who), 0.0), who)

    def buffer(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        p.smem("pred", (32,))

    def number(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        p.full(who, "pred", 2)

    told(stored, "st stores pred values into y, which is f32; convert first")
    sizes = "p.relayout moves elements of 8, 16, 32 or 64 bits, and %v2 is pred"
    told(moved, f"{sizes}; choose numbers by it first")
    kept = "pred is what comparisons make in registers; keep a u8 in memory"
    told(buffer, f"a buffer has elements that memory holds, and {kept}")
    told(number, "the constant is 2, and pred holds whole numbers from 0 to 1")
    wrong = Later(lambda n: Input("pred", n))
    refused(lambda: thing(x=wrong), f"Thing.x: {kept}")


def test_tiles_that_cross_are_parts_of_one_partition() -> None:
    def crossed(self: Any, p: Any, x: Any, y: Any, who: Any) -> None:
        one, other = (blocked((8, 32), threads=32 * self.warps, vector=v) for v in (1, 2))
        p.apply(self.ge, p.index(one.along(0), 0), p.index(other.along(1), 1))

    whole = "no operand has the whole shape: give into= a tile that has it, by p.full"
    told(crossed, f"ge mixes extents 32 and 1 along axis 1; {whole}")


@pytest.mark.parametrize("axis", [0, 1])
def test_the_part_of_a_partition_knows_the_whole(axis: int) -> None:
    who = blocked((8, 32), threads=32)
    assert who.part_of is None
    assert who.along(axis).part_of is who
    assert who.reduced(axis).part_of is who
    assert who.T.part_of is None
    assert who.along(axis).T.part_of is None


def test_outputs_of_chosen_numbers_are_declared_as_before() -> None:
    thing(y=Later(lambda n: Output("f32", n)), **MORE)
