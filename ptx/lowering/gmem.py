"""Addresses and edge predicates of accesses to tensors."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.partition import Partition
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile
from tinygpu.ptx.lowering.context import Context, LoweringError
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.picked import named_by


@dataclass(slots=True, eq=False)
class GmemAccess:
    """A window of a tensor under a partition: where each value of the current thread lies, and whether it exists."""

    context: Context
    tile: Tile
    tensor: Tensor
    values: NDArray[np.int64]  # (values, axes)
    starts: list[Number]  # per tensor axis: the thread's first coordinate
    checked: list[bool]  # per tensor axis: whether the window can reach beyond the tensor
    base: Number
    chain: dict[tuple[int, ...], Number]  # by how many rows along each tensor axis the base is moved
    picked: dict[int, list[Reg]]  # per tensor axis along which values say where each element lies: theirs
    ends: dict[int, Number]  # per tensor axis that ends earlier: where

    def _bytes_of(self, elements: int) -> int:
        return elements * self.tensor.dtype.bits // 8

    def tensor_offset(self, value: int, axis: int) -> int:
        """The part of the coordinate along a tensor axis that the value index decides."""
        return sum(int(self.values[value][k]) * int(step) for k, step in self.tile.along(axis))

    def address(self, value: int) -> tuple[Number, int]:
        """(register, byte offset) of one value."""
        near = self._bytes_of(self.tensor_offset(value, self.tensor.contiguous_axis))
        pointer, moved = self.base, [0] * self.tensor.rank
        for axis in range(self.tensor.rank):
            if axis != self.tensor.contiguous_axis:
                pointer = self._step(moved, axis, self.tensor_offset(value, axis))
        for axis, places in self.picked.items():
            pointer = self.context.emit.add64(pointer, _bytes(self.context, self.tensor, axis, places[value]))
        return pointer, near

    def place(self, value: int, axis: int, behind: int = 0) -> Number:
        """The coordinate along a tensor axis of the element so many behind one value."""
        if axis in self.picked:
            return self.context.emit.add(self.picked[axis][value], behind)
        return self.context.emit.add(self.starts[axis], self.tensor_offset(value, axis) + behind)

    def _step(self, moved: list[int], axis: int, rows: int) -> Number:
        """The base as it is moved, and by a number of rows along one axis more.

        Rows are reached one after the other, by one addition each: what one is away from the next is one number that a
        loop keeps, where distances from the first would be as many as there are rows.
        """
        below = max(r for r in range(rows + 1) if (*moved[:axis], r, *moved[axis + 1 :]) in self.chain)
        moved[axis] = below
        start = self.chain[tuple(moved)]
        moved[axis] = rows
        out = self.context.emit.add64(start, row_bytes(self.context, self.tensor, axis, rows - below))
        self.chain[tuple(moved)] = out
        return out

    def exists(self, value: int, count: int = 1) -> Number:
        """Predicate: `count` neighbouring values from this one on lie inside the tensor (True: known to)."""
        emit = self.context.emit
        out: Number = True
        for axis in range(self.tensor.rank):
            if not self.checked[axis]:
                continue
            more = count - 1 if axis == self.tensor.contiguous_axis else 0
            out = emit.both(out, emit.less(self.place(value, axis, more), self.dim(axis)))
        return out

    def straddles(self, count: int) -> bool:
        """Whether `count` neighbouring values may lie on both sides of the tensor's edge."""
        axis = self.tensor.contiguous_axis
        if axis in self.ends:
            return count > 1
        return self.checked[axis] and not self.context.facts.divides(count, str(self.tensor.size(axis)))

    def bytes_left(self, value: int, count: int) -> Number:
        """Bytes of `count` neighbouring values that lie inside the tensor, 0 where their row does not exist."""
        emit = self.context.emit
        width = self._bytes_of(count)
        axis = self.tensor.contiguous_axis
        rows: Number = True
        for other in range(self.tensor.rank):
            if other != axis and self.checked[other]:
                rows = emit.both(rows, emit.less(self.place(value, other), self.dim(other)))
        if not self.checked[axis]:
            return emit.select(width, 0, rows)
        first = self.place(value, axis)
        size = self.dim(axis)
        if not self.straddles(count):
            return emit.select(width, 0, emit.both(rows, emit.less(first, size)))
        left = emit.sub(size, emit.minimum(first, size))
        amount = emit.minimum(emit.mul(emit.minimum(left, count), self.tensor.dtype.bytes), width)
        return emit.select(amount, 0, rows)

    def dim(self, axis: int) -> Number:
        """Where the tensor ends along an axis, for this window."""
        whole = self.context.size(self.tensor, axis)
        return self.context.emit.minimum(self.ends[axis], whole) if axis in self.ends else whole


