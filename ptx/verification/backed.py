"""Parts of tensors in sparsely backed memory: windows of some stretches along every axis, where their strides say."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.problem import Operand
from tinygpu.ptx.emulator import SparseBuffer
from tinygpu.ptx.runtime.narrow import packed, unpacked
from tinygpu.ptx.verification.operands import POISON

Spans = tuple[tuple[int, int], ...]
"""Stretches of an axis: first element and one past the last of each, in order."""
Window = tuple[Spans, ...]
"""The elements of a tensor, per axis, that some tiles need."""


def joined(spans: Iterable[tuple[int, int]]) -> Spans:
    """Stretches that meet as one."""
    out: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if out and out[-1][1] == start:
            start = out.pop()[0]
        out.append((start, end))
    return tuple(out)


def shape_of(window: Window) -> tuple[int, ...]:
    """Elements of a window along each axis."""
    return tuple(sum(end - start for start, end in spans) for spans in window)


class Backed:
    """A window of an operand in memory, line after line along the axis on which elements follow one another.

    array  what it holds; None: what nobody wrote
    """

    def __init__(self, operand: Operand, window: Window, array: NDArray[Any] | None) -> None:
        self._operand = operand
        self._contiguous = operand.contiguous_axis
        if array is None:
            array = np.zeros(shape_of(window), dtype=operand.dtype.numpy)
            array.view(np.uint8)[...] = POISON
        if operand.dtype.bits < 8:
            array = array.view(np.uint8)
        moved = np.moveaxis(array, self._contiguous, -1)
        self._shape = moved.shape
        lines = moved.reshape(-1, moved.shape[-1])
        starts = self._starts(window)
        # Where lines follow one another without a gap, they are one region.
        self.regions: dict[int, NDArray[Any]] = {}
        self._pieces: list[tuple[int, slice, NDArray[Any], int]] = []
        places = [
            (int(row) + first, number, column, last - first)
            for number, row in enumerate(starts)
            for (first, last), column in zip(window[self._contiguous], _before(window[self._contiguous]), strict=True)
        ]
        places.sort()
        begun = 0
        for at, (start, _, _, size) in enumerate(places):
            if at + 1 == len(places) or places[at + 1][0] != start + size:
                self._add(places[begun : at + 1], lines)
                begun = at + 1

    def _starts(self, window: Window) -> NDArray[np.int64]:
        """Elements before each line, in the order of the other axes."""
        strides = self._operand.strides()
        out: NDArray[np.int64] = np.zeros(1, np.int64)
        for axis, spans in enumerate(window):
            if axis != self._contiguous:
                along = np.concatenate([np.arange(first, last, dtype=np.int64) for first, last in spans])
                out = (out[:, None] + along * strides[axis]).reshape(-1)
        return out

    def _add(self, places: Sequence[tuple[int, int, int, int]], lines: NDArray[Any]) -> None:
        region = np.concatenate([lines[number, column : column + size] for _, number, column, size in places])
        if self._operand.dtype.bits < 8:  # vectors and rows are whole bytes, and so are windows
            region = packed(region, self._operand.dtype.bits)
        self.regions[places[0][0] * self._operand.dtype.bits // 8] = region
        at = 0
        for _, number, column, size in places:
            self._pieces.append((number, slice(column, column + size), region, at))
            at += size

    def buffer(self) -> SparseBuffer:
        o = self._operand
        offset = o.align_bytes if o.align_bytes < 256 else 0
        size = offset + o.dtype.bytes_of(o.extent_elems)
        return SparseBuffer(size, {offset + k: v for k, v in self.regions.items()}, offset=offset, name=o.name)

    def array(self) -> NDArray[Any]:
        """What stands in the window now."""
        kind = self._operand.dtype
        lines = np.empty((int(np.prod(self._shape[:-1], dtype=np.int64)), self._shape[-1]), kind.numpy)
        for number, columns, region, at in self._pieces:
            held = unpacked(region, kind.bits).view(kind.numpy) if kind.bits < 8 else region
            lines[number, columns] = held[at : at + columns.stop - columns.start]
        return np.moveaxis(lines.reshape(self._shape), -1, self._contiguous)


def _before(spans: Spans) -> list[int]:
    """Elements of a window before each of its stretches."""
    return [sum(end - start for start, end in spans[:number]) for number in range(len(spans))]
