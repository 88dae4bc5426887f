"""CellStore: registers of a warpgroup to cells of tensor memory, whose warps each reach a quarter of the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import all_of, expr
from tinygpu.language.instruction.cell_move import CellMove
from tinygpu.language.memories import RMEM, TMEM, Memory
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.layouts import E, coalesce


@dataclass(frozen=True, eq=False)
class CellStore(CellMove):
    """Moves registers into cells of TMEM, 32 bits of each.

    Elements of 16 bits lie in pairs: the lower half of a cell is the one before.
    """

    reads: ClassVar[Memory] = RMEM
    writes: ClassVar[Memory] = TMEM

    def meaning(self, values: Any) -> Any:
        """The tile as it is in memory: the values that the threads hold together."""
        return values

    def statement(self, address: str, registers: Sequence[str], apart: int = 0) -> str:
        """PTX that stores the registers of one instruction, from the lane and column of `address` on.

        apart  columns from one window to the next, where it has two
        """
        raise NotImplementedError

    def legality(self, memory_side: Tile, partition: Partition) -> tuple[Constraint, ...]:
        """Constraints from moving values under `partition` into `memory_side` (a TMEM tile)."""
        if self.per_register > 1:
            return self.lanes_rule(memory_side, partition), self.cells_rule(memory_side)
        name, bits = memory_side.name, memory_side.dtype.bits
        if memory_side.buffer is not None and bits < memory_side.buffer.element_bits:
            raise ValueError(
                f"{self.label} stores two elements of {bits} bits to a cell, and those of {memory_side.buffer.name} "
                "have one each: leave the buffer's path out, or take a form that unpacks"
            )
        whole = memory_side.shape[1] * bits % 32 == 0
        size, step = next(iter(coalesce(partition.values).steps), (1, E(1)))
        together = [expr(size) * bits % 32 == 0, all_of([step == E(1)])] if bits < 32 else []
        return (
            self.lanes_rule(memory_side, partition),
            self.rule(
                f"cells of {name}",
                all_of([all_of([bits in (16, 32)]), whole, *together]),
                f"elements of {name} fill whole cells of 32 bits, two neighbours of a thread where they have 16",
            ),
        )

    def unwritten(self) -> str:
        if (self.reads, self.writes) != (RMEM, TMEM):
            return f"moves {self.reads} to {self.writes}; a CellStore moves RMEM to TMEM"
        if owed := self._owes(CellStore, "statement", "complete"):
            return owed
        tried = (self._silent("statement", "%r1", [f"%r{i}" for i in range(count)]) for count in self.counts)
        return next(filter(None, tried), "") or self._silent("complete")
