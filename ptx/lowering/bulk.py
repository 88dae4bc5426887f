"""Whole tiles: boxes of tensors, the tensor maps that describe them, and the statements that move them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tinygpu.language.buffer import Buffer
from tinygpu.language.instruction import CHUNK_BYTES, BulkTransfer
from tinygpu.language.instruction.bulk import PADDED_BOX
from tinygpu.language.partition import Partition
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.step import E
from tinygpu.program import nodes as n
from tinygpu.program.pairs import pair_of_ring
from tinygpu.ptx.launching.kernel import TensorMapSpec
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.gmem import gmem_access
from tinygpu.ptx.lowering.moves import at
from tinygpu.ptx.lowering.pipe import Barrier
from tinygpu.ptx.lowering.smem import slot_offset
from tinygpu.ptx.lowering.sync import Bring, Commit
from tinygpu.ptx.lowering.sync_text import address, issue, of_first
from tinygpu.ptx.lowering.texts import written
from tinygpu.ptx.lowering.touch import touches

# PTX ISA, tensors: the most dimensions, and elements of a box along one of them.
MOST_DIMS, MOST_ALONG = 5, 256


@dataclass(frozen=True, slots=True)
class Boxes:
    """How a tile is moved: for every swizzle width of its rows one box, each of all rows or of one CTA's part of them.

    order   axes of the tensor, the fastest first
    extents of a box along these
    rows    of the tile
    part    rows of one box
    across  boxes along a row
    pieces  pieces of a row that one box has, along a dimension of its own; several, or 1
    """

    order: tuple[int, ...]
    extents: tuple[int, ...]
    rows: int
    part: int
    across: int
    pieces: int = 1

    @property
    def inner(self) -> int:
        """Elements along a row of a box."""
        return self.extents[0]

    @property
    def box(self) -> tuple[int, ...]:
        """The extents of a box as the tensor map has them."""
        return (*self.extents, self.pieces) if self.pieces > 1 else self.extents


def boxes(window: Tile, buffer: Buffer, parts: int = 1) -> Boxes:
    """The boxes of a window of a tensor that lies in `buffer`; `parts` CTAs of a cluster each bring one part."""
    tensor = window.tensor
    if tensor is None or buffer.swizzle_bytes is None or window.contiguous is None:
        raise LoweringError(f"{window.name} is not moved to or from {buffer.name} by TMA")
    width = int(buffer.swizzle_bytes)
    inner = width * 8 // buffer.element_bits
    across = int(window.shape[window.contiguous])
    along = [int(extent) for extent in window.box_rows]
    rows = math.prod(along)
    if rows % parts:
        raise LoweringError(f"{rows} rows of {window.name} are not divided among {parts} CTAs")
    if parts > 1:  # along the one axis on which there are several
        along = [extent // parts if extent > 1 else extent for extent in along]
    return Boxes(window.box_order, (inner, *along), rows, rows // parts, across // inner)


def in_one_box(context: Context, window: Tile, buffer: Buffer, shape: Boxes) -> Boxes:
    """One box of all pieces of a row, where that can be: the map of a tensor whose rows are cut into pieces has one
    dimension more, and in shared memory the pieces lie behind one another.
    """
    tensor, place = window.tensor, context.placement.places[buffer.name]
    dense = place.block_bytes == shape.rows * place.swizzle_bytes and shape.part == shape.rows
    if shape.across == 1 or not dense or tensor is None or tensor.dtype.bits < 8 or len(shape.order) == MOST_DIMS:
        return shape
    constant, terms = context.affine(window.finest.begins[shape.order[0]])
    begins = (constant, *(coefficient for _, coefficient in terms))
    if shape.across > MOST_ALONG or any(begin % shape.inner for begin in begins):
        return shape
    if not context.facts.divides(shape.inner, str(tensor.size(shape.order[0]))):
        return shape
    return replace(shape, across=1, pieces=shape.across)


def tensor_map(context: Context, instruction: BulkTransfer, tensor: Tensor, shape: Boxes, buffer: Buffer) -> Reg:
    """The address of the tensor map for these boxes of a buffer; the launch passes it by value."""
    box, piece = shape.box, shape.inner if shape.pieces > 1 else 0
    width = 0 if buffer.swizzle_bytes is None else int(buffer.swizzle_bytes)
    width = 0 if width == CHUNK_BYTES else width  # rows that are exchanged with none
    spec = TensorMapSpec("", tensor.name, shape.order, box, width, piece, buffer.atom_bytes, buffer.padded)
    for known, register in context.maps:
        if replace(known, name="") == spec:
            return register
    count = sum(known.tensor == tensor.name for known, _ in context.maps)
    name = f"{tensor.name}_map{count or ''}"
    register = context.emit.parameter("d")
    context.maps.append((replace(spec, name=name), register))
    rely_on_strides(context, tensor, instruction.aligned_to(buffer))
    if buffer.padded and not context.facts.divides(PADDED_BOX, str(tensor.size(shape.order[0]))):
        raise LoweringError(f"rows of {tensor.name} are no whole boxes of {PADDED_BOX}, and a map that pads needs that")
    return register


def rely_on_strides(context: Context, tensor: Tensor, align_bytes: int) -> None:
    """The kernel is specialised for a pointer and rows of whole units of so many bytes."""
    aligned = context.facts.divides(align_bytes, f"{tensor.name}.align")
    for _, pitch in tensor.pitches:
        units = align_bytes * 8 // math.gcd(align_bytes * 8, tensor.dtype.bits)
        aligned = aligned and context.facts.divides(units, pitch)
    if not aligned:
        raise LoweringError(f"{tensor.name} is not aligned to {align_bytes} bytes, and a tensor map needs that")


def coordinates(context: Context, window: Tile, shape: Boxes, buffer: Buffer, across: int, down: Number) -> str:
    """The coordinate list of a box that begins `across` elements along the row and `down` rows into the window.

    Of elements that share a byte the tensor map describes bytes, unless it pads them.
    """
    tensor = window.tensor
    if tensor is None:
        raise LoweringError(f"{window.name} is no window of a tensor")
    emit = context.emit
    out = []
    for place, axis in enumerate(shape.order):
        together = max(8 // tensor.dtype.bits, 1) if place == 0 and not buffer.padded else 1
        begin = window.finest.begins[axis]
        if place == 0 and shape.pieces > 1:
            out.append("0")
            continue
        value = context.number(begin // together)
        if place == 0 or int(window.box_rows[place - 1]) > 1:
            value = emit.add(value, across // together if place == 0 else down)
        out.append(str(value))
    if shape.pieces > 1:
        out.append(str(context.number(window.finest.begins[shape.order[0]] // shape.inner)))
    return ", ".join(out)


def load(context: Context, s: n.Copy, barrier: Barrier) -> None:
    """Boxes from GMEM, completed at `barrier`. One thread executes this."""
    emit = context.emit
    buffer = s.target.buffer
    if isinstance(s.instruction, BulkTransfer) and s.instruction.by_rows:
        completes, size = f"[{address(context, barrier)}]", row_bytes(s.source)
        for shared, tensor in rows(context, s, s.source, buffer):
            context.engine(written(s.instruction.row_statement, size, shared, tensor, completes))
            issue(context, Bring(barrier, size, 1, None))
        return
    operand = s.source.tensor
    if not isinstance(s.instruction, BulkTransfer) or buffer is None or operand is None:
        raise LoweringError(f"{s.name} ({s.instruction}) cannot be written for this target yet")
    parts = int(s.shared_by(context.program.grid.axes))
    shape = in_one_box(context, s.source, buffer, boxes(s.source, buffer, parts))
    where = tensor_map(context, s.instruction, operand, shape, buffer)
    place = context.placement.places[buffer.name]
    base = emit.add(context.arguments["smem"], slot_offset(context, buffer))
    down: Number = 0
    mask = ""
    if parts > 1 and s.multicast is not None:
        down = emit.mul(emit.div(context.cluster_rank(s.multicast), s.every), shape.part)
        mask = str(context.cluster_mask(s.multicast, s.every))
    emit.comment(f"{s.name}: {s.target.name} = TMA {s.source.name}, {shape.across} boxes of {shape.part} rows")
    pair = pair_of_ring(context.program, barrier.pipeline)
    size = shape.inner * shape.pieces * shape.part * buffer.dtype.bits // 8
    box = Bring(barrier, size, parts, s.multicast if parts > 1 else None, pair)
    completes = f"[{of_first(context, barrier) if pair > 1 else address(context, barrier)}]"
    more = (mask, *((True,) if pair > 1 else ()))
    for number in range(shape.across):
        to = emit.add(emit.add(base, number * place.block_bytes), emit.mul(down, place.pitch_bytes))
        at = coordinates(context, s.source, shape, buffer, number * shape.inner, down)
        corner = f"[{where}, {{{at}}}]"
        context.engine(written(s.instruction.statement, len(shape.box), f"[{to}]", corner, completes, *more))
        issue(context, box)


def store(context: Context, s: n.Copy) -> None:
    """Boxes to GMEM, in a bulk group of their own. One thread executes this."""
    emit = context.emit
    buffer = s.source.buffer
    if isinstance(s.instruction, BulkTransfer) and s.instruction.by_rows:
        for shared, tensor in rows(context, s, s.target, buffer):
            context.engine(written(s.instruction.row_statement, row_bytes(s.target), shared, tensor))
        issue(context, *touches(context, s), Commit("cp.async.bulk"))
        return
    operand = s.target.tensor
    if not isinstance(s.instruction, BulkTransfer) or buffer is None or operand is None:
        raise LoweringError(f"{s.name} ({s.instruction}) cannot be written for this target yet")
    shape = in_one_box(context, s.target, buffer, boxes(s.target, buffer))
    where = tensor_map(context, s.instruction, operand, shape, buffer)
    place = context.placement.places[buffer.name]
    base = emit.add(context.arguments["smem"], slot_offset(context, buffer))
    emit.comment(f"{s.name}: {s.target.name} = TMA {s.source.name}, {shape.across} boxes of {shape.rows} rows")
    for number in range(shape.across):
        from_ = emit.add(base, number * place.block_bytes)
        at = coordinates(context, s.target, shape, buffer, number * shape.inner, 0)
        context.engine(written(s.instruction.statement, len(shape.box), f"[{from_}]", f"[{where}, {{{at}}}]"))
    issue(context, *touches(context, s), Commit("cp.async.bulk"))


def rows(context: Context, s: n.Copy, window: Tile, buffer: Buffer | None) -> Iterator[tuple[str, str]]:
    """(address in SMEM, address in GMEM) of each row of a window that is moved to or from a buffer."""
    if window.tensor is None or buffer is None or not isinstance(s.instruction, BulkTransfer):
        raise LoweringError(f"{s.name} ({s.instruction}) moves no rows between a tensor and a buffer")
    down = [axis for axis in range(len(window.shape)) if axis != window.contiguous]
    extents = [(int(window.shape[axis]), E(axis)) for axis in reversed(down)]  # as rows of the buffer follow
    who = Partition(window.shape, Layout.of([], [(size, step) for size, step in extents if size > 1]))
    rely_on_strides(context, window.tensor, s.instruction.align_bytes)
    access = gmem_access(context, window, who)
    if any(access.checked):
        raise LoweringError(f"the windows of {window.name} may reach beyond it, and {s.name} moves rows that exist")
    context.emit.comment(f"{s.name}: {s.target.name} = {s.instruction.label} {s.source.name}, {who.values.size} rows")
    base = context.emit.add(context.arguments["smem"], slot_offset(context, buffer))
    pitch = context.placement.places[buffer.name].pitch_bytes
    for row in range(who.values.size):
        yield at((base, row * pitch)), at(access.address(row))


def row_bytes(window: Tile) -> int:
    """Bytes that are moved of each row."""
    return int(window.shape[window.contiguous or 0]) * window.dtype.bits // 8


def tile_bytes(s: n.Copy) -> int:
    """Bytes that a load brings into one CTA, whoever issues its parts; elements outside the tensor count too."""
    total = s.target.dtype.bits
    for extent in s.target.shape:
        total *= int(extent)
    return total // 8
