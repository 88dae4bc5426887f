"""BulkTransfer: whole tiles, which one thread issues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, all_of, expr
from tinygpu.language.instruction.base import Instruction, Unit
from tinygpu.language.memories import GMEM, SMEM, Memory
from tinygpu.language.tile import Tile

# Rows that a BulkTransfer moves one by one: a statement each.
MOST_ROWS = 256


@dataclass(frozen=True, eq=False)
class BulkTransfer(Instruction):
    """Moves a whole tile between two memories at once: one thread issues it, an engine carries it out (TMA).

    From GMEM it completes on an mbarrier, to GMEM in a bulk group. What it moves in GMEM are boxes that a tensor map
    describes, of rows as wide as the buffer's swizzle (`statement`); or rows of the tile, one by one, which lie within
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
        return "" if self.by_rows else self._owes(BulkTransfer, "statement", "legality")

    def meaning(self, values: Any) -> Any:
        """What arrives of a tile: its values as they are."""
        return values

    def legality(self, source: Tile, target: Tile) -> tuple[Constraint, ...]:
        """Constraints from moving `source` to `target`."""
        if not self.by_rows:
            raise NotImplementedError
        window, side = (source, target) if source.tensor is not None else (target, source)
        tensor, buffer, axis = window.tensor, side.buffer, window.contiguous
        if tensor is None or buffer is None or axis is None:
            raise ValueError(f"{self.label} moves rows between a tensor in GMEM and a buffer in SMEM")
        if axis != buffer.contiguous:
            raise ValueError(f"{buffer.name} has rows along another axis than {tensor.name}: {self.label} moves rows")
        if buffer.swizzle_bytes is not None or buffer.layout:
            raise ValueError(f"{self.label} leaves rows as they are: {buffer.name} has neither swizzle= nor layout=")
        if not all(o.same(0) for o in side.offset) or not buffer.shape[0].same(side.shape[0]):
            raise ValueError(f"{self.label} moves to or from all of {buffer.name}, not a window of it")
        row_bytes = window.shape[axis] * tensor.dtype.bits // 8
        pitches = [buffer.pitch_bytes, *([tensor.ld * tensor.dtype.bits // 8] if tensor.rank > 1 else [])]
        aligned = [of % self.align_bytes == 0 for of in (tensor.align, row_bytes, *pitches)]
        rows = expr(1)
        for along, extent in enumerate(window.shape):
            rows = rows * (1 if along == axis else extent)
        return (
            self.rule(
                f"rows of {tensor.name}",
                all_of(aligned),
                f"the pointer and the rows of {tensor.name}, and what is moved of each, are multiples of "
                f"{self.align_bytes} bytes",
            ),
            self.rule(
                f"number of rows of {tensor.name}",
                rows <= MOST_ROWS,
                f"a thread issues the moves of {MOST_ROWS} rows at most, one after another",
                "model",
            ),
        )

    def multicast_rules(self, source: Tile, target: Tile, ctas: Expr) -> tuple[Constraint, ...]:
        """What it asks where `ctas` CTAs of a cluster each bring a part of the tile to all of them."""
        return ()