def row_bytes(context: Context, tensor: Tensor, axis: int, rows: int) -> Number:
    """Bytes between rows that lie `rows` apart along an axis that is not contiguous."""
    emit = context.emit
    pitch = context.arguments[dict(tensor.pitches)[axis]]
    if tensor.dtype.bits < 8:
        apart = emit.mul64(pitch, rows) if pitch.kind == "d" else emit.wide(pitch, rows, signed=rows < 0)
        return _shared(context, tensor, apart)
    if pitch.kind == "d":
        return emit.mul64(pitch, rows * tensor.dtype.bytes)
    return emit.wide(pitch, rows * tensor.dtype.bytes, signed=rows < 0)


def gmem_access(context: Context, tile: Tile, who: Partition) -> GmemAccess:
    """Prepares the addresses of a window; where values say where it lies, inside `behind` them."""
    tile, who = tile.finest_under(who)
    tensor = tile.tensor
    if tensor is None:
        raise LoweringError(f"{tile.name} is no window of a tensor")
    emit = context.emit
    parts: list[Number] = []  # in bytes, of where the thread's first value lies
    starts: list[Number] = []
    checked: list[bool] = []
    ends = {axis: context.count(end) for axis, end in tile.ends}
    picked = {} if tile.pick is None else {tile.pick.home: named_by(context, tile.pick, who)}
    for axis, offset in enumerate(tile.begins):
        if axis in picked:
            starts.append(0)
            checked.append(True)
            continue
        extent = 1
        digits: Number = 0
        for along, every in tile.along(axis):
            extent += (int(tile.shape[along]) - 1) * int(every)
            digits = emit.add(digits, emit.mul(context.thread_part(who.threads, along), int(every)))
        constant, terms = context.affine(offset)
        mine = emit.add(digits, constant)
        checked.append(axis in ends or _reaches_beyond(context, extent, str(tensor.size(axis)), constant, terms))
        ordered = sorted(terms, key=lambda t: emit.depth(context.value(t[0])))
        place = mine
        parts.append(_bytes(context, tensor, axis, mine, signed=constant < 0))
        for index, coefficient in ordered:
            step = emit.mul(context.value(index), coefficient)
            parts.append(_bytes(context, tensor, axis, step, coefficient < 0 or context.below_zero(index)))
            place = emit.add(step, place)
        starts.append(place)
    # Sums grow from the outermost index inwards, so that each part is computed where it is first known.
    base: Number = context.arguments[f"{tensor.name}.ptr"]
    for part in sorted(parts, key=emit.depth):
        base = emit.add64(base, part)
    values, chain = who.value_coordinates(), {(0,) * tensor.rank: base}
    return GmemAccess(context, tile, tensor, values, starts, checked, base, chain, picked, ends)


def _bytes(context: Context, tensor: Tensor, axis: int, elements: Number, signed: bool = False) -> Number:
    """Byte distance of `elements` steps along an axis, in 64 bits; signed for windows that begin before the tensor."""
    emit = context.emit
    if axis == tensor.contiguous_axis:
        if tensor.dtype.bits < 8:
            return _shared(context, tensor, emit.widen(elements, signed))
        return emit.wide(elements, tensor.dtype.bytes, signed)
    if isinstance(elements, int):
        return row_bytes(context, tensor, axis, elements)
    pitch = context.arguments[dict(tensor.pitches)[axis]]
    out = emit.mul64(emit.widen(elements, signed), pitch) if pitch.kind == "d" else emit.wide(elements, pitch, signed)
    return _shared(context, tensor, out) if tensor.dtype.bits < 8 else emit.mul64(out, tensor.dtype.bytes)


def _shared(context: Context, tensor: Tensor, elements: Number) -> Number:
    """Bytes of so many elements of which several share a byte: vectors and rows of them are whole bytes."""
    per = 8 // tensor.dtype.bits
    if isinstance(elements, int):
        return elements // per
    return context.emit.computed("d", "shr.s64 {d}, {0}, {1};", elements, per.bit_length() - 1)


def _reaches_beyond(
    context: Context, extent: int, dim: str, constant: int, terms: tuple[tuple[str, int], ...]
) -> bool:
    """Whether the window may lie partly outside.

    Not when it is counted along this very dim, in steps that contain it and divide the dim; nor where it stands still
    in a dim that is a number.
    """
    if not terms and dim.isdigit():
        return not 0 <= constant <= constant + extent <= int(dim)
    if not terms or min(constant, *(c for _, c in terms)) < 0:
        return True
    step = max(c for _, c in terms)
    reach = constant + extent + sum(c * _most(context, i) for i, c in terms if c != step)
    outer, *others = (i for i, c in terms if c == step)
    inside = reach <= step and not others and context.spans.get(outer) == (dim, step)
    # CTAs of a cluster run together: where clusters do not divide the tiles, some have a tile beyond the last one.
    return not (inside and context.facts.divides(step * context.cluster_of(outer), dim))


def _most(context: Context, index: str) -> float:
    """The largest value of an inner index, where it is known when lowering."""
    return context.index_limits.get(index, math.inf)
