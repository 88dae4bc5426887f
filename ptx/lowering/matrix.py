"""Fragments of a warp: matrices between shared memory and registers, and products of what registers hold.

What a product takes is loaded just before it (`tinygpu.program.fragments`), and products go along one operand, the
larger of those that are loaded so: each of its fragments is loaded, taken by all of the other operand, and done with.
With all loads first, every fragment would live until the last one is there, and assemblers keep the order more or less:
where registers are short, they give up addresses for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tinygpu.language.instruction import WORD_OF_SCALES, MatrixLoad, MatrixStore
from tinygpu.language.memories import RMEM
from tinygpu.program import nodes as n
from tinygpu.program.matrices import matrix_addresses
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Reg
from tinygpu.ptx.lowering.moves import at, guarded, one_holder
from tinygpu.ptx.lowering.registers import RegisterTile, allocate
from tinygpu.ptx.lowering.smem import smem_access
from tinygpu.ptx.lowering.texts import written


def load_matrix(context: Context, s: n.Load) -> None:
    """All matrices of a fragment tile."""
    tile, loads = matrix_loads(context, s)
    for registers, text in loads:
        context.fragments.update(dict.fromkeys(registers, (s, text)))
    context.tiles[s.result.name] = tile
    if context.spots:
        write_loads(context)  # they are recorded next


def matrix_loads(
    context: Context, s: n.Load, tile: RegisterTile | None = None
) -> tuple[RegisterTile, list[tuple[list[Reg], str]]]:
    """(the registers of a fragment tile, and of each instruction those that it fills and its text).

    tile  registers that are there; None: new ones
    """
    if not isinstance(s.instruction, MatrixLoad) or s.result.partition is None:
        raise LoweringError(f"{s.name} does not load matrices")
    transposed = s.instruction.transposes(s.source, s.result.partition)
    held = s.instruction.matrices(s.source, s.result.partition)
    if held is None:
        raise LoweringError(f"{s.name} ({s.instruction}) has no form for {s.source.name}")
    plan = matrix_addresses(s.result.partition, held, s.instruction.counts)
    place = smem_access(context, s.source, plan.addresses)
    tile = tile or allocate(context.emit, s.source.dtype, s.result.partition.values.size)
    context.emit.comment(f"{s.name}: {s.result} = {s.instruction.label} {s.source.name}")
    loads = []
    for instruction, listed in enumerate(plan.registers):
        registers = [tile.registers[int(r)] for r in listed]
        text = written(s.instruction.statement, list(map(str, registers)), at(place.address(instruction)), transposed)
        loads.append((registers, text))
    return tile, loads


def write_loads(context: Context, registers: Sequence[Reg] | None = None) -> None:
    """Writes the loads that were put off: of these registers, or all."""
    put_off = context.fragments
    for register in list(put_off) if registers is None else registers:
        if register in put_off:
            statement, text = load = put_off[register]
            with context.printing(statement):
                context.emit.line(text)
            for loaded in [r for r, other in put_off.items() if other is load]:
                del put_off[loaded]


def store_matrix(context: Context, s: n.Store) -> None:
    """All matrices of a fragment tile; fragments that several warps hold are stored by one of them."""
    partition = s.value.partition
    if not isinstance(s.instruction, MatrixStore) or partition is None:
        raise LoweringError(f"{s.name} does not store matrices")
    emit = context.emit
    transposed = s.instruction.transposes(s.target, partition)
    held = s.instruction.matrices(s.target, partition)
    if held is None:
        raise LoweringError(f"{s.name} ({s.instruction}) has no form for {s.target.name}")
    tile = context.registers_of(s.value)
    plan = matrix_addresses(partition, held, s.instruction.counts)
    place = smem_access(context, s.target, plan.addresses)
    emit.comment(f"{s.name}: {s.target.name} = {s.instruction.label} {s.value}")
    mine = guarded(one_holder(context, partition.coalesced))
    for instruction, listed in enumerate(plan.registers):
        registers = [str(tile.registers[int(r)]) for r in listed]
        emit.line(mine + written(s.instruction.statement, registers, at(place.address(instruction)), transposed))


def multiply(context: Context, s: n.Multiply) -> None:
    """One instruction for each pair of fragments of the warp's tile."""
    if any(t.memory is not RMEM for t in (s.a, s.b, s.accumulator)):
        raise LoweringError(f"{s.name} ({s.instruction}) on operands outside registers cannot be written for a warp")
    emit = context.emit
    a, b, c = (context.registers_of(t) for t in (s.a, s.b, s.accumulator))
    kinds = (s.a.dtype, s.b.dtype)
    m, nn, k = s.instruction.shape(*kinds)
    per_a, per_b, per_c = (elements // 32 for elements in (m * k // a.packed, nn * k // b.packed, m * nn // c.packed))
    rows, columns = len(a.registers) // per_a, len(b.registers) // per_b
    emit.comment(f"{s.name}: {s.accumulator} += {s.a} @ {s.b}, {rows} x {columns} fragments")
    for scales in s.scales:
        write_loads(context, context.registers_of(scales).registers)
    sizes = [len(t.registers) if t.registers[-1] in context.fragments else 0 for t in (a, b)]
    for i, j in _order(rows, columns, along_a=sizes[0] > sizes[1] or (sizes[0] == sizes[1] and rows > columns)):
        fragment = i + rows * j
        sums = c.registers[fragment * per_c : (fragment + 1) * per_c]
        left, right = a.registers[i * per_a : (i + 1) * per_a], b.registers[j * per_b : (j + 1) * per_b]
        write_loads(context, (*left, *right, *sums))
        d, x, y = _registers(sums), _registers(left), _registers(right)
        if not s.scales:
            emit.line(written(s.instruction.statement, *kinds, d, x, y))
            continue
        (sx, first), (sy, _) = (_scales(context, s, side, number) for side, number in enumerate((i, j)))
        emit.line(written(s.instruction.scaled, *kinds, d, x, y, sx, sy, first))


def _order(rows: int, columns: int, along_a: bool) -> Iterator[tuple[int, int]]:
    """Pairs of fragments: along one operand, and to and fro along the other one, so that each pair has one in common
    with the pair before.
    """
    long, short = (rows, columns) if along_a else (columns, rows)
    for outer in range(long):
        for number in range(short):
            inner = short - 1 - number if outer % 2 else number
            yield (outer, inner) if along_a else (inner, outer)


def _scales(context: Context, s: n.Multiply, side: int, number: int) -> tuple[str, int]:
    """The register with the scales of one of the fragments of a (side 0) or b, and which of its four come first."""
    tile = s.scales[side]
    first = context.number(s.blocks()[0])
    if not isinstance(first, int):
        raise LoweringError(f"{s.name} takes scales from {s.at} on, where no number is known before the launch")
    words = int(tile.shape[1 - side]) // WORD_OF_SCALES
    registers = context.registers_of(tile).registers
    return str(registers[first // WORD_OF_SCALES + words * number]), first % WORD_OF_SCALES


def _registers(registers: Sequence[Reg]) -> str:
    return "{" + ", ".join(map(str, registers)) + "}"
