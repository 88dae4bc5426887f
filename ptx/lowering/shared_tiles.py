"""Tiles that CTAs share, where they are fixed up: whole, or a piece of the tile in every round of an unrolled loop.

Who is not the last CTA of a tile jumps behind what only that one does. `fix_up` writes what is left, counted and taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from tinygpu.program import nodes as n
from tinygpu.ptx.lowering import fix_up, grid, handover, probe
from tinygpu.ptx.lowering.compute import partition_of
from tinygpu.ptx.lowering.context import Context
from tinygpu.ptx.lowering.emitter import Number
from tinygpu.ptx.lowering.flow import barrier, counting, only_if
from tinygpu.ptx.lowering.registers import allocate
from tinygpu.ptx.lowering.sync import Trips, When

Body: TypeAlias = Callable[[Context, tuple[n.Statement, ...]], None]


def fixed_up(context: Context, s: n.FixUp, body: Body) -> None:
    """The last CTA of a tile has what all of them have, and goes on; the others do not."""
    walk, work = grid.own(context)
    run = grid.Registers(context)
    shared = walk.shared(run, work)
    if not isinstance(shared, int):
        sometimes_fixed_up(context, s, shared, body)
        return
    if not shared:
        context.tiles[s.result.name] = context.tiles[s.value.name]
        probe.registers(context, s, s.result)
        body(context, s.body)
        return
    _, parts = walk.owners(run, work, work.tile)
    fix_up.leave(context, s)
    barrier(context)
    done = context.emit.label("gathered")
    context.emit.line(f"@!{fix_up.came_last(context, s, parts)} bra {done};")
    with context.protocol.block(partial(When, "last CTA")):
        taken_of_all(context, s, parts, lambda part: walk.place(run, 0, part))
        probe.registers(context, s, s.result)
        body(context, s.body)
    context.emit.place_label(done)


def taken_of_all(context: Context, s: n.FixUp, parts: Number, place: Callable[[Number], Number]) -> None:
    """Takes what all parts left: of parts that are few vectors each, and whose number is known, several together."""
    together = int(s.parts_at_once) if isinstance(parts, int) else 1
    if together == 1 or not isinstance(parts, int):
        taken(context, s, parts, place)
        return
    for first in range(0, parts, together):
        fix_up.take_together(context, s, range(first, min(first + together, parts)))


def taken(context: Context, s: n.FixUp, parts: Number, place: Callable[[Number], Number]) -> None:
    """Takes what all parts left and combines it, in their order; `place` says where a part is.

    A loop for each stretch: the assembler would load the values of many stretches ahead, into registers that are not
    there. The result takes the registers of the value: nothing uses that again.
    """
    context.tiles[s.result.name] = context.tiles[s.value.name]
    for stretch in fix_up.stretches(context, s):
        fix_up.take_first(context, s, place(0), stretch)
        others = Trips("the other parts", context.emit.sub(parts, 1))
        with counting(context, others.text, others, rolled=True) as before:
            fix_up.take_more(context, s, place(context.emit.add(before, 1)), stretch)


def sometimes_fixed_up(context: Context, s: n.FixUp, shared: Number, body: Body) -> None:
    """The same, of a tile that has as many owners as pieces of rounds meet in it; most have one."""
    emit, run = context.emit, grid.Registers(context)
    walk, work = grid.own(context)
    alone, done = emit.label("alone"), emit.label("gathered")
    context.tiles[s.result.name] = context.tiles[s.value.name]
    emit.line(f"@!{shared} bra {alone};")
    tile = emit.new("r", len(emit.blocks))
    emit.line(f"mov.u32 {tile}, {work.tile};")
    block = emit.open()
    with context.protocol.block(partial(When, "shared tile")):
        first, count = walk.owners(run, work, tile)
        fix_up.leave(context, s)
        barrier(context)
        emit.line(f"@!{fix_up.came_last(context, s, count)} bra {done};")
        with context.protocol.block(partial(When, "last CTA")):
            taken(context, s, count, lambda owner: walk.place(run, first, owner))
    emit.close()
    emit.block.body.extend(block.lines())
    emit.place_label(alone)
    with context.protocol.block(partial(When, "last CTA")):
        probe.registers(context, s, s.result)
        body(context, s.body)
    emit.place_label(done)


# ---- in pieces ------------------------------------------------------------------------------------------------------


def in_pieces(context: Context, s: n.Loop, last: n.FixUp, body: Body) -> None:
    """An unrolled loop, each round of which fixes up a piece of the tile: all pieces are left before the CTA is counted
    in, once, and the last CTA then goes through the rounds again.
    """
    emit, run = context.emit, grid.Registers(context)
    walk, work = grid.own(context)
    shared, done = walk.shared(run, work), emit.label("gathered")
    of = _Pieces(context, s, s.body[:-1], last, body)
    if not isinstance(shared, int):
        of.sometimes_shared(shared, done)
    elif not shared:
        for _ in of.rounds():
            body(context, s.body)
        return
    else:
        _, parts = walk.owners(run, work, work.tile)
        of.left(parts, done)
        with context.protocol.block(partial(When, "last CTA")):
            for _ in of.rounds():
                values = partition_of(last.value).values.size
                context.tiles[last.value.name] = allocate(emit, last.value.dtype, values)
                taken_of_all(context, last, parts, lambda part: walk.place(run, 0, part))
                of.gone_on()
    emit.place_label(done)


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """What rounds that fix up a piece each do: `makes` the value, and then `last`."""

    context: Context
    loop: n.Loop
    makes: tuple[n.Statement, ...]
    last: n.FixUp
    body: Body

    def rounds(self) -> Iterator[int]:
        for number in range(int(self.loop.trips)):
            self.context.indices[self.loop.index] = number
            yield number
        del self.context.indices[self.loop.index]

    def left(self, parts: Number, done: str) -> None:
        """Leaves every piece, and goes to the end where the CTA is not the last one."""
        context = self.context
        for _ in self.rounds():
            self.body(context, self.makes)
            with context.printing(self.last):
                handover.settle_before(context, self.last)
                fix_up.leave(context, self.last)
        with context.printing(self.last):
            barrier(context)
            context.emit.line(f"@!{fix_up.came_last(context, self.last, parts)} bra {done};")

    def gone_on(self) -> None:
        probe.registers(self.context, self.last, self.last.result)
        self.body(self.context, self.last.body)

    def sometimes_shared(self, shared: Number, done: str) -> None:
        """The same, of a tile that has as many owners as pieces of rounds meet in it; most have one."""
        context, emit, run = self.context, self.context.emit, grid.Registers(self.context)
        walk, work = grid.own(context)
        alone = emit.label("alone")
        emit.line(f"@!{shared} bra {alone};")
        tile, first, parts = (emit.new("r", len(emit.blocks)) for _ in range(3))
        emit.line(f"mov.u32 {tile}, {work.tile};")
        with context.protocol.block(partial(When, "shared tile")), emit.inner():
            owner, count = walk.owners(run, work, tile)
            emit.line(f"mov.u32 {first}, {owner};")
            emit.line(f"mov.u32 {parts}, {count};")
            self.left(count, done)
        emit.place_label(alone)
        with context.protocol.block(partial(When, "last CTA")):
            for _ in self.rounds():
                with only_if(context, emit.computed("p", "not.pred {d}, {0};", shared), "branch"):
                    self.body(context, self.makes)
                with context.printing(self.last), only_if(context, shared, "shared tile"), emit.inner():
                    taken(context, self.last, parts, lambda part: walk.place(run, first, part))
                context.tiles[self.last.result.name] = context.tiles[self.last.value.name]
                self.gone_on()
