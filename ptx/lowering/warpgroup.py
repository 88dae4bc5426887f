"""wgmma: matrix descriptors made of the operands' places in shared memory, and the instructions over a tile."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.expressions import expr
from tinygpu.language.memories import RMEM
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.ptx.isa.wgmma import ROWS, Wgmma
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.smem import slot_offset

# PTX ISA, matrix descriptor of wgmma: addresses and offsets in units of 16 bytes; swizzle code in bits 62 and 63.
UNIT_BYTES = 16
SWIZZLE_CODES = {128: 1, 64: 2, 32: 3}
GROUP = 8  # rows of one group of the swizzled layouts
WARPGROUP = 128
A_REGISTERS = 4  # of one instruction's a: 64 rows of 32 bytes, among 128 threads


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand in shared memory, in spans.

    start   address of its first element, of this warpgroup's part
    high    upper word of its descriptors: stride between groups of 8 rows, and swizzle
    low     what is added to the lower word beside the start address: the leading byte offset
    along   bytes from one instruction's operand to the next along m or n
    transposed  contiguous along m or n
    """

    start: Number
    high: int
    low: int
    transposed: bool
    rows_bytes: tuple[int, int]  # (span, bytes of a block of spans)
    element_bytes: int

    def offset(self, rows: int) -> int:
        """Bytes to the operand that begins `rows` further along m or n."""
        span, block = self.rows_bytes
        if not self.transposed:
            return rows * span
        across = rows * self.element_bytes
        return across // span * block + across % span


def operand(context: Context, tile: Tile, k_axis: int, first: Number) -> Operand:
    """An operand whose window begins at its offset; `first` rows along m or n belong to other warpgroups."""
    buffer = tile.buffer
    if buffer is None or buffer.span is None:
        raise LoweringError(f"{tile.name} is no operand of wgmma: it lies in no swizzled buffer")
    emit = context.emit
    place = context.placement.places[buffer.name]
    span, block = place.span_bytes, place.block_bytes
    element = buffer.dtype.bytes
    k, k_terms = context.affine(tile.offset[k_axis])
    mn, mn_terms = context.affine(tile.offset[1 - k_axis])
    if k_terms or mn_terms:
        raise LoweringError(f"the window of {tile.name} moves at run time, and descriptors are made for fixed windows")
    transposed = buffer.contiguous != k_axis
    base = emit.add(context.arguments["smem"], slot_offset(context, buffer))
    if not transposed:
        along_k = k * element // span * block + k * element % span
        start = emit.add(emit.add(base, along_k + mn * span), emit.mul(first, span))
        # Rows are along m or n: groups of 8 follow each other. The leading offset is not used.
        high = (GROUP * span // UNIT_BYTES) | SWIZZLE_CODES[span] << 30
        return Operand(start, high, 1 << 16, False, (span, block), element)
    # Rows are along k: groups of 8 rows follow each other, spans along m or n are blocks apart.
    across = mn * element
    start = emit.add(base, across // span * block + across % span + k * span)
    per_span = span // element
    if context.first_step % per_span:
        raise LoweringError(f"the warpgroups' parts of {tile.name} do not begin at spans")
    start = emit.add(start, emit.mul(emit.div(first, per_span), block))
    high = (GROUP * span // UNIT_BYTES) | SWIZZLE_CODES[span] << 30
    return Operand(start, high, (block // UNIT_BYTES) << 16, True, (span, block), element)


def descriptor(context: Context, of: Operand, rows: int) -> Reg:
    """The 64-bit descriptor of one instruction's operand, `rows` further along m or n."""
    emit = context.emit
    address = emit.add(of.start, of.offset(rows))
    units = emit.bits(address, 4, 14, 0)
    low = emit.add(units, of.low)
    return emit.computed("d", "mov.b64 {d}, {{{0}, {1}}};", low, _word(context, of.high))


def _word(context: Context, value: int) -> Reg:
    return context.emit.computed("r", f"mov.b32 {{d}}, {value};")


def multiply(context: Context, s: n.Multiply) -> None:
    """wgmma over the tile of each warpgroup. The fence before and the group behind are the pipeline's.

    Where threads write a, its registers are kept as they are now, and the instructions are put off until the threads
    have written all of the round's: between instructions the assembler would wait for each (C7513).
    """
    instruction = s.instruction
    if not isinstance(instruction, Wgmma) or context.thread is None:
        raise LoweringError(f"{s.name} ({instruction}) cannot be written for this target yet")
    emit = context.emit
    kinds = (s.a.dtype, s.b.dtype)
    _, columns, _ = instruction.shape(*kinds)
    columns = int(expr(columns))
    c = context.tiles[s.accumulator.name]
    per = ROWS * columns // WARPGROUP
    groups = context.threads // WARPGROUP
    tile_rows, tile_columns = int(s.accumulator.shape[0]), int(s.accumulator.shape[1])
    down = len(c.registers) // per // (tile_columns // columns)
    if down * groups * ROWS != tile_rows:
        raise LoweringError(f"{s.name}: {groups} warpgroups do not divide {tile_rows} rows")
    own = tile_rows // groups
    context.first_step = own
    first: Number = emit.mul(emit.div(context.uniform_warp(), 4), own) if groups > 1 else 0
    held = [_kept(context, r) for r in context.tiles[s.a.name].registers] if s.a.memory is RMEM else None
    a = operand(context, s.a, 1, first) if held is None else None
    b = operand(context, s.b, 0, 0)
    text = instruction.text(*kinds)
    flags = instruction.flags(s.a.dtype, (a is not None and a.transposed, b.transposed))
    if held is not None and s.b.name.split(".")[0] not in context.pipes:
        raise LoweringError(
            f"{s.name} multiplies {s.b.name}, which its own role produces; another role produces it by TMA"
        )
    put = emit.line if held is None else context.products.append
    put(f"// {s.name}: {s.accumulator} += {s.a} @ {s.b}")
    for i in range(down):
        for j in range(tile_columns // columns):
            fragment = i + down * j
            d = ", ".join(map(str, c.registers[fragment * per : (fragment + 1) * per]))
            x = str(descriptor(context, a, i * ROWS)) if a is not None else _listed(held or [], i)
            y = descriptor(context, b, j * columns)
            put(f"{text} {{{d}}}, {x}, {y}, 1{flags};")


def _kept(context: Context, register: Reg) -> Reg:
    """A register of its own for what another holds now."""
    copy = context.emit.new("r")
    context.emit.line(f"mov.b32 {copy}, {register};")
    return copy


def _listed(registers: list[Reg], fragment: int) -> str:
    """The registers of one instruction's a."""
    return "{" + ", ".join(map(str, registers[fragment * A_REGISTERS : (fragment + 1) * A_REGISTERS])) + "}"
