"""tcgen05.mma with its left operand in tensor memory: what threads have stored there, or copies have brought.

operands   a (128 x k) in TMEM, a row in each lane, k along the columns; b (k x n) in SMEM, in the layouts of TMA; c
           (128 x n) in TMEM
legality   as tcgen05.mma has for c and b; steps along k of 8 columns
meaning    c += a @ b; c = a @ b where nothing was added up yet
cost       2 m n k operations of the tensor cores; 32 bytes of each column of b from SMEM
lowering   `Tcgen05MmaCells.issue`, with the address of a's columns
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType
from tinygpu.expressions import all_of
from tinygpu.language.memories import SMEM, TMEM, Memory
from tinygpu.language.tile import Tile
from tinygpu.ptx.isa.shared_operands import K_BYTES
from tinygpu.ptx.isa.tcgen05_mma import Kind, Tcgen05Mma, Tcgen05MmaPair


@dataclass(frozen=True, eq=False)
class Tcgen05MmaCells(Tcgen05Mma):
    """tcgen05.mma.cta_group::1 of 128 rows with a in TMEM and b in SMEM; K is 32 bytes of the operands' type.

    n  columns of one instruction
    """

    places: ClassVar[tuple[Memory, Memory, Memory]] = (TMEM, SMEM, TMEM)

    @property
    def label(self) -> str:
        return "tcgen05.mma.cells"

    def kind(self, a: DType, b: DType) -> Kind:
        if a.bits < 8:  # where in a cell's bytes their bits lie, no source says that was tried
            raise TypeError(f"{self.label} takes operand a of 8 bits or more in TMEM, and {a} has {a.bits}")
        return super().kind(a, b)

    def operand_rules(self, a: Tile, b: Tile) -> tuple[Constraint, ...]:
        """Of a the step along its columns; of b what is asked of what lies in SMEM."""
        if b.buffer is not None:
            self._check_padding(b, b.buffer, b.dtype.bits < 8)
        step = a.dtype.bits * a.shape[1] // 8
        sentence = f"each instruction multiplies {K_BYTES} bytes along k of operand a"
        return (self.rule("step of a", all_of([step == K_BYTES]), sentence), *self.rules_of("b", b, 0))


@dataclass(frozen=True, eq=False)
class Tcgen05MmaCellsPair(Tcgen05MmaCells, Tcgen05MmaPair):
    """tcgen05.mma.cta_group::2 of 256 rows with a in TMEM: each CTA has 128 rows of a, and reads half of b in SMEM.

    One thread of the first CTA issues it for both. They are neighbours along the last axis of the grid.

    n  columns of one instruction, half of them in each CTA's part of b
    """

    @property
    def label(self) -> str:
        return "tcgen05.mma.cells.pair"
