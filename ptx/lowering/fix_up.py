"""Fix-up of tiles that CTAs share (split-K, stream-K): partial values through a workspace, counted in by an atomic.

Each CTA stores its values, then counts itself in. The one that finds that it is the last loads the values of all, in
the order of the rounds, so that the result does not depend on who came when. Nobody waits for anybody. The count wraps
around with the last CTA: it is zero again for the next launch.

Where each tile has the same number of parts, every part of every tile has its place in the workspace. With stream-K a
CTA shares two tiles at most, the one with which it begins and the one with which it ends, and has a place for each.

A tile may be fixed up in pieces, each of which has its part of the place; CTAs are counted once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from tinygpu.expressions import expr, symbol
from tinygpu.program import nodes as n
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.ptx.launching.kernel import Workspace
from tinygpu.ptx.lowering import grid
from tinygpu.ptx.lowering.compute import emit_elementwise, partition_of
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.registers import allocate
from tinygpu.ptx.lowering.sync import Meet
from tinygpu.ptx.lowering.sync_text import issue
from tinygpu.ptx.lowering.texts import written

PARTIALS, COUNTERS = "partials", "counters"
WORD_BYTES = 4
NOBODY = 0xFFFFFFFF


def workspaces(program: Program) -> tuple[Workspace, ...]:
    """What a launch supplies: places for the values of all parts of each tile, and counters that are zero."""
    sizes, scheduler = _area_bytes(program), program.grid.scheduler.settled()
    if not sizes or not scheduler.shares:
        return ()
    of_tile, of_cta = (places * sum(sizes) for places in scheduler.places)
    return Workspace(PARTIALS, of_tile, False, of_cta), Workspace(COUNTERS, WORD_BYTES * len(sizes), True)


def _areas(program: Program) -> Iterator[tuple[int, n.FixUp]]:
    """Fix-ups with the number of their area. Roles that take turns at tiles use the same areas, one after another."""
    behind = start = 0
    for role in program.roles:
        mine = [
            s for b in walk(program.body) if isinstance(b, n.InRole) and b.role == role.name for s in walk(b.body)
            if isinstance(s, n.FixUp)
        ]  # fmt: skip
        if not role.share[0]:
            start = behind
        yield from ((start + number, s) for number, s in enumerate(mine))
        behind = max(behind, start + len(mine))


def _area_bytes(program: Program) -> list[int]:
    """Per area, the bytes that one CTA leaves there."""
    found: dict[int, int] = {}
    for area, s in _areas(program):
        role_threads = _threads(program, s)
        size = _piece_bytes(s, role_threads) * int(s.pieces)
        if found.setdefault(area, size) != size:
            raise LoweringError("the roles that take turns at tiles fix up tiles of different sizes")
    return [found[a] for a in sorted(found)]


def _piece_bytes(s: n.FixUp, threads: int) -> int:
    return WORD_BYTES * partition_of(s.value).values.size * threads


def _threads(program: Program, s: n.FixUp) -> int:
    for b in walk(program.body):
        if isinstance(b, n.InRole) and any(i is s for i in walk(b.body)):
            return 32 * int(next(r for r in program.roles if r.name == b.role).warps)
    raise LoweringError(f"{s.name} fixes up a tile outside a role")


# ---- one CTA --------------------------------------------------------------------------------------------------------


def _pointer(context: Context, name: str) -> Reg:
    """The address of a workspace: a parameter of the kernel."""
    if name not in context.workspace:
        context.workspace[name] = context.emit.parameter("d")
    return context.workspace[name]


def _own_tile(context: Context) -> Number:
    """The number of the CTA's tile: that of its cluster's tiles, and its rank among them."""
    emit, (_, work) = context.emit, grid.own(context)
    return emit.add(emit.mul(work.tile, context.cluster_size), context.cluster_rank_of({}))


def _place(context: Context, s: n.FixUp, place: Number) -> Number:
    """Address of the thread's first vector among the values at a place: a part of the tile, or a piece of a cluster."""
    emit = context.emit
    sizes = _area_bytes(context.program)
    area = next(a for a, g in _areas(context.program) if g is s)
    of_tile, of_cta = context.scheduler.places
    if of_cta:
        number = emit.add(emit.mul(place, context.cluster_size), context.cluster_rank_of({}))
    else:
        number = emit.add(emit.mul(_own_tile(context), of_tile), place)
    start = emit.add64(_pointer(context, PARTIALS), emit.wide(number, sum(sizes)))
    start = emit.add64(start, emit.widen(emit.mul(context.role_thread(), WORD_BYTES * int(expr(s.store.vector)))))
    piece = context.number(symbol(s.piece)) if s.piece else 0
    return emit.add64(emit.add64(start, sum(sizes[:area])), emit.wide(piece, _piece_bytes(s, context.threads)))


