"""Handing buffers from role to role: mbarriers, phases, arrivals and turns, derived from who fills and who drains.

Every stage of a pipeline has a full and an empty mbarrier. A role that fills waits until a slot is empty, one that
drains until it is full; each keeps the slot that is next and the parity that it waits for, which flips when the slots
begin again. A slot that wgmma reads is given back when its instructions have completed, which is waited for as late as
may be (`tinygpu.program.groups`): the role holds it until then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from tinygpu.language.instruction.multiply import COMMIT
from tinygpu.language.memories import RMEM, TMEM
from tinygpu.language.roles import ARRIVALS, HANDED_OVER, Role
from tinygpu.program import nodes as n
from tinygpu.program.groups import Wait as GroupWait
from tinygpu.program.one_thread import statements
from tinygpu.program.pairs import pair_of_ring
from tinygpu.program.products import outlives, products, read_by_commit
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering import bulk, probe, release, settled, tensor_memory, touch
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.pipe import Pipe, empty_barrier, full_barrier, turn_barrier
from tinygpu.ptx.lowering.sync import (
    NOBODY,
    Advance,
    Arrive,
    Commit,
    CommitAt,
    Expect,
    Fence,
    Flip,
    Init,
    Meet,
    MeetCluster,
    MeetWarp,
    Set,
    Skip,
    Slots,
    Start,
    Tail,
    Take,
    Wait,
    WaitGroup,
)
from tinygpu.ptx.lowering.sync_text import address, issue

Body = Callable[[Context, tuple[n.Statement, ...]], None]


# ---- who arrives ----------------------------------------------------------------------------------------------------


def users(program: Program, pipeline: str, kind: type) -> list[Role]:
    """The roles that fill (n.Produce) or drain (n.Consume) a pipeline, in the order in which they first do."""
    names = [
        s.role
        for s in walk(program.body)
        if isinstance(s, n.InRole)
        and any(isinstance(inner, kind) and getattr(inner, "pipeline", "") == pipeline for inner in walk(s.body))
    ]
    return [next(r for r in program.roles if r.name == name) for name in dict.fromkeys(names)]


def between_roles(program: Program, pipeline: str) -> bool:
    """Whether a pipeline is handed over by mbarriers: from one role to another."""
    return program.pipeline(pipeline).completion in HANDED_OVER


def _shared_along(program: Program, pipeline: str) -> tuple[tuple[int, int], ...]:
    """(axis of the grid along which CTAs of a cluster fill each other's slots, so many of them)."""
    found = {
        (s.multicast, int(s.shared_by(program.grid.axes)))
        for fill in walk(program.body)
        if isinstance(fill, n.Produce) and fill.pipeline == pipeline
        for s in walk(fill.body)
        if isinstance(s, n.Copy) and s.multicast is not None
    }
    return tuple(sorted((axis, ctas) for axis, ctas in found if ctas > 1))


def sources(program: Program, pipeline: str) -> int:
    """CTAs that bring something into one CTA's slot; of slots that pairs share, the pairs that do."""
    return 1 + sum(ctas - 1 for _, ctas in _shared_along(program, pipeline))


def empty_arrivals(program: Program, pipeline: str) -> int:
    """Arrivals that make a slot empty: one of each warp that drains it, in every CTA that the filler writes to."""
    drains = users(program, pipeline, n.Consume)
    shares = {r.share for r in drains}
    if len({s[1] for s in shares}) != 1:
        raise LoweringError(f"the roles that consume {pipeline} share the tiles in different ways")
    if len(shares) > 1:
        warps = {int(r.warps) for r in drains}
        if len(warps) > 1:
            raise LoweringError(f"the roles that take turns at consuming {pipeline} have different numbers of warps")
        each = warps.pop()
    else:
        each = sum(_arrivals(program, pipeline, r) for r in drains)
    return each * sources(program, pipeline)


def full_arrivals(program: Program, pipeline: str) -> int:
    """Arrivals that make a slot full: one of whoever fills it, or of each of the warps that do, in both CTAs of a pair.
    """
    if program.pipeline(pipeline).completion != ARRIVALS:
        return 1
    warps = {int(r.warps) for r in users(program, pipeline, n.Produce)}
    if len(warps) > 1:
        raise LoweringError(f"the roles that take turns at producing {pipeline} have different numbers of warps")
    return warps.pop() * pair_of_ring(program, pipeline)


def _arrivals(program: Program, pipeline: str, role: Role) -> int:
    """Arrivals by which a role gives a slot back: one of each warp, or of its one thread, which commits."""
    uses = (s for s in walk(tuple(statements(program.body, role.name))) if isinstance(s, n.Consume))
    commits = any(s.pipeline == pipeline and read_by_commit(s.body, program.pipeline(pipeline)) for s in uses)
    return 1 if commits else int(role.warps) * pair_of_ring(program, pipeline)


def initialise(context: Context, also: Callable[[Context], None] | None = None) -> None:
    """One thread makes the barriers of all pipelines, and those that `also` makes; afterwards all threads may use them.
    """
    emit, program = context.emit, context.program
    emit.comment("barriers")
    done = emit.label("made")
    other = emit.computed("p", "setp.ne.u32 {d}, {0}, 0;", context.arguments["tid"])
    emit.line(f"@{other} bra {done};")
    for name, offset in context.placement.barriers.items():
        pipeline = program.pipeline(name)
        if pipeline.completion == "turn":
            takers = users(program, name, n.Consume)
            for number in range(len(takers)):
                issue(context, Init(turn_barrier(name, offset, number), int(takers[number - 1].warps)))
            continue
        stages = int(pipeline.stages)
        filled = full_arrivals(program, name)
        for slot in range(stages):
            issue(context, Init(full_barrier(name, offset, slot), filled))
        arrivals = empty_arrivals(program, name)
        for slot in range(stages):
            issue(context, Init(empty_barrier(name, offset, stages, slot), arrivals))
    if also is not None:
        also(context)
    issue(context, Fence("fence.mbarrier_init.release.cluster"))
    emit.place_label(done)
    tensor_memory.allot(context)
    issue(context, MeetCluster(True) if context.cluster_size > 1 else Meet(0, int(program.threads)))
    tensor_memory.learn(context)


# ---- slots ----------------------------------------------------------------------------------------------------------


def start(context: Context, role: Role) -> None:
    """The role's places in the pipelines that it fills or drains."""
    emit, program = context.emit, context.program
    context.pipes = {}
    for name, offset in context.placement.barriers.items():
        fills = role in users(program, name, n.Produce)
        drains = role in users(program, name, n.Consume)
        if not (fills or drains):
            continue
        if fills and drains:
            raise LoweringError(f"role {role.name} fills {name} and consumes it itself; give one to another role")
        slot, parity, held = emit.new("r"), emit.new("r"), emit.new("r")
        own = Pipe(name, int(program.pipeline(name).stages), offset, slot, parity, held)
        turns = program.pipeline(name).completion == "turn"
        first = turns and users(program, name, n.Consume)[0] is role
        # A barrier that was never completed lets those through that wait for the phase before its first.
        issue(context, Start(own, int(fills or first)))
        context.pipes[name] = own


def finish(context: Context, role: Role) -> None:
    """Where another CTA's commit may come behind all that this one waits for, who fills waits for it: the CTA stays."""
    program = context.program
    for name, pipe in context.pipes.items():
        abroad = max(sources(program, name), pair_of_ring(program, name)) > 1
        if abroad and role in users(program, name, n.Produce) and outlives(program.body, program.pipeline(name)):
            issue(context, Tail(pipe, _filler_acquires(program, name)))


@contextmanager
def in_slot(context: Context, pipe: Pipe) -> Iterator[tuple[Reg, Reg]]:
    """A block in which the pipe's slot and parity stand still; afterwards the next slot is next."""
    emit = context.emit
    slot, parity = emit.new("r", len(emit.blocks)), emit.new("r", len(emit.blocks))
    issue(context, Take(pipe, slot, parity))
    block = emit.open()
    context.slots[pipe.name] = slot
    yield slot, parity
    del context.slots[pipe.name]
    emit.close()
    emit.block.body.extend(block.lines())
    issue(context, Advance(pipe.slot, pipe.stages, pipe.parity))


def skip(context: Context, pipe: Pipe, count: Number, slots: Slots) -> None:
    """Passes over slots that other roles use."""
    issue(context, Skip(pipe, count, slots))


def fill(context: Context, s: n.Produce, body: Body) -> None:
    """A slot's buffers are brought by TMA, or added up in tensor memory, by one thread; or warps store there."""
    pipe, completion = context.pipes[s.pipeline], context.program.pipeline(s.pipeline).completion
    if completion == COMMIT:
        with in_slot(context, pipe) as (slot, parity), tensor_memory.going_on(context, s.body):
            pair = pair_of_ring(context.program, pipe.name)
            scope = release.acquire(True) if pair > 1 else ""
            issue(context, Wait(pipe.empty(slot), parity, scope), tensor_memory.AFTER)
            with context.electing():
                body(context, s.body)
                issue(context, CommitAt(pipe.full(slot), pair=pair))
        return
    if completion == ARRIVALS:
        before, after = _ordered(context.program, pipe.name)
        with in_slot(context, pipe) as (slot, parity):
            issue(context, Wait(pipe.empty(slot), parity), *after)
            body(context, s.body)
            pair = pair_of_ring(context.program, pipe.name)
            issue(context, *before, MeetWarp(), Arrive(pipe.full(slot), threads=pair > 1, pair=pair))
        return
    copies = [c for c in s.body if isinstance(c, n.Copy)]
    if len(copies) != len(s.body):
        raise LoweringError(f"{s.pipeline} is produced by TMA, and its produce() does more than copy")
    pair = pair_of_ring(context.program, s.pipeline)
    with in_slot(context, pipe) as (slot, parity):
        issue(context, Wait(pipe.empty(slot), parity, _filler_acquires(context.program, s.pipeline)))
        with context.electing():
            issue(context, Expect(pipe.full(slot), pair * sum(bulk.tile_bytes(c) for c in copies), pair))
            for c in copies:
                with context.printing(c):
                    bulk.load(context, c, pipe.full(slot))


def _filler_acquires(program: Program, pipeline: str) -> str:
    """The scope of the wait for a slot that TMA fills: who gives it back may be in another CTA."""
    return release.acquire(release.read_by_threads(program, pipeline)) if sources(program, pipeline) > 1 else ""


def _ordered(program: Program, pipeline: str) -> tuple[tuple[Fence, ...], tuple[Fence, ...]]:
    """What stands before an arrival and behind a wait, where warps hand slots over: fences of tensor memory.

    Of shared memory the barrier itself orders what threads have stored and read; what TMA takes from there, it sees
    behind a fence alone.
    """
    if any(b.memory is TMEM for b in program.pipeline(pipeline).buffers):
        return (tensor_memory.BEFORE,), (tensor_memory.AFTER,)
    drains = (s for s in walk(program.body) if isinstance(s, n.Consume) and s.pipeline == pipeline)
    in_bulk = any(by == "cp.async.bulk" for s in drains for c in walk(s.body) for _, _, by in touch.accesses(c))
    return ((Fence("fence.proxy.async.shared::cta"),) if in_bulk else ()), ()


def drain(context: Context, s: n.Consume, body: Body) -> None:
    """A role waits for a slot, uses it, and gives it back: at once, or when wgmma has read it."""
    pipe, pipeline = context.pipes[s.pipeline], context.program.pipeline(s.pipeline)
    multiplied = list(products(s.body))
    with in_slot(context, pipe) as (slot, parity):
        stored = pipeline.completion == ARRIVALS and pair_of_ring(context.program, pipe.name) > 1
        issue(context, Wait(pipe.full(slot), parity, release.acquire(True) if stored else ""))
        if read_by_commit(s.body, pipeline):
            issue(context, tensor_memory.AFTER)
            with context.electing():
                body(context, s.body)
                pair = pair_of_ring(context.program, pipe.name)
                shared = sources(context.program, pipe.name)
                issue(context, CommitAt(pipe.empty(slot), shared, _axes(context, pipe), pair))
            return
        if pipeline.completion in (COMMIT, ARRIVALS):
            _, after = _ordered(context.program, pipe.name)
            issue(context, *after)
            with settled.behind_last_read(context, s, partial(_give_back_read, context, pipe, slot)):
                body(context, s.body)
                if _read_in_bulk(context, s):
                    issue(context, WaitGroup("cp.async.bulk", 0, read=True, one=True))
            return
        if any(m.a.memory is RMEM for m in multiplied):
            _drain_by_threads(context, s, pipe, slot, body)
            return
        if multiplied:
            issue(context, Fence("wgmma.fence.sync.aligned"))
        body(context, s.body)
        if _read_in_bulk(context, s):
            issue(context, WaitGroup("cp.async.bulk", 0, read=True, one=True), MeetWarp())
        if multiplied:
            issue(context, Commit("wgmma"))
            if release.read_by_threads(context.program, s.pipeline):
                issue(context, *release.after_threads())
            _committed(context, s, pipe, slot)
        else:
            issue(context, *release.after_threads())
            _waited(context, context.groups.behind.get(s))
            give_back(context, pipe, slot, held=False)


def _give_back_read(context: Context, pipe: Pipe, slot: Reg) -> None:
    """Gives back a slot whose reads are complete."""
    before, _ = _ordered(context.program, pipe.name)
    issue(context, *before, MeetWarp())
    give_back(context, pipe, slot, held=False)


def _read_in_bulk(context: Context, s: n.Consume) -> bool:
    """Whether bulk copies read the slot, which one thread has issued and has to wait for."""
    buffers = {buffer.name for buffer in context.program.pipeline(s.pipeline).buffers}
    found = (access for c in walk(s.body) for access in touch.accesses(c))
    return any(tile.name in buffers and (verb, by) == ("read", "cp.async.bulk") for tile, verb, by in found)


def _drain_by_threads(context: Context, s: n.Consume, pipe: Pipe, slot: Reg, body: Body) -> None:
    """Threads bring the left operand of wgmma into registers, which stay as they are until the round before is done."""
    emit = context.emit
    _waited(context, context.groups.entered.get(s), pipe)
    body(context, s.body)
    issue(context, Fence("wgmma.fence.sync.aligned"))
    while context.products:
        product, text = context.products.pop(0)
        with context.printing(product):
            emit.line(text)
    for product in walk(s.body):
        if touch.put_off(product):
            issue(context, *touch.touches(context, product))
    issue(context, Commit("wgmma"))
    issue(context, *release.after_threads())
    _committed(context, s, pipe, slot)


def _committed(context: Context, s: n.Consume, pipe: Pipe, slot: Reg) -> None:
    """Behind the group of a block: its slot is held while it is under way, or given back when it is complete."""
    _waited(context, context.groups.behind.get(s), pipe)
    if s in context.groups.late:
        issue(context, Set(pipe.held, slot))
    else:
        give_back(context, pipe, slot, held=False)


def _waited(context: Context, wait: GroupWait | None, holding: Pipe | None = None) -> None:
    """Waits for groups of products, and gives their slots back; of `holding`, the next slot is held hereafter."""
    if wait is None:
        return
    issue(context, WaitGroup("wgmma", wait.pending))
    _returned(context, wait.done, holding)


def _returned(context: Context, done: tuple[n.Consume, ...], holding: Pipe | None = None) -> None:
    """Gives back what the role holds of the slots of blocks whose products are complete."""
    for name in dict.fromkeys(s.pipeline for s in done):
        pipe = context.pipes[name]
        give_back(context, pipe, pipe.held, held=True)
        if holding is not pipe:
            issue(context, Set(pipe.held, NOBODY))
    for s in done:
        if s not in context.groups.carried:
            probe.registers(context, s, *probe.sums(s))


def settle_before(context: Context, s: n.Statement) -> None:
    """Waits for the products whose sums a statement touches, or without whose slots it would wait for ever."""
    _waited(context, context.groups.before.get(s))


def settle(context: Context, s: n.Statement) -> None:
    """Waits for the asynchronous instructions of the loop that ends here, and gives their slots back."""
    left = context.groups.left.get(s, ())
    if left:
        issue(context, WaitGroup("wgmma", 0))
        _returned(context, left)


def give_back(context: Context, pipe: Pipe, slot: Reg, held: bool) -> None:
    """One lane of each warp arrives at the slot's empty barrier, in every CTA that fills it."""
    program = context.program
    threads = release.read_by_threads(program, pipe.name)
    axes, pair = _axes(context, pipe), pair_of_ring(program, pipe.name)
    issue(context, Arrive(pipe.empty(slot), sources(program, pipe.name), held, threads, axes, pair))


def _axes(context: Context, pipe: Pipe) -> tuple[int, ...]:
    return tuple(axis for axis, _ in _shared_along(context.program, pipe.name))


# ---- turns ----------------------------------------------------------------------------------------------------------


def turn(context: Context, s: n.Consume, body: Body) -> None:
    """A role waits for its turn; afterwards it is the next role's."""
    own = context.pipes[s.pipeline]
    takers = users(context.program, s.pipeline, n.Consume)
    number = next(i for i, r in enumerate(takers) if r.name == context.role)
    mine, following = (turn_barrier(own.name, own.offset, i % len(takers)) for i in (number, number + 1))
    for barrier in (mine, following):
        address(context, barrier)  # both are known before the turn
    issue(context, Wait(mine, own.parity), Flip(own.parity))
    body(context, s.body)
    issue(context, MeetWarp(), Arrive(following))
