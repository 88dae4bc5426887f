"""tcgen05.cp: from shared memory into tensor memory, chunks of scales or rows.

operands   chunks of 32 rows of 16 bytes in SMEM, one behind the other, and four columns of TMEM for each; or rows as
           products read them along k, and their bytes along the columns of TMEM
legality   its family's: extents of whole chunks, or of whole pieces of rows
meaning    a copy; row r of a chunk is in the lanes r, r + 32, r + 64 and r + 96, row r of 128 in lane r, and of fewer
           rows in the lanes that the shape's path says
cost       the bytes from SMEM
lowering   `statement`, one for each chunk or piece; what the same thread multiplies later finds the copy complete, and
           commits by the pipeline tell others
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.expressions import Operand, expr
from tinygpu.language.instruction import CHUNK_BYTES, CellCopy, ChunkCopy, Completion, RowCopy
from tinygpu.language.instruction.base import or_of
from tinygpu.layouts import E, Layout
from tinygpu.ptx.isa.tcgen05_mma import Tcgen05Mma

# PTX ISA, matrix descriptor: groups of eight rows of 16 bytes are 128 bytes apart, no swizzle; bit 46 is set.
PLAIN_ROWS = 8 * CHUNK_BYTES // 16 << 32 | 1 << 46


@dataclass(frozen=True, eq=False)
class Copied(CellCopy):
    """What all forms of tcgen05.cp have in common: the GPUs that have it, and that a commit completes it."""

    target: ClassVar[int] = 100
    only: ClassVar[tuple[int, ...]] = (100, 103)
    isa: ClassVar[tuple[int, int]] = (8, 6)
    completion: ClassVar[Completion] = "tcgen05 commit"
    source: ClassVar[str] = "PTX ISA, tcgen05.cp; matrix descriptor"


@dataclass(frozen=True, eq=False)
class CopiedRows(Copied, RowCopy):
    """The forms that copy rows, which lie in shared memory as products read them along k."""

    def descriptor(self, swizzle_bytes: int, apart_bytes: int, across: bool) -> int:
        """That of a left operand that is contiguous along k; or of rows of 16 bytes, of which none are exchanged."""
        if swizzle_bytes == CHUNK_BYTES:
            return PLAIN_ROWS
        return Tcgen05Mma().descriptor(swizzle_bytes, apart_bytes, across)


@dataclass(frozen=True, eq=False)
class Tcgen05Cp(Copied, ChunkCopy):
    """tcgen05.cp.cta_group::1.32x128b.warpx4: each of the four warps of lanes gets the 32 rows of a chunk."""

    @property
    def label(self) -> str:
        return "tcgen05.cp"

    def statement(self, address: str, descriptor: str) -> str:
        return f"tcgen05.cp.cta_group::{self.ctas}.32x128b.warpx4 {address}, {descriptor};"

    def descriptor(self) -> int:
        return PLAIN_ROWS


@dataclass(frozen=True, eq=False)
class Tcgen05CpPair(Tcgen05Cp):
    """tcgen05.cp.cta_group::2: in each CTA of a pair, from its shared memory to its tensor memory.

    One thread of the first CTA issues it for both. They are neighbours along the last axis of the grid.
    """

    ctas: ClassVar[int] = 2

    @property
    def label(self) -> str:
        return "tcgen05.cp.pair"


@dataclass(frozen=True, slots=True)
class RowShape:
    """One shape that copies rows.

    name       as PTX writes it
    row_bytes  of each row
    lanes      (row, copy) -> lane
    """

    name: str
    row_bytes: int
    lanes: Layout


# PTX ISA, tcgen05.cp; where rows go: CUTLASS, and TVM, whose authors state tests on hardware.
SHAPES = (
    RowShape("128x256b", 32, Layout.parse("(128,1):(1@lane,0)")),
    RowShape("128x128b", 16, Layout.parse("(128,1):(1@lane,0)")),
    RowShape("64x128b.warpx2::02_13", 16, Layout.parse("(64,2):(1@lane,64@lane)")),
    RowShape("64x128b.warpx2::01_23", 16, Layout.parse("((32,2),2):((1@lane,64@lane),32@lane)")),
    RowShape("32x128b.warpx4", 16, Layout.parse("(32,4):(1@lane,32@lane)")),
)


@dataclass(frozen=True, eq=False)
class Tcgen05CpRows(CopiedRows):
    """tcgen05.cp.cta_group::1 of rows.

    shape  "128x256b" and "128x128b": 32 or 16 bytes of each of 128 rows, row r to lane r. 16 bytes of fewer rows, each
           to several lanes: "64x128b.warpx2::02_13" row r to lanes r and r + 64, as sums of 64 rows lie that fill all
           lanes; "64x128b.warpx2::01_23" rows 0 to 31 to the lanes of warps 0 and 1, the others to those of warps 2
           and 3; "32x128b.warpx4" to the lanes of every warp
    """

    shape: str = "128x256b"

    def __post_init__(self) -> None:
        known = [s.name for s in SHAPES]
        if self.shape not in known:
            raise ValueError(f"tcgen05.cp of rows has the shapes {or_of(known)}, not {self.shape!r}")

    @property
    def _of(self) -> RowShape:
        return next(s for s in SHAPES if s.name == self.shape)

    @property
    def label(self) -> str:
        return "tcgen05.cp.rows" + (f".{self.shape}" if self.shape != "128x256b" else "")

    @property
    def rows(self) -> int:  # type: ignore[override]
        return self._of.lanes[0].size

    @property
    def row_bytes(self) -> int:  # type: ignore[override]
        return self._of.row_bytes

    def path(self, columns: Operand) -> Layout:
        rows, copies = self._of.lanes.modes
        again = [copies.steps] if copies.size > 1 else []
        return Layout.of(rows.steps, [(expr(columns), E("column"))], *again)

    def statement(self, address: str, descriptor: str) -> str:
        return f"tcgen05.cp.cta_group::{self.ctas}.{self.shape} {address}, {descriptor};"


@dataclass(frozen=True, eq=False)
class Tcgen05CpRowsPair(Tcgen05CpRows):
    """tcgen05.cp.cta_group::2 of rows: in each CTA of a pair, from its shared memory to its tensor memory.

    One thread of the first CTA issues it for both. They are neighbours along the last axis of the grid.
    """

    ctas: ClassVar[int] = 2

    @property
    def label(self) -> str:
        return super().label.replace("tcgen05.cp.rows", "tcgen05.cp.rows.pair")
