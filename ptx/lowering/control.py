"""Loops, pipelines and barriers: where waiting is derived, so that machines never write it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial

from tinygpu.language.instruction import BulkTransfer, CellLoad, CellStore, MatrixLoad, MatrixStore
from tinygpu.language.memories import TMEM
from tinygpu.program import nodes as n
from tinygpu.program.products import into_tensor_memory
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering import (
    across_ctas,
    bulk,
    compute,
    fix_up,
    grid,
    handover,
    look_back,
    matrix,
    moves,
    probe,
    reduction,
    relayout,
    scan,
    tensor_memory,
    touch,
    warpgroup,
)
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.rounds import at_least_once
from tinygpu.ptx.lowering.sync import (
    Advance,
    Ahead,
    Before,
    Commit,
    Condition,
    Fence,
    Meet,
    Rounds,
    Set,
    Touch,
    Trips,
    WaitGroup,
    When,
)
from tinygpu.ptx.lowering.sync_text import issue


def body(context: Context, statements: tuple[n.Statement, ...]) -> None:
    with ExitStack() as behind:
        for s in statements:
            statement(context, s)
            _defined(context, s, behind)


def _defined(context: Context, s: n.Statement, behind: ExitStack) -> None:
    """What follows a number that data say is written in a block of its own, which knows it."""
    if s.defines:
        behind.enter_context(context.emit.inner())


def statement(context: Context, s: n.Statement) -> None:
    """Writes one statement."""
    with context.printing(s):
        _statement(context, s)


def _statement(context: Context, s: n.Statement) -> None:
    handover.settle_before(context, s)
    if touch.at_once(s):
        issue(context, *touch.touches(context, s))
    if isinstance(s, n.Repeated) and s.trips.same(0):
        return  # no rounds, whatever the problem
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
            fill(context, s)
        case n.Consume():
            drain(context, s)
        case n.FixUp():
            fixed_up(context, s)
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


def _probed(s: n.Consume, context: Context, statements: tuple[n.Statement, ...]) -> None:
    """What is done with a slot, which is recorded first where the kernel is probed."""
    probe.slot(context, s, s.pipeline)
    body(context, statements)


def unrolled(context: Context, s: n.Loop) -> None:
    for round_number in range(int(s.trips)):
        context.indices[s.index] = round_number
        body(context, s.body)
    del context.indices[s.index]


@contextmanager
def counting(context: Context, index: str, trips: Trips, rolled: bool = False) -> Iterator[Reg]:
    """A loop at run time: yields the register that counts the rounds. Rolled: the assembler does not unroll it."""
    emit = context.emit
    start = emit.label("loop")
    emit.line(f"// for {index}")
    counter = emit.new("r", len(emit.blocks))
    emit.line(f"mov.u32 {counter}, 0;")
    emit.place_label(start)
    if rolled:
        emit.line('.pragma "nounroll";')
    block = emit.open()
    around, context.looping = context.looping, True
    with context.protocol.block(partial(Rounds, index, trips)):
        yield counter
    again = emit.new("p")
    emit.line(f"add.u32 {counter}, {counter}, 1;")
    emit.line(f"setp.lt.u32 {again}, {counter}, {trips.number};")
    emit.line(f"@{again} bra {start};")
    context.looping = around
    emit.close()
    emit.block.body.extend(block.lines())


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


def fixed_up(context: Context, s: n.FixUp) -> None:
    """The last CTA of a tile has what all of them have, and goes on; the others do not."""
    walk, work = grid.own(context)
    run = grid.Registers(context)
    shared = walk.shared(run, work)
    if not isinstance(shared, int):
        sometimes_fixed_up(context, s, shared)
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
    together = int(s.parts_at_once) if isinstance(parts, int) else 1
    with context.protocol.block(partial(When, "last CTA")):
        if together > 1:
            for first in range(0, parts, together):
                fix_up.take_together(context, s, range(first, min(first + together, parts)))
        else:
            taken(context, s, parts, lambda part: walk.place(run, 0, part))
        probe.registers(context, s, s.result)
        body(context, s.body)
    context.emit.place_label(done)


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


def sometimes_fixed_up(context: Context, s: n.FixUp, shared: Number) -> None:
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


@contextmanager
def only_if(context: Context, condition: Number, meaning: Condition, said: bool = False) -> Iterator[None]:
    """Statements that all threads of the CTA skip together where the condition does not hold.

    said  the protocol has it even where it is known to hold
    """
    if isinstance(condition, int):
        if not condition:
            raise LoweringError("a branch that is never taken is not written")
        with context.protocol.block(partial(When, meaning)) if said else nullcontext():
            yield
        return
    skip = context.emit.label("skip")
    context.emit.line(f"@!{condition} bra {skip};")
    with context.protocol.block(partial(When, meaning)):
        yield
    context.emit.place_label(skip)


def barrier(context: Context) -> None:
    """All threads of the role meet."""
    issue(context, Meet(context.barrier_id, context.threads))
    context.dirty = False


def bulk_store(context: Context, s: n.Copy) -> None:
    """One thread of the role stores a whole buffer."""
    with only_if(context, context.emit.less(context.role_thread(), 1), "one thread"):
        bulk.store(context, s)


def pipelined(context: Context, s: n.Pipelined) -> None:
    """A loop that fills and drains; it may have no round."""
    if context.dirty or context.looping:  # in a loop, the slots are those that the round before has drained
        barrier(context)
    grouped = any(context.program.pipeline(name).completion == "commit group" for name in s.pipelines)
    trips, start = rounds(context, s)
    stages = int(context.program.pipeline(s.pipeline).stages)
    with only_if(context, some_rounds(context, s, trips), Before("", 0, trips)):
        if stages == 1:
            _one_stage(context, s, trips, start, grouped)
        else:
            _several_stages(context, s, trips, start, stages, grouped)
    context.dirty = stages > 1
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
    with counting(context, s.index, trips) as counter:
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
        context.indices[s.index] = index
        _in_slot(context, s, reading)
        _probe_slots(context, s)
        body(context, s.consume)
        if finish:
            context.indices[s.index] = ahead_index
            _in_slot(context, s, writing)
            with only_if(context, more, is_one):
                issue(context, *written)
                for copy, store in finish:
                    with context.printing(copy):
                        store()
        issue(context, Advance(reading, stages), Advance(writing, stages))


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


def fill(context: Context, s: n.Produce) -> None:
    """A slot filled outside a pipelined loop; in a loop its last readers must have left it."""
    bulk_drained = _drained_in_bulk(context.program, s.pipeline)
    if bulk_drained and context.looping:
        issue(context, WaitGroup("cp.async.bulk", 0, read=True, one=True))
    if context.dirty or context.looping:
        barrier(context)
    context.slots[s.pipeline] = 0
    body(context, s.body)
    if bulk_drained:
        issue(context, Fence("fence.proxy.async.shared::cta"))
    if context.program.pipeline(s.pipeline).completion == "commit group":
        issue(context, WaitGroup("cp.async", None))


def _drained_in_bulk(program: Program, pipeline: str) -> bool:
    """Whether TMA takes what is filled: it sees stores of threads behind a proxy fence only."""
    return any(
        isinstance(c, n.Copy) and isinstance(c.instruction, BulkTransfer)
        for d in walk(program.body)
        if isinstance(d, n.Consume) and d.pipeline == pipeline
        for c in d.body
    )


def drain(context: Context, s: n.Consume) -> None:
    barrier(context)
    probe.slot(context, s, s.pipeline)
    body(context, s.body)
    context.dirty = True
