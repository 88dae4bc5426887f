"""RowShift: rows in tensor memory that move down a lane, and new ones from shared memory in the last lanes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr
from tinygpu.language.data_paths import LANES_OF_A_WARP
from tinygpu.language.instruction.row_copy import RowCopy
from tinygpu.language.memories import TMEM_LANES
from tinygpu.language.tile import Tile

WARPS = TMEM_LANES // LANES_OF_A_WARP


@dataclass(frozen=True, eq=False)
class RowShift(RowCopy):
    """Moves the rows of each warp's 32 lanes down by one, and brings a row of the source to the last lane of each.

    The source is (4, columns) in SMEM, as a RowCopy has it: a row for each warp. The target, (128, columns), has rows
    already, row r in lane r, in the one slot of its pipeline.
    """

    rows: ClassVar[int] = WARPS

    @property
    def rows_there(self) -> int:
        return TMEM_LANES

    def legality(self, source: Tile, target: Tile) -> tuple[Constraint, ...]:
        """As a RowCopy has them. Raises ValueError for a part of a buffer, too."""
        buffer = target.buffer
        if buffer is not None and not all(map(Expr.same, buffer.shape, target.shape)):
            raise ValueError(f"{self.label} moves on all rows and columns of {buffer.name}, not a window of it")
        return super().legality(source, target)

    def combine(self, there: Any, values: Any) -> Any:
        """The target's values: of those that are there, and of the source's.

        there   (128, columns)
        values  (4, columns)
        """
        warps = np.asarray(there).reshape(WARPS, LANES_OF_A_WARP, -1)
        return np.concatenate([warps[:, 1:], np.asarray(values)[:, None]], axis=1).reshape(there.shape)

    def shift(self, address: str) -> str:
        """PTX that moves the rows of 32 lanes, `row_bytes` of each, one lane down; the last lane keeps its own."""
        raise NotImplementedError

    def pieces(self, source_bytes: Expr) -> Expr:
        """Each piece is a shift in the lanes of every warp, and a copy."""
        return super().pieces(source_bytes) * (WARPS + 1)

    def unwritten(self) -> str:
        return super().unwritten() or self._owes(RowShift, "shift")
