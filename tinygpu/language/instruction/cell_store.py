"""CellStore: registers of a warpgroup to cells of tensor memory, whose warps each reach a quarter of the lanes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import all_of, expr
from tinygpu.language.instruction.base import Instruction, Scope, Unit
from tinygpu.language.instruction.cells import rows_by_lanes
from tinygpu.language.memories import RMEM, TMEM, Memory
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.layouts import E, coalesce


@dataclass(frozen=True, eq=False)
class CellStore(Instruction):
    """Moves registers into columns of TMEM: thread t of a warpgroup has lane t of it, 32 bits of each column.

    Elements of 16 bits lie in pairs: the lower half of a cell is the one before.

    counts  columns that one instruction can move, in powers of two
    """

    reads: ClassVar[Memory] = RMEM
    writes: ClassVar[Memory] = TMEM
    scope: ClassVar[Scope] = "warpgroup"
    unit: ClassVar[Unit] = "lsu"
    counts: ClassVar[tuple[int, ...]] = (1,)

    def meaning(self, values: Any) -> Any:
        """The tile as it is in memory: the values that the threads hold together."""
        return values

    def statement(self, address: str, registers: Sequence[str]) -> str:
        """PTX that moves as many columns as there are registers, from the lane and column of `address` on."""
        raise NotImplementedError

    def complete(self) -> str:
        """PTX behind which all stores before it are in memory."""
        raise NotImplementedError

    def legality(self, memory_side: Tile, partition: Partition) -> tuple[Constraint, ...]:
        """Constraints from moving values under `partition` into `memory_side` (a TMEM tile)."""
        name, bits = memory_side.name, memory_side.dtype.bits
        whole = [memory_side.shape[1] * bits % 32 == 0, memory_side.offset[1] * bits % 32 == 0]
        size, step = next(iter(coalesce(partition.values).steps), (1, E(1)))
        together = [expr(size) * bits % 32 == 0, all_of([step == E(1)])] if bits < 32 else []
        return (
            self.rule(
                f"lanes of {name}",
                rows_by_lanes(partition),
                f"thread t of the warpgroup holds row t of {name}, its lane of TMEM",
            ),
            self.rule(
                f"cells of {name}",
                all_of([all_of([bits in (16, 32)]), *whole, *together]),
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
