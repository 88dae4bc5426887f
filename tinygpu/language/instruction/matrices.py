"""MatrixLoad and MatrixStore: 8x8 matrices between memory and the registers of a warp."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.language.instruction.base import Instruction, Scope, Unit, or_of
from tinygpu.language.matrix_fragments import MATRIX_ROW_BYTES, WORD_BITS, is_fragment, runs_across
from tinygpu.language.memories import RMEM, SMEM, Memory
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile


@dataclass(frozen=True, eq=False)
class MatrixMove(Instruction):
    """What MatrixLoad and MatrixStore share: 8x8 matrices of 16-bit elements in SMEM, by the lanes of a warp.

    Each matrix is eight rows of 16 bytes. Lanes 8 i to 8 i + 7 give the addresses of the rows of matrix i. Lane l holds
    the row l / 4 and the 32 bits l % 4 of each in one register; where the move is transposed, rows and columns of
    16-bit elements change places. `matrix_fragments` writes this as layouts, HELD and ADDRESSED.
    """

    reads: ClassVar[Memory]
    writes: ClassVar[Memory]
    scope: ClassVar[Scope] = "warp"
    unit: ClassVar[Unit] = "lsu"
    # Matrices that one instruction can move.
    counts: ClassVar[tuple[int, ...]] = (1, 2, 4)
    # What the lanes have to do with a matrix, as what follows the label.
    holds: ClassVar[str] = "moves the row l / 4 and the 32 bits l % 4 of an 8x8 matrix to or from lane l"

    def transposes(self, tile: Tile, partition: Partition) -> bool:
        """Whether the fragment's register pairs run across the contiguous axis of the buffer."""
        return runs_across(partition, tile.contiguous)

    def meaning(self, values: Any) -> Any:
        """The tile that the fragments hold together: its values as they are in memory."""
        return values

    def statement(self, registers: Sequence[str], address: str, transposed: bool) -> str:
        """PTX that moves as many matrices as there are registers; `address`, in brackets, is the lane's row."""
        raise NotImplementedError

    def legality(self, memory_side: Tile, partition: Partition) -> tuple[Constraint, ...]:
        """Constraints from moving `memory_side` (an SMEM tile) under `partition`."""
        buffer, bits = memory_side.buffer, memory_side.dtype.bits
        if buffer is None:
            raise ValueError(f"{self.label} moves matrices of a buffer in SMEM, and {memory_side.name} is none")
        return (
            self.rule(
                f"fragment of {memory_side.name}",
                bits <= WORD_BITS and is_fragment(partition, WORD_BITS // bits),
                f"{self.label} {self.holds}",
            ),
            self.rule(
                f"transpose of {memory_side.name}",
                bits == 16 or not self.transposes(memory_side, partition),
                f"elements of {memory_side.name} that are not 16 bits wide lie along its rows, because "
                f"{self.label}.trans exchanges 16-bit ones (here they are {memory_side.dtype})",
            ),
            self.rule(
                f"row alignment of {memory_side.name}",
                buffer.pitch_bytes % MATRIX_ROW_BYTES == 0,
                f"rows of {memory_side.name} are whole {MATRIX_ROW_BYTES}-byte pieces",
            ),
        )

    def unwritten(self) -> str:
        if SMEM not in (self.reads, self.writes):
            return f"moves {self.reads} to {self.writes}, and matrices are moved between SMEM and registers"
        if self.counts[0] != 1:
            return f"moves {or_of(self.counts)} matrices, and not a single one"
        tried = [(["%r0"] * count, "[%r1]", across) for count in self.counts for across in (False, True)]
        silent = (self._silent("statement", *arguments) for arguments in tried)
        return self._owes(MatrixMove, "statement") or next(filter(None, silent), "")


@dataclass(frozen=True, eq=False)
class MatrixLoad(MatrixMove):
    """Moves matrices into fragments: 8x8 ones of 16-bit elements from SMEM to a warp, rows of TMEM to a warpgroup."""

    reads: ClassVar[Memory] = SMEM
    writes: ClassVar[Memory] = RMEM


@dataclass(frozen=True, eq=False)
class MatrixStore(MatrixMove):
    """Moves the fragments of a warp into memory as 8x8 matrices."""

    reads: ClassVar[Memory] = RMEM
    writes: ClassVar[Memory] = SMEM
