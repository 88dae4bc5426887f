"""Tuples of values in registers: two become one by a merge, and they travel between threads as words of 32 bits."""

from __future__ import annotations

from collections.abc import Sequence

from tinygpu.dtypes import dtype
from tinygpu.language.meeting import words_of
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.ptx.lowering.broadcast import broadcast
from tinygpu.ptx.lowering.compute import emit_elementwise, number_operand, pack, partition_of, single
from tinygpu.ptx.lowering.context import Context
from tinygpu.ptx.lowering.emitter import KINDS, Number
from tinygpu.ptx.lowering.registers import RegisterTile, allocate, kind_of

# A register for each tile of the tuple.
Value = list[str]


def values_of(context: Context, tiles: Sequence[Tile]) -> list[Value]:
    """Per value of the first tile: the tuple of what the tiles hold there."""
    columns = []
    for tile in tiles:
        held = context.registers_of(tile)
        order = broadcast(partition_of(tile), partition_of(tiles[0]), tile.name)
        singles = {int(value): single(context, held, int(value)) for value in dict.fromkeys(order.tolist())}
        columns.append([singles[int(value)] for value in order])
    return [list(column) for column in zip(*columns, strict=True)]


def keep(context: Context, tiles: Sequence[Tile], values: Sequence[Value]) -> None:
    """The tuples become the tiles, each in registers of its own."""
    for tile in tiles:
        context.tiles[tile.name] = allocate(context.emit, tile.dtype, len(values))
    replaced(context, tiles, values)


def replaced(context: Context, tiles: Sequence[Tile], values: Sequence[Value]) -> None:
    """The tuples take the place of what the tiles hold."""
    for place, tile in enumerate(tiles):
        made, elements = context.tiles[tile.name], [value[place] for value in values]
        if made.packed > 1:
            _packed(context, made, elements)
            continue
        for register, element in zip(made.registers, elements, strict=True):
            context.emit.line(f"mov.{KINDS[register.kind]} {register}, {element};")


def _packed(context: Context, made: RegisterTile, elements: list[str]) -> None:
    for number, register in enumerate(made.registers):
        pack(context, made.dtype, elements[number * made.packed : (number + 1) * made.packed], register)


def merged(context: Context, merge: n.Merge, left: Value, right: Value) -> Value:
    """What two tuples become."""
    known = dict(zip((tile.name for tile in (*merge.left, *merge.right)), [*left, *right], strict=True))
    for step in merge.steps:
        takes, gives = step.instruction.elements()
        operands = [
            known[o.name] if isinstance(o, Tile) else number_operand(context, o, want)
            for o, want in zip(step.operands, takes, strict=True)
        ]
        made = context.emit.new(kind_of(dtype(gives), 1))
        emit_elementwise(context, step.instruction, str(made), operands)
        known[step.result.name] = str(made)
    return [known[tile.name] for tile in merge.made]


def merged_all(context: Context, merge: n.Merge, values: Sequence[Value]) -> Value:
    """What several tuples become, in their order: neighbours first, so that few merges wait for one another."""
    left = list(values)
    while len(left) > 1:
        pairs = [merged(context, merge, *pair) for pair in zip(left[::2], left[1::2], strict=False)]
        left = pairs + left[2 * len(pairs) :]
    return left[0]


def words(context: Context, merge: n.Merge, value: Value) -> list[str]:
    """A tuple as words of 32 bits."""
    emit, out = context.emit, []
    for tile, register in zip(merge.made, value, strict=True):
        if tile.dtype.bits == 64:
            low, high = emit.new("r"), emit.new("r")
            emit.line(f"mov.b64 {{{low}, {high}}}, {register};")
            out += [str(low), str(high)]
        elif tile.dtype.bits == 16:
            wide = emit.new("r")
            emit.line(f"cvt.u32.u16 {wide}, {register};")
            out.append(str(wide))
        else:
            out.append(register)
    return out


def unworded(context: Context, merge: n.Merge, taken: Sequence[str]) -> Value:
    """The tuple that words are."""
    emit, out, left = context.emit, [], list(taken)
    for tile in merge.made:
        own, left = left[: words_of(tile.dtype.bits)], left[words_of(tile.dtype.bits) :]
        if tile.dtype.bits == 32:
            out += own
            continue
        made = emit.new(kind_of(tile.dtype, 1))
        emit.line(f"mov.b64 {made}, {{{own[0]}, {own[1]}}};" if len(own) == 2 else f"cvt.u16.u32 {made}, {own[0]};")
        out.append(str(made))
    return out


def chosen(context: Context, merge: n.Merge, yes: Value, no: Value, where: Number) -> Value:
    """One tuple where a predicate holds, else the other."""
    if isinstance(where, int):
        return yes if where else no
    out = []
    for tile, a, b in zip(merge.made, yes, no, strict=True):
        made = context.emit.new(kind_of(tile.dtype, 1))
        context.emit.line(f"selp.{KINDS[made.kind]} {made}, {a}, {b}, {where};")
        out.append(str(made))
    return out


__all__ = ["Value", "chosen", "keep", "merged", "replaced", "unworded", "values_of", "words"]
