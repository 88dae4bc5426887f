"""Roles side by side: each has its own warps, registers and walk over the tiles; pipelines go between them."""

from __future__ import annotations

from functools import partial

from tinygpu.language.roles import Role
from tinygpu.program import nodes as n
from tinygpu.program.one_thread import found_by_all, statements
from tinygpu.program.pairs import pair_of, pair_of_role
from tinygpu.program.tree import walk
from tinygpu.ptx.lowering import handover, in_turn, launch_control, probe, tensor_memory
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number
from tinygpu.ptx.lowering.grid import Registers, enter, trips_of
from tinygpu.ptx.lowering.sync import MeetCluster, RoleBody, Slots, Tiles, WaitGroup
from tinygpu.ptx.lowering.sync_text import issue
from tinygpu.schedulers.scheduler import Walk

WARP = 32
WARPGROUP_WARPS = 4


def write(context: Context, body: handover.Body) -> None:
    """All roles of a program, each in a branch of its own warps."""
    emit, program = context.emit, context.program
    if context.placement.barriers or context.placement.answers[1]:  # else every role hands over to itself alone
        handover.initialise(context, launch_control.initialise if context.scheduler.takes_over else None)
    end = emit.label("end")
    for number, role in enumerate(program.roles):
        context.barrier_id = number + 1
        _role(context, role, body, end)
    emit.place_label(end)
    context.one_issues = False
    if context.cluster_size > 1 and pair_of(program) == 1:
        # Nobody leaves while others may still fill its slots or arrive at its barriers. Lanes come one by one.
        issue(context, MeetCluster(aligned=False))
    tensor_memory.free(context)


def _role(context: Context, role: Role, body: handover.Body, end: str) -> None:
    emit = context.emit
    first, warps = int(role.first), int(role.warps)
    after = emit.label(f"not_{role.name}_")
    emit.comment(f"role {role.name}: warps {first} to {first + warps - 1}")
    warp = context.uniform_warp_of_cta()
    if first:
        emit.line(f"@{emit.less(warp, first)} bra {after};")
    if first + warps < max(int(r.first) + int(r.warps) for r in context.program.roles):
        beyond = emit.computed("p", "setp.ge.u32 {d}, {0}, {1};", warp, first + warps)
        emit.line(f"@{beyond} bra {after};")
    block = emit.open()
    if role.registers:
        _registers(context, role)
    mine = tuple(statements(context.program.body, role.name))
    together = found_by_all(context.program, mine)
    alone = context.one_issues = together is not None
    context.role, context.threads = role.name, warps * 32
    context.thread = emit.computed("r", "sub.u32 {d}, {0}, {1};", context.arguments["tid"], first * 32)
    if together == 0:
        _one_warp_goes_on(context, end)
    pair = pair_of_role(context.program, role.name)
    if pair > 1:
        other = emit.computed("p", "setp.ne.u32 {d}, {0}, 0;", context.rank_in_pair())
        emit.line(f"@{other} bra {end};")
    walks = launch_control.walkers(context.program, role)
    block_of = partial(RoleBody, role.name, warps, alone, role.share, pair=pair, walks=walks)
    with context.protocol.block(lambda body: block_of(body=body)):
        handover.start(context, role)
        _tiles(context, role, (mine[: together or 0], mine[together or 0 :]), body)
        _finish(context, mine, alone)
        handover.finish(context, role)
    emit.line(f"bra {end};")
    emit.close()
    emit.block.body.extend(block.lines())
    emit.place_label(after)


def _registers(context: Context, role: Role) -> None:
    if int(role.warps) % WARPGROUP_WARPS or int(role.first) % WARPGROUP_WARPS:
        raise LoweringError(
            f"role {role.name} has a register budget: its {role.warps} warps from warp {role.first} on must be whole "
            "warpgroups"
        )
    roles = context.program.roles
    average = sum(r.registers * int(r.warps) for r in roles) // sum(int(r.warps) for r in roles)
    verb = "inc" if role.registers > average else "dec"
    context.emit.line(f"setmaxnreg.{verb}.sync.aligned.u32 {role.registers};")


def _one_warp_goes_on(context: Context, to: str) -> None:
    """Of a role of several warps, all but the first go to a label: nothing keeps warps together that only issue, and
    one that waits for a phase must not be a phase behind.
    """
    if context.threads > WARP:
        others = context.emit.computed("p", "setp.ne.u32 {d}, {0}, 0;", context.uniform_warp())
        context.emit.line(f"@{others} bra {to};")


def _tile(
    context: Context, parts: tuple[tuple[n.Statement, ...], tuple[n.Statement, ...]], body: handover.Body
) -> None:
    """What a role does of one tile.

    parts  what all of its warps do, before one of them goes on, if it does; and the rest
    """
    together, mine = parts
    if not together:
        body(context, mine)
        return
    done = context.emit.label("found")
    body(context, together)
    _one_warp_goes_on(context, done)
    body(context, mine)
    context.emit.place_label(done)


