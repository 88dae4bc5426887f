"""Buffers: pieces of shared or tensor memory that tiles are windows of."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, expr
from tinygpu.language.memories import CELL_BITS, Memory
from tinygpu.layouts.layout import Layout


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A piece of SMEM or TMEM, `stages` times.

    shape       extents in elements
    contiguous  the axis whose neighbours are neighbours in memory
    pad         elements added to every row (SMEM)
    layout      name of the machine's UnknownLayout, or "" for plain rows
    stages      how many of it there are (the depth of the pipeline that hands it over)
    swizzle_bytes
                width of the swizzle with which TMA writes and wgmma reads: first come that many bytes of every row,
                then the next of every row; within, 16-byte chunks are exchanged. None: whole rows
    path        where its elements lie in TMEM, (row, column) -> (lane, column), each in a cell of its own; None: row r
                in lane r, and narrow elements side by side in a cell. A third mode counts lanes with the same rows
    over        name of the buffer of the same slot in whose columns it lies (TMEM); "": it has columns of its own
    atom_bytes  bytes that the swizzle leaves together: 16, or 32, which exchanges pairs of chunks
    padded      elements of 4 or 6 bits lie as tensor cores read them beside 8-bit ones: each 16 of them fill the first
                8 or 12 of 16 bytes, and nothing the rest
    """

    name: str
    memory: Memory
    dtype: DType
    shape: tuple[Expr, ...]
    contiguous: int
    pad: Expr
    layout: str
    stages: Expr
    swizzle_bytes: Expr | None = None
    over: str = ""
    path: Layout | None = None
    atom_bytes: int = 16
    padded: bool = False

    @property
    def element_bits(self) -> int:
        """Bits that an element takes, with its part of what pads it; where it has a path in TMEM, a cell."""
        if self.path is not None:
            return CELL_BITS
        return 8 if self.padded else self.dtype.bits

    def by_tensor_cores(self, label: str) -> str:
        """Why `label` does not move the elements of a padded buffer."""
        return (
            f"{label} moves elements that lie one behind the other, and those of {self.name} are padded to 16 bytes "
            "for each 16 of them: TMA writes such a buffer, and tensor cores alone read it"
        )

    @property
    def rows(self) -> Expr:
        """Rows of one stage: lines along the contiguous axis."""
        out = expr(1)
        for axis, extent in enumerate(self.shape):
            if axis != self.contiguous:
                out = out * extent
        return out

    @property
    def row_steps(self) -> tuple[Expr, ...]:
        """Rows from one coordinate to the next along each axis, the last axis fastest; 0 along the contiguous one."""
        out, below = [], expr(1)
        for axis in reversed(range(len(self.shape))):
            out.append(expr(0) if axis == self.contiguous else below)
            below = below if axis == self.contiguous else below * self.shape[axis]
        return tuple(reversed(out))

    @property
    def pitch_bytes(self) -> Expr:
        row = self.shape[self.contiguous] + self.pad
        return row * (self.element_bits // 8) if self.element_bits % 8 == 0 else row * self.element_bits // 8

    @property
    def stage_bytes(self) -> Expr:
        return self.rows * self.pitch_bytes

    @property
    def bytes(self) -> Expr:
        return self.stages * self.stage_bytes
