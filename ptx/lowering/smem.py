"""Addresses of accesses to shared memory, in the layout that the solver chose."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.buffer import Buffer
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.step import Step
from tinygpu.program.placement import BufferPlace
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.picked import named_by


@dataclass(slots=True, eq=False)
class SmemAccess:
    """A window of a buffer under a partition.

    An element of row r and byte column c lies at base + r * pitch + (c ^ X(r)), X(r) the XOR of the masks of r's bits.
    The thread's part of r and c is computed once; the value's part becomes an immediate and, where the layout is
    swizzled, one XOR per distinct pattern. Where rows are cut to a swizzle's width, c counts within that piece of
    the row, and `base` holds what leads to the thread's piece; pieces are `block_bytes` apart. Where the buffer begins
    is an immediate too, so that buffers that are alike share addresses.
    """

    context: Context
    place: BufferPlace
    bits: int  # of an element
    values: NDArray[np.int64]  # (values, 2): row, column in elements
    row: Number  # the thread's part, offsets included
    column: Number  # in bytes
    base: Number  # shared memory and slot, and the thread's piece of the row
    near: int  # where the buffer begins, in bytes
    # Where the parts of thread and value share no bits that the swizzle touches: column ^ X(row) of the thread's part,
    # and those of these bits that it may have set.
    apart: tuple[Number, int] | None
    above: bool  # whether all else of an address is a multiple of what the swizzle touches: the address itself is XORed
    carries: bool  # whether in which piece of a row a value lies depends on the sum of both parts
    # Where values say in which row of the buffer each element lies: theirs, bytes from row to row, and how many rows.
    picked: tuple[list[Reg], int, int] | None = None

    def exists(self, value: int, count: int = 1) -> Number:
        """Predicate: the row of a value is one of the buffer (True: known to)."""
        if self.picked is None:
            return True
        rows, _, extent = self.picked
        return self.context.emit.less(rows[value], extent)

    def address(self, value: int) -> tuple[Number, int]:
        """(register, byte offset) of one value."""
        register, near = self._whole(value)
        near += self.near
        if self.picked is None:
            return register, near
        rows, apart, _ = self.picked
        return self.context.emit.add(register, self.context.emit.mul(rows[value], apart)), near

    def _whole(self, value: int) -> tuple[Number, int]:
        row, column = int(self.values[value][0]), int(self.values[value][1]) * self.bits // 8
        pitch = self.place.pitch_bytes
        width = self.place.swizzle_bytes
        if self.carries:
            return self._across(row, column)
        if width:
            block, column = divmod(column, width)
            register, near = self._within(row, column, pitch)
            return register, near + block * self.place.block_bytes
        return self._within(row, column, pitch)

    def _across(self, row: int, column: int) -> tuple[Number, int]:
        """Of a value whose piece of the row is known at run time only."""
        emit, width = self.context.emit, self.place.swizzle_bytes
        whole, whole_row = emit.add(self.column, column), emit.add(self.row, row)
        block = emit.mul(emit.div(whole, width), self.place.block_bytes)
        across = emit.xor(emit.rem(whole, width), pattern(self.context, self.place, whole_row))
        return emit.add(emit.add(emit.add(emit.mul(whole_row, width), across), block), self.base), 0

    def _within(self, row: int, column: int, pitch: int) -> tuple[Number, int]:
        emit = self.context.emit
        if not self.place.xor:
            start = emit.add(emit.add(emit.mul(self.row, pitch), self.column), self.base)
            return start, row * pitch + column
        if self.apart is None:
            whole = emit.add(self.row, row)
            across = emit.xor(emit.add(self.column, column), pattern(self.context, self.place, whole))
            return emit.add(emit.add(emit.mul(whole, pitch), across), self.base), 0
        reach = mask_reach(self.place)
        constant = (column & reach) ^ known_pattern(self.place, row)
        immediate = row * pitch + (column & ~reach)
        swizzled, possible = self.apart
        if constant & possible == 0:
            constant, immediate = 0, immediate + constant
        if not self.above:
            swizzled, constant = emit.xor(swizzled, constant), 0
        return emit.xor(emit.add(emit.add(emit.mul(self.row, pitch), swizzled), self.base), constant), immediate


def pattern(context: Context, place: BufferPlace, row: Number) -> Number:
    """X(row): the XOR of the masks of the row's bits; runs of bits that move by the same distance move together."""
    if isinstance(row, int):
        return known_pattern(place, row)
    emit = context.emit
    out: Number = 0
    entries = list(place.xor)
    while entries:
        bit, mask = entries.pop(0)
        count = 1
        if mask.bit_count() == 1:
            to = mask.bit_length() - 1
            while entries and entries[0] == (bit + count, 1 << (to + count)):
                entries.pop(0)
                count += 1
            out = emit.xor(out, emit.bits(row, bit, count, to))
        else:
            out = emit.xor(out, emit.mul(emit.bits(row, bit, 1, 0), mask))
    return out


def known_pattern(place: BufferPlace, row: int) -> int:
    """X(row) for a row that is a number."""
    out = 0
    for bit, mask in place.xor:
        if row >> bit & 1:
            out ^= mask
    return out


def mask_reach(place: BufferPlace) -> int:
    """All bits of a byte column up to the highest that the swizzle touches."""
    return (1 << max(mask.bit_length() for _, mask in place.xor)) - 1


