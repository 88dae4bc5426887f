"""Probes: a variant of a kernel that stores the tile of every statement as it goes, so that it can be looked at.

Each thread has a log of its own in GMEM and appends records to it: the number of a statement, the indices of the loops
around it, then the registers that hold the thread's part of the tile. What asynchronous instructions add up is recorded
where they were waited for, in their round or behind their loop, and a slot where it is consumed, read by the threads
that consume it. Nothing else of the kernel changes, and without probes nothing does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from tinygpu.language.instruction import Transfer
from tinygpu.language.memories import RMEM, SMEM, Memory
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile, buffer_tile
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.step import E
from tinygpu.program import nodes as n
from tinygpu.program.one_thread import one_issues, statements
from tinygpu.program.program import Program
from tinygpu.program.tree import places, walk
from tinygpu.ptx.launching.kernel import Workspace
from tinygpu.ptx.lowering import grid, moves
from tinygpu.ptx.lowering.context import Context
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.reach import side_by_side
from tinygpu.ptx.lowering.registers import RegisterTile, kind_of, packing
from tinygpu.ptx.lowering.sync import MeetWarp
from tinygpu.ptx.lowering.sync_text import issue

PROBES = "probes"
WORD_BYTES = 4
# Words that are stored at once, where there are so many: a record is a whole number of them.
VECTOR = 4


@dataclass(frozen=True, eq=False)
class ReadsSlot(Transfer):
    """What a probe reads a slot with."""

    reads: ClassVar[Memory] = SMEM
    writes: ClassVar[Memory] = RMEM
    opcode: ClassVar[str] = "ld.shared"


@dataclass(frozen=True, slots=True, eq=False)
class Spot:
    """Something that is recorded.

    number     in the log
    statement  that makes it; of a slot, the block that consumes it
    tile       what is recorded
    indices    those that are recorded with it: of the grid and of the loops around, the outermost first
    partition  who records what
    threads    (first, count) of the role that does
    """

    number: int
    statement: n.Statement
    tile: Tile
    indices: tuple[str, ...]
    partition: Partition
    threads: tuple[int, int]

    @property
    def registers(self) -> list[str]:
        """Kinds of the registers of one thread: r, h, d or p."""
        count = self.partition.values.size
        packed = packing(self.tile.dtype, count)
        return [kind_of(self.tile.dtype, packed)] * (count // packed)

    @property
    def header_words(self) -> int:
        """The number and the indices, and what aligns the registers to vectors."""
        return -(-(1 + len(self.indices)) // VECTOR) * VECTOR

    @property
    def words(self) -> int:
        """Of the whole record."""
        wide = sum(2 if kind == "d" else 1 for kind in self.registers)
        return self.header_words + -(-wide // VECTOR) * VECTOR


def spots(program: Program) -> dict[tuple[int, str], Spot]:
    """Everything that is recorded of a filled-in program, by (identity of the statement, name of the tile)."""
    out: dict[tuple[int, str], Spot] = {}
    own = n.FIRST_ROUND if program.grid.scheduler.settled().deals_rounds else n.PART
    always = [own, *(a.index for a in program.grid.axes)]
    roles = {r.name: (int(r.first) * 32, int(r.warps) * 32) for r in program.roles}
    alone = {name for name in roles if one_issues(program, tuple(statements(program.body, name)))}
    for place in places(program.body):
        s = place.statement
        if place.role and not (side_by_side(program) and place.role in alone):
            # Whichever CTA comes last does what all parts of a tile have in common.
            last = isinstance(s, n.FixUp) or any(isinstance(block, n.FixUp) for block, _ in place.around)
            around = [*(always[1:] if last else always), *(loop.index for loop in place.loops)]
            for tile, partition, more in _recorded(program, s, roles[place.role][1]):
                names = (*around, *more)
                out[id(s), tile.name] = Spot(len(out) + 1, s, tile, names, partition, roles[place.role])
    return out


def _recorded(
    program: Program, s: n.Statement, threads: int
) -> Iterator[tuple[Tile, Partition, tuple[str, ...]]]:
    """(tile, who records what, further indices) of one statement."""
    if not any(m.asynchronous for m in s.instructions):
        for tile in s.writes:
            if tile.partition is not None:
                yield tile, tile.partition.coalesced, ()
    for inner in s.children:
        if inner.consumes:
            more = (s.index,) if isinstance(s, n.Repeated) else ()
            for buffer in (b for name in (inner.consumes, *inner.along) for b in program.pipeline(name).buffers):
                if buffer.memory is SMEM:
                    yield buffer_tile(buffer), _shared_out(buffer_tile(buffer), threads), more
    for tile in sums(s):
        if tile.partition is not None:
            yield tile, tile.partition.coalesced, ()


def sums(s: n.Statement) -> list[Tile]:
    """What asynchronous instructions add up in a block, in registers."""
    if not (isinstance(s, n.Loop) or any(inner.consumes for inner in s.children)):
        return []
    inside = (m for inner in s.children for m in walk(inner.statements))
    found = {m.accumulator.name: m.accumulator for m in inside if isinstance(m, n.Multiply) and m.token}
    return [tile for tile in found.values() if tile.memory is RMEM]


def _at_once(tile: Tile) -> int:
    """Elements of a buffer that are read together: those that share a byte."""
    return max(8 // tile.dtype.bits, 1)


def _shared_out(tile: Tile, threads: int) -> Partition:
    """A buffer among threads: as many side by side along each axis as divide it, element by element or byte by byte."""
    holders, values = [], []
    if _at_once(tile) > 1 and tile.contiguous is not None:
        values.append((_at_once(tile), E(tile.contiguous)))
    for axis in reversed(range(len(tile.shape))):
        together = _at_once(tile) if axis == tile.contiguous else 1
        extent = int(tile.shape[axis]) // together
        side = math.gcd(extent, threads)
        threads //= side
        holders.append((side, together * E(axis)))
        values.append((extent // side, side * together * E(axis)))
    return Partition(tile.shape, Layout.of(holders, values)).coalesced


def workspace(program: Program, thread_bytes: int) -> Workspace:
    """The logs of all threads of a CTA."""
    return Workspace(PROBES, 0, False, int(program.threads) * thread_bytes)


def begin(context: Context, thread_bytes: int) -> None:
    """Where each thread's log begins."""
    emit = context.emit
    base = context.workspace[PROBES] = emit.parameter("d")
    cta = emit.computed("r", "mov.u32 {d}, %ctaid.x;")
    number = emit.add(emit.mul(cta, int(context.program.threads)), context.arguments["tid"])
    context.log, context.log_bytes = emit.new("d", 0), thread_bytes  # it goes on
    emit.line(f"mov.b64 {context.log}, {emit.add64(base, emit.wide(number, thread_bytes))};")
    context.spots = spots(context.program)