def _vectors(context: Context, s: n.FixUp, place: Number, registers: list[Reg]) -> Iterator[tuple[list[str], str]]:
    """(registers of a vector, its address): neighbours in the workspace belong to neighbouring threads."""
    vector = int(expr(s.store.vector))
    for number, first in enumerate(range(0, len(registers), vector)):
        offset = number * context.threads * vector * WORD_BYTES
        yield list(map(str, registers[first : first + vector])), f"[{place}+{offset}]"


def _guard(context: Context, s: n.FixUp) -> str:
    """The role may have more threads than hold values."""
    holders = partition_of(s.value).threads.size
    return f"@{context.emit.less(context.role_thread(), holders)} " if holders < context.threads else ""


def leave(context: Context, s: n.FixUp) -> None:
    """Stores the thread's values of the CTA's part."""
    context.emit.comment(f"{s.name}: leaves its part of {s.value}")
    walk, work = grid.own(context)
    own = walk.own_place(grid.Registers(context), work)
    place, guard = _place(context, s, own), _guard(context, s)
    for group, address in _vectors(context, s, place, context.registers_of(s.value).registers):
        context.emit.line(guard + written(s.store.statement, s.value.dtype, "b32", group, address))


def came_last(context: Context, s: n.FixUp, parts: Number) -> Reg:
    """Counts the CTA in, behind a barrier; a predicate of the whole role: all the other parts were there before.

    One thread's atomic releases what all threads of the role stored before the barrier, and acquires what other CTAs
    released; the barrier of the reduction passes that on (PTX ISA, memory consistency model, causality order).
    """
    emit = context.emit
    sizes = _area_bytes(context.program)
    area = next(a for a, g in _areas(context.program) if g is s)
    number = emit.add(emit.mul(_own_tile(context), len(sizes)), area)
    counter = emit.add64(_pointer(context, COUNTERS), emit.wide(number, WORD_BYTES))
    most = emit.sub(parts, 1)
    before, mine, last = emit.new("r"), emit.new("p"), emit.new("p")
    emit.line(f"mov.u32 {before}, {NOBODY};")
    first = emit.less(context.role_thread(), 1)
    emit.line(f"@{first} atom.acq_rel.gpu.global.inc.u32 {before}, [{counter}], {most};")
    emit.line(f"setp.eq.u32 {mine}, {before}, {most};")
    issue(context, Meet(context.barrier_id, context.threads, (last, mine)))
    return last


def take_together(context: Context, s: n.FixUp, parts: range) -> None:
    """Loads the values of some parts, which are few vectors each, and then combines them in the order of the parts."""
    found = []
    for part in parts:
        tile = allocate(context.emit, s.result.dtype, partition_of(s.value).values.size)
        _load(context, s, part, tile.registers, slice(0, len(tile.registers)))
        found.append(tile)
    if parts.start == 0:
        context.tiles[s.result.name] = found.pop(0)
    for tile in found:
        for target, more in zip(context.tiles[s.result.name].registers, tile.registers, strict=True):
            emit_elementwise(context, s.combine, str(target), [str(target), str(more)])


def stretches(context: Context, s: n.FixUp) -> list[slice]:
    """The registers of the result, cut into as many as are taken at once: more would need as many registers again."""
    count, each = len(context.tiles[s.result.name].registers), n.FIX_UP_VECTORS_AT_ONCE * int(expr(s.store.vector))
    return [slice(start, min(start + each, count)) for start in range(0, count, each)]


def take_first(context: Context, s: n.FixUp, place: Number, stretch: slice) -> None:
    """Loads the values with which a stretch of the result begins."""
    _load(context, s, place, context.tiles[s.result.name].registers, stretch)


def take_more(context: Context, s: n.FixUp, place: Number, stretch: slice) -> None:
    """Loads the values at another place, and combines them with a stretch of the result."""
    sums = context.tiles[s.result.name].registers
    other = {r: context.emit.new("r") for r in sums[stretch]}
    _load(context, s, place, [other.get(r, r) for r in sums], stretch)
    for target in sums[stretch]:
        emit_elementwise(context, s.combine, str(target), [str(target), str(other[target])])


def _load(context: Context, s: n.FixUp, place: Number, registers: list[Reg], stretch: slice) -> None:
    guard, vector = _guard(context, s), int(expr(s.store.vector))
    vectors = list(_vectors(context, s, _place(context, s, place), registers))
    for group, address in vectors[stretch.start // vector : stretch.stop // vector]:
        context.emit.line(guard + written(s.load.statement, s.value.dtype, "b32", group, address))
