"""Handing buffers from role to role: mbarriers, phases, arrivals and turns, derived from who fills and who drains.

Every stage of a pipeline has a full and an empty mbarrier. A role that fills waits until a slot is empty, one that
drains until it is full; each keeps the slot that is next and the parity that it waits for, which flips when the slots
begin again. A slot that wgmma reads is given back one round later, when that round's instructions have completed; the
only slot of a pipeline, and one that is drained outside a loop, at once, after waiting for them. Where threads bring an
operand of wgmma into registers, it waits for them before they are written again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tinygpu.language.memories import RMEM
from tinygpu.language.roles import Role
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering import bulk, release
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.pipe import BARRIER_BYTES, Pipe, barrier

NOBODY = 0xFFFFFFFF
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
    return program.pipeline(pipeline).completion == "mbarrier"


def refuse_unordered(program: Program) -> None:
    """Raises LoweringError for a pipeline between roles of which nothing would order the fills and the drains."""
    for pipeline in program.pipelines:
        if pipeline.completion in ("mbarrier", "turn", "tcgen05 commit"):
            continue
        filling, draining = ([r.name for r in users(program, pipeline.name, k)] for k in (n.Produce, n.Consume))
        if filling != draining:
            by = "cp.async" if pipeline.completion == "commit group" else "stores"
            raise LoweringError(
                f"{pipeline.name} is produced by {by} in {' and '.join(filling)} and consumed in "
                f"{' and '.join(draining)}; between roles, lowering hands over only what TMA produces"
            )


def multicast_axes(program: Program, pipeline: str) -> tuple[int, ...]:
    """Axes of the grid along which CTAs of a cluster fill each other's slots."""
    found = {
        s.multicast
        for fill in walk(program.body)
        if isinstance(fill, n.Produce) and fill.pipeline == pipeline
        for s in walk(fill.body)
        if isinstance(s, n.Copy) and s.multicast is not None
    }
    return tuple(sorted(a for a in found if int(program.grid.axes[a].cluster) > 1))


def sources(program: Program, pipeline: str) -> int:
    """CTAs that bring something into one CTA's slot."""
    return 1 + sum(int(program.grid.axes[a].cluster) - 1 for a in multicast_axes(program, pipeline))


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
        each = sum(int(r.warps) for r in drains)
    return each * sources(program, pipeline)


def initialise(context: Context) -> None:
    """One thread makes the barriers of all pipelines; afterwards all threads may use them."""
    emit, program = context.emit, context.program
    emit.comment("barriers")
    done = emit.label("made")
    other = emit.computed("p", "setp.ne.u32 {d}, {0}, 0;", context.arguments["tid"])
    emit.line(f"@{other} bra {done};")
    for name, offset in context.placement.barriers.items():
        pipeline = program.pipeline(name)
        smem = context.arguments["smem"]
        if pipeline.completion == "turn":
            for number, role in enumerate(users(program, name, n.Consume)):
                place = emit.add(smem, offset + number * BARRIER_BYTES)
                before = users(program, name, n.Consume)[number - 1]
                del role
                emit.line(f"mbarrier.init.shared.b64 [{place}], {int(before.warps)};")
            continue
        stages = int(pipeline.stages)
        for slot in range(stages):
            emit.line(f"mbarrier.init.shared.b64 [{barrier(emit, smem, offset, slot)}], 1;")
        arrivals = empty_arrivals(program, name)
        for slot in range(stages):
            place = barrier(emit, smem, offset + stages * BARRIER_BYTES, slot)
            emit.line(f"mbarrier.init.shared.b64 [{place}], {arrivals};")
    emit.line("fence.mbarrier_init.release.cluster;")
    emit.place_label(done)
    if context.cluster_size > 1:
        emit.line("barrier.cluster.arrive.aligned;")
        emit.line("barrier.cluster.wait.aligned;")
    else:
        emit.line("bar.sync 0;")


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
            raise LoweringError(
                f"role {role.name} produces {name} by TMA and consumes it itself; give it to another role"
            )
        slot, parity, held = emit.new("r"), emit.new("r"), emit.new("r")
        stages = int(program.pipeline(name).stages)
        pipe = Pipe(name, stages, context.arguments["smem"], offset, slot, parity, held)
        turns = program.pipeline(name).completion == "turn"
        first = turns and users(program, name, n.Consume)[0] is role
        emit.line(f"mov.u32 {pipe.slot}, 0;")
        # A barrier that was never completed lets those through that wait for the phase before its first.
        emit.line(f"mov.u32 {pipe.parity}, {int(fills or first)};")
        emit.line(f"mov.u32 {pipe.held}, {NOBODY};")
        context.pipes[name] = pipe


