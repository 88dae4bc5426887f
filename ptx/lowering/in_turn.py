"""Slots that the same warps fill and drain one behind the other, where no loop fills them ahead: which one is next.

Each block that fills takes the next slot, and behind the last one the first. Straight-line code knows the number, and
so do loops whose rounds go through all slots once or several times: then it is part of every address. Where a loop or a
branch ends at another slot than it begins with, a register has the number.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import uses, walk
from tinygpu.ptx.lowering.context import Context
from tinygpu.ptx.lowering.emitter import Reg
from tinygpu.ptx.lowering.sync import Advance, Same, Set, Turn
from tinygpu.ptx.lowering.sync_text import issue


def goes_round(program: Program, pipeline: str) -> bool:
    """Whether blocks that fill a pipeline take turns at its slots; loops that fill ahead have slots of their own."""
    ahead = any(isinstance(u.place.statement, n.Pipelined) for u in uses(program.body, pipeline))
    return int(program.pipeline(pipeline).stages) > 1 and not ahead


def begin(context: Context, body: tuple[n.Statement, ...], again: bool) -> None:
    """A role is at the first slot of the pipelines that it fills and drains itself.

    again  its statements are carried out tile after tile
    """
    filled = dict.fromkeys(s.pipeline for s in walk(body) if isinstance(s, n.Produce))
    for name in filled:
        if name in context.pipes or not goes_round(context.program, name):
            continue
        stages = int(context.program.pipeline(name).stages)
        used = _used(context, body, name, stages)
        if used is None or (again and used % stages):
            slot = context.emit.new("r", len(context.emit.blocks))
            issue(context, Set(slot, 0))
            context.following[name] = slot
        else:
            context.following[name] = 0
            issue(context, Turn(name, 0))


@contextmanager
def at_slot(context: Context, pipeline: str) -> Iterator[None]:
    """A block that is about the slot whose turn it is."""
    following = context.following.get(pipeline, 0)
    if not isinstance(following, Reg):
        context.slots[pipeline] = following
        yield
        return
    emit = context.emit
    slot = emit.new("r", len(emit.blocks))
    issue(context, Same(slot, following))
    with emit.inner():
        context.slots[pipeline] = slot
        yield


def advance(context: Context, pipeline: str) -> None:
    """The slot was drained, and it is the next one's turn."""
    following, stages = context.following.get(pipeline, 0), int(context.program.pipeline(pipeline).stages)
    if isinstance(following, Reg):
        issue(context, Advance(following, stages))
    elif pipeline in context.following:
        context.following[pipeline] = (following + 1) % stages
        issue(context, Turn(pipeline, (following + 1) % stages))


def _used(context: Context, body: tuple[n.Statement, ...], pipeline: str, stages: int) -> int | None:
    """Slots that a body goes through; None where that is not known before the launch, but for whole turns."""
    total = 0
    for s in body:
        inside = [_used(context, b.statements, pipeline, stages) for b in s.children]
        own = sum(b.produces == pipeline for b in s.children)
        if None in inside:
            return None
        found = own + sum(count or 0 for count in inside)
        if isinstance(s, n.Repeated) and s.written_out:
            found *= int(s.trips)
        if not found % stages:
            continue
        if may_differ(context, s):
            return None
        total += found
    return total


def may_differ(context: Context, s: n.Statement) -> bool:
    """Whether a statement is carried out as often as is known at run time only."""
    if isinstance(s, n.Repeated) and not s.written_out:
        return True
    fixes_up = (isinstance(s, n.FixUp) and not s.piece) or (isinstance(s, n.Loop) and s.fix_up is not None)
    return s.taken_where is not None or (fixes_up and shares_tiles(context))


def shares_tiles(context: Context) -> bool:
    """Whether of the CTAs that share a tile one alone has what follows."""
    scheduler = context.scheduler
    return scheduler.deals_rounds or not scheduler.slices.same(1)
