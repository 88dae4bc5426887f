"""tcgen05.shift: rows in tensor memory move down a lane, and tcgen05.cp.4x256b brings new ones behind them.

operands   4 rows as products read them along k, in SMEM; 128 rows in TMEM, row r in lane r
legality   its family's: whole pieces of rows, in the one slot of a pipeline
meaning    of each warp's 32 lanes, lane l has what lane l + 1 had, and the last one a row of the source
cost       the bytes from SMEM
lowering   for each piece `shift`, in the lanes of each warp, and `statement`: one thread's go in this order
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tinygpu.dtypes import DType
from tinygpu.language.instruction import RowShift
from tinygpu.ptx.isa.tcgen05_cp import CopiedRows


@dataclass(frozen=True, eq=False)
class Tcgen05Shift(CopiedRows, RowShift):
    """tcgen05.shift.cta_group::1.down with tcgen05.cp.4x256b: rows of a left operand slide by one, as a window does."""

    row_bytes: ClassVar[int] = 32
    source: ClassVar[str] = "PTX ISA, tcgen05.shift; tcgen05.cp; matrix descriptor"

    @property
    def label(self) -> str:
        return "tcgen05.shift"

    def suffix(self, *types: DType) -> Literal["", "a", "f"]:
        """sm_100f has no tcgen05.shift (assembled)."""
        return "a"

    def shift(self, address: str) -> str:
        return f"tcgen05.shift.cta_group::{self.ctas}.down {address};"

    def statement(self, address: str, descriptor: str) -> str:
        return f"tcgen05.cp.cta_group::{self.ctas}.4x256b {address}, {descriptor};"


@dataclass(frozen=True, eq=False)
class Tcgen05ShiftPair(Tcgen05Shift):
    """tcgen05.shift.cta_group::2.down: in each CTA of a pair, with rows from its shared memory.

    One thread of the first CTA issues it for both. They are neighbours along the last axis of the grid.
    """

    ctas: ClassVar[int] = 2

    @property
    def label(self) -> str:
        return "tcgen05.shift.pair"
