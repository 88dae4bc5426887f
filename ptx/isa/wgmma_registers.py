"""wgmma with its left operand in registers: fragments that were loaded, converted or computed by the threads.

operands   a (64 x k) in the registers of 128 threads; b (k x n) in SMEM, in the layouts of TMA; c (64 x n) in registers
legality   as wgmma has for c and b; a lay in memory as it liked, because threads brought it
meaning    c += a @ b
cost       2 m n k operations of the tensor cores; 32 bytes of each column of b from SMEM
lowering   `WgmmaRegisters.text`; a fence after the threads have written a, and a wait before they write it again
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.dtypes import DType
from tinygpu.language.instruction import Fragment
from tinygpu.language.memories import RMEM, SMEM, Memory
from tinygpu.layouts.layout import Layout
from tinygpu.ptx.isa.wgmma import ACCUMULATORS, Wgmma

WORD_BITS = 32


@dataclass(frozen=True, eq=False)
class WgmmaRegisters(Wgmma):
    """wgmma.mma_async.m64nNkK with a in registers and b in SMEM; K is 32 bytes of the operands' type."""

    places: ClassVar[tuple[Memory, Memory, Memory]] = (RMEM, SMEM, RMEM)

    @property
    def label(self) -> str:
        return "wgmma.registers"

    def flags(self, a: DType, transposed: tuple[bool, bool] = (False, False)) -> str:
        """What follows the operands: signs of floating types, and of 16-bit ones whether b is contiguous along n."""
        signs = ", 1, 1" if a.is_float else ""
        return signs + (f", {int(transposed[1])}" if a.bits == 16 else "")

    def fragments(self, a: DType, b: DType) -> tuple[Fragment, Fragment, Fragment]:
        """PTX ISA, wgmma register fragment A: 16 rows per warp as in mma.sync, of two times 16 bytes along k."""
        per = WORD_BITS // a.bits  # elements in one register
        left = f"((4,8,4),({per},2,2)):(({per}@1,1@0,16@0),(1@1,8@0,{4 * per}@1))"
        return Layout.parse(left), None, ACCUMULATORS
