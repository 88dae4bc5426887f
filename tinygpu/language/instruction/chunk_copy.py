"""ChunkCopy: chunks of shared memory to columns of tensor memory, where the lanes of every warp have them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import all_of, expr
from tinygpu.language.instruction.cell_copy import CellCopy
from tinygpu.language.tile import Tile

# PTX ISA, tcgen05.cp.32x128b.warpx4: rows of a chunk, and bytes of each; the rows are in the lanes of every warp.
CHUNK_ROWS, CHUNK_BYTES = 32, 16


@dataclass(frozen=True, eq=False)
class ChunkCopy(CellCopy):
    """Moves chunks of 32 rows of 16 bytes, each into four columns of TMEM, where the lanes of every warp have the rows.

    The source is (along, down, 32, 16 bytes) in SMEM: chunks, and rows without swizzle. The target is (32, bytes): the
    chunks that are side by side along the first axis lie side by side there, behind them those one further down.
    """

    piece_bytes: ClassVar[int] = CHUNK_ROWS * CHUNK_BYTES

    def meaning(self, values: Any) -> Any:
        """The target's rows: chunk after chunk of the source, the first axis fastest."""
        return np.transpose(values, (2, 1, 0, 3)).reshape(values.shape[2], -1)

    def descriptor(self) -> int:
        """The 64 bits that describe a chunk, less its address: that is added in 16 bytes, in bits 0 to 13."""
        raise NotImplementedError

    def unwritten(self) -> str:
        return super().unwritten() or self._owes(ChunkCopy, "descriptor")

    def legality(self, source: Tile, target: Tile) -> tuple[Constraint, ...]:
        """Constraints from moving all of `source` to all of `target`. Raises ValueError for what is none of chunks."""
        buffer, kind = source.buffer, source.dtype
        bytes_of = [extent * kind.bits // 8 for extent in (source.shape[-1], target.shape[-1])]
        chunks = math.prod(source.shape[:-2], start=expr(1))
        plain = buffer is not None and buffer.swizzle_bytes is not None and buffer.swizzle_bytes.same(CHUNK_BYTES)
        if len(source.shape) != 4 or not (plain and source.shape[2].same(CHUNK_ROWS) and bytes_of[0].same(CHUNK_BYTES)):
            raise ValueError(
                f"{self.label} moves chunks of {CHUNK_ROWS} rows of {CHUNK_BYTES} bytes: give {source.name} the "
                f"extents (along, down, {CHUNK_ROWS}, {CHUNK_BYTES * 8 // kind.bits}) and swizzle={CHUNK_BYTES}"
            )
        whole = [target.shape[0] == CHUNK_ROWS, bytes_of[1] == chunks * CHUNK_BYTES, target.offset[1] == 0]
        return (
            self.rule(
                f"columns of {target.name}",
                all_of(whole),
                f"{target.name} has {CHUNK_ROWS} rows, and {CHUNK_BYTES} bytes of each for a chunk of {source.name}",
            ),
        )
