"""What lanes and warps do together: shuffles and barriers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.language.instruction import Instruction, Scope, Shuffle


@dataclass(frozen=True, eq=False)
class ShflBfly(Shuffle):
    """shfl.sync.bfly.b32: every lane gets the value of the lane whose number differs in the bits of a mask."""

    opcode: ClassVar[str] = "shfl.sync.bfly.b32"
    source: ClassVar[str] = "PTX ISA, shfl.sync"

    @property
    def label(self) -> str:
        return "shfl.sync"


@dataclass(frozen=True, eq=False)
class BarSync(Instruction):
    """bar.sync: all warps of a CTA meet. Lowering derives where; a machine never writes it."""

    scope: ClassVar[Scope] = "cta"
    opcode: ClassVar[str] = "bar.sync"
    source: ClassVar[str] = "PTX ISA, bar.sync"

    @property
    def label(self) -> str:
        return "bar.sync"
