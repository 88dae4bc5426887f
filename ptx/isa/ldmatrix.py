"""ldmatrix: 8x8 matrices of 16-bit elements from SMEM into the fragments that mma.sync takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.language.instruction import MatrixLoad
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile

# PTX ISA, ldmatrix: a matrix is eight rows of 16 bytes; .x1, .x2 and .x4 load 1, 2 and 4 of them.
ROW_BYTES = 16
ROWS = 8


@dataclass(frozen=True, eq=False)
class LdMatrix(MatrixLoad):
    """ldmatrix.sync.aligned.m8n8, plain where the fragment's pairs are neighbours in SMEM, .trans where its rows are."""

    opcode: ClassVar[str] = "ldmatrix.sync.aligned.m8n8"
    source: ClassVar[str] = "PTX ISA, ldmatrix"

    @property
    def label(self) -> str:
        return "ldmatrix"

    def transposes(self, tile: Tile, partition: Partition) -> bool:
        """Whether the fragment's register pairs run across the contiguous axis of the buffer."""
        return partition.threads[0].axis != tile.contiguous

    def legality(self, memory_side: Tile, partition: Partition) -> tuple[Constraint, ...]:
        buffer = memory_side.buffer
        if buffer is None:
            raise ValueError("ldmatrix reads a shared-memory buffer")
        bits = memory_side.dtype.bits
        per_register = 32 // bits
        lanes = partition.threads
        fits = (
            len(lanes) >= 2
            and lanes[0].extent.same(4)
            and lanes[1].extent.same(8)
            and lanes[0].stride.same(per_register)
            and lanes[1].stride.same(1)
        )
        return (
            self.rule(
                f"fragment of {memory_side.name}",
                bool(fits),
                "ldmatrix gives lane l the row l / 4 and the 32 bits l % 4 of an 8x8 matrix, as the operands of mma.sync are",
            ),
            self.rule(
                f"transpose of {memory_side.name}",
                bits == 16 or not self.transposes(memory_side, partition),
                f"ldmatrix.trans exchanges 16-bit elements, and {memory_side.name} holds {memory_side.dtype} across its rows",
            ),
            self.rule(
                f"row alignment of {memory_side.name}",
                buffer.pitch_bytes % ROW_BYTES == 0,
                f"rows of {memory_side.name} are whole 16-byte pieces",
            ),
        )
