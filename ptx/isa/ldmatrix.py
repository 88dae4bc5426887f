"""ldmatrix: 8x8 matrices of 16-bit elements from SMEM into the fragments that mma.sync takes.

operands   rows of 16 bytes in SMEM, each at an address of its own; 1, 2 or 4 registers per lane
legality   fragment, transpose, row alignment
meaning    `row_of` and `held_by`, below
cost       one wavefront per matrix where its eight rows lie in different banks (`tinygpu.cost.banks`)
lowering   `tinygpu.program.matrices.matrix_addresses` says which lane points at which row
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tinygpu.language.instruction import MatrixLoad

# PTX ISA, ldmatrix: a matrix is eight rows of 16 bytes; .x1, .x2 and .x4 load 1, 2 and 4 of them.
MATRIX_ROWS = 8


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


def row_of(lane: int) -> tuple[int, int]:
    """(matrix, row) that a lane's address points at."""
    return lane // MATRIX_ROWS, lane % MATRIX_ROWS


def held_by(lane: int, element: int, transposed: bool) -> tuple[int, int]:
    """(row, column) in SMEM, in 16-bit elements, of an element (0 low, 1 high) of a lane's register.

    PTX ISA, ldmatrix: lane l holds columns 2 (l mod 4) and the next of row l / 4; .trans exchanges rows and columns.
    """
    row, column = lane // 4, 2 * (lane % 4) + element
    return (column, row) if transposed else (row, column)
