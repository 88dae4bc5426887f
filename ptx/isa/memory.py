"""Loads and stores of global and shared memory, thread by thread: ld and st.

operands   an address in GMEM or SMEM; 1, 2, 4, 8 or 16 bytes in registers
legality   width, alignment, neighbours (`Transfer.legality`)
meaning    element i of the vector is the element i steps from the address
cost       sectors of GMEM, wavefronts of SMEM (`tinygpu.cost`)
lowering   `spelling`, below; predicated at the tensor's edges
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.language.instruction import Transfer
from tinygpu.language.memories import GMEM, RMEM, SMEM, Memory

_ISA = "PTX ISA, data movement instructions: ld, st"


@dataclass(frozen=True, eq=False)
class LdGlobal(Transfer):
    """ld.global: GMEM to registers, `vector` neighbouring elements per thread."""

    reads: ClassVar[Memory] = GMEM
    writes: ClassVar[Memory] = RMEM
    opcode: ClassVar[str] = "ld.global"
    source: ClassVar[str] = _ISA


@dataclass(frozen=True, eq=False)
class LdGlobalReadOnly(LdGlobal):
    """ld.global.nc: through the read-only path; nothing may write the tensor while the kernel runs."""

    opcode: ClassVar[str] = "ld.global.nc"
    read_only: ClassVar[bool] = True


@dataclass(frozen=True, eq=False)
class StGlobal(Transfer):
    """st.global: registers to GMEM."""

    reads: ClassVar[Memory] = RMEM
    writes: ClassVar[Memory] = GMEM
    opcode: ClassVar[str] = "st.global"
    source: ClassVar[str] = _ISA


@dataclass(frozen=True, eq=False)
class LdShared(Transfer):
    """ld.shared: SMEM to registers."""

    reads: ClassVar[Memory] = SMEM
    writes: ClassVar[Memory] = RMEM
    opcode: ClassVar[str] = "ld.shared"
    source: ClassVar[str] = _ISA


@dataclass(frozen=True, eq=False)
class StShared(Transfer):
    """st.shared: registers to SMEM."""

    reads: ClassVar[Memory] = RMEM
    writes: ClassVar[Memory] = SMEM
    opcode: ClassVar[str] = "st.shared"
    source: ClassVar[str] = _ISA
