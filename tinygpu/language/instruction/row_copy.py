"""RowCopy: rows of shared memory to the lanes of tensor memory, which one thread issues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Operand, all_of
from tinygpu.language.data_paths import alike, path_of, rows_in_lanes
from tinygpu.language.instruction.cell_copy import CellCopy
from tinygpu.language.instruction.chunk_copy import CHUNK_BYTES
from tinygpu.language.memories import TMEM_LANES
from tinygpu.language.tile import Tile
from tinygpu.layouts.layout import Layout


@dataclass(frozen=True, eq=False)
class RowCopy(CellCopy):
    """Moves rows into the lanes of TMEM, so many bytes of each in one instruction, side by side in the columns.

    The source is (rows, columns) in SMEM, contiguous along the columns, under a swizzle as TMA brings it and products
    read it. The target has the same extents, and lies as `path` says: by default row r in lane r, its bytes along the
    columns; where rows lie in several lanes, its elements fill cells.

    rows       of the source
    row_bytes  of each, in one instruction
    """

    rows: ClassVar[int] = TMEM_LANES
    row_bytes: ClassVar[int] = 32

    @property
    def piece_bytes(self) -> int:  # type: ignore[override]
        return self.rows * self.row_bytes

    @property
    def rows_there(self) -> int:
        """Rows of the target."""
        return self.rows

    def path(self, columns: Operand) -> Layout:
        """(row, column) -> (lane, column) of the target; a third mode counts lanes with the same rows."""
        return rows_in_lanes(self.rows_there, columns)

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
        self._lies_there(target)
        here, there = self.rows, self.rows_there
        rows = [source.shape[0] == here, target.shape[0] == there, source.shape[1] == target.shape[1]]
        both = f"{source.name} and {target.name} have {here} rows"
        have = both if here == there else f"{source.name} has {here} rows, {target.name} has {there}"
        return (
            self.rule(
                f"rows of {target.name}",
                all_of(rows),
                f"{have}, and as many columns",
            ),
            self.rule(
                f"columns of {target.name}",
                source.shape[1] * buffer.element_bits // 8 % self.row_bytes == 0,
                f"each instruction copies {self.row_bytes} bytes of every row of {source.name}",
            ),
        )

    def _lies_there(self, target: Tile) -> None:
        """The target lies where the rows are laid."""
        wanted, buffer = self.path(target.shape[1]), target.buffer
        path = None if buffer is None else buffer.path
        if path is None and wanted.rank == 2:
            return
        if path is None or not alike(wanted, path_of(target)):
            have = "row r in lane r" if path is None else str(path_of(target))
            raise ValueError(
                f"{self.label} lays rows as {wanted} says, and {target.name} has {have}: give its buffer "
                "path=path(columns) of the instruction"
            )
        if buffer is not None and buffer.element_bits != target.dtype.bits:
            raise ValueError(
                f"{self.label} lays elements of {target.dtype.bits} bits side by side in a cell, and those of "
                f"{buffer.name} have one each: copy elements of {buffer.element_bits} bits, or leave its path out"
            )
