"""Positions, conditions and choices that cannot be are told when the class is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from negation import Later, around, refused, thing

from tinygpu.devices import device
from tinygpu.language import DeclarationError, Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

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
    along, across = who.along(axis), who.along(1 - axis)
    assert along.whole_of([across]) is who
    assert who.reduced(axis).whole_of([who.reduced(1 - axis)]) is who
    assert str(along.T.whole_of([across.T])) == str(who.T)
    assert along.whole_of([blocked((8, 32), threads=32).along(1 - axis)]) is None


def test_outputs_of_chosen_numbers_are_declared_as_before() -> None:
    thing(y=Later(lambda n: Output("f32", n)), **MORE)


def last_above_zero(how: str) -> type[Machine]:
    class Last(Machine):
        """y[i] = the last x[i, k] above 0, or 0"""

        m, n = Dim(), Dim()
        x, y = Input("f32", m, n), Output("f32", m)
        vector = Param(1, 2)
        ld, st, select, above = isa.LdGlobal(1), isa.StGlobal(1), isa.Select("f32"), isa.Compare("f32", ">")

        def program(self, p: Any) -> None:
            shape: Any = (32 * self.vector, 1)
            who = blocked(shape, threads=32, vector=1, axis=0)
            with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=1):
                last = p.full(who, "f32")
                with p.loop(self.n, step=1) as k:
                    if how == "loaded":
                        p.load(self.ld, self.x.tile(i, k, shape=shape), who, into=last)
                    x = p.load(self.ld, self.x.tile(i, k, shape=shape), who)
                    p.where(p.apply(self.above, x, 0.0), x, last, into=last)
                p.store(self.st, self.y.column(i, shape[0]), last)

        @staticmethod
        def reference(x: Any) -> Any:
            last = np.zeros(len(x))
            for column in x.T:
                last = np.where(column > 0, column, last)
            return last

    return Last


@pytest.mark.parametrize("m", [1, 33, 64, 97])
@pytest.mark.parametrize("n", [1, 7])
def test_what_is_chosen_goes_into_a_tile_that_a_loop_carries_on(m: int, n: int) -> None:
    machine = last_above_zero("chosen")
    problem = machine.problem(m=m, n=n)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.sample(1, 0)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    assert verify(kernel, machine, problem, orders=("late",)).passed


def test_a_load_says_how_its_values_come_into_a_tile_that_is_there() -> None:
    with pytest.raises(DeclarationError) as caught:
        last_above_zero("loaded")
    assert str(caught.value) == (
        "Last.program: p.load: got an unexpected keyword argument 'into'; it takes instruction, source, partition, "
        "fill=; what it gives goes into a tile that is there by tile += ..., or by into= of p.apply, p.cast or p.where"
    )
