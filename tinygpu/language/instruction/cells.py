"""CellLoad: cells of tensor memory to the registers of a warpgroup, whose warps each reach a quarter of the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.language.instruction.cell_move import CellMove
from tinygpu.language.memories import RMEM, TMEM, Memory
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile


@dataclass(frozen=True, eq=False)
class CellLoad(CellMove):
    """Moves cells of TMEM into registers, 32 bits of each."""

    reads: ClassVar[Memory] = TMEM
    writes: ClassVar[Memory] = RMEM

    def meaning(self, values: Any) -> Any:
        """The tile that the threads hold together: its values as they are in memory."""
        return values

    def statement(self, registers: Sequence[str], address: str, apart: int = 0) -> str:
        """PTX that fills the registers of one instruction, from the lane and column of `address` on.

        apart  columns from one window to the next, where it has two
        """
        raise NotImplementedError

    def legality(self, memory_side: Tile, partition: Partition) -> tuple[Constraint, ...]:
        """Constraints from moving `memory_side` (a TMEM tile) under `partition`."""
        return (
            self.lanes_rule(memory_side, partition),
            self.cells_rule(memory_side),
        )

    def unwritten(self) -> str:
        if (self.reads, self.writes) != (TMEM, RMEM):
            return f"moves {self.reads} to {self.writes}; a CellLoad moves TMEM to RMEM"
        if owed := self._owes(CellLoad, "statement", "complete"):
            return owed
        tried = (self._silent("statement", [f"%r{i}" for i in range(count)], "%r1") for count in self.counts)
        return next(filter(None, tried), "") or self._silent("complete")
