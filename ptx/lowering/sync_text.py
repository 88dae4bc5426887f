"""The printer of synchronisation: each value of `sync` as PTX, written where it stands and kept in the protocol."""

from __future__ import annotations

from functools import partial, reduce

from tinygpu.language.buffer_space import ANSWER_BYTES, BARRIER_BYTES
from tinygpu.program.pairs import pair_of
from tinygpu.ptx.lowering.context import Context
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.pipe import Barrier
from tinygpu.ptx.lowering.release import ABROAD_BY_AGENTS, ABROAD_BY_THREADS
from tinygpu.ptx.lowering.sync import (
    NOBODY,
    Action,
    Advance,
    Arrive,
    Ask,
    Bring,
    Commit,
    CommitAt,
    Expect,
    Fence,
    Flip,
    Hear,
    Init,
    Meet,
    MeetCluster,
    MeetWarp,
    Same,
    Set,
    Settled,
    Skip,
    Start,
    Tail,
    Take,
    Touch,
    Turn,
    Wait,
    WaitGroup,
)

ALIGNED = {"wgmma": ".sync.aligned"}


def address(context: Context, barrier: Barrier) -> Number:
    """Where a barrier is in shared memory."""
    emit, smem = context.emit, context.arguments["smem"]
    if barrier.side == "turn" and isinstance(barrier.slot, int):
        return emit.add(smem, barrier.offset + barrier.slot * BARRIER_BYTES)
    return emit.add(emit.add(smem, emit.mul(barrier.slot, BARRIER_BYTES)), barrier.offset)


def of_first(context: Context, barrier: Barrier) -> Number:
    """Where the same barrier of the first CTA of the pair is in the cluster's shared memory."""
    place, first = address(context, barrier), context.first_of_pair()
    return context.emit.computed("r", "mapa.shared::cluster.u32 {d}, {0}, {1};", place, first)


def issue(context: Context, *actions: Action) -> None:
    """Writes what is to be done, one after the other."""
    for action in actions:
        context.protocol.add(action)
        _write(context, action)


def _write(context: Context, action: Action) -> None:
    emit = context.emit
    match action:
        case Init():
            emit.line(f"mbarrier.init.shared.b64 [{address(context, action.barrier)}], {action.arrivals};")
        case Start(pipe, parity):
            emit.line(f"mov.u32 {pipe.slot}, 0;")
            emit.line(f"mov.u32 {pipe.parity}, {parity};")
            emit.line(f"mov.u32 {pipe.held}, {NOBODY};")
        case Take(pipe, slot, parity):
            emit.line(f"mov.u32 {slot}, {pipe.slot};")
            emit.line(f"mov.u32 {parity}, {pipe.parity};")
        case Wait():
            _wait(context, action)
        case Expect(ctas=ctas) if ctas > 1:
            _expect_everywhere(context, action)
        case Expect(barrier, count, pair):
            first = emit.less(context.rank_in_pair(), 1) if pair > 1 else None
            text = f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [{address(context, barrier)}], {count};"
            context.engine(text, first if isinstance(first, Reg) else None)
        case Ask():
            _ask(context, action)
        case Hear():
            _hear(context, action)
        case Arrive():
            _arrive(context, action)
        case CommitAt():
            _commit_at(context, action)
        case Set(register, value):
            emit.line(f"mov.u32 {register}, {value};")
        case Same(register, of):
            emit.line(f"mov.u32 {register}, {of};")
        case Advance():
            _advance(context, action)
        case Skip():
            _skip(context, action)
        case Tail():
            _tail(context, action)
        case Flip(parity):
            emit.line(f"xor.b32 {parity}, {parity}, 1;")
        case Commit(of):
            emit.line(f"{of}.commit_group{ALIGNED.get(of, '')};")
        case WaitGroup():
            _wait_group(context, action)
        case Meet():
            _meet(context, action)
        case MeetWarp():
            emit.line("bar.warp.sync -1;")
        case MeetCluster(aligned):
            for verb in ("arrive", "wait"):
                emit.line(f"barrier.cluster.{verb}{'.aligned' if aligned else ''};")
        case Fence(text):
            emit.line(f"{text};")
        case Bring() | Touch() | Settled() | Turn():
            pass  # the instructions that do so are the program's, and write themselves; a turn is part of addresses