def go_on_as(context: Context, cta: Number) -> None:
    """The threads record in the logs of a CTA that they take over, which never begins."""
    if not context.spots:
        return
    emit = context.emit
    number = emit.add(emit.mul(cta, int(context.program.threads)), context.arguments["tid"])
    start = emit.add64(context.workspace[PROBES], emit.wide(number, context.log_bytes))
    emit.line(f"mov.b64 {context.log}, {start};")


def registers(context: Context, s: n.Statement, *tiles: Tile) -> None:
    """Records tiles that a statement has left in registers."""
    for tile in tiles:
        spot = context.spots.get((id(s), tile.name))
        if spot is not None:
            _append(context, spot, context.tiles[tile.name])


def slot(context: Context, s: n.Statement, pipeline: str) -> None:
    """Records the open slot of a pipeline."""
    found = [
        (context.spots[id(s), b.name], buffer_tile(b))
        for b in context.program.pipeline(pipeline).buffers
        if (id(s), b.name) in context.spots
    ]
    for spot, tile in found:
        _append(context, spot, moves.read(context, ReadsSlot(_at_once(tile)), tile, spot.partition))
    if found:
        issue(context, MeetWarp())


def _append(context: Context, spot: Spot, tile: RegisterTile) -> None:
    emit, log = context.emit, context.log
    emit.comment(f"record {spot.number}: {spot.tile}")
    for place, number in enumerate((_index(context, name) for name in spot.indices), 1):
        emit.line(f"st.global.u32 [{log}+{place * WORD_BYTES}], {number};")
    at = spot.header_words * WORD_BYTES
    words = [_word(context, register) for register in tile.registers]
    bits = 64 if words[0].kind == "d" else 32
    together = VECTOR * WORD_BYTES * 8 // bits
    for first in range(0, len(words), together):
        group = words[first : first + together]
        for part in [group] if len(group) == together else [[word] for word in group]:
            several, listed = f".v{len(part)}" if len(part) > 1 else "", ", ".join(map(str, part))
            emit.line(f"st.global{several}.b{bits} [{log}+{at}], {f'{{{listed}}}' if several else listed};")
            at += len(part) * bits // 8
    emit.line(f"st.global.u32 [{log}], {spot.number};")  # last: without it, what a fault cut off is no record
    emit.line(f"add.s64 {log}, {log}, {spot.words * WORD_BYTES};")


def _index(context: Context, name: str) -> Number:
    """The value of an index here."""
    if name == n.FIRST_ROUND:
        rounds = grid.own(context)[1].rounds
        return rounds[0] if rounds is not None else 0
    return context.indices[name]


def _word(context: Context, register: Reg) -> Reg:
    """A register of 32 bits or more that holds what another does; 1 for a predicate that holds."""
    if register.kind not in "hp":
        return register
    wide = context.emit.new("r")
    predicate = register.kind == "p"
    context.emit.line(f"selp.u32 {wide}, 1, 0, {register};" if predicate else f"cvt.u32.u16 {wide}, {register};")
    return wide
