"""Tiles that several CTAs share: what they divide, fix up and write wrongly is told when the class is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from negation import Program, refused, thing

from tinygpu.language import Param, Route, blocked
from tinygpu.language.trace import trace
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.ptx import isa

WITH = {"add": isa.Add("f32"), "nc": isa.LdGlobalReadOnly(1), "two": isa.LdGlobal(2), "parts": Param(1, 2)}
SHARED = {**WITH, "put": isa.StShared(1), "get": isa.LdShared(1), "half": isa.Cvt("f32", "f16"), "f16": isa.Add("f16")}


class Stage:
    """Inside a grid whose CTAs share tiles, and a role: a value, and what may be done with it."""

    def __init__(self, machine: Any, p: Any, i: Any, ring: Any) -> None:
        self.machine, self.p, self.ring = machine, p, ring
        self.x, self.y = machine.x.tile(i, shape=(32,)), machine.y.tile(i, shape=(32,))
        self.who = blocked((32,), threads=32)

    def value(self) -> Any:
        return self.p.load(self.machine.ld, self.x, self.who)

    def fix_up(self, value: Any, **other: Any) -> Any:
        m = self.machine
        given = {"combine": m.add, "store": m.st, "load": m.ld} | other
        return self.p.fix_up(given["combine"], given["store"], given["load"], value)

    def store(self, value: Any) -> None:
        self.p.store(self.machine.st, self.y, value)

    def divided(self, step: int = 32) -> Any:
        return self.p.loop(self.machine.n, step=step, divided=True)

    def summed(self) -> Any:
        total = self.p.full(self.who, "f32")
        with self.divided():
            self.p.apply(self.machine.add, total, self.value(), into=total)
        return total


def sharing(inner: Callable[[Stage], None], **grid: Any) -> Program:
    def program(self: Any, p: Any) -> None:
        asked = {"slices": self.parts} | grid
        with p.grid((self.n, 32), **asked) as (i,), p.role("all", warps=1):
            inner(Stage(self, p, i, None))

    return program


def handing_over(inner: Callable[[Stage], None]) -> Program:
    """The same with a pipeline `ring` of one buffer t."""

    def program(self: Any, p: Any) -> None:
        with (
            p.grid((self.n, 32), slices=self.parts) as (i,),
            p.pipeline("ring", 1, t=p.smem("f32", (32,))) as ring,
            p.role("all", warps=1),
        ):
            inner(Stage(self, p, i, ring))

    return program


def well(s: Stage) -> None:
    with s.fix_up(s.summed()) as all_of_it:
        s.store(all_of_it)


def well_in_a_row(s: Stage) -> None:
    with s.divided():
        pass
    well(s)


@pytest.mark.parametrize("inner", [well, well_in_a_row])
@pytest.mark.parametrize("grid", [{}, {"slices": 1, "stream_k": 1, "persistent": True}])
def test_tiles_that_are_divided_and_fixed_up_are_declared(inner: Callable[[Stage], None], grid: dict[str, Any]) -> None:
    thing(sharing(inner, **grid), **WITH)


def test_a_tile_is_fixed_up_in_pieces() -> None:
    made = thing(sharing(pieces(a_piece)), **WITH)
    program = trace(made, made.problem(n=64), ()).program
    (found,) = (s for s in walk(program.body) if isinstance(s, n.Loop) and s.fix_up is not None)
    assert found.fix_up is not None
    assert (found.fix_up.piece, str(found.fix_up.pieces)) == (found.index, "2")


def test_a_loop_is_divided_where_it_says_so() -> None:
    """What the last CTA of a tile does alone may have loops too: each of them as a whole."""

    def inner(s: Stage) -> None:
        with s.fix_up(s.summed()) as all_of_it, s.p.loop(2):
            s.store(all_of_it)

    made = thing(sharing(inner), **WITH)
    program = trace(made, made.problem(n=64), ()).program
    assert [s.divided for s in walk(program.body) if isinstance(s, n.Loop)] == [True, False]


def test_a_tile_of_one_part_is_written_without_a_fix_up() -> None:
    def inner(s: Stage) -> None:
        s.store(s.summed())

    thing(sharing(inner, slices=1), **WITH)


def written_by_all(s: Stage) -> None:
    s.store(s.summed())


def copied_by_all(s: Stage) -> None:
    with s.divided():
        pass
    s.p.copy(Route(s.machine.ld, s.machine.st), s.x, s.y, s.who)


def divides_nothing(s: Stage) -> None:
    with s.fix_up(s.value()) as all_of_it:
        s.store(all_of_it)


def divided_when_fixed_up(s: Stage) -> None:
    with s.fix_up(s.summed()) as all_of_it:
        with s.divided():
            pass
        s.store(all_of_it)


def fixed_up_twice(s: Stage) -> None:
    with s.fix_up(s.summed()) as once, s.fix_up(once) as twice:
        s.store(twice)


def fixed_up_in_a_loop(s: Stage) -> None:
    total = s.summed()
    with s.p.loop(2), s.fix_up(total) as all_of_it:
        s.store(all_of_it)


def fixed_up_in_a_slot(s: Stage) -> None:
    total = s.summed()
    with s.ring.produce() as slot, s.fix_up(total) as all_of_it:
        s.p.store(s.machine.put, slot.t, all_of_it)


def fixed_up_from_smem(s: Stage) -> None:
    with s.ring.consume() as slot, s.fix_up(slot.t):
        pass


def a_piece(s: Stage, at: Any) -> None:
    with s.fix_up(s.value()) as found:
        s.store(found)


def behind_a_piece(s: Stage, at: Any) -> None:
    a_piece(s, at)
    s.value()


def two_pieces_a_round(s: Stage, at: Any) -> None:
    a_piece(s, at)
    a_piece(s, at)


def stored_before_a_piece(s: Stage, at: Any) -> None:
    value = s.value()
    with s.ring.produce() as slot:
        s.p.store(s.machine.put, slot.t, value)
    with s.ring.consume() as slot, s.fix_up(s.p.load(s.machine.get, slot.t, s.who)) as found:
        s.store(found)


def a_slot_before_a_piece(s: Stage, at: Any) -> None:
    with s.ring.produce() as slot:
        s.p.store(s.machine.put, slot.t, s.value())
    with s.ring.consume() as slot:
        again = s.p.load(s.machine.get, slot.t, s.who)
    with s.fix_up(again) as found:
        s.store(found)


def the_same_piece(s: Stage) -> None:
    total = s.summed()
    with s.p.unroll(2), s.fix_up(total) as found:
        s.store(found)


def added_up_before_a_piece(s: Stage) -> None:
    total = s.summed()
    with s.p.unroll(2):
        value = s.value()
        s.p.apply(s.machine.add, total, value, into=total)
        with s.fix_up(value) as found:
            s.store(found)


def made_outside_of_a_piece(s: Stage, at: Any) -> None:
    more = s.value()
    with s.fix_up(s.value()) as found:
        s.store(s.p.apply(s.machine.add, found, more))


def written_inside_of_a_piece(s: Stage) -> None:
    total = s.summed()
    with s.p.unroll(2):
        value = s.p.apply(s.machine.add, s.value(), total)
        with s.fix_up(value) as found:
            s.store(s.p.apply(s.machine.add, total, found, into=total))


def pieces_of_pieces(s: Stage) -> None:
    with s.divided():
        pass
    with s.p.unroll(2), s.p.unroll(3):
        a_piece(s, None)


def used_after(s: Stage) -> None:
    total = s.summed()
    with s.fix_up(total):
        s.store(total)


def never_used(s: Stage) -> None:
    with s.fix_up(s.summed()):
        pass


def fixed_up_by(**other: str) -> Callable[[Stage], None]:
    def inner(s: Stage) -> None:
        total = s.summed()
        with s.fix_up(total, **{k: getattr(s.machine, name) for k, name in other.items()}) as all_of_it:
            s.store(all_of_it)

    return inner


def halves(s: Stage) -> None:
    with s.fix_up(s.p.apply(s.machine.half, s.summed()), combine=s.machine.f16):
        pass


def pieces(inner: Callable[[Stage, Any], None]) -> Callable[[Stage], None]:
    """Behind a divided loop, what is done in each of two rounds of an unrolled loop."""

    def program(s: Stage) -> None:
        with s.divided():
            pass
        with s.p.unroll(2) as at:
            inner(s, at)

    return program


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        (
            sharing(written_by_all),
            "st writes y in each of the parts CTAs that share a tile; combine what they have, and write that inside "
            "`with p.fix_up(...)`",
        ),
        (
            sharing(copied_by_all),
            "ld.global+st.global writes y in each of the parts CTAs that share a tile; combine what they have, and "
            "write that inside `with p.fix_up(...)`",
        ),
        (
            sharing(written_by_all, slices=1, stream_k=1, persistent=True),
            "st writes y in all CTAs that share a tile; combine what they have, and write that inside "
            "`with p.fix_up(...)`",
        ),
        (
            sharing(divides_nothing),
            "parts CTAs share each tile, and they divide no loop; write p.loop(..., divided=True)",
        ),
        (
            sharing(divides_nothing, slices=1, stream_k=1, persistent=True),
            "CTAs share tiles, and they divide no loop; write p.loop(..., divided=True)",
        ),
        (
            sharing(well, stream_k=1),
            "stream-K is for CTAs that take tile after tile; open the grid with persistent=True",
        ),
        (
            sharing(divided_when_fixed_up),
            "a loop is divided where only the last CTA of a tile is left; divide it before p.fix_up",
        ),
        (
            sharing(fixed_up_twice),
            "p.fix_up stands inside another p.fix_up; each tile is fixed up once, where the loops are done",
        ),
        (
            sharing(fixed_up_in_a_loop),
            "p.fix_up stands inside a loop; each tile is fixed up once, where the loops are done",
        ),
        (
            handing_over(fixed_up_in_a_slot),
            "p.fix_up stands inside a slot that is produced; each tile is fixed up once, where the loops are done",
        ),
        (
            sharing(pieces(behind_a_piece)),
            "a round of p.unroll goes on behind p.fix_up; it fixes up one piece of the tile, and ends with that",
        ),
        (
            sharing(pieces(two_pieces_a_round)),
            "a round of p.unroll goes on behind p.fix_up; it fixes up one piece of the tile, and ends with that",
        ),
        (
            handing_over(pieces(stored_before_a_piece)),
            "a round of p.unroll goes on behind p.fix_up; it fixes up one piece of the tile, and ends with that",
        ),
        (
            handing_over(pieces(a_slot_before_a_piece)),
            "before p.fix_up, a round of p.unroll makes values of its own and nothing else, and here it does more: "
            "produce ring:",
        ),
        (
            sharing(added_up_before_a_piece),
            "before p.fix_up, a round of p.unroll makes values of its own and nothing else, and here it does more: "
            "%v1 = add %v1, %v5",
        ),
        (
            sharing(the_same_piece),
            "%v1 is the same in every round of p.unroll, and each fixes up a piece of its own; load or compute that in "
            "the round",
        ),
        (
            sharing(pieces(made_outside_of_a_piece)),
            "%v3 is made in a round of p.unroll and used inside p.fix_up, which is carried out when all pieces are "
            "left; make it inside",
        ),
        (
            sharing(written_inside_of_a_piece),
            "v1 is read before p.fix_up in a round of p.unroll, and written inside; all pieces are made before the "
            "first one is fixed up",
        ),
        (
            sharing(pieces_of_pieces),
            "p.fix_up stands inside two loops of p.unroll; one goes through the pieces of a tile",
        ),
        (handing_over(fixed_up_from_smem), "add combines registers, and ring.t lies in SMEM"),
        (sharing(used_after), "%v1 is what one CTA had of its tile, and was fixed up; use what p.fix_up yields"),
        (sharing(never_used), "the combination by add (%v4) is never used; store it, or leave it out"),
        (
            sharing(fixed_up_by(load="nc")),
            "nc (ld.global.nc) reads through the read-only path what other CTAs write; use ld.global",
        ),
        (sharing(fixed_up_by(load="two")), "st leaves 1 values at once, and two takes 2"),
        (
            sharing(fixed_up_by(store="put")),
            "put (st.shared) writes SMEM, but the result belongs in GMEM: an instruction from RMEM to GMEM is missing",
        ),
        (
            sharing(fixed_up_by(load="get")),
            "get (ld.shared) reads SMEM, but the operand lies in GMEM: no instruction brings it from GMEM to SMEM",
        ),
        (sharing(fixed_up_by(load="add")), f"p.fix_up takes a Transfer, not {WITH['add']!r}"),
        (sharing(fixed_up_by(combine="ld")), "p.fix_up takes an Elementwise, not {ld}"),
        (sharing(fixed_up_by(combine="neg")), "neg cannot combine f32: it takes f32 and gives f32"),
        (sharing(fixed_up_by(combine="f16")), "f16 cannot combine f32: it takes f16, f16 and gives f16"),
        (sharing(halves), "f16 combines f16, and workspaces hold 32-bit values; convert to f32 or s32"),
    ],
)
def test_what_is_shared_wrongly_is_explained(program: Program, sentence: str) -> None:
    made = isa.LdGlobal(1)
    refused(lambda: thing(program, **{**SHARED, "ld": made}), f"Thing.program: {sentence.format(ld=repr(made))}")


def test_a_loop_is_divided_inside_a_grid() -> None:
    def program(self: Any, p: Any) -> None:
        with p.loop(self.n, divided=True):
            pass

    sentence = "a loop is divided among the CTAs that share a tile; open `with p.grid(..., slices=)` first"
    refused(lambda: thing(program), f"Thing.program: {sentence}")


def test_rounds_in_a_row_are_the_same_in_all_divided_loops() -> None:
    def inner(s: Stage) -> None:
        with s.divided(64):
            pass
        well(s)

    program = sharing(inner, slices=1, stream_k=1, persistent=True)
    refused(
        lambda: thing(program, **WITH),
        "Thing.program: one loop of (n + 63) // 64 rounds is divided and one of (n + 31) // 32; stream-K "
        "deals out rounds that all divided loops of a tile have in common",
    )
    thing(sharing(inner), **WITH)  # parts of their own


def test_a_pipeline_is_used_inside_or_outside_of_a_fix_up() -> None:
    def inner(s: Stage) -> None:
        with s.ring.produce() as slot:
            s.p.store(s.machine.put, slot.t, s.summed())
        with s.ring.consume() as slot:
            again = s.p.load(s.machine.get, slot.t, s.who)
        with s.fix_up(again) as all_of_it:
            with s.ring.produce() as slot:
                s.p.store(s.machine.put, slot.t, all_of_it)
            with s.ring.consume() as slot:
                s.store(s.p.load(s.machine.get, slot.t, s.who))

    refused(
        lambda: thing(handing_over(inner), **SHARED),
        "Thing.program: pipeline 'ring' is used both inside and outside of p.fix_up, and only the last CTA of a tile "
        "carries out what is inside",
    )


@pytest.mark.parametrize("filled", [True, False])
def test_rounds_that_are_dealt_out_are_filled_and_drained_alike(filled: bool) -> None:
    def program(self: Any, p: Any) -> None:
        with (
            p.grid((self.n, 32), persistent=True, stream_k=1) as (i,),
            p.pipeline("ring", 2, t=p.smem("f32", (32,))) as ring,
        ):
            s = Stage(self, p, i, ring)
            with p.role("a", warps=1), p.loop(self.n, step=32, divided=filled), ring.produce() as slot:
                p.store(self.put, slot.t, s.value())
            with p.role("b", warps=1, first=1):
                total = p.full(s.who, "f32")
                with p.loop(self.n, step=32, divided=not filled), ring.consume() as slot:
                    p.apply(self.add, total, p.load(self.get, slot.t, s.who), into=total)
                with s.fix_up(total) as all_of_it:
                    s.store(all_of_it)

    ways = ("in a loop that is divided", "in one that is not")[:: 1 if filled else -1]
    refused(
        lambda: thing(program, **SHARED),
        f"Thing.program: pipeline 'ring' is produced by a {ways[0]}, and consumed by b {ways[1]}",
    )
