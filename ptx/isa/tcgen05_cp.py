"""tcgen05.cp: chunks of scales from shared memory into tensor memory, where all warps' lanes have them.

operands   chunks of 32 rows of 16 bytes in SMEM, one behind the other; four columns of TMEM for each
legality   its family's: extents of whole chunks
meaning    a copy; row r of a chunk is in the lanes r, r + 32, r + 64 and r + 96
cost       the chunks' bytes from SMEM
lowering   `Tcgen05Cp.statement`, one for each chunk; what the same thread multiplies later finds the copy complete, and
           commits by the pipeline tell others
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.language.instruction import CellCopy, Completion


@dataclass(frozen=True, eq=False)
class Tcgen05Cp(CellCopy):
    """tcgen05.cp.cta_group::1.32x128b.warpx4: each of the four warps of lanes gets the 32 rows of a chunk."""

    target: ClassVar[int] = 100
    only: ClassVar[tuple[int, ...]] = (100, 103)
    isa: ClassVar[tuple[int, int]] = (8, 6)
    completion: ClassVar[Completion] = "tcgen05 commit"
    source: ClassVar[str] = "PTX ISA, tcgen05.cp; matrix descriptor"

    @property
    def label(self) -> str:
        return "tcgen05.cp"

    def statement(self, address: str, descriptor: str) -> str:
        return f"tcgen05.cp.cta_group::{self.ctas}.32x128b.warpx4 {address}, {descriptor};"

    def descriptor(self) -> int:
        """PTX ISA, matrix descriptor: groups of eight rows are 128 bytes apart, no swizzle; bit 46 is set."""
        return 8 * 16 // 16 << 32 | 1 << 46


@dataclass(frozen=True, eq=False)
class Tcgen05CpPair(Tcgen05Cp):
    """tcgen05.cp.cta_group::2: in each CTA of a pair, from its shared memory to its tensor memory.

    One thread of the first CTA issues it for both. They are neighbours along the last axis of the grid.
    """

    ctas: ClassVar[int] = 2

    @property
    def label(self) -> str:
        return "tcgen05.cp.pair"