def wait(context: Context, barrier: Number, parity: Number, scope: str = "") -> None:
    """Waits until the phase with this parity has completed; acquires at a scope, or at that of the CTA."""
    emit = context.emit
    again, done = emit.label("wait"), emit.new("p")
    emit.place_label(again)
    emit.line(f"mbarrier.try_wait.parity{scope}.shared::cta.b64 {done}, [{barrier}], {parity};")
    emit.line(f"@!{done} bra {again};")


@contextmanager
def in_slot(context: Context, pipe: Pipe) -> Iterator[tuple[Reg, Reg]]:
    """A block in which the pipe's slot and parity stand still; afterwards the next slot is next."""
    emit = context.emit
    slot, parity = emit.new("r", len(emit.blocks)), emit.new("r", len(emit.blocks))
    emit.line(f"mov.u32 {slot}, {pipe.slot};")
    emit.line(f"mov.u32 {parity}, {pipe.parity};")
    block = emit.open()
    context.slots[pipe.name] = slot
    yield slot, parity
    del context.slots[pipe.name]
    emit.close()
    emit.block.body.extend(block.lines())
    wrapped = emit.new("p")
    emit.line(f"add.u32 {pipe.slot}, {pipe.slot}, 1;")
    emit.line(f"setp.eq.u32 {wrapped}, {pipe.slot}, {pipe.stages};")
    emit.line(f"selp.b32 {pipe.slot}, 0, {pipe.slot}, {wrapped};")
    emit.line(f"@{wrapped} xor.b32 {pipe.parity}, {pipe.parity}, 1;")


def skip(context: Context, pipe: Pipe, count: Number) -> None:
    """Passes over slots that other roles use."""
    emit = context.emit
    total, rounds = emit.new("r"), emit.new("r")
    emit.line(f"add.u32 {total}, {pipe.slot}, {count};")
    emit.line(f"div.u32 {rounds}, {total}, {pipe.stages};")
    emit.line(f"rem.u32 {pipe.slot}, {total}, {pipe.stages};")
    emit.line(f"and.b32 {rounds}, {rounds}, 1;")
    emit.line(f"xor.b32 {pipe.parity}, {pipe.parity}, {rounds};")


