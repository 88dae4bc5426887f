"""cp.async: GMEM to SMEM without registers, completed by commit groups.

operands   an address in SMEM, one in GMEM; 4, 8 or 16 bytes, of which the last may be left out and become zero
legality   width, alignment, neighbours (`Transfer.legality`)
meaning    a copy that happens between its issue and the end of a wait for its group
cost       sectors of GMEM, wavefronts of SMEM (`tinygpu.cost`)
lowering   `CpAsync.cache` and the width; at the tensor's edges the number of bytes that exist
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.language.instruction import Completion, Transfer, Unit
from tinygpu.language.memories import GMEM, SMEM, Memory


@dataclass(frozen=True, eq=False)
class CpAsync(Transfer):
    """cp.async: `vector` neighbouring elements per thread; bytes beyond the tensor's edge become zero.

    16-byte copies bypass L1 (.cg), 4- and 8-byte copies do not (.ca): the assembler takes .cg for 16 bytes only.
    """

    reads: ClassVar[Memory] = GMEM
    writes: ClassVar[Memory] = SMEM
    opcode: ClassVar[str] = "cp.async"
    unit: ClassVar[Unit] = "copy"
    completion: ClassVar[Completion] = "commit group"
    # PTX ISA, cp.async: cp-size is 4, 8 or 16; .cg takes 16 only.
    widths_bytes: ClassVar[tuple[int, ...]] = (4, 8, 16)
    past_l1_bytes: ClassVar[int] = 16
    source: ClassVar[str] = "PTX ISA, cp.async"

    @staticmethod
    def cache(width_bytes: int) -> str:
        """The cache operator for one width."""
        return "cg" if width_bytes == 16 else "ca"

    def copy(self, width_bytes: int, target: str, source: str, existing: str = "") -> str:
        count = f", {existing}" if existing else ""
        return f"{self.opcode}.{self.cache(width_bytes)}.shared.global {target}, {source}, {width_bytes}{count};"
