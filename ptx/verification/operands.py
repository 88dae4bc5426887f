"""Host arrays for the operands of a problem: gaps between rows, poisoned outputs, and the alignment it promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.problem import Operand
from tinygpu.ptx.runtime.narrow import packed, unpacked

# Byte pattern of everything that a kernel is not given: NaN in every float type, conspicuous in integers.
POISON = 0xFF


@dataclass(frozen=True, slots=True, eq=False)
class HostTensor:
    """One operand in host memory.

    storage       all its bytes, gaps between rows included
    offset_bytes  from the start of the storage to the first element: as badly aligned as the problem says
    """

    operand: Operand
    storage: NDArray[np.uint8]
    offset_bytes: int

    @property
    def array(self) -> NDArray[Any]:
        """(shape) the elements: a view of the storage, where each has bytes of its own; else a copy."""
        if self.operand.dtype.bits < 8:
            codes = unpacked(self.storage[self.offset_bytes :], self.operand.dtype.bits)
            return self._elements(codes).copy().view(self.operand.dtype.numpy)
        kind = self.operand.dtype.numpy
        strides = tuple(s * kind.itemsize for s in self.operand.strides())
        return np.ndarray(self.operand.shape, kind, self.storage.data, self.offset_bytes, strides)

    def write(self, values: NDArray[Any]) -> None:
        """Stores all elements."""
        if self.operand.dtype.bits >= 8:
            self.array[...] = values
            return
        codes = unpacked(self.storage[self.offset_bytes :], self.operand.dtype.bits)
        self._elements(codes)[...] = np.asarray(values, self.operand.dtype.numpy).view(np.uint8)
        self.storage[self.offset_bytes :] = packed(codes, self.operand.dtype.bits)

    def _elements(self, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """(shape) those of elements narrower than a byte that are elements, and no gaps."""
        return np.lib.stride_tricks.as_strided(codes, self.operand.shape, self.operand.strides())

    def gaps_intact(self) -> bool:
        """Whether every byte that belongs to no element still holds the poison."""
        if self.operand.dtype.bits < 8:
            mask = (1 << self.operand.dtype.bits) - 1
            held = unpacked(self.storage[self.offset_bytes :], self.operand.dtype.bits)
            self._elements(held)[...] = mask
            return bool(np.all(held == mask) and np.all(self.storage[: self.offset_bytes] == POISON))
        free = np.ones(len(self.storage), dtype=np.bool_)
        kind = self.operand.dtype.numpy
        flags = free[self.offset_bytes :]
        strides = tuple(s * kind.itemsize for s in self.operand.strides())
        view = np.lib.stride_tricks.as_strided(flags, (*self.operand.shape, kind.itemsize), (*strides, 1))
        view[...] = False
        return bool(np.all(self.storage[free] == POISON))


def host_tensor(operand: Operand) -> HostTensor:
    """Fresh memory for an operand, poisoned throughout."""
    # An address that is a multiple of the promised alignment and of nothing larger.
    offset = operand.align_bytes if operand.align_bytes < 256 else 0
    size = offset + operand.dtype.bytes_of(operand.extent_elems)
    return HostTensor(operand, np.full(size, POISON, dtype=np.uint8), offset)
