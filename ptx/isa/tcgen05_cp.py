"""tcgen05.cp: from shared memory into tensor memory, chunks of scales or rows.

operands   chunks of 32 rows of 16 bytes in SMEM, one behind the other, and four columns of TMEM for each; or 128 rows
           as products read them along k, and their bytes along the columns of TMEM
legality   its family's: extents of whole chunks, or of whole pieces of rows
meaning    a copy; row r of a chunk is in the lanes r, r + 32, r + 64 and r + 96, row r of 128 in lane r
cost       the bytes from SMEM
lowering   `statement`, one for each chunk or piece; what the same thread multiplies later finds the copy complete, and
           commits by the pipeline tell others
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.language.instruction import CellCopy, ChunkCopy, Completion, RowCopy
from tinygpu.ptx.isa.tcgen05_mma import Tcgen05Mma


@dataclass(frozen=True, eq=False)
class Copied(CellCopy):
    """What all forms of tcgen05.cp have in common: the GPUs that have it, and that a commit completes it."""

    target: ClassVar[int] = 100
    only: ClassVar[tuple[int, ...]] = (100, 103)
    isa: ClassVar[tuple[int, int]] = (8, 6)
    completion: ClassVar[Completion] = "tcgen05 commit"
    source: ClassVar[str] = "PTX ISA, tcgen05.cp; matrix descriptor"


@dataclass(frozen=True, eq=False)
class Tcgen05Cp(Copied, ChunkCopy):
    """tcgen05.cp.cta_group::1.32x128b.warpx4: each of the four warps of lanes gets the 32 rows of a chunk."""

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


@dataclass(frozen=True, eq=False)
class Tcgen05CpRows(Copied, RowCopy):
    """tcgen05.cp.cta_group::1.128x256b: 32 bytes of each of 128 rows go to eight columns, row r to lane r."""

    @property
    def label(self) -> str:
        return "tcgen05.cp.rows"

    def statement(self, address: str, descriptor: str) -> str:
        return f"tcgen05.cp.cta_group::{self.ctas}.128x256b {address}, {descriptor};"

    def descriptor(self, swizzle_bytes: int, apart_bytes: int, across: bool) -> int:
        """That of a left operand that is contiguous along k."""
        return Tcgen05Mma().descriptor(swizzle_bytes, apart_bytes, across)
