"""Constants and element-wise instructions."""

from __future__ import annotations

import numpy as np
import sympy

from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import Expr
from tinygpu.language.instruction import OPERANDS, Elementwise
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.ptx.lowering.broadcast import broadcast
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import KINDS, Reg
from tinygpu.ptx.lowering.registers import RegisterTile, allocate, bit_pattern, constant_bits, kind_of, packing


def constant(context: Context, s: n.Constant) -> None:
    """A tile that holds one number."""
    tile = allocate(context.emit, s.result.dtype, partition_of(s.result).values.size)
    if isinstance(s.value, (n.ScalarArgument, Expr)):
        bits = number_operand(context, s.value, s.result.dtype.name)
    else:
        bits = str(constant_bits(s.result.dtype, s.value, tile.packed))
    for r in tile.registers:
        context.emit.line(f"mov.{KINDS[r.kind]} {r}, {bits};")
    context.tiles[s.result.name] = tile


def index(context: Context, s: n.Index) -> None:
    """The coordinates of a thread's values along one axis."""
    emit, who = context.emit, partition_of(s.result)
    emit.comment(f"{s.result}: coordinates along axis {s.axis}")
    tile = allocate(emit, s.result.dtype, who.values.size)
    begin = context.thread_part(who.threads, s.axis)
    for r, coordinate in zip(tile.registers, who.value_coordinates()[:, s.axis].tolist(), strict=True):
        emit.line(f"mov.b32 {r}, {emit.add(begin, coordinate)};")
    context.tiles[s.result.name] = tile


def uniform(context: Context, s: n.Uniform) -> None:
    """The one value of a tile, which all threads hold, as a number for what follows."""
    emit = context.emit
    (held,) = context.tiles[s.value.name].registers
    number = emit.new("r", len(emit.blocks))
    emit.line(f"max.s32 {number}, {held}, 0;")
    context.indices[s.symbol] = number


def partition_of(tile: Tile) -> Partition:
    """Who holds a tile in registers, in the fewest digits."""
    if tile.partition is None:
        raise LoweringError(f"{tile.name} does not lie in registers")
    return tile.partition.coalesced


def single(context: Context, tile: RegisterTile, value: int) -> str:
    """A register that holds one element alone."""
    emit = context.emit
    whole = tile.register(value)
    if tile.packed == 1:
        return str(whole)
    bits = tile.dtype.bits
    if bits == 16:
        half = emit.new("h")
        other = emit.new("h")
        pair = (half, other) if value % 2 == 0 else (other, half)
        emit.line(f"mov.b32 {{{pair[0]}, {pair[1]}}}, {whole};")
        return str(half)
    out = emit.new("r")
    kind = "s32" if tile.dtype.kind == "signed" else "u32"
    emit.line(f"bfe.{kind} {out}, {whole}, {value % tile.packed * bits}, {bits};")
    return str(out)


def pack(context: Context, kind: DType, elements: list[str], into: Reg) -> None:
    """Puts single elements, the low one first, into one register."""
    emit = context.emit
    if kind.bits == 16:
        emit.line(f"mov.b32 {into}, {{{elements[0]}, {elements[1]}}};")
        return
    bits = kind.bits
    emit.line(f"and.b32 {into}, {elements[0]}, {(1 << bits) - 1};")
    for i, element in enumerate(elements[1:], 1):
        emit.line(f"bfi.b32 {into}, {element}, {into}, {bits * i}, {bits};")


def apply(context: Context, s: n.Apply) -> None:
    """One element-wise instruction, value by value, or on the values of a register at once."""
    emit = context.emit
    who = partition_of(s.result)
    emit.comment(f"{s.name}: {s.result} = {s.instruction.label}")
    takes, gives = s.instruction.elements()
    kind = dtype(gives)
    if apply_unpacked(context, s):
        return
    held = packing(kind, who.values.size)
    if held > 1 and held * kind.bits == 32 and s.instruction.form(True):
        apply_packed(context, s)
        return
    sources = [_source(context, o, want, s.result) for o, want in zip(s.operands, takes, strict=True)]
    result = context.tiles.get(s.result.name) or allocate(emit, kind, who.values.size)
    if result.packed == 1:
        for value in range(who.values.size):
            emit_elementwise(context, s.instruction, str(result.registers[value]), [src[value] for src in sources])
    else:
        for i, r in enumerate(result.registers):
            elements = []
            for value in range(i * result.packed, (i + 1) * result.packed):
                one = emit.new(kind_of(kind, 1))
                emit_elementwise(context, s.instruction, str(one), [src[value] for src in sources])
                elements.append(str(one))
            pack(context, kind, elements, r)
    context.tiles[s.result.name] = result


def apply_packed(context: Context, s: n.Apply) -> None:
    """One instruction for all values of a register of the result."""
    takes, gives = s.instruction.elements()
    kind, count = dtype(gives), partition_of(s.result).values.size
    narrow = [dtype(want).bits == kind.bits for want in takes]
    sources: list[list[str]] = []
    for operand, want, whole in zip(s.operands, takes, narrow, strict=True):
        made = _packed_source if whole else _source
        sources.append(made(context, operand, want, s.result))
    result = context.tiles.get(s.result.name) or allocate(context.emit, kind, count)
    for i, r in enumerate(result.registers):
        names = {}
        for letter, whole, source in zip(OPERANDS, narrow, sources, strict=False):
            if whole:
                names[letter] = source[i]
            else:
                names |= {f"{letter}{j}": source[i * result.packed + j] for j in range(result.packed)}
        for text in s.instruction.form(True).split("\n"):
            context.emit.line(text.format(d=r, **names))
    context.tiles[s.result.name] = result


