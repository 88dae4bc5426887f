"""tcgen05.mma with 64 rows in each CTA: by one CTA, whose sums are in half of the lanes, or by a pair of them.

operands   a (64 x k) and b (k x n) in SMEM, in the layouts of TMA; c (64 x n) in TMEM, by one CTA 16 rows to each 32
           lanes, by a pair the right half of the columns in lanes 64 to 127, below the left one
pairs      each CTA has 64 rows of a and of c, and n / 2 columns of b: the first CTA the left ones
legality   as tcgen05.mma, with columns in steps of 8 by one CTA
meaning    c += a @ b; c = a @ b where nothing was added up yet
cost       2 m n k operations of the tensor cores, by one CTA with half of the lanes idle
lowering   `Tcgen05Mma.issue`; where the sums are, `path` says, and tcgen05.ld holds them through it
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.expressions import Operand, expr
from tinygpu.layouts import E, Layout
from tinygpu.ptx.isa.tcgen05_mma import Kind, Tcgen05Mma, Tcgen05MmaPair

ROWS = 64


@dataclass(frozen=True, eq=False)
class Tcgen05Mma64(Tcgen05Mma):
    """tcgen05.mma.cta_group::1 of 64 rows with both operands in SMEM; K is 32 bytes of the operands' type.

    n  columns of one instruction
    """

    rows: ClassVar[int] = ROWS
    share: ClassVar[int] = 2

    @property
    def label(self) -> str:
        return "tcgen05.mma.m64"

    def path(self, columns: Operand) -> Layout:
        """PTX ISA, tcgen05 data path layout F: rows 16 w to 16 w + 15 in lanes 32 w to 32 w + 15."""
        return Layout.of([(16, E("lane")), (4, 32 * E("lane"))], [(expr(columns), E("column"))])

    def step(self, kind: Kind) -> int:
        """PTX ISA, table 39: 8, of integers 16."""
        return 16 if kind.name == "i8" else 8

    def also(self, kind: Kind) -> tuple[int, ...]:
        """PTX ISA, table 39: of integers 8 and 24 as well."""
        return (8, 24) if kind.name == "i8" else ()


@dataclass(frozen=True, eq=False)
class Tcgen05MmaPair64(Tcgen05MmaPair):
    """tcgen05.mma.cta_group::2 of 128 rows: two CTAs of a cluster multiply together, and each reads half of b.

    One thread of the first CTA issues it for both. They are neighbours along the last axis of the grid.

    n  columns of one instruction, half of them in each CTA's part of b
    """

    rows: ClassVar[int] = ROWS

    @property
    def label(self) -> str:
        return "tcgen05.mma.pair.m64"

    def path(self, columns: Operand) -> Layout:
        """PTX ISA, tcgen05 data path layout B: row r in lane r, its right half in lane r + 64."""
        return Layout.of([(ROWS, E("lane"))], [(expr(columns) // 2, E("column")), (2, ROWS * E("lane"))])