def smem_access(context: Context, tile: Tile, who: Partition) -> SmemAccess:
    """Prepares the addresses of a window of a buffer; `who` says which coordinates each thread touches."""
    buffer = tile.buffer
    if buffer is None:
        raise LoweringError(f"{tile.name} does not lie in SMEM")
    emit = context.emit
    place = context.placement.places[buffer.name]
    bits = buffer.dtype.bits
    rows_of = np.array([int(step) for step in buffer.row_steps], dtype=np.int64)
    picked = None
    if tile.pick is not None:  # the axis is its values', and no part of what threads and values decide
        home = tile.pick.home
        step = buffer.dtype.bytes if home == buffer.contiguous else int(rows_of[home]) * place.pitch_bytes
        picked = named_by(context, tile.pick, who), step, int(buffer.shape[home])
        others: dict[int | str, int | str | Step | None] = {axis: axis for axis in who.axes if axis != home}
        who = Partition(who.shape, who.layout.project(others))
    row, row_constant, row_step = _row(context, tile, who.threads, rows_of)
    column, column_constant, column_step = _start(context, tile, who.threads, buffer.contiguous)
    values = who.value_coordinates()
    pairs = np.stack([values @ rows_of + row_constant, values[:, buffer.contiguous] + column_constant], axis=1)
    column = emit.mul(column, bits // 8) if bits >= 8 else emit.div(column, 8 // bits)
    slot = emit.mul(context.slots[buffer.name.split(".")[0]], place.stage_bytes)
    base, near = (slot, 0) if isinstance(slot, Reg) else (0, slot)
    base, near = emit.add(context.arguments["smem"], base), near + place.offset_bytes
    threads = who.thread_coordinates()
    thread_rows = threads @ rows_of
    thread_bytes, value_bytes = threads[:, buffer.contiguous] * bits // 8, pairs[:, 1] * bits // 8
    step_bytes = column_step * bits // 8
    width = place.swizzle_bytes
    carries = bool(width) and _carries(width, thread_bytes, value_bytes, step_bytes)
    if width and not carries:
        if int(thread_bytes.max()) >= width or column_step:
            base = emit.add(base, emit.mul(emit.div(column, width), place.block_bytes))
            column = emit.rem(column, width)
        thread_bytes, step_bytes = thread_bytes % width, 0
    apart = None
    if place.xor and not carries and splits(
        place, thread_rows, thread_bytes, pairs[:, 0], value_bytes, row_step, step_bytes
    ):
        seen = thread_bytes.copy()  # what is added at run time changes none of the bits
        for bit, mask in place.xor:
            seen = np.where(thread_rows >> bit & 1, seen ^ mask, seen)
        apart = emit.xor(column, pattern(context, place, row)), int(np.bitwise_or.reduce(seen))
    touched = mask_reach(place) + 1 if place.xor else 1
    slots = place.stage_bytes if isinstance(slot, Reg) else 0
    pieces = place.block_bytes if width else 0
    above = not any(b % touched for b in (context.placement.align_bytes, place.pitch_bytes, slots, pieces))
    return SmemAccess(context, place, bits, pairs, row, column, base, near, apart, above, carries, picked)


def _carries(width: int, thread_bytes: NDArray[np.int64], value_bytes: NDArray[np.int64], step_bytes: int) -> bool:
    """Whether the places of a thread and of a value within their pieces of a row may add up to more than one."""
    return bool(step_bytes % width) or int((thread_bytes % width).max()) + int((value_bytes % width).max()) >= width


def slot_offset(context: Context, buffer: Buffer) -> Number:
    """Bytes from the start of shared memory to the slot of the buffer that is in use."""
    place = context.placement.places[buffer.name]
    slot = context.slots[buffer.name.split(".")[0]]
    return context.emit.add(context.emit.mul(slot, place.stage_bytes), place.offset_bytes)


def splits(
    place: BufferPlace,
    thread_rows: NDArray[np.int64],
    thread_bytes: NDArray[np.int64],
    rows: NDArray[np.int64],
    column_bytes: NDArray[np.int64],
    row_step: int,
    byte_step: int,
) -> bool:
    """Whether swizzling the sum of a thread's and a value's coordinate is the XOR of swizzling each.

    It is when they share no bits among those that the swizzle reads (of the row) or touches (of the column), also after
    any run-time step is added.
    """
    if not place.xor:
        return True
    read = (1 << max(bit for bit, _ in place.xor) + 1) - 1
    touched = mask_reach(place)
    if row_step & read or byte_step & touched:
        return False
    all_rows = int(np.bitwise_or.reduce(thread_rows)) & read
    all_bytes = int(np.bitwise_or.reduce(thread_bytes)) & touched
    value_rows = int(np.bitwise_or.reduce(rows)) & read
    value_bytes = int(np.bitwise_or.reduce(column_bytes)) & touched
    return all_rows & value_rows == 0 and all_bytes & value_bytes == 0


def _row(context: Context, tile: Tile, threads: Layout, rows_of: NDArray[np.int64]) -> tuple[Number, int, int]:
    """(the thread's row, constant part, OR of run-time steps); `rows_of` has the rows of a step along each axis."""
    emit = context.emit
    row: Number = 0
    constant = steps = 0
    for axis, rows in enumerate(map(int, rows_of)):
        if rows:
            start, fixed, step = _start(context, tile, threads, axis)
            row = emit.add(row, emit.mul(start, rows))
            constant += fixed * rows
            steps |= step * rows
    return row, constant, steps


def _start(context: Context, tile: Tile, threads: Layout, axis: int) -> tuple[Number, int, int]:
    """(the thread's coordinate, constant part, OR of run-time steps) along one axis."""
    emit = context.emit
    constant, terms = context.affine(tile.offset[axis])
    place = context.thread_part(threads, axis)
    steps = 0
    for index, coefficient in terms:
        place = emit.add(place, emit.mul(context.value(index), coefficient))
        steps |= coefficient
    return place, constant, steps