def apply_unpacked(context: Context, s: n.Apply) -> bool:
    """All results of each register of a narrow operand at once; False where its values do not lie so."""
    text = s.instruction.unpacked_text()
    if not text or len(s.operands) != 1 or not isinstance(s.operands[0], Tile):
        return False
    operand = s.operands[0]
    source, who = context.tiles[operand.name], partition_of(s.result)
    order = broadcast(partition_of(operand), who, operand.name)
    if source.packed * source.dtype.bits != 32 or not np.array_equal(order, np.arange(source.count)):
        return False
    kind = dtype(s.instruction.elements()[1])
    result = context.tiles.get(s.result.name) or allocate(context.emit, kind, who.values.size)
    together = source.packed // result.packed
    for i, register in enumerate(source.registers):
        names = {f"d{j}": str(result.registers[i * together + j]) for j in range(together)}
        for line in text.split("\n"):
            context.emit.line(line.format(a=register, **names))
    context.tiles[s.result.name] = result
    return True


def _packed_source(
    context: Context, operand: Tile | n.ScalarArgument | Expr | float, want: str, like: Tile
) -> list[str]:
    """Per register of the result: the register that holds as many values of the operand."""
    kind, count = dtype(want), partition_of(like).values.size
    per = packing(kind, count)
    if not isinstance(operand, (Tile, n.ScalarArgument, Expr)):
        bits = constant_bits(kind, float(operand), per)
        return [str(context.emit.computed("r", f"mov.b32 {{d}}, 0x{bits:08X};"))] * (count // per)
    if isinstance(operand, Tile) and context.registers_of(operand).packed == per:
        tile = context.registers_of(operand)
        order = broadcast(partition_of(operand), partition_of(like), operand.name).reshape(-1, per)
        if bool(np.all(order % per == np.arange(per))) and bool(np.all(order // per == order[:, :1] // per)):
            return [str(tile.registers[int(first) // per]) for first in order[:, 0]]
    singles = _source(context, operand, want, like)
    made: dict[tuple[str, ...], str] = {}
    out = []
    for first in range(0, count, per):
        elements = singles[first : first + per]
        if tuple(elements) not in made:
            whole = context.emit.new("r")
            pack(context, kind, elements, whole)
            made[tuple(elements)] = str(whole)
        out.append(made[tuple(elements)])
    return out


def emit_elementwise(context: Context, instruction: Elementwise, result: str, operands: list[str]) -> None:
    """The statements of one instruction, on registers."""
    names = dict(zip(OPERANDS, operands, strict=False))
    for text in instruction.form(False).split("\n"):
        context.emit.line(text.format(d=result, **names))


def _source(context: Context, operand: Tile | n.ScalarArgument | Expr | float, want: str, like: Tile) -> list[str]:
    """Per value of the result: the register or number that the operand gives."""
    if not isinstance(operand, Tile):
        return [number_operand(context, operand, want)] * partition_of(like).values.size
    tile = context.registers_of(operand)
    order = broadcast(partition_of(operand), partition_of(like), operand.name)
    singles: dict[int, str] = {}
    for value in order:
        if int(value) not in singles:
            singles[int(value)] = single(context, tile, int(value))
    return [singles[int(v)] for v in order]


def number_operand(context: Context, operand: n.ScalarArgument | Expr | float, want: str) -> str:
    """The register or number that an operand gives which is the same for all values."""
    if isinstance(operand, n.ScalarArgument):
        return str(context.arguments[operand.name])
    if not isinstance(operand, Expr):
        return _immediate(context, dtype(want), float(operand))
    number = context.number(operand)
    if isinstance(number, int):
        return _immediate(context, dtype(want), number)
    if want == "f32":
        kind = "s32" if _may_be_negative(operand) else "u32"
        number = context.emit.computed("r", f"cvt.rn.f32.{kind} {{d}}, {{0}};", number)
    return str(number)


def _may_be_negative(e: Expr) -> bool:
    """Whether something is subtracted in an expression, whose symbols are not negative."""
    return any(node.is_Integer and node < 0 for node in sympy.preorder_traversal(e.sympy))


def _immediate(context: Context, kind: DType, value: float) -> str:
    if kind.name == "f32":
        return f"0f{bit_pattern(kind, value):08X}"
    if kind.name == "f64":
        return f"0d{bit_pattern(kind, value):016X}"
    if kind.kind == "predicate":
        return str(context.emit.computed("p", f"mov.pred {{d}}, {int(value)};"))
    if kind.bits == 16:  # PTX has no 16-bit floating-point constants: the bits come in a register
        return str(context.emit.computed("h", f"mov.b16 {{d}}, 0x{bit_pattern(kind, value):04X};"))
    return str(int(value))
