"""Products of warpgroups: matrix descriptors made of the operands' places in shared memory, and the instructions."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.expressions import expr
from tinygpu.language.instruction import CHUNK_BYTES, MatrixMultiply, RowCopy
from tinygpu.language.memories import RMEM
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.texts import written

WARPGROUP = 128


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand in shared memory, under a swizzle of the hardware.

    low     lower word of the descriptor of its first element, of this warpgroup's part
    high    upper word of its descriptors
    transposed  contiguous along m or n
    """

    low: Number
    high: int
    transposed: bool
    rows_bytes: tuple[int, int]  # (width of the swizzle, from one piece of all rows to the next)
    element_bits: int

    def offset(self, rows: int) -> int:
        """Bytes to the operand that begins `rows` further along m or n."""
        width, block = self.rows_bytes
        if not self.transposed:
            return rows * width
        across = rows * self.element_bits // 8
        return across // width * block + across % width


def operand(
    context: Context, instruction: MatrixMultiply | RowCopy, tile: Tile, k_axis: int, first: Number
) -> Operand:
    """An operand, or rows to copy, whose window begins at its offset; `first` rows along m or n belong to others."""
    buffer = tile.buffer
    if buffer is None or buffer.swizzle_bytes is None:
        raise LoweringError(f"{tile.name} is no operand of {instruction}: it lies in no swizzled buffer")
    emit = context.emit
    place = context.placement.places[buffer.name]
    width, block = place.swizzle_bytes, place.block_bytes
    bits = buffer.element_bits
    k, k_terms = context.affine(tile.offset[k_axis])
    mn, mn_terms = context.affine(tile.offset[1 - k_axis])
    if k_terms or mn_terms:
        raise LoweringError(f"the window of {tile.name} moves at run time, and descriptors are made for fixed windows")
    transposed = buffer.contiguous != k_axis
    atom = () if buffer.atom_bytes == CHUNK_BYTES else (buffer.atom_bytes,)
    low, high = _words(instruction.descriptor(width, block, transposed, *atom))
    # What no slot decides is known before the loops, and an instruction's place in the slot is a number.
    base = emit.add(emit.add(_units(context, context.arguments["smem"]), low), _in_units(place.offset_bytes))
    base = emit.add(base, emit.mul(context.slots[buffer.name.split(".")[0]], _in_units(place.stage_bytes)))
    if not transposed:
        along_k = k * bits // 8 // width * block + k * bits // 8 % width
        base = emit.add(base, emit.mul(first, _in_units(width)))
        return Operand(emit.add(base, _in_units(along_k + mn * width)), high, False, (width, block), bits)
    # Rows are along k, and swizzle widths along m or n are blocks apart.
    across = mn * bits // 8
    per_width = width * 8 // bits
    if context.first_step % per_width:
        raise LoweringError(f"the warpgroups' parts of {tile.name} do not begin at widths of its swizzle")
    base = emit.add(base, emit.mul(emit.div(first, per_width), _in_units(block)))
    start = _in_units(across // width * block + across % width + k * width)
    return Operand(emit.add(base, start), high, True, (width, block), bits)


def _words(bits: int) -> tuple[int, int]:
    """The lower and the upper 32 of 64 bits."""
    return bits & 0xFFFFFFFF, bits >> 32


def described(context: Context, address: Number, bits: int) -> Reg:
    """A 64-bit descriptor of what lies at an address in shared memory; `bits` say how."""
    low, high = _words(bits)
    units = context.emit.add(_units(context, address), low)
    return context.emit.computed("d", "mov.b64 {d}, {{{0}, {1}}};", units, _word(context, high))


def descriptor(context: Context, of: Operand, rows: int) -> Reg:
    """The 64-bit descriptor of one instruction's operand, `rows` further along m or n."""
    low = context.emit.add(of.low, _in_units(of.offset(rows)))
    return context.emit.computed("d", "mov.b64 {d}, {{{0}, {1}}};", low, _word(context, of.high))


def _units(context: Context, address: Number) -> Number:
    """An address in shared memory as descriptors have it: 18 bits, in units of 16 bytes."""
    return context.emit.bits(address, 4, 14, 0)


def _in_units(offset: int) -> int:
    if offset % 16:
        raise LoweringError(f"an operand {offset} bytes into shared memory begins at no multiple of 16 bytes")
    return offset // 16


def _word(context: Context, value: int) -> Reg:
    return context.emit.computed("r", f"mov.b32 {{d}}, {value};")


def multiply(context: Context, s: n.Multiply) -> None:
    """The instructions over the tile of each warpgroup. The fence before and the group behind are the pipeline's.

    Where threads write a, its registers are kept as they are now, and the instructions are put off until the threads
    have written all of the round's: between instructions the assembler would wait for each (C7513).
    """
    instruction = s.instruction
    if not isinstance(instruction, MatrixMultiply) or context.thread is None:
        raise LoweringError(f"{s.name} ({instruction}) cannot be written here: no warpgroups multiply")
    emit = context.emit
    kinds = (s.a.dtype, s.b.dtype)
    rows, columns, depth = (int(expr(extent)) for extent in instruction.shape(*kinds))
    c = context.tiles[s.accumulator.name]
    per = rows * columns // WARPGROUP // c.packed
    groups = context.threads // WARPGROUP
    tile_rows, tile_columns = int(s.accumulator.shape[0]), int(s.accumulator.shape[1])
    down = len(c.registers) // per // (tile_columns // columns)
    if down * groups * rows != tile_rows:
        raise LoweringError(f"{s.name}: {groups} warpgroups do not divide {tile_rows} rows")
    own = tile_rows // groups
    context.first_step = own
    first: Number = emit.mul(emit.div(context.uniform_warp(), 4), own) if groups > 1 else 0
    held = [_kept(context, r) for r in context.registers_of(s.a).registers] if s.a.memory is RMEM else None
    per_a = rows * depth * s.a.dtype.bits // 32 // WARPGROUP
    a = operand(context, instruction, s.a, 1, first) if held is None else None
    b = operand(context, instruction, s.b, 0, 0)
    across = (a is not None and a.transposed, b.transposed)
    if held is not None and s.b.name.split(".")[0] not in context.pipes:
        raise LoweringError(
            f"{s.name} multiplies {s.b.name}, which its own role produces; another role produces it by TMA"
        )

    def put(text: str) -> None:
        if held is None:
            emit.line(text)
        else:
            context.products.append((s, text))

    put(f"// {s.name}: {s.accumulator} += {s.a} @ {s.b}")
    for i in range(down):
        for j in range(tile_columns // columns):
            fragment = i + down * j
            d = _listed(c.registers[fragment * per : (fragment + 1) * per])
            x = str(descriptor(context, a, i * rows)) if a is not None else _listed((held or [])[i * per_a :][:per_a])
            y = descriptor(context, b, j * columns)
            put(written(instruction.statement, *kinds, d, x, str(y), across))


def _kept(context: Context, register: Reg) -> Reg:
    """A register of its own for what another holds now."""
    copy = context.emit.new("r")
    context.emit.line(f"mov.b32 {copy}, {register};")
    return copy


def _listed(registers: list[Reg]) -> str:
    return "{" + ", ".join(map(str, registers)) + "}"
