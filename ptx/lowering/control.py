"""Loops, pipelines and barriers: where waiting is derived, so that machines never write it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from tinygpu.language.instruction import BulkTransfer, CellLoad, CellStore, MatrixLoad, MatrixStore
from tinygpu.language.memories import SMEM, TMEM
from tinygpu.program import nodes as n
from tinygpu.program.fragments import goes_on
from tinygpu.program.products import into_cells, into_tensor_memory, products
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering import (
    across_ctas,
    bulk,
    compute,
    grid,
    handover,
    in_turn,
    look_back,
    matrix,
    moves,
    prefetch,
    probe,
    reduction,
    relayout,
    scan,
    settled,
    shared_tiles,
    tensor_memory,
    touch,
    warpgroup,
)
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number
from tinygpu.ptx.lowering.flow import barrier, counting, only_if
from tinygpu.ptx.lowering.rounds import at_least_once
from tinygpu.ptx.lowering.sync import (
    Advance,
    Ahead,
    Before,
    Commit,
    Fence,
    Set,
    Touch,
    Trips,
    WaitGroup,
)
from tinygpu.ptx.lowering.sync_text import issue

WARP = 32


def body(context: Context, statements: tuple[n.Statement, ...]) -> None:
    with ExitStack() as behind:
        for s in statements:
            statement(context, s)
            _defined(context, s, behind)
        matrix.write_loads(context)


def _defined(context: Context, s: n.Statement, behind: ExitStack) -> None:
    """What follows a number that data say is written in a block of its own, which knows it."""
    if s.defines:
        behind.enter_context(context.emit.inner())


def statement(context: Context, s: n.Statement) -> None:
    """Writes one statement."""
    with context.printing(s):
        _statement(context, s)


def _statement(context: Context, s: n.Statement) -> None:
    if not goes_on(s):
        matrix.write_loads(context)
    handover.settle_before(context, s)
    if touch.at_once(s):
        issue(context, *touch.touches(context, s))
    if isinstance(s, n.Repeated) and s.trips.same(0):
        return  # no rounds, whatever the problem
    if s in context.meetings and context.threads > WARP:
        barrier(context)
    met, context.met = context.met, False
    match s:
        case n.Constant() if s.result.memory is TMEM:
            tensor_memory.clear(context, s)
        case n.Constant():
            compute.constant(context, s)
        case n.Index():
            compute.index(context, s)
        case n.Load() if isinstance(s.instruction, MatrixLoad):
            matrix.load_matrix(context, s)
        case n.Load() if isinstance(s.instruction, CellLoad):
            tensor_memory.load(context, s)
        case n.Load():
            moves.load(context, s)
        case n.Store() if isinstance(s.instruction, MatrixStore):
            matrix.store_matrix(context, s)
        case n.Store() if isinstance(s.instruction, CellStore):
            tensor_memory.store(context, s)
        case n.Store():
            if s.target.buffer is not None and any(getattr(i, "combines", False) for i in s.instructions):
                barrier(context)  # other threads may have written what is there
            moves.store(context, s)
        case n.Copy() if isinstance(s.instruction, BulkTransfer):
            bulk_store(context, s)
        case n.Copy() if into_cells(s):
            tensor_memory.copy(context, s)
        case n.Copy():
            moves.copy(context, s)
        case n.Uniform():
            compute.uniform(context, s)
        case n.Apply():
            compute.apply(context, s)
        case n.Multiply() if into_tensor_memory(s):
            tensor_memory.multiply(context, s)
        case n.Multiply() if s.instruction.scope == "warpgroup":
            warpgroup.multiply(context, s)
        case n.Multiply():
            matrix.multiply(context, s)
        case n.Reduce():
            reduction.write(context, s)
        case n.Scan():
            scan.write(context, s)
        case n.PrecedingInCluster():
            across_ctas.write_preceding(context, s)
        case n.Preceding():
            look_back.write(context, s)
        case n.Relayout():
            relayout.write(context, s)
        case n.Loop() if (last := s.fix_up) is not None:
            shared_tiles.in_pieces(context, s, last, body)
        case n.Loop() if s.unrolled:
            unrolled(context, s)
        case n.Loop():
            loop(context, s)
        case n.Pipelined():
            pipelined(context, s)
        case n.Produce() if handover.between_roles(context.program, s.pipeline):
            handover.fill(context, s, body)
        case n.Consume() if handover.between_roles(context.program, s.pipeline):
            handover.drain(context, s, partial(_probed, s))
            if s not in context.groups.late:
                probe.registers(context, s, *probe.sums(s))
        case n.Consume() if context.program.pipeline(s.pipeline).completion == "turn":
            handover.turn(context, s, body)
        case n.Produce():
            fill(context, s, met)
        case n.Consume():
            drain(context, s)
        case n.FixUp():
            shared_tiles.fixed_up(context, s, body)
        case n.When():
            when(context, s)
        case n.Scope():
            body(context, s.body)
            context.dirty = True
        case n.InRole():
            body(context, s.body)
        case _:
            raise LoweringError(f"there is no PTX for the statement {s.headline(frozenset())!r}")
    if not s.children:
        probe.registers(context, s, *s.writes)
    settled.done(context, s)


def _probed(s: n.Consume, context: Context, statements: tuple[n.Statement, ...]) -> None:
    """What is done with a slot, which is recorded first where the kernel is probed."""
    probe.slot(context, s, s.pipeline)
    body(context, statements)


def unrolled(context: Context, s: n.Loop) -> None:
    for round_number in range(int(s.trips)):
        context.indices[s.index] = round_number
        body(context, s.body)
    del context.indices[s.index]


def rounds(context: Context, s: n.Repeated) -> tuple[Trips, Number]:
    """(how many rounds the CTA does of a loop, the first of them)."""
    if s.divided and context.work is not None and context.work.rounds is not None:
        first, trips = context.work.rounds
        return grid.trips_of(context, s, trips), first
    number, first = context.count(s.trips), context.number(s.first)
    return grid.trips_of(context, s, number), first


def some_rounds(context: Context, s: n.Repeated, trips: Trips) -> Number:
    """Whether the loop has a round; True where that is known before the launch."""
    # of shared rounds, a CTA takes no tile of which it has none
    return True if trips.shared or at_least_once(context.program, s.trips) else context.emit.less(0, trips.number)


def loop(context: Context, s: n.Loop) -> None:
    trips, first = rounds(context, s)
    with only_if(context, some_rounds(context, s, trips), Before("", 0, trips)):
        with counting(context, s.index, trips) as counter:
            context.indices[s.index] = context.emit.add(counter, first)
            body(context, s.body)
        del context.indices[s.index]
        handover.settle(context, s)
        probe.registers(context, s, *probe.sums(s))


def when(context: Context, s: n.When) -> None:
    """A branch that the threads of the role take together."""
    condition = context.condition(s.given)
    if condition is False:
        return  # it is never taken, whatever the problem
    before = context.dirty
    with only_if(context, condition, "branch"):
        body(context, s.body)
    context.dirty = before or context.dirty  # who did not take it met at no barrier


def bulk_store(context: Context, s: n.Copy) -> None:
    """One thread of the role stores a whole buffer: one that its first warp elects, which comes as a whole."""
    first = context.emit.less(context.uniform_warp(), 1) if context.threads > WARP else True
    with only_if(context, first, "one thread", said=True), context.electing_of_warp():
        bulk.store(context, s)


def pipelined(context: Context, s: n.Pipelined) -> None:
    """A loop that fills and drains; it may have no round."""
    if context.dirty or context.looping:  # in a loop, the slots are those that the round before has drained
        barrier(context)
    grouped = any(context.program.pipeline(name).completion == "commit group" for name in s.pipelines)
    trips, start = rounds(context, s)
    stages = int(context.program.pipeline(s.pipeline).stages)
    prefetch.check(s, stages)
    with only_if(context, some_rounds(context, s, trips), Before("", 0, trips)):
        if stages == 1:
            _one_stage(context, s, trips, start, grouped)
        else:
            _several_stages(context, s, trips, start, stages, grouped)
    context.dirty = stages > 1 and not prefetch.goes_ahead(s)  # else all met behind the last loads from slots
    del context.indices[s.index]
    for name in s.pipelines:
        del context.slots[name]


def _in_slot(context: Context, s: n.Pipelined, slot: Number) -> None:
    """What follows is about this slot of all pipelines that the loop goes through."""
    for name in s.pipelines:
        context.slots[name] = slot


def _probe_slots(context: Context, s: n.Pipelined) -> None:
    for name in s.pipelines:
        probe.slot(context, s, name)


def _several_stages(
    context: Context, s: n.Pipelined, trips: Trips, start: Number, stages: int, grouped: bool
) -> None:
    """Fills `stages - 1` rounds ahead of draining.

    One barrier per round: after it everybody sees the round's slot full, and everybody has drained the slot that is
    filled next, because it was used one round before.
    """
    emit = context.emit
    for ahead in range(stages - 1):
        emit.comment(f"fill slot {ahead} of {', '.join(s.pipelines)}")
        with context.protocol.block(partial(Ahead, s.pipeline, ahead, s.along)):
            has_it = emit.less(ahead, trips.number) if ahead else 1
            if has_it != 0:  # else the loop is known to have fewer rounds
                with only_if(context, has_it, Before("", ahead, trips), said=True):
                    context.indices[s.index] = emit.add(start, ahead)
                    _in_slot(context, s, ahead)
                    body(context, s.produce)
            if grouped:
                issue(context, Commit("cp.async"))
    reading, writing = emit.new("r", len(emit.blocks)), emit.new("r", len(emit.blocks))
    issue(context, Set(reading, 0), Set(writing, stages - 1))
    first = prefetch.begin(context, s, stages, grouped, start, trips) if prefetch.goes_ahead(s) else None
    with counting(context, s.index, trips) as counter:
        if first is None:
            if grouped:
                issue(context, WaitGroup("cp.async", stages - 2))
            barrier(context)
        more = emit.less(emit.add(counter, stages - 1), trips.number)
        is_one = Before(s.index, stages - 1, trips)
        index = emit.add(counter, start)
        ahead_index = emit.add(index, stages - 1)
        context.indices[s.index] = ahead_index
        _in_slot(context, s, writing)
        finish: list[tuple[n.Statement, Callable[[], None]]] = []
        written: list[Touch] = []
        with only_if(context, more, is_one), ExitStack() as behind:
            for inner in s.produce:
                if isinstance(inner, n.Copy):
                    with context.printing(inner):
                        later = moves.start_copy(context, inner)
                        finish += [(inner, store) for store in later]
                        if later:
                            written += touch.touches(context, inner)
                        else:
                            issue(context, *touch.touches(context, inner))
                else:
                    statement(context, inner)
                    _defined(context, inner, behind)
        if grouped:
            issue(context, Commit("cp.async"))
        def finished() -> None:
            """What was loaded for the slot that is filled is stored there."""
            if finish:
                context.indices[s.index] = ahead_index
                _in_slot(context, s, writing)
                with only_if(context, more, is_one):
                    issue(context, *written)
                    for copy, store in finish:
                        with context.printing(copy):
                            store()

        context.indices[s.index] = index
        _in_slot(context, s, reading)
        _probe_slots(context, s)
        if first is None:
            body(context, s.consume)
            finished()
            issue(context, Advance(reading, stages), Advance(writing, stages))
        else:

            def meanwhile() -> None:
                finished()
                prefetch.load_next(context, first, reading, emit.add(index, 1), counter, trips)

            prefetch.consume(context, first, body, meanwhile)
            issue(context, Advance(writing, stages))


def _one_stage(context: Context, s: n.Pipelined, trips: Trips, start: Number, grouped: bool) -> None:
    emit = context.emit
    _in_slot(context, s, 0)
    with counting(context, s.index, trips) as counter:
        context.indices[s.index] = emit.add(counter, start)
        body(context, s.produce)
        if grouped:
            issue(context, WaitGroup("cp.async", None))
        barrier(context)
        _probe_slots(context, s)
        body(context, s.consume)
        barrier(context)


def fill(context: Context, s: n.Produce, met: bool) -> None:
    """The next slot, filled outside a pipelined loop, when its last readers have left it.

    Of several slots they have: all threads have met behind that, where the slot before this one was drained. They have
    as well where they begin to drain a slot of another pipeline. Copies are under way until the slot is drained.

    met  whether all threads have met right before, and done nothing since
    """
    bulk_drained = _drained_in_bulk(context.program, s.pipeline)
    if not _left_before(context, s.pipeline):
        if bulk_drained and (context.looping or s.pipeline in context.filled):
            issue(context, WaitGroup("cp.async.bulk", 0, read=True, one=True))
            met = False
        if (context.dirty or context.looping) and not met:
            barrier(context)
    context.filled.add(s.pipeline)
    with in_turn.at_slot(context, s.pipeline):
        body(context, s.body)
        if not _by_groups(context, s.pipeline):
            _fence(context, s.pipeline)


def _by_groups(context: Context, pipeline: str) -> bool:
    """Whether a slot is full when copies have landed that its threads have issued."""
    return context.program.pipeline(pipeline).completion == "commit group"


def _fence(context: Context, pipeline: str) -> None:
    """What threads have written, or waited for, is seen by TMA and tensor cores that read a slot by themselves."""
    if _drained_in_bulk(context.program, pipeline) or _multiplied(context.program, pipeline):
        issue(context, Fence("fence.proxy.async.shared::cta"))


def _left_before(context: Context, pipeline: str) -> bool:
    """Whether nobody uses the slot whose turn it is: there are several, in memory that no other pipeline has."""
    places = context.placement.places
    mine = [buffer.name for buffer in context.program.pipeline(pipeline).buffers]
    others = [place for name, place in places.items() if name not in mine]
    apart = not any(one.overlaps(other) for name in mine for one in (places[name],) for other in others)
    return pipeline in context.following and apart


def _drained_in_bulk(program: Program, pipeline: str) -> bool:
    """Whether TMA takes what is filled: it sees stores of threads behind a proxy fence only."""
    return any(
        isinstance(c, n.Copy) and isinstance(c.instruction, BulkTransfer)
        for d in walk(program.body)
        if isinstance(d, n.Consume) and d.pipeline == pipeline
        for c in d.body
    )


def _multiplied(program: Program, pipeline: str) -> bool:
    """Whether tensor cores read what is filled by themselves: behind a proxy fence, as TMA does."""
    found = (s for d in walk(program.body) if isinstance(d, n.Consume) for s in products(d.body))
    return any(tile.name.split(".")[0] == pipeline for s in found for tile in (s.a, s.b) if tile.memory is SMEM)


def drain(context: Context, s: n.Consume) -> None:
    """A slot that was filled, when all threads have met: then they know as well that the next slot is free."""
    if s.pipeline in context.following and _drained_in_bulk(context.program, s.pipeline):
        # of the slots but this one and the next
        pending = int(context.program.pipeline(s.pipeline).stages) - 2
        issue(context, WaitGroup("cp.async.bulk", pending, read=True, one=True, slots=s.pipeline))
    if _by_groups(context, s.pipeline):
        issue(context, WaitGroup("cp.async", None))
        _fence(context, s.pipeline)
    barrier(context)
    with in_turn.at_slot(context, s.pipeline):
        probe.slot(context, s, s.pipeline)
        context.met = True
        body(context, s.body)
    in_turn.advance(context, s.pipeline)
    context.dirty = True