def _wait(context: Context, action: Wait) -> None:
    emit = context.emit
    place = address(context, action.barrier)
    again, done = emit.label("wait"), emit.new("p")
    emit.place_label(again)
    emit.line(f"mbarrier.try_wait.parity{action.scope}.shared::cta.b64 {done}, [{place}], {action.parity};")
    emit.line(f"@!{done} bra {again};")


def _arrive(context: Context, action: Arrive) -> None:
    emit, barrier = context.emit, action.barrier
    if barrier.side == "turn":
        place = address(context, barrier)
        emit.line(f"@{emit.less(context.lane(), 1)} mbarrier.arrive.shared::cta.b64 _, [{place}];")
        return
    mine = emit.less(context.lane(), action.ctas)
    slot = emit.new("r", len(emit.blocks))
    emit.line(f"mov.u32 {slot}, {barrier.slot};")
    block = emit.open()
    if action.held:
        real = emit.new("p")
        emit.line(f"setp.ne.u32 {real}, {slot}, {NOBODY};")
        both = emit.new("p")
        emit.line(f"and.pred {both}, {real}, {mine};")
        mine = both
    place = address(context, Barrier(barrier.pipeline, barrier.side, slot, barrier.offset))
    if action.home > 1:
        home = emit.computed("r", "mapa.shared::cluster.u32 {d}, {0}, 0;", place)
        emit.line(f"@{mine} {ABROAD_BY_THREADS} _, [{home}];")
    elif action.pair > 1:
        first = of_first(context, Barrier(barrier.pipeline, barrier.side, slot, barrier.offset))
        emit.line(f"@{mine} {ABROAD_BY_THREADS} _, [{first}];")
    elif action.ctas == 1:
        emit.line(f"@{mine} mbarrier.arrive.shared::cta.b64 _, [{place}];")
    else:
        remote = emit.new("r")
        emit.line(f"mapa.shared::cluster.u32 {remote}, {place}, {_rank_by_lane(context, action.axes)};")
        emit.line(f"@{mine} {ABROAD_BY_THREADS if action.threads else ABROAD_BY_AGENTS} _, [{remote}];")
    emit.close()
    emit.block.body.extend(block.lines())


def _expect_everywhere(context: Context, action: Expect) -> None:
    """One lane for each CTA of the cluster says at that CTA's barrier how many bytes come."""
    emit, lane = context.emit, context.lane()
    rank = emit.minimum(lane, action.ctas - 1)
    place = emit.computed("r", "mapa.shared::cluster.u32 {d}, {0}, {1};", address(context, action.barrier), rank)
    expect = "mbarrier.arrive.expect_tx.release.cluster.shared::cluster.b64"
    emit.line(f"@{emit.less(lane, action.ctas)} {expect} _, [{place}], {action.bytes};")


def _answer_at(context: Context, slot: Number, at: int) -> Number:
    emit = context.emit
    return emit.add(emit.add(context.arguments["smem"], emit.mul(slot, ANSWER_BYTES)), at)


def _ask(context: Context, action: Ask) -> None:
    """PTX ISA, clusterlaunchcontrol.try_cancel."""
    to, everywhere = _answer_at(context, action.barrier.slot, action.at), action.ctas > 1
    form = "async.shared::cta.mbarrier::complete_tx::bytes" + ".multicast::cluster::all" * everywhere
    context.engine(f"clusterlaunchcontrol.try_cancel.{form}.b128 [{to}], [{address(context, action.barrier)}];")


