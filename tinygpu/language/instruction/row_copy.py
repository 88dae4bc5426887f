"""RowCopy: rows of shared memory to the lanes of tensor memory, which one thread issues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import all_of
from tinygpu.language.instruction.cell_copy import CellCopy
from tinygpu.language.instruction.chunk_copy import CHUNK_BYTES
from tinygpu.language.memories import TMEM_LANES
from tinygpu.language.tile import Tile

ROW_BYTES = 32  # PTX ISA, tcgen05.cp.128x256b: of each row, in one instruction


@dataclass(frozen=True, eq=False)
class RowCopy(CellCopy):
    """Moves 128 rows into the lanes of TMEM, 32 bytes of each in one instruction, which are eight columns.

    The source is (128, columns) in SMEM, contiguous along the columns, under a swizzle of 32, 64 or 128 bytes, as TMA
    brings it and products read it. The target has the same extents: row r in lane r, its bytes along the columns.
    """

    piece_bytes: ClassVar[int] = TMEM_LANES * ROW_BYTES

    def meaning(self, values: Any) -> Any:
        """The same rows."""
        return values

    def descriptor(self, swizzle_bytes: int, apart_bytes: int, across: bool) -> int:
        """The 64 bits that describe the rows of a piece, less their address, as a product's operand has them."""
        raise NotImplementedError

    def unwritten(self) -> str:
        return super().unwritten() or self._owes(RowCopy, "descriptor")

    def legality(self, source: Tile, target: Tile) -> tuple[Constraint, ...]:
        """Constraints from moving all of `source` to all of `target`. Raises ValueError for what lies otherwise."""
        buffer = source.buffer
        if buffer is None or buffer.swizzle_bytes is None or len(source.shape) != 2 or buffer.contiguous != 1:
            raise ValueError(
                f"{self.label} moves rows that lie under a swizzle, contiguous along their columns: give {source.name} "
                "two extents, and its buffer swizzle=32, 64 or 128 and contiguous=1"
            )
        if buffer.padded or buffer.atom_bytes != CHUNK_BYTES:
            together = f"under a swizzle that leaves {buffer.atom_bytes} bytes together"
            lies = "padded" if buffer.padded else together
            raise ValueError(f"{self.label} moves rows as products read them along k, and {buffer.name} lies {lies}")
        rows = [source.shape[0] == TMEM_LANES, target.shape[0] == TMEM_LANES, source.shape[1] == target.shape[1]]
        return (
            self.rule(
                f"rows of {target.name}",
                all_of(rows),
                f"{source.name} and {target.name} have {TMEM_LANES} rows, and as many columns",
            ),
            self.rule(
                f"columns of {target.name}",
                source.shape[1] * buffer.element_bits // 8 % ROW_BYTES == 0,
                f"each instruction copies {ROW_BYTES} bytes of every row of {source.name}",
            ),
        )
