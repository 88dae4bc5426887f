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
from tinygpu.ptx.isa.tcgen05_ld import Shaped


@dataclass(frozen=True, eq=False)
class Tcgen05St(Shaped, CellStore):
    """tcgen05.st: each warp of a warpgroup fills what its lanes hold.

    shape  "32x32b": each thread fills the row of its lane; others as the page of fragments shows
    """

    source: ClassVar[str] = "PTX ISA, tcgen05.st; tcgen05.wait"

    @property
    def label(self) -> str:
        return self._named("tcgen05.st")

    def statement(self, address: str, registers: Sequence[str], apart: int = 0) -> str:
        held, more = ", ".join(registers), f", {apart}" if self.windows > 1 else ""
        form = f"{self.shape}.x{self.repetition(registers)}{'.unpack::16b' if self.packed else ''}"
        return f"tcgen05.st.sync.aligned.{form}.b32 {address}{more}, {{{held}}};"

    def complete(self) -> str:
        return "tcgen05.wait::st.sync.aligned;"
