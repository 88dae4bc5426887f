"""cp.async: GMEM to SMEM without registers, completed by commit groups."""

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
    source: ClassVar[str] = "PTX ISA, cp.async"

    @staticmethod
    def cache(width_bytes: int) -> str:
        """The cache operator for one width."""
        return "cg" if width_bytes == 16 else "ca"