def _hear(context: Context, action: Hear) -> None:
    """PTX ISA, clusterlaunchcontrol.query_cancel."""
    emit, query = context.emit, "clusterlaunchcontrol.query_cancel"
    answer = emit.new("q")
    emit.line(f"ld.shared.b128 {answer}, [{_answer_at(context, action.slot, action.at)}];")
    emit.line(f"{query}.is_canceled.pred.b128 {action.taken}, {answer};")
    emit.line(f"{query}.get_first_ctaid::x.b32.b128 {action.first}, {answer};")


def _commit_at(context: Context, action: CommitAt) -> None:
    emit = context.emit
    commit = f"tcgen05.commit.cta_group::{pair_of(context.program)}.mbarrier::arrive::one.shared::cluster"
    place = address(context, action.barrier)
    if action.ctas == action.pair == 1:
        context.engine(f"{commit}.b64 [{place}];")
        return
    last = len(context.program.grid.axes) - 1  # along which both of a pair are neighbours, and pairs are
    ranks = [context.cluster_mask(axis, action.pair if axis == last else 1) for axis in action.axes]
    if action.pair > 1:
        own = emit.computed("r", "shl.b32 {d}, 1, {0};", context.first_of_pair())
        ranks.append(emit.computed("h", "cvt.u16.u32 {d}, {0};", own))
    mask = reduce(partial(emit.computed, "h", "or.b16 {d}, {0}, {1};"), ranks)
    if action.pair > 1:  # the second one of each pair as well
        mask = emit.computed("h", "or.b16 {d}, {0}, {1};", mask, emit.computed("h", "shl.b16 {d}, {0}, 1;", mask))
    context.engine(f"{commit}.multicast::cluster.b64 [{place}], {mask};")


def _rank_by_lane(context: Context, axes: tuple[int, ...]) -> Number:
    """The rank of one of the neighbours along the axes, or of the own CTA; lanes beyond give the CTA's own."""
    emit = context.emit
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


def _advance(context: Context, action: Advance) -> None:
    emit, slot = context.emit, action.slot
    wrapped = emit.new("p")
    emit.line(f"add.u32 {slot}, {slot}, 1;")
    emit.line(f"setp.eq.u32 {wrapped}, {slot}, {action.stages};")
    emit.line(f"selp.b32 {slot}, 0, {slot}, {wrapped};")
    if action.parity is not None:
        emit.line(f"@{wrapped} xor.b32 {action.parity}, {action.parity}, 1;")


def _tail(context: Context, action: Tail) -> None:
    emit, pipe = context.emit, action.pipe
    for _ in range(pipe.stages):
        slot = emit.new("r", len(emit.blocks))
        emit.line(f"mov.u32 {slot}, {pipe.slot};")
        block = emit.open()
        _wait(context, Wait(pipe.empty(slot), pipe.parity, action.scope))
        emit.close()
        emit.block.body.extend(block.lines())
        _advance(context, Advance(pipe.slot, pipe.stages, pipe.parity))


def _skip(context: Context, action: Skip) -> None:
    emit, pipe = context.emit, action.pipe
    total, rounds = emit.new("r"), emit.new("r")
    emit.line(f"add.u32 {total}, {pipe.slot}, {action.count};")
    emit.line(f"div.u32 {rounds}, {total}, {pipe.stages};")
    emit.line(f"rem.u32 {pipe.slot}, {total}, {pipe.stages};")
    emit.line(f"and.b32 {rounds}, {rounds}, 1;")
    emit.line(f"xor.b32 {pipe.parity}, {pipe.parity}, {rounds};")


def _wait_group(context: Context, action: WaitGroup) -> None:
    emit = context.emit
    if action.pending is None:
        emit.line(f"{action.of}.wait_all;")
        return
    read = ".read" if action.read else ""
    emit.line(f"{action.of}.wait_group{read}{ALIGNED.get(action.of, '')} {action.pending};")


def _meet(context: Context, action: Meet) -> None:
    own = f"{action.number}, {action.threads}" if action.number else "0"
    if action.any is None:
        context.emit.line(f"{'bar' if action.aligned else 'barrier'}.sync {own};")
    else:
        result, mine = action.any
        context.emit.line(f"bar.red.or.pred {result}, {own}, {mine};")
