"""What lanes and warps do together: shuffles, reductions of a warp, and barriers.

operands   shfl.sync, redux.sync: one register per lane; bar.sync: none
legality   32-bit values between lanes of one warp; barrier ids and whole warps
meaning    lane l gets the value of lane l ^ mask, of the lane that it names, or of one below it, or what all have
           together; what was written before the barrier is read after it
cost       one request per warp; a wait for the slowest warp
lowering   reductions and relayouts write shuffles; lowering places barriers where a buffer is handed over
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.language.instruction import (
    Elementwise,
    Instruction,
    LaneCombine,
    LaneRead,
    LaneShift,
    Scope,
    Shuffle,
    Unit,
)


@dataclass(frozen=True, eq=False)
class ShflBfly(Shuffle):
    """shfl.sync.bfly.b32: every lane gets the value of the lane whose number differs in the bits of a mask."""

    opcode: ClassVar[str] = "shfl.sync.bfly.b32"
    source: ClassVar[str] = "PTX ISA, shfl.sync"

    @property
    def label(self) -> str:
        return "shfl.sync"

    def statement(self, result: str, value: str, mask: int) -> str:
        return f"{self.opcode} {result}, {value}, {mask}, 31, -1;"


@dataclass(frozen=True, eq=False)
class ShflIdx(LaneRead):
    """shfl.sync.idx.b32: every lane gets the value of the lane that it names; by shfl.sync.bfly where a mask does."""

    opcode: ClassVar[str] = "shfl.sync.idx.b32"
    butterfly: ClassVar[str] = ShflBfly.opcode
    source: ClassVar[str] = "PTX ISA, shfl.sync"

    @property
    def label(self) -> str:
        return "shfl.sync.idx"

    def statement(self, result: str, value: str, mask: int) -> str:
        return f"{self.butterfly} {result}, {value}, {mask}, 31, -1;"

    def read(self, result: str, value: str, lane: str) -> str:
        return f"{self.opcode} {result}, {value}, {lane}, 31, -1;"


@dataclass(frozen=True, eq=False)
class ShflUp(LaneShift):
    """shfl.sync.up.b32: every lane gets the value of a lane below it; by the other modes what masks and names say."""

    opcode: ClassVar[str] = "shfl.sync.up.b32"
    butterfly: ClassVar[str] = ShflBfly.opcode
    named: ClassVar[str] = ShflIdx.opcode
    source: ClassVar[str] = "PTX ISA, shfl.sync"

    @property
    def label(self) -> str:
        return "shfl.sync.up"

    def statement(self, result: str, value: str, mask: int) -> str:
        return f"{self.butterfly} {result}, {value}, {mask}, 31, -1;"

    def read(self, result: str, value: str, lane: str) -> str:
        return f"{self.named} {result}, {value}, {lane}, 31, -1;"

    def up(self, result: str, value: str, distance: int) -> str:
        return f"{self.opcode} {result}, {value}, {distance}, 0, -1;"


@dataclass(frozen=True, eq=False)
class Redux(LaneCombine):
    """redux.sync: every lane gets the sum, the least, the largest, or the bits together, of all 32 lanes."""

    unit: ClassVar[Unit] = "alu"
    target: ClassVar[int] = 80
    isa: ClassVar[tuple[int, int]] = (7, 0)
    source: ClassVar[str] = "PTX ISA, redux.sync"
    # What combines two values, and all of a warp.
    operations: ClassVar[dict[str, str]] = {
        **{f"{name}.{kind}": f"redux.sync.{name}.{kind}" for name in ("add", "min", "max") for kind in ("s32", "u32")},
        **{f"{name}.b32": f"redux.sync.{name}.b32" for name in ("and", "or", "xor")},
    }

    @property
    def label(self) -> str:
        return "redux.sync"

    def form(self, combine: Elementwise) -> str:
        opcode = self.operations.get(combine.text().split(" ")[0])
        return f"{opcode} {{d}}, {{a}}, -1;" if opcode is not None else ""


@dataclass(frozen=True, eq=False)
class BarSync(Instruction):
    """bar.sync: all warps of a CTA meet. Lowering derives where; a machine never writes it."""

    scope: ClassVar[Scope] = "cta"
    opcode: ClassVar[str] = "bar.sync"
    source: ClassVar[str] = "PTX ISA, bar.sync"
    # PTX ISA, barrier: sixteen barriers per CTA; a count of threads is a multiple of the warp's size.
    ids: ClassVar[int] = 16
    granule_threads: ClassVar[int] = 32

    @property
    def label(self) -> str:
        return "bar.sync"

    @classmethod
    def exists(cls, barrier: int, threads: int) -> bool:
        """Whether a barrier with this id, for this many threads (0: all), can be written."""
        return 0 <= barrier < cls.ids and threads % cls.granule_threads == 0
