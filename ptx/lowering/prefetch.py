"""Rounds whose first step is loaded a round ahead (`tinygpu.program.prefetched`).

The threads meet before the last step's products instead of where the round begins: every thread has loaded by then
what it takes from the round's slot, and what the copies have brought of the next one is there. The loads of its first
step follow, into registers that are the same in every round, under a predicate: behind the last round there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tinygpu.language.instruction import MatrixLoad
from tinygpu.program import nodes as n
from tinygpu.program.prefetched import Steps, steps
from tinygpu.ptx.lowering import matrix, moves, probe, touch
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.flow import barrier, only_if
from tinygpu.ptx.lowering.registers import RegisterTile, allocate
from tinygpu.ptx.lowering.sync import Advance, Before, Same, Trips, WaitGroup, When
from tinygpu.ptx.lowering.sync_text import issue

Body = Callable[[Context, tuple[n.Statement, ...]], None]


@dataclass(frozen=True, slots=True)
class Ahead:
    """What is loaded ahead, and the registers in which it is there when a round begins."""

    loop: n.Pipelined
    steps: Steps
    tiles: dict[str, RegisterTile]
    stages: int
    grouped: bool


def goes_ahead(s: n.Pipelined) -> bool:
    """Whether a loop's candidate loads ahead."""
    return bool(int(s.prefetch))


def check(s: n.Pipelined, stages: int) -> None:
    """Raises LoweringError where a loop can not load ahead what its candidate says."""
    if not int(s.prefetch):
        return
    count = int(steps(s).loop.trips)
    if int(s.prefetch) != 1 or stages < 2 or count < 2:
        raise LoweringError(
            f"{int(s.prefetch)} of the {count} steps of {s.pipeline}, which has {stages} stages, are to be loaded "
            "ahead; of two steps or more one can be, in two stages or more"
        )


def begin(context: Context, s: n.Pipelined, stages: int, grouped: bool, start: Number, trips: Trips) -> Ahead:
    """In front of the loop: the first round's slot is waited for, and its first step loaded."""
    found = steps(s)
    tiles = {}
    for load in found.loads:
        if load.result.partition is None:
            raise LoweringError(f"{load.name} does not load registers")
        tiles[load.result.name] = allocate(context.emit, load.source.dtype, load.result.partition.values.size)
    ahead = Ahead(s, found, tiles, stages, grouped)
    _meet(context, ahead)
    for name in s.pipelines:
        context.slots[name] = 0
    with only_if(context, True, Before("", 0, trips), said=True):  # what stands here has a round
        _loads(context, ahead, start, True)
    return ahead


def consume(context: Context, ahead: Ahead, body: Body, meanwhile: Callable[[], None]) -> None:
    """One round: its steps, and what is done `meanwhile` behind the last one's loads, before its products."""
    found, indices = ahead.steps, context.indices
    last = int(found.loop.trips) - 1
    indices[found.loop.index] = 0
    context.tiles |= ahead.tiles
    for load in found.loads:
        probe.registers(context, load, *load.writes)
    body(context, found.rest)
    for number in range(1, last):
        indices[found.loop.index] = number
        body(context, found.loop.body)
    indices[found.loop.index] = last
    body(context, found.loads)
    tiles, round_number = dict(context.tiles), indices[ahead.loop.index]
    meanwhile()
    indices[ahead.loop.index], indices[found.loop.index] = round_number, last
    context.tiles |= tiles
    body(context, found.rest)
    del indices[found.loop.index]


def load_next(context: Context, ahead: Ahead, reading: Reg, index: Number, counter: Number, trips: Trips) -> None:
    """All threads meet, and load the first step of the next round where there is one.

    reading  the register of the slot that was read, which goes on
    index    of the next round
    counter  of this one
    """
    emit, s = context.emit, ahead.loop
    issue(context, Advance(reading, ahead.stages))
    _meet(context, ahead)
    slot = emit.new("r", len(emit.blocks))
    issue(context, Same(slot, reading))
    with emit.inner():
        for name in s.pipelines:
            context.slots[name] = slot
        more = emit.less(emit.add(counter, 1), trips.number)
        with context.protocol.block(partial(When, Before(s.index, 1, trips))):
            _loads(context, ahead, index, more)


def _meet(context: Context, ahead: Ahead) -> None:
    """The next slot is full, and nobody reads the one before it any more."""
    if ahead.grouped:
        issue(context, WaitGroup("cp.async", ahead.stages - 2, slots=ahead.loop.pipeline))
    barrier(context)


def _loads(context: Context, ahead: Ahead, index: Number, where: Number) -> None:
    """The loads of a round's first step, of threads and rounds where a predicate holds."""
    context.indices[ahead.loop.index], context.indices[ahead.steps.loop.index] = index, 0
    for load in ahead.steps.loads:
        tile = ahead.tiles[load.result.name]
        with context.printing(load):
            issue(context, *touch.touches(context, load))
            if isinstance(load.instruction, MatrixLoad):
                _, loads = matrix.matrix_loads(context, load, tile)
                for _, text in loads:
                    context.emit.line(moves.guarded(where) + text)
            else:
                moves.read_into(context, load, tile, where)
