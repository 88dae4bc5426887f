"""ldmatrix, stmatrix and mma.sync: fragments of a warp."""

from __future__ import annotations

from collections.abc import Sequence

from tinygpu.language.memories import RMEM
from tinygpu.program import nodes as n
from tinygpu.program.matrices import matrix_addresses
from tinygpu.ptx.isa.ldmatrix import LdMatrix
from tinygpu.ptx.isa.stmatrix import StMatrix
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Reg
from tinygpu.ptx.lowering.moves import at, guarded, one_holder
from tinygpu.ptx.lowering.registers import allocate, packing
from tinygpu.ptx.lowering.smem import smem_access


def load_matrix(context: Context, s: n.Load) -> None:
    """ldmatrix of a whole fragment tile."""
    if not isinstance(s.instruction, LdMatrix) or s.result.partition is None:
        raise LoweringError(f"{s.name} is not ldmatrix")
    emit = context.emit
    transposed = s.instruction.transposes(s.source, s.result.partition)
    count = s.result.partition.values.size
    plan = matrix_addresses(s.result.partition, packing(s.source.dtype, count), transposed)
    place = smem_access(context, s.source, plan.addresses)
    tile = allocate(emit, s.source.dtype, count)
    emit.comment(f"{s.name}: {s.result} = ldmatrix {s.source.name}")
    suffix = ".trans" if transposed else ""
    for instruction, matrices in enumerate(plan.registers):
        registers = ", ".join(str(tile.registers[int(m)]) for m in matrices)
        address = at(place.address(instruction))
        emit.line(f"{s.instruction.opcode}.x{plan.count}{suffix}.shared.b16 {{{registers}}}, {address};")
    context.tiles[s.result.name] = tile


def store_matrix(context: Context, s: n.Store) -> None:
    """stmatrix of a whole fragment tile; fragments that several warps hold are stored by one of them."""
    partition = s.value.partition
    if not isinstance(s.instruction, StMatrix) or partition is None:
        raise LoweringError(f"{s.name} is not stmatrix")
    emit = context.emit
    transposed = s.instruction.transposes(s.target, partition)
    tile = context.tiles[s.value.name]
    plan = matrix_addresses(partition, tile.packed, transposed)
    place = smem_access(context, s.target, plan.addresses)
    emit.comment(f"{s.name}: {s.target.name} = stmatrix {s.value}")
    mine = guarded(one_holder(context, partition.coalesced))
    for instruction, matrices in enumerate(plan.registers):
        registers = ", ".join(str(tile.registers[int(m)]) for m in matrices)
        address = at(place.address(instruction))
        emit.line(f"{mine}{s.instruction.text(plan.count, transposed)} {address}, {{{registers}}};")


def multiply(context: Context, s: n.Multiply) -> None:
    """mma.sync over all fragments of the warp's tile."""
    if s.a.memory is not RMEM or s.b.memory is not RMEM or s.accumulator.memory is not RMEM:
        raise LoweringError(
            f"{s.name} ({s.instruction}) on operands outside registers is not written for this target yet"
        )
    emit = context.emit
    a, b, c = (context.tiles[t.name] for t in (s.a, s.b, s.accumulator))
    kinds = (s.a.dtype, s.b.dtype)
    m, nn, k = s.instruction.shape(*kinds)
    per_a, per_b, per_c = (elements // 32 for elements in (m * k // a.packed, nn * k // b.packed, m * nn))
    rows, columns = len(a.registers) // per_a, len(b.registers) // per_b
    emit.comment(f"{s.name}: {s.accumulator} += {s.a} @ {s.b}, {rows} x {columns} fragments")
    text = s.instruction.text(*kinds)
    for i in range(rows):
        for j in range(columns):
            fragment = i + rows * j
            d = _registers(c.registers[fragment * per_c : (fragment + 1) * per_c])
            x = _registers(a.registers[i * per_a : (i + 1) * per_a])
            y = _registers(b.registers[j * per_b : (j + 1) * per_b])
            emit.line(f"{text} {d}, {x}, {y}, {d};")


def _registers(registers: Sequence[Reg]) -> str:
    return "{" + ", ".join(map(str, registers)) + "}"
