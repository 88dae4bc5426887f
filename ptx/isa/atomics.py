"""Stores that combine what threads hold with what is there, whoever else does: red.

operands   32- and 64-bit values, or halves, in registers; an address in memory
legality   the types of the operation; one value per thread, or two halves (`Transfer.legality`)
meaning    `combine`: NumPy, of what is there and what comes. The order is free, nothing gets lost
cost       sectors of GMEM, wavefronts of SMEM, as of a store; where it is declared what names their places, turns of
           lanes that come to one bank of SMEM, and of warps that come to one place of L2
lowering   `statement`, below; predicated at the tensor's edges
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tinygpu.dtypes import DType
from tinygpu.expressions import Operand
from tinygpu.language.instruction import Transfer
from tinygpu.language.memories import GMEM, RMEM, SMEM, Memory

_WHOLE = ("s32", "u32")
# operation -> the types for which it exists from sm_80 on, and what it makes of what is there and what comes.
OPERATIONS: Mapping[str, tuple[tuple[str, ...], Callable[[Any, Any], Any]]] = {
    "add": (("f32", "f64", "f16", *_WHOLE), np.add),
    "min": (_WHOLE, np.minimum),
    "max": (_WHOLE, np.maximum),
    "and": (_WHOLE, np.bitwise_and),
    "or": (_WHOLE, np.bitwise_or),
    "xor": (_WHOLE, np.bitwise_xor),
}


@dataclass(frozen=True, eq=False, init=False)
class Red(Transfer):
    """What is there in memory, and what threads hold, combined; of halves, `vector` may be 2.

    op  add, min, max, and, or, xor
    """

    op: str = "add"

    reads: ClassVar[Memory] = RMEM
    source: ClassVar[str] = "PTX ISA, parallel synchronization and communication instructions: red"

    def __init__(self, op: str = "add", vector: Operand = 1) -> None:
        if op not in OPERATIONS:
            raise ValueError(f"{type(self).__name__} combines by one of {', '.join(OPERATIONS)}, not by {op!r}")
        object.__setattr__(self, "op", op)
        object.__setattr__(self, "vector", vector)
        object.__setattr__(self, "kinds", OPERATIONS[op][0])

    @property
    def label(self) -> str:
        return f"{self.opcode}.{self.op}"

    def widths(self, kind: DType) -> tuple[int, ...]:
        return {16: (2, 4), 64: (8,)}.get(kind.bits, (4,))

    def statement(self, kind: DType, piece: str, registers: Sequence[str], address: str) -> str:
        (register,) = registers
        of = f"b{kind.bits}" if self.op in ("and", "or", "xor") else kind.name
        if kind.bits == 16:
            of = f"noftz.{of}{'x2' if piece == 'b32' else ''}"
        return f"{self.opcode}.{self.op}.{of} {address}, {register};"

    def combine(self, there: Any, values: Any) -> Any:
        return OPERATIONS[self.op][1](there, values)


@dataclass(frozen=True, eq=False, init=False)
class RedGlobal(Red):
    """red.global: into GMEM, whichever CTA comes."""

    writes: ClassVar[Memory] = GMEM
    opcode: ClassVar[str] = "red.global"


@dataclass(frozen=True, eq=False, init=False)
class RedShared(Red):
    """red.shared: into a slot in SMEM, whichever thread of the role comes."""

    writes: ClassVar[Memory] = SMEM
    opcode: ClassVar[str] = "red.shared"
