"""Tensor memory: allocated for a CTA and given back, multiplied into by one thread, read by warps in their lanes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from tinygpu.expressions import expr
from tinygpu.language.buffer_space import BARRIER_BYTES
from tinygpu.language.data_paths import LANES_OF_A_WARP, columns_taken, divides_columns, path_of
from tinygpu.language.instruction import CellLoad, CellStore, ChunkCopy, MatrixMultiply, RowCopy, RowShift
from tinygpu.language.memories import CELL_BITS, TMEM, TMEM_LANES
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.cells import Columns, columns
from tinygpu.program.pairs import pair_of
from tinygpu.program.products import going_on_in
from tinygpu.ptx.lowering import warpgroup
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.registers import RegisterTile, allocate
from tinygpu.ptx.lowering.smem import slot_offset
from tinygpu.ptx.lowering.sync import Fence, Meet, MeetCluster, MeetWarp, Settled
from tinygpu.ptx.lowering.sync_text import issue
from tinygpu.ptx.lowering.texts import written

BEFORE, AFTER = (Fence(f"tcgen05.fence::{side}_thread_sync") for side in ("before", "after"))
# PTX ISA, tensor memory addressing: the lane is in the upper half; a warp has the lanes from 32 (w mod 4) on.
LANE_BIT = 16
WARPS = TMEM_LANES // LANES_OF_A_WARP
# Columns of one load or store: of 128, a thread of a kernel with 512 threads, each with 128 registers at launch, has no
# register left for the address (nvJitLink 13.0, C7602), whatever its role's budget is.
MOST_AT_ONCE = 64


def allot(context: Context) -> None:
    """The first warp allocates what the CTA uses, and leaves the address in shared memory; then all threads meet."""
    found = columns(context.program)
    if found is None:
        return
    emit = context.emit
    pair = pair_of(context.program)
    emit.comment(f"tensor memory: {found.total} columns")
    issue(context, MeetWarp())
    if pair > 1:  # both allocate, and the other one is there
        issue(context, MeetCluster(aligned=True))
    other = emit.computed("p", "setp.ge.u32 {d}, {0}, 32;", context.arguments["tid"])
    done = emit.label("allocated")
    emit.line(f"@{other} bra {done};")
    to = _left_at(context, found)
    emit.line(f"tcgen05.alloc.cta_group::{pair}.sync.aligned.shared::cta.b32 [{to}], {found.total};")
    emit.line(f"tcgen05.relinquish_alloc_permit.cta_group::{pair}.sync.aligned;")
    emit.place_label(done)
    issue(context, BEFORE)


def learn(context: Context) -> None:
    """Behind the meeting: every thread reads where the columns begin."""
    found = columns(context.program)
    if found is None:
        return
    issue(context, AFTER)
    context.tmem = context.emit.parameter("r")
    context.emit.line(f"ld.shared.u32 {context.tmem}, [{_left_at(context, found)}];")


def free(context: Context) -> None:
    """Where all roles have come to their end, the first warp gives the columns back. Lanes come one by one."""
    found = columns(context.program)
    if found is None:
        return
    emit, pair = context.emit, pair_of(context.program)
    together = MeetCluster(aligned=False) if pair > 1 else Meet(0, int(context.program.threads), aligned=False)
    issue(context, BEFORE, together, AFTER)
    other = emit.computed("p", "setp.ge.u32 {d}, {0}, 32;", context.arguments["tid"])
    freed = emit.label("freed")
    emit.line(f"@{other} bra {freed};")
    issue(context, MeetWarp())
    emit.line(f"tcgen05.dealloc.cta_group::{pair}.sync.aligned.b32 {context.tmem}, {found.total};")
    emit.place_label(freed)


def _left_at(context: Context, found: Columns) -> Number:
    """Where the address is in shared memory: behind the barriers of the first pipeline of tensor memory."""
    pipeline = context.program.pipeline(found.pipeline)
    offset = context.placement.barriers[found.pipeline] + 2 * int(pipeline.stages) * BARRIER_BYTES
    return context.emit.add(context.arguments["smem"], offset)


def _begins(context: Context, tile: Tile) -> Number:
    """The address of the first cell of a window, lane 0."""
    found = columns(context.program)
    if found is None or tile.buffer is None:
        raise LoweringError(f"{tile.name} lies in no tensor memory")
    place = found.places[tile.buffer.name]
    lane, lane_terms = context.affine(tile.offset[0])
    column, terms = context.affine(tile.offset[1])
    whole = tile.buffer.path is None or not divides_columns(tile.buffer.path)
    if lane or lane_terms or terms or not (whole or column == 0):
        raise LoweringError(f"the window of {tile.name} begins at no fixed column of all lanes")
    cell = column * tile.buffer.element_bits // CELL_BITS
    slot = context.slots[tile.buffer.name.split(".")[0]]
    return context.emit.add(context.emit.add(context.tmem, context.emit.mul(slot, place.width)), place.first + cell)


@contextmanager
def going_on(context: Context, body: tuple[n.Statement, ...]) -> Iterator[None]:
    """A block in which products may go on from the sums that are there: unless a branch begins them, they do."""
    for name in sorted(going_on_in(body)):
        added = context.emit.new("p", len(context.emit.blocks))
        context.emit.line(f"setp.eq.u32 {added}, 0, 0;")
        context.added[name] = added
    yield
    for name in going_on_in(body):
        del context.added[name]


def clear(context: Context, s: n.Constant) -> None:
    """The accumulator begins as zeros: the first product overwrites it."""
    if s.value != 0 or not isinstance(s.value, int | float):
        raise LoweringError(f"an accumulator in tensor memory begins as 0, not as {s.value}")
    added = context.added.get(s.result.name) or context.emit.new("p")
    context.emit.line(f"setp.ne.u32 {added}, 0, 0;")
    context.added[s.result.name] = added


def multiply(context: Context, s: n.Multiply) -> None:
    """One instruction for each piece of the columns. One thread executes this. The left operand may be in TMEM too."""
    instruction = s.instruction
    if not isinstance(instruction, MatrixMultiply) or s.accumulator.memory is not TMEM:
        raise LoweringError(f"{s.name} ({instruction}) does not multiply into tensor memory")
    added = context.added.get(s.accumulator.name)
    if added is None:
        raise LoweringError(f"{s.name} adds to {s.accumulator.name}, which begins as nothing: p.clear it before")
    emit, kinds = context.emit, (s.a.dtype, s.b.dtype)
    _, across_n, _ = (int(expr(extent)) for extent in instruction.shape(*kinds))
    context.first_step = 0
    a = warpgroup.operand(context, instruction, s.a, 1, 0) if s.a.memory is not TMEM else None
    cells = f"[{_begins(context, s.a)}]" if a is None else ""
    b = warpgroup.operand(context, instruction, s.b, 0, 0)
    emit.comment(f"{s.name}: {s.accumulator} += {s.a} @ {s.b}")
    for j in range(int(s.accumulator.shape[1]) // across_n):
        d = emit.add(_begins(context, s.accumulator), j * across_n)
        x = cells if a is None else str(warpgroup.descriptor(context, a, 0))
        y = warpgroup.descriptor(context, b, j * across_n // instruction.ctas)
        across = (a is not None and a.transposed, b.transposed)
        if not s.scales:
            context.engine(written(instruction.issue, *kinds, str(d), x, str(y), across, str(added)))
            continue
        (sx, first), (sy, _) = _scales(context, s, 0, 0), _scales(context, s, 1, j * across_n)
        of = (str(sx), str(sy), first)
        context.engine(written(instruction.issue_scaled, *kinds, str(d), x, str(y), across, str(added), *of))
    emit.line(f"setp.eq.u32 {added}, 0, 0;")


def copy(context: Context, s: n.Copy) -> None:
    """One instruction for each chunk: those side by side along the source's first axis lie so in the target."""
    instruction, buffer = s.instruction, s.source.buffer
    if isinstance(instruction, RowCopy):
        _copy_rows(context, s, instruction)
        return
    if not isinstance(instruction, ChunkCopy) or buffer is None:
        raise LoweringError(f"{s.name} ({s.instruction}) does not copy into tensor memory")
    emit = context.emit
    along, down = (int(extent) for extent in s.source.shape[:2])
    chunk_bytes = int(buffer.stage_bytes) // (along * down)
    base, to = emit.add(context.arguments["smem"], slot_offset(context, buffer)), _begins(context, s.target)
    emit.comment(f"{s.name}: {s.target.name} = {instruction.label} {s.source.name}, {along * down} chunks")
    for number in range(along * down):
        of = number % along * down + number // along
        word = warpgroup.described(context, emit.add(base, of * chunk_bytes), instruction.descriptor())
        column = emit.add(to, number * chunk_bytes // TMEM_LANES)
        context.engine(written(instruction.statement, f"[{column}]", str(word)))


def _copy_rows(context: Context, s: n.Copy, instruction: RowCopy) -> None:
    """One instruction for each piece of the rows, whose cells follow one another."""
    emit, to = context.emit, _begins(context, s.target)
    row, column = s.source.offset
    step = instruction.row_bytes * 8 // s.target.dtype.bits
    pieces = int(s.source.shape[1]) // step
    emit.comment(f"{s.name}: {s.target.name} = {instruction.label} {s.source.name}, {pieces} pieces")
    for number in range(pieces):
        piece = replace(s.source, offset=(row, column + number * step))
        word = warpgroup.descriptor(context, warpgroup.operand(context, instruction, piece, 1, 0), 0)
        cells = emit.add(to, number * instruction.row_bytes * 8 // CELL_BITS)
        if isinstance(instruction, RowShift):
            for warp in range(WARPS):
                lanes = emit.add(cells, warp * LANES_OF_A_WARP << LANE_BIT)
                context.engine(written(instruction.shift, f"[{lanes}]"))
            cells = emit.add(cells, LANES_OF_A_WARP - 1 << LANE_BIT)
        context.engine(written(instruction.statement, f"[{cells}]", str(word)))


def _scales(context: Context, s: n.Multiply, side: int, columns: int) -> tuple[Number, int]:
    """The address of the cells with the scales of an instruction's a or b, and which of four the first block has."""
    first = context.number(s.blocks()[0])
    if not isinstance(first, int):
        raise LoweringError(f"{s.name} takes scales from {s.at} on, where no number is known before the launch")
    rows = int(s.instruction.scale_rows(s.accumulator.shape[side]))
    behind, byte = s.instruction.scale_columns(rows, first)
    emit, begin = context.emit, _begins(context, s.scales[side])
    if side:
        begin = emit.add(begin, emit.div(context.number(s.column), LANES_OF_A_WARP))
    return emit.add(begin, behind + columns // LANES_OF_A_WARP), byte


def load(context: Context, s: n.Load) -> None:
    """Columns of a tile, in the fewest instructions, behind which the registers have their values."""
    instruction, partition = s.instruction, s.result.partition
    if not isinstance(instruction, CellLoad) or partition is None:
        raise LoweringError(f"{s.name} does not load from tensor memory")
    emit = context.emit
    tile = allocate(emit, s.source.dtype, partition.values.size)
    register = _cells(tile, _held(partition), instruction.per_register)
    start = _begins_in_lanes(context, s.source)
    emit.comment(f"{s.name}: {s.result} = {instruction.label} {s.source.name}")
    for run in _runs(instruction, s.source, 1):
        registers = [str(register[place]) for place in run.places]
        emit.line(written(instruction.statement, registers, f"[{run.address(context, start)}]", *run.apart))
    emit.line(written(instruction.complete))
    issue(context, Settled("tcgen05.ld"))
    context.tiles[s.result.name] = tile


def store(context: Context, s: n.Store) -> None:
    """A tile's columns, in the fewest instructions, behind which they are in memory."""
    instruction, partition = s.instruction, s.value.partition
    if not isinstance(instruction, CellStore) or partition is None:
        raise LoweringError(f"{s.name} does not store into tensor memory")
    emit = context.emit
    each = 1 if instruction.per_register > 1 else CELL_BITS // s.target.dtype.bits
    cells = _cells(context.registers_of(s.value), _held(partition), max(each, instruction.per_register))
    start = _begins_in_lanes(context, s.target)
    emit.comment(f"{s.name}: {s.target} = {instruction.label} {s.value}")
    for run in _runs(instruction, s.target, each):
        registers = [str(cells[place]) for place in run.places]
        emit.line(written(instruction.statement, f"[{run.address(context, start)}]", registers, *run.apart))
    emit.line(written(instruction.complete))
    issue(context, Settled("tcgen05.st"))


Place = tuple[int, int]  # row and column of an element of a tile


def _held(partition: Partition) -> list[Place]:
    """Where each value of a warpgroup's first thread lies in the tile."""
    return [(int(row), int(column)) for row, column in partition.coordinates()[0]]


def _cells(tile: RegisterTile, held: list[Place], each: int) -> dict[Place, Reg]:
    """The registers of `each` elements, by where the first of them lies in the tile."""
    value = {place: number for number, place in enumerate(held)}
    if each == 1:
        return {place: tile.register(number) for place, number in value.items()}
    pairs = {
        (row, column): (number, value[row, column + 1]) for (row, column), number in value.items() if column % each == 0
    }
    if any(second != first + 1 or first % tile.packed or tile.packed != each for first, second in pairs.values()):
        raise LoweringError("neighbouring columns of a cell are not in one register")
    return {place: tile.register(first) for place, (first, _) in pairs.items()}


@dataclass(frozen=True, slots=True)
class Run:
    """One load or store.

    lane, column  where it begins, from the first cell of the tile on
    places  the element of the tile that each register of a warpgroup's first thread is, or the first of those in it
    apart   columns between its windows, if it has several
    """

    lane: int
    column: int
    places: list[Place]
    apart: tuple[int, ...]

    def address(self, context: Context, start: Number) -> Number:
        return context.emit.add(start, (self.lane << LANE_BIT) + self.column)


def _runs(instruction: CellLoad | CellStore, tile: Tile, each: int) -> Iterator[Run]:
    """Few instructions for all of a tile, of which `each` elements fill a cell."""
    path = path_of(tile)
    taken = int(columns_taken(path)) // each
    window, step = taken // instruction.windows, instruction.columns
    apart = (window,) if instruction.windows > 1 else ()
    rows, columns, places = path[0].size, path[1].size, path.coordinates(("lane", "column"))
    first = np.flatnonzero(places[:, 0] < LANES_OF_A_WARP)
    element = {
        (lane, column): (index % rows, index // rows % columns)
        for index, (lane, column) in zip(first.tolist(), places[first].tolist(), strict=True)
    }
    per, together = instruction.access(1, 1)[1].size, instruction.per_register
    for half in range(instruction.halves(path)):
        column = 0
        while column < window:
            left = min((window - column) // step, MOST_AT_ONCE * together // per)
            count = max(c for c in instruction.counts if c <= left)
            access = instruction.access(count, window)[1].coordinates(("lane", "column"))
            cells = [(half * LANES_OF_A_WARP // 2 + int(lane), (column + int(at)) * each) for lane, at in access]
            yield Run(half * LANES_OF_A_WARP // 2, column, [element[cell] for cell in cells[::together]], apart)
            column += count * step


def _begins_in_lanes(context: Context, tile: Tile) -> Number:
    """The address of the first cell of a window in the lanes of the warp that asks."""
    emit = context.emit
    warp = emit.rem(context.uniform_warp_of_cta(), WARPS)
    return emit.add(_begins(context, tile), emit.mul(warp, LANES_OF_A_WARP << LANE_BIT))
