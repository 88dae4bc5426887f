"""Fragments of a warp: matrices between shared memory and registers, and products of what registers hold."""

from __future__ import annotations

from collections.abc import Sequence

from tinygpu.language.instruction import WORD_OF_SCALES, MatrixLoad, MatrixStore
from tinygpu.language.memories import RMEM
from tinygpu.program import nodes as n
from tinygpu.program.matrices import matrix_addresses
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Reg
from tinygpu.ptx.lowering.moves import at, guarded, one_holder
from tinygpu.ptx.lowering.registers import allocate
from tinygpu.ptx.lowering.smem import smem_access
from tinygpu.ptx.lowering.texts import written


def load_matrix(context: Context, s: n.Load) -> None:
    """All matrices of a fragment tile."""
    if not isinstance(s.instruction, MatrixLoad) or s.result.partition is None:
        raise LoweringError(f"{s.name} does not load matrices")
    emit = context.emit
    transposed = s.instruction.transposes(s.source, s.result.partition)
    held = s.instruction.matrices(s.source, s.result.partition)
    if held is None:
        raise LoweringError(f"{s.name} ({s.instruction}) has no form for {s.source.name}")
    plan = matrix_addresses(s.result.partition, held, s.instruction.counts)
    place = smem_access(context, s.source, plan.addresses)
    tile = allocate(emit, s.source.dtype, s.result.partition.values.size)
    emit.comment(f"{s.name}: {s.result} = {s.instruction.label} {s.source.name}")
    for instruction, listed in enumerate(plan.registers):
        registers = [str(tile.registers[int(r)]) for r in listed]
        emit.line(written(s.instruction.statement, registers, at(place.address(instruction)), transposed))
    context.tiles[s.result.name] = tile


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
    for i in range(rows):
        for j in range(columns):
            fragment = i + rows * j
            d = _registers(c.registers[fragment * per_c : (fragment + 1) * per_c])
            x = _registers(a.registers[i * per_a : (i + 1) * per_a])
            y = _registers(b.registers[j * per_b : (j + 1) * per_b])
            if not s.scales:
                emit.line(written(s.instruction.statement, *kinds, d, x, y))
                continue
            (sx, first), (sy, _) = (_scales(context, s, side, number) for side, number in enumerate((i, j)))
            emit.line(written(s.instruction.scaled, *kinds, d, x, y, sx, sy, first))


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
