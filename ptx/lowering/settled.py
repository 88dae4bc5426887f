"""Slots of tensor memory are given back behind the last load from them, and not where their block ends.

A load is complete when its own text has waited for it. What the block does with the values then, results that leave the
tile among it, goes on while the multiplier has the slot again. Where it is not known before the launch which load is
the last, or cells are written or shared with another buffer, the slot is given back at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tinygpu.program import nodes as n
from tinygpu.program.tree import places
from tinygpu.ptx.lowering.context import Context
from tinygpu.ptx.lowering.in_turn import may_differ
from tinygpu.ptx.lowering.touch import accesses


@contextmanager
def behind_last_read(context: Context, s: n.Consume, give_back: Callable[[], None]) -> Iterator[None]:
    """What is written meanwhile is the block of a slot, which is given back once."""
    last = _last_read(context, s)
    if last is None:
        yield
        give_back()
        return
    statement, rounds = last
    context.behind.append((statement, rounds, give_back))
    yield
    context.behind.pop()


def done(context: Context, s: n.Statement) -> None:
    """A statement was written: does what is done behind it."""
    for statement, rounds, action in context.behind:
        if statement is s and all(context.indices.get(index) == number for index, number in rounds.items()):
            action()


def _last_read(context: Context, s: n.Consume) -> tuple[n.Statement, dict[str, int]] | None:
    """The statement that reads the slot last, and the rounds of the loops around it in which it does."""
    pipelines = context.program.pipelines
    names = {buffer.name for buffer in context.program.pipeline(s.pipeline).buffers}
    shared = {(b.name, b.over) for p in pipelines for b in p.buffers if b.over}
    if any(one in names or other in names for one, other in shared):
        return None
    touching = [
        (place, verb, by)
        for place in places(s.body)
        for tile, verb, by in accesses(place.statement)
        if tile.name in names
    ]
    if not touching or any((verb, by) != ("read", "tcgen05.ld") for _, verb, by in touching):
        return None
    place = touching[-1][0]
    rounds: dict[str, int] = {}
    for block, _ in place.around:
        if may_differ(context, block) or not isinstance(block, n.Loop):
            return None
        rounds[block.index] = int(block.trips) - 1
    return place.statement, rounds
