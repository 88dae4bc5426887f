"""BulkTransfer: whole tiles, which one thread issues."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, all_of, expr, symbol
from tinygpu.language.instruction.base import Instruction, Unit
from tinygpu.language.memories import GMEM, SMEM, Memory
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile

# cuTensorMapEncodeTiled: axes of a tensor; elements of a box along one axis.
MOST_AXES = 5
MOST_BOX = 256
# CUDA programming guide, tensor copies: alignment of a box in shared memory.
BOX_ALIGN_BYTES = 128
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

    def statement(
        self, rank: int, shared: str, tensor: str, barrier: str = "", ctas: str = "", pair: bool = False
    ) -> str:
        """PTX that moves one box.

        rank     axes of the tensor
        shared   address of the box in SMEM, in brackets
        tensor   address of the tensor map and coordinates, the fastest axis first, in brackets
        barrier  address of the mbarrier that counts the bytes that arrive, in brackets
        ctas     register of 16 bits with the ranks of the CTAs of the cluster that all receive it; "": this CTA alone
        pair     whether the bytes are counted by the first CTA of a pair, for both: there is the mbarrier
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
        """Constraints from moving `source` to `target`; what a class of one's own states is asked for besides."""
        window, side = (source, target) if source.tensor is not None else (target, source)
        merged = [part for group in window.groups for part in group]
        if not (window.plain or (window.finest.plain and merged == sorted(merged) and not self.by_rows)):
            what = "rows" if self.by_rows else "boxes"
            raise ValueError(f"{self.label} moves {what}, and {window} is none: copy it thread by thread")
        return self._row_rules(window, side) if self.by_rows else self._box_rules(window, side)

    def _box_rules(self, window: Tile, side: Tile) -> tuple[Constraint, ...]:
        tensor, buffer = window.tensor, side.buffer
        if tensor is None or buffer is None:
            raise ValueError("a tensor map describes a window of a tensor in GMEM, moved to or from a buffer")
        name = tensor.name
        if buffer.swizzle_bytes is None:
            raise ValueError(f"{buffer.name} is moved by TMA: give the width of its swizzle, swizzle=32, 64 or 128")
        alone = window.contiguous is not None and len((window.groups or [()] * 8)[window.contiguous]) < 2
        if window.contiguous != buffer.contiguous or not alone:
            raise ValueError(
                f"{buffer.name} has its rows along axis {buffer.contiguous}, and {name} is contiguous along axis "
                f"{window.contiguous}: TMA does not transpose"
            )
        self._whole_buffer(side)
        align = self.align_bytes
        aligned = [of % align == 0 for of in (tensor.align, *_pitches_bytes(tensor))]
        rows = window.box_rows
        return (
            self.rule(
                f"axes of {name}",
                1 <= tensor.rank <= MOST_AXES,
                f"a tensor map describes 1 to {MOST_AXES} axes (here {tensor.rank})",
                "assembler",
            ),
            self.rule(
                f"strides of {name}",
                all_of(aligned),
                f"the pointer and the rows of {name} are multiples of {align} bytes",
                "launch",
            ),
            self.rule(
                f"box of {name}",
                all_of([e <= MOST_BOX for e in rows]),
                f"a box of {name} has at most {MOST_BOX} rows along each axis",
                "launch",
            ),
        )

    def _whole_buffer(self, side: Tile) -> None:
        buffer = side.buffer
        whole = buffer is not None and all(map(Expr.same, buffer.shape, side.shape))
        if buffer is not None and not (whole and all(o.same(0) for o in side.offset)):
            raise ValueError(f"{self.label} moves to or from all of {buffer.name}, not a window of it")

    def _row_rules(self, window: Tile, side: Tile) -> tuple[Constraint, ...]:
        tensor, buffer, axis = window.tensor, side.buffer, window.contiguous
        if tensor is None or buffer is None or axis is None:
            raise ValueError(f"{self.label} moves rows between a tensor in GMEM and a buffer in SMEM")
        if axis != buffer.contiguous:
            raise ValueError(f"{buffer.name} has rows along another axis than {tensor.name}: {self.label} moves rows")
        if buffer.swizzle_bytes is not None or buffer.layout:
            raise ValueError(f"{self.label} leaves rows as they are: {buffer.name} has neither swizzle= nor layout=")
        self._whole_buffer(side)
        row_bytes = window.shape[axis] * tensor.dtype.bits // 8
        pitches = [buffer.pitch_bytes, *_pitches_bytes(tensor)]
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
        """What it asks where `ctas` CTAs of a cluster each bring a part of the tile to all of them.

        Each brings as many rows as the others, to a place where a box may begin. The swizzle follows the address, not
        the box: a part lands as if the whole tile had been brought at once.
        """
        buffer = target.buffer
        if buffer is None or buffer.swizzle_bytes is None:
            raise ValueError(f"{target.name} is moved by TMA: give the width of its swizzle, swizzle=32, 64 or 128")
        if sum(not extent.same(1) for extent in source.box_rows) > 1:
            raise ValueError(f"CTAs of a cluster share out rows along one axis, and {source} has rows along several")
        rows = buffer.rows
        rule = self.rule(
            f"parts of {source.name}",
            all_of([rows % ctas == 0, rows // ctas * buffer.swizzle_bytes % BOX_ALIGN_BYTES == 0]),
            f"each CTA of the cluster brings the same number of rows of {source.name}, "
            f"a multiple of {BOX_ALIGN_BYTES} bytes",
            "emulator",
        )
        return (rule,)


def _pitches_bytes(tensor: Tensor) -> list[Expr]:
    """Bytes between neighbours along every axis but the contiguous one."""
    return [symbol(name) * tensor.dtype.bits // 8 for _, name in tensor.pitches]
