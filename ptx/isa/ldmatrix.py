"""ldmatrix: 8x8 matrices of 16-bit elements from SMEM into the fragments that mma.sync takes.

operands   rows of 16 bytes in SMEM, each at an address of its own; 1, 2 or 4 registers per lane
legality   fragment, transpose, row alignment
meaning    registers hold matrices as `HELD` says, from the rows that `ADDRESSED` lanes point at (`matrix_fragments`)
cost       one wavefront per matrix where its eight rows lie in different banks (`tinygpu.cost.banks`)
lowering   `tinygpu.program.matrices.matrix_addresses` says which lane points at which row
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tinygpu.language.instruction import MatrixLoad


@dataclass(frozen=True, eq=False)
class LdMatrix(MatrixLoad):
    """ldmatrix.sync.aligned.m8n8, plain where a fragment's pairs are neighbours in SMEM, .trans where its rows are."""

    opcode: ClassVar[str] = "ldmatrix.sync.aligned.m8n8"
    source: ClassVar[str] = "PTX ISA, ldmatrix"
    holds: ClassVar[str] = (
        "gives lane l the row l / 4 and the 32 bits l % 4 of an 8x8 matrix, as the operands of mma.sync are"
    )

    @property
    def label(self) -> str:
        return "ldmatrix"

    def statement(self, registers: Sequence[str], address: str, transposed: bool) -> str:
        trans = ".trans" if transposed else ""
        return f"{self.opcode}.x{len(registers)}{trans}.shared.b16 {{{', '.join(registers)}}}, {address};"
