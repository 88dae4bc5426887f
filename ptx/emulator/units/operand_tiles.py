"""Where the bytes of a matrix operand lie in shared memory: canonical layouts of wgmma and tcgen05.mma.

An operand is read in chunks of 16 bytes, which no swizzle takes apart. K-major operands give one row of chunks per row
of the matrix; M- and N-major operands give one row of chunks per step of K. The table of a layout depends on where its
start lies within a kilobyte only, so it is made once and moved by adding a base.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.units.matrix_descriptors import (
    ATOM_BYTES,
    NO_SWIZZLE,
    SWIZZLE_128B_ATOM_32B,
    MatrixDescriptor,
)
from tinygpu.ptx.emulator.units.swizzles import LINE_BYTES, Swizzle

# All swizzle patterns repeat within this.
PERIOD_BYTES = 1024


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """Shared addresses of the 16-byte chunks of an operand.

    base        a multiple of 1024 to add to each offset
    offsets     (rows, chunks per row) for K-major, (k, chunks per step) for M- or N-major; read-only
    range_bytes  (lowest, one past the highest) byte of all chunks, relative to base
    """

    base: int
    offsets: NDArray[np.int64]
    range_bytes: tuple[int, int]

    @property
    def addresses(self) -> NDArray[np.int64]:
        """Shared byte address of each chunk."""
        return self.offsets + self.base


def k_major_chunks(descriptor: MatrixDescriptor, rows: int, k_bytes: int) -> Chunks:
    """Chunks [row, k // 16 bytes] of an operand with K fastest.

    rows     M or N of one instruction
    k_bytes  bytes along K of one instruction, a multiple of 16
    """
    return _chunks(descriptor, False, rows, k_bytes)


def mn_major_chunks(descriptor: MatrixDescriptor, row_bytes: int, k: int) -> Chunks:
    """Chunks [k, row // 16 bytes] of an operand with M or N fastest.

    row_bytes  bytes along M or N of one instruction (a last chunk may be used in part)
    k          elements along K of one instruction
    """
    return _chunks(descriptor, True, k, row_bytes)


def _chunks(descriptor: MatrixDescriptor, mn_major: bool, outer: int, inner_bytes: int) -> Chunks:
    within = descriptor.start_bytes % PERIOD_BYTES
    offsets, reach = _table(
        descriptor.swizzle, descriptor.base_offset, descriptor.leading_bytes, descriptor.stride_bytes, within, mn_major,
        outer, inner_bytes,
    )  # fmt: skip
    return Chunks(descriptor.start_bytes - within, offsets, reach)


@lru_cache(maxsize=1024)
def _table(
    swizzle: Swizzle, base_offset: int, leading: int, stride: int, start: int, mn_major: bool, outer: int,
    inner_bytes: int,
) -> tuple[NDArray[np.int64], tuple[int, int]]:  # fmt: skip
    """Offsets of chunks for a start below 1024, and the range of bytes that they lie in."""
    row = np.arange(outer, dtype=np.int64)[:, None]
    byte = np.arange(0, inner_bytes, ATOM_BYTES, dtype=np.int64)[None, :]
    offsets = _unswizzled(swizzle, leading, stride, mn_major, row, byte)
    # A pattern that starts `base_offset` lines later is the pattern of addresses that lie so much lower.
    later = base_offset * LINE_BYTES
    table = swizzle.apply(start + offsets - later) + later
    table.setflags(write=False)
    return table, (int(table.min()), int(table.max()) + ATOM_BYTES)


def _unswizzled(
    swizzle: Swizzle, leading: int, stride: int, mn_major: bool, outer: NDArray[np.int64],
    byte: NDArray[np.int64],
) -> NDArray[np.int64]:  # fmt: skip
    """Offsets from the start address before swizzling (PTX ISA, "Canonical Layouts").

    outer  row (K-major) or step of K (M- or N-major)
    byte   byte along the fastest dimension
    """
    width = swizzle.width_bytes
    if swizzle == NO_SWIZZLE:
        # Core matrices of eight 16-byte rows; the two strides change roles with the major dimension.
        by_group, by_chunk = (leading, stride) if mn_major else (stride, leading)
        return outer // 8 * by_group + byte // ATOM_BYTES * by_chunk + outer % 8 * ATOM_BYTES
    if not mn_major:
        return outer // 8 * stride + outer % 8 * width + byte
    group = 4 if swizzle == SWIZZLE_128B_ATOM_32B else 8
    return byte // width * leading + outer // group * stride + outer % group * width + byte % width
