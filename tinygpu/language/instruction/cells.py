"""CellLoad: cells of tensor memory to the registers of a warpgroup, whose warps each reach a quarter of the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import expr
from tinygpu.language.instruction.base import Instruction, Scope, Unit
from tinygpu.language.memories import RMEM, TMEM, TMEM_LANES, Memory
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.layouts import E, Layout, coalesce


def rows_by_lanes(partition: Partition) -> bool:
    """Whether thread t of a warpgroup holds row t of its tile, all of it."""
    return coalesce(partition.threads) == Layout(TMEM_LANES, E(0))


@dataclass(frozen=True, eq=False)
class CellLoad(Instruction):
    """Moves columns of TMEM into registers: thread t of a warpgroup has lane t of it, 32 bits of each column.

    counts  columns that one instruction can move, in powers of two
    """

    reads: ClassVar[Memory] = TMEM
    writes: ClassVar[Memory] = RMEM
    scope: ClassVar[Scope] = "warpgroup"
    unit: ClassVar[Unit] = "lsu"
    counts: ClassVar[tuple[int, ...]] = (1,)

    def meaning(self, values: Any) -> Any:
        """The tile that the threads hold together: its values as they are in memory."""
        return values

    def statement(self, registers: Sequence[str], address: str) -> str:
        """PTX that moves as many columns as there are registers, from the lane and column of `address` on."""
        raise NotImplementedError

    def complete(self) -> str:
        """PTX behind which the registers of all loads before it have their values."""
        raise NotImplementedError

    def legality(self, memory_side: Tile, partition: Partition) -> tuple[Constraint, ...]:
        """Constraints from moving `memory_side` (a TMEM tile) under `partition`."""
        return (
            self.rule(
                f"lanes of {memory_side.name}",
                rows_by_lanes(partition),
                f"thread t of the warpgroup holds row t of {memory_side.name}, its lane of TMEM",
            ),
            self.rule(
                f"cells of {memory_side.name}",
                expr(memory_side.dtype.bits) == 32,
                f"elements of {memory_side.name} fill a cell of 32 bits each",
            ),
        )

    def unwritten(self) -> str:
        if (self.reads, self.writes) != (TMEM, RMEM):
            return f"moves {self.reads} to {self.writes}; a CellLoad moves TMEM to RMEM"
        if owed := self._owes(CellLoad, "statement", "complete"):
            return owed
        tried = (self._silent("statement", [f"%r{i}" for i in range(count)], "%r1") for count in self.counts)
        return next(filter(None, tried), "") or self._silent("complete")
