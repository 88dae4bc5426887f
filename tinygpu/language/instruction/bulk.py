"""BulkTransfer: whole tiles, which one thread issues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr
from tinygpu.language.instruction.base import Instruction, Unit
from tinygpu.language.instruction.bulk_rules import box_rules, part_rules, row_rules
from tinygpu.language.memories import GMEM, SMEM, Memory
from tinygpu.language.tile import Tile


@dataclass(frozen=True, eq=False)
class BulkTransfer(Instruction):
    """Moves a whole tile between two memories at once: one thread issues it, an engine carries it out (TMA).

    From GMEM it completes on an mbarrier, to GMEM in a bulk group. What it moves in GMEM are boxes that a tensor map
    describes, of rows as wide as a span of the buffer (`statement`); or rows of the tile, one by one, which lie within
    the tensor and whole in a buffer without swizzle (`row_statement`).
    """

    reads: ClassVar[Memory]
    writes: ClassVar[Memory]
    unit: ClassVar[Unit] = "copy"
    proxy: ClassVar[Literal["generic", "async"]] = "async"
    # What pointers and rows in GMEM are multiples of (cuTensorMapEncodeTiled; PTX ISA, cp.async.bulk).
    align_bytes: ClassVar[int] = 16

    def statement(self, rank: int, shared: str, tensor: str, barrier: str = "", ctas: str = "") -> str:
        """PTX that moves one box.

        rank     axes of the tensor
        shared   address of the box in SMEM, in brackets
        tensor   address of the tensor map and coordinates, the fastest axis first, in brackets
        barrier  address of the mbarrier that counts the bytes that arrive, in brackets
        ctas     register of 16 bits with the ranks of the CTAs of the cluster that all receive it; "": this CTA alone
        """
        raise NotImplementedError

    def row_statement(self, size_bytes: int, shared: str, tensor: str, barrier: str = "") -> str:
        """PTX that moves `size_bytes` of a row; `shared` and `tensor` are where they begin, addresses in brackets."""
        raise NotImplementedError

    @property
    def by_rows(self) -> bool:
        """Whether it moves rows one by one, and no boxes."""
        return type(self).row_statement is not BulkTransfer.row_statement

    def unwritten(self) -> str:
        if unsaid := self._unsaid("reads", "writes", "completion"):
            return unsaid
        known = {(GMEM, SMEM): "mbarrier", (SMEM, GMEM): "bulk group"}
        if known.get((self.reads, self.writes)) != self.completion:
            done = f"completed by {self.completion}" if self.completion else "completed at once"
            return (
                f"moves {self.reads} to {self.writes}, {done}; a BulkTransfer moves GMEM to SMEM by mbarrier, or SMEM "
                "to GMEM by bulk group"
            )
        return "" if self.by_rows else self._owes(BulkTransfer, "statement")

    def meaning(self, values: Any) -> Any:
        """What arrives of a tile: its values as they are."""
        return values

    def legality(self, source: Tile, target: Tile) -> tuple[Constraint, ...]:
        """Constraints from moving `source` to `target`."""
        rules = row_rules if self.by_rows else box_rules
        return rules(self, self.align_bytes, source, target)

    def multicast_rules(self, source: Tile, target: Tile, ctas: Expr) -> tuple[Constraint, ...]:
        """What it asks where `ctas` CTAs of a cluster each bring a part of the tile to all of them."""
        return () if self.by_rows or self.traced_only else part_rules(self, source, target, ctas)
