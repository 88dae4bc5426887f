"""stmatrix: fragments as mma.sync and wgmma leave them become 8x8 matrices of 16-bit elements in SMEM.

operands   1, 2 or 4 registers per lane; rows of 16 bytes in SMEM, each at an address of its own
legality   fragment, transpose, row alignment
meaning    the inverse of ldmatrix, in the same layouts: `HELD` and `ADDRESSED` (`matrix_fragments`)
cost       one wavefront per matrix where its eight rows lie in different banks (`tinygpu.cost.banks`)
lowering   `tinygpu.program.matrices.matrix_addresses` says which lane points at which row
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tinygpu.language.instruction import MatrixStore


@dataclass(frozen=True, eq=False)
class StMatrix(MatrixStore):
    """stmatrix.sync.aligned.m8n8, plain where a fragment's pairs are neighbours in SMEM, .trans where its rows are."""

    target: ClassVar[int] = 90
    isa: ClassVar[tuple[int, int]] = (7, 8)
    source: ClassVar[str] = "PTX ISA, stmatrix"
    holds: ClassVar[str] = (
        "takes the row l / 4 and the 32 bits l % 4 of an 8x8 matrix from lane l, as the 16-bit results of mma.sync and "
        "wgmma are held"
    )

    @property
    def label(self) -> str:
        return "stmatrix"

    def text(self, count: int, transposed: bool) -> str:
        """The opcode for `count` matrices."""
        return f"stmatrix.sync.aligned.m8n8.x{count}{'.trans' if transposed else ''}.shared.b16"

    def statement(self, registers: Sequence[str], address: str, transposed: bool) -> str:
        return f"{self.text(len(registers), transposed)} {address}, {{{', '.join(registers)}}};"