def fill(context: Context, s: n.Produce) -> None:
    """The role's one thread brings a slot's buffers by TMA."""
    emit = context.emit
    pipe = context.pipes[s.pipeline]
    copies = [c for c in s.body if isinstance(c, n.Copy)]
    if len(copies) != len(s.body):
        raise LoweringError(f"{s.pipeline} is produced by TMA, and its produce() does more than copy")
    by_threads = release.read_by_threads(context.program, s.pipeline)
    scope = release.acquire(by_threads) if sources(context.program, s.pipeline) > 1 else ""
    with in_slot(context, pipe) as (slot, parity):
        wait(context, pipe.empty(emit, slot), parity, scope)
        full = pipe.full(emit, slot)
        size = sum(bulk.tile_bytes(c) for c in copies)
        emit.line(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [{full}], {size};")
        for c in copies:
            bulk.load(context, c, full)


def drain(context: Context, s: n.Consume, body: Body) -> None:
    """A role waits for a slot, uses it, and gives it back: at once, or when wgmma has read it."""
    emit = context.emit
    pipe = context.pipes[s.pipeline]
    products = [m for m in walk(s.body) if isinstance(m, n.Multiply) and m.token is not None]
    with in_slot(context, pipe) as (slot, parity):
        wait(context, pipe.full(emit, slot), parity)
        if any(m.a.memory is RMEM for m in products):
            _drain_by_threads(context, s, pipe, slot, body)
            return
        if products:
            emit.line("wgmma.fence.sync.aligned;")
        body(context, s.body)
        if products:
            emit.line("wgmma.commit_group.sync.aligned;")
            if release.read_by_threads(context.program, s.pipeline):
                release.after_threads(emit)
            if _overlaps(context, pipe):
                emit.line("wgmma.wait_group.sync.aligned 1;")
                give_back(context, pipe, pipe.held, unless_nobody=True)
                _hold(context, pipe, slot)
            else:
                _give_back_now(context, pipe, slot)
        else:
            release.after_threads(emit)
            give_back(context, pipe, slot, unless_nobody=False)


def _drain_by_threads(context: Context, s: n.Consume, pipe: Pipe, slot: Reg, body: Body) -> None:
    """Threads bring the left operand of wgmma into registers, which stay as they are until the round before is done."""
    emit = context.emit
    if _overlaps(context, pipe):
        emit.line("wgmma.wait_group.sync.aligned 0;")
        give_back(context, pipe, pipe.held, unless_nobody=True)
    body(context, s.body)
    emit.line("wgmma.fence.sync.aligned;")
    while context.products:
        emit.line(context.products.pop(0))
    emit.line("wgmma.commit_group.sync.aligned;")
    release.after_threads(emit)
    if _overlaps(context, pipe):
        _hold(context, pipe, slot)
    else:
        _give_back_now(context, pipe, slot)


def _overlaps(context: Context, pipe: Pipe) -> bool:
    """Whether the products of a round end in the next one: there is one, and a slot that can be brought meanwhile."""
    return context.in_rounds and pipe.stages > 1


def _give_back_now(context: Context, pipe: Pipe, slot: Reg) -> None:
    """Nothing is brought before the slot is given back, or what follows may use the products: so these come first."""
    context.emit.line("wgmma.wait_group.sync.aligned 0;")
    give_back(context, pipe, slot, unless_nobody=False)


def _hold(context: Context, pipe: Pipe, slot: Reg) -> None:
    context.emit.line(f"mov.u32 {pipe.held}, {slot};")
    context.held[pipe.name] = pipe


def settle(context: Context) -> None:
    """Waits for the asynchronous instructions of the loop that ends here, and gives their slots back."""
    emit = context.emit
    for pipe in context.held.values():
        emit.line("wgmma.wait_group.sync.aligned 0;")
        give_back(context, pipe, pipe.held, unless_nobody=True)
        emit.line(f"mov.u32 {pipe.held}, {NOBODY};")
    context.held = {}


def give_back(context: Context, pipe: Pipe, slot: Reg, unless_nobody: bool) -> None:
    """One lane of each warp arrives at the slot's empty barrier, in every CTA that fills it."""
    emit = context.emit
    count = sources(context.program, pipe.name)
    mine = emit.less(context.lane(), count)
    block_slot = emit.new("r", len(emit.blocks))
    emit.line(f"mov.u32 {block_slot}, {slot};")
    block = emit.open()
    if unless_nobody:
        real = emit.new("p")
        emit.line(f"setp.ne.u32 {real}, {block_slot}, {NOBODY};")
        both = emit.new("p")
        emit.line(f"and.pred {both}, {real}, {mine};")
        mine = both
    empty = pipe.empty(emit, block_slot)
    if count == 1:
        release.arrive(emit, f"@{mine}", empty)
    else:
        remote = emit.new("r")
        emit.line(f"mapa.shared::cluster.u32 {remote}, {empty}, {_source_rank(context, pipe.name)};")
        release.arrive_abroad(emit, f"@{mine}", remote, release.read_by_threads(context.program, pipe.name))
    emit.close()
    emit.block.body.extend(block.lines())


def _source_rank(context: Context, pipeline: str) -> Number:
    """By lane: the rank of one of the CTAs that fill this CTA's slots; lanes beyond give the CTA's own."""
    emit = context.emit
    axes = multicast_axes(context.program, pipeline)
    lane = context.lane()
    rank: Number = context.cluster_rank_of({})
    below = 1
    for axis in axes:
        own, extent = context.cluster_rank(axis), context.cluster_extent(axis)
        # The others along this axis: all places but the own one.
        place = emit.sub(lane, below)
        shifted = emit.add(place, emit.select(1, 0, _at_least(context, place, own)))
        other = context.cluster_rank_of({axis: shifted})
        inside = emit.both(_at_least(context, lane, below), emit.less(lane, below + extent - 1))
        rank = emit.select(other, rank, inside)
        below += extent - 1
    return rank


def _at_least(context: Context, a: Number, b: Number) -> Number:
    return context.emit.computed("p", "setp.ge.u32 {d}, {0}, {1};", a, b)


# ---- turns ----------------------------------------------------------------------------------------------------------


def turn(context: Context, s: n.Consume, body: Body) -> None:
    """A role waits for its turn; afterwards it is the next role's."""
    emit = context.emit
    pipe = context.pipes[s.pipeline]
    takers = users(context.program, s.pipeline, n.Consume)
    number = next(i for i, r in enumerate(takers) if r.name == context.role)
    smem = context.arguments["smem"]
    mine = emit.add(smem, pipe.offset + number * BARRIER_BYTES)
    following = emit.add(smem, pipe.offset + (number + 1) % len(takers) * BARRIER_BYTES)
    wait(context, mine, pipe.parity)
    emit.line(f"xor.b32 {pipe.parity}, {pipe.parity}, 1;")
    body(context, s.body)
    emit.line("bar.warp.sync -1;")
    first = emit.less(context.lane(), 1)
    release.arrive(emit, f"@{first}", following)