def _tiles(
    context: Context, role: Role, parts: tuple[tuple[n.Statement, ...], tuple[n.Statement, ...]], body: handover.Body
) -> None:
    """The role's walk over the tiles: one, or tile after tile."""
    mine = (*parts[0], *parts[1])
    emit = context.emit
    walk = context.scheduler.walk(Registers(context), role.share)
    in_turn.begin(context, mine, again=context.scheduler.takes_over or walk.end is not None)
    if context.scheduler.takes_over:
        _taken_over(context, role, parts, walk, body)
        return
    if walk.end is None:
        enter(context, walk, walk.begin)
        _tile(context, parts, body)
        return
    rest, every = role.share
    tile = emit.new("r", len(emit.blocks))
    emit.line(f"mov.u32 {tile}, {walk.begin};")
    _skip_tiles(context, mine, walk, 0, range(rest))
    again, done = emit.label("tile"), emit.label("tiles_done")
    emit.place_label(again)
    over = emit.new("p")
    emit.line(f"setp.ge.u32 {over}, {tile}, {walk.end};")
    emit.line(f"@{over} bra {done};")
    block = emit.open()
    context.looping = True  # all that a role does stands in its walk
    with context.protocol.block(Tiles):
        enter(context, walk, tile)
        _tile(context, parts, body)
        _skip_tiles(context, mine, walk, tile, range(1, every))
    emit.close()
    emit.block.body.extend(block.lines())
    emit.line(f"add.u32 {tile}, {tile}, {walk.step};")
    emit.line(f"bra {again};")
    emit.place_label(done)


def _taken_over(
    context: Context, role: Role, parts: tuple[tuple[n.Statement, ...], tuple[n.Statement, ...]], walk: Walk,
    body: handover.Body,
) -> None:  # fmt: skip
    """The role's walk over the tile of its own cluster, and those of clusters that are taken over."""
    emit = context.emit
    places = launch_control.start(context, role)
    item = emit.new("r", len(emit.blocks))
    emit.line(f"mov.u32 {item}, {walk.begin};")
    again, done = emit.label("tile"), emit.label("tiles_done")
    emit.place_label(again)
    block = emit.open()
    context.looping = True
    with context.protocol.block(partial(Tiles, answered=True)):
        if places.asks is not None:
            launch_control.ask(context, places.asks, launch_control.walkers(context.program, role))
        enter(context, walk, item)
        _tile(context, parts, body)
        taken, first = launch_control.hear(context, places.hears)
    emit.line(f"@!{taken} bra {done};")
    with emit.inner():
        emit.line(f"mov.u32 {item}, {emit.div(first, context.cluster_size)};")
        probe.go_on_as(context, emit.add(first, context.cluster_rank_of({})))
    emit.close()
    emit.block.body.extend(block.lines())
    emit.line(f"bra {again};")
    emit.place_label(done)


def _skip_tiles(
    context: Context, mine: tuple[n.Statement, ...], walk: Walk, tile: Number, ahead: range
) -> None:
    """Passes over the slots that other roles drain for the tiles that they take: so many tiles ahead of this one."""
    if not ahead:
        return
    emit, run = context.emit, Registers(context)
    tiles = [emit.add(tile, distance) for distance in ahead]
    for name, pipe in context.pipes.items():
        if not handover.between_roles(context.program, name):
            continue
        count: Number = 0
        slots = Slots()
        for distance in ahead:
            dealt = walk.work(run, tiles[distance - ahead.start]).rounds if context.scheduler.deals_rounds else None
            rounds = None if dealt is None else dealt[1]
            each, more = _slots_per_tile(context, mine, name, rounds, distance)
            count = emit.mul(each, len(ahead)) if dealt is None else emit.add(count, each)
            slots += more
        handover.skip(context, pipe, count, slots)


def _slots_per_tile(
    context: Context, mine: tuple[n.Statement, ...], pipeline: str, rounds: Number | None = None, ahead: int = 0
) -> tuple[Number, Slots]:
    """Slots that the statements use of a tile, as a number at run time and in terms of their loops.

    rounds  those of divided loops, where CTAs share rounds in a row
    """
    total: Number = 0
    slots = Slots()
    for s in mine:
        inside: Number = 0
        each = Slots()
        for inner in s.children:
            here = int(pipeline in (inner.produces, inner.consumes))
            count, more = _slots_per_tile(context, inner.statements, pipeline, rounds, ahead)
            inside, each = context.emit.add(context.emit.add(inside, here), count), each + Slots(here) + more
        if isinstance(s, n.Repeated):
            trips = rounds if rounds is not None and s.divided else context.count(s.trips)
            inside, each = context.emit.mul(trips, inside), Slots(0, ((trips_of(context, s, trips, ahead), each),))
        total, slots = context.emit.add(total, inside), slots + each
    return total, slots


def _finish(context: Context, mine: tuple[n.Statement, ...], alone: bool) -> None:
    """Stores by TMA must have read shared memory before the CTA leaves."""
    stores = any(isinstance(s, n.Copy) and getattr(s.instruction, "completion", "") == "bulk group" for s in walk(mine))
    if stores:
        issue(context, WaitGroup("cp.async.bulk", 0, one=not alone))
