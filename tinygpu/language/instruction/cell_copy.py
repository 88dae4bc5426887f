"""CellCopy: shared memory to tensor memory, which one thread issues and a commit completes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr
from tinygpu.language.instruction.base import Instruction, Scope, Unit
from tinygpu.language.instruction.multiply import COMMIT
from tinygpu.language.memories import SMEM, TMEM, Memory
from tinygpu.language.tile import Tile


@dataclass(frozen=True, eq=False)
class CellCopy(Instruction):
    """Moves a tile from SMEM to columns of TMEM, in pieces: chunks of scales (ChunkCopy), rows (RowCopy, RowShift)."""

    reads: ClassVar[Memory] = SMEM
    writes: ClassVar[Memory] = TMEM
    scope: ClassVar[Scope] = "thread"
    unit: ClassVar[Unit] = "copy"
    proxy: ClassVar[Any] = "async"
    ctas: ClassVar[int] = 1  # CTAs in each of which one instruction copies
    piece_bytes: ClassVar[int]  # of shared memory, in one instruction

    def meaning(self, values: Any) -> Any:
        """The target's values: of an array of the source's extents one of the target's."""
        raise NotImplementedError

    def statement(self, address: str, descriptor: str) -> str:
        """PTX that moves one piece to the cells from `address` on."""
        raise NotImplementedError

    def legality(self, source: Tile, target: Tile) -> tuple[Constraint, ...]:
        """Constraints from moving all of `source` to all of `target`. Raises ValueError for extents that are none."""
        raise NotImplementedError

    def pieces(self, source_bytes: Expr) -> Expr:
        """Instructions that move so many bytes."""
        return (source_bytes + self.piece_bytes - 1) // self.piece_bytes

    def unwritten(self) -> str:
        if self.completion != COMMIT:
            done = f"completed by {self.completion}" if self.completion else "completed at once"
            return f"moves a tile to TMEM, {done}; a CellCopy is completed by {COMMIT}"
        return self._owes(CellCopy, "statement", "meaning", "legality")
