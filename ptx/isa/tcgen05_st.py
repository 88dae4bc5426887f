"""tcgen05.st: registers to columns of tensor memory, each warp to its own quarter of the lanes.

operands   registers of a warpgroup, row t in thread t; a tile in TMEM whose elements fill cells, one or two to each
legality   who holds what: a warp reaches the lanes from 32 (w mod 4) on
meaning    a copy
cost       128 lanes x 4 bytes of each column
lowering   `Tcgen05St.statement`, in the fewest instructions, and one wait for all; fences and arrivals by the pipeline
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tinygpu.language.instruction import CellStore


@dataclass(frozen=True, eq=False)
class Tcgen05St(CellStore):
    """tcgen05.st.32x32b: each thread of a warpgroup fills the row of its lane."""

    target: ClassVar[int] = 100
    only: ClassVar[tuple[int, ...]] = (100, 103)
    isa: ClassVar[tuple[int, int]] = (8, 6)
    counts: ClassVar[tuple[int, ...]] = (1, 2, 4, 8, 16, 32, 64, 128)
    source: ClassVar[str] = "PTX ISA, tcgen05.st; tcgen05.wait"

    @property
    def label(self) -> str:
        return "tcgen05.st"

    def statement(self, address: str, registers: Sequence[str]) -> str:
        held = ", ".join(registers)
        return f"tcgen05.st.sync.aligned.32x32b.x{len(registers)}.b32 {address}, {{{held}}};"

    def complete(self) -> str:
        return "tcgen05.wait::st.sync.aligned;"
