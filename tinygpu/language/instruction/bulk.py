"""BulkTransfer: whole tiles, which one thread issues."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tinygpu.constraints.constraint import Constraint, Judge
from tinygpu.expressions import Expr, all_of, expr, multiples, symbol
from tinygpu.language.buffer import Buffer
from tinygpu.language.instruction.base import Instruction, Unit
from tinygpu.language.memories import GMEM, SMEM, Memory
from tinygpu.language.tensors import Tensor
from tinygpu.language.tile import Tile

# cuTensorMapEncodeTiled: axes of a tensor; elements of a box along one axis.
MOST_AXES = 5
MOST_BOX = 256
# cuTensorMapEncodeTiled, of elements that are padded in shared memory: what pointers and strides are multiples of in
# bytes, elements of a box along a row, the width of its swizzle in bytes.
PADDED_ALIGN_BYTES, PADDED_BOX, PADDED_SWIZZLE = 32, 128, 128
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

    def aligned_to(self, buffer: Buffer) -> int:
        """Bytes that pointers and rows of a tensor are multiples of that is moved to or from a buffer."""
        return max(self.align_bytes, PADDED_ALIGN_BYTES) if buffer.padded else self.align_bytes

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
        align = self.aligned_to(buffer)
        aligned = [tensor.align % align == 0, *_whole_pitches(tensor, align)]
        rows = window.box_rows
        return (
            *self._padded_rules(buffer, window),
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

    def _padded_rules(self, buffer: Buffer, window: Tile) -> Iterator[Constraint]:
        """What it asks where elements of 4 and 6 bits get their padding, which nothing takes away again."""
        kind = f"{window.name}, whose elements have {window.dtype.bits} bits"
        if not buffer.padded:
            if window.dtype.bits not in (4, *range(8, 65, 8)):
                raise ValueError(f"{self.label} pads {kind}: give {buffer.name} padded=True, as instructions read it")
            return
        width = 0 if buffer.swizzle_bytes is None else buffer.swizzle_bytes
        if self.writes is not SMEM:
            raise ValueError(f"{self.label} does not take padding away, and {buffer.name} is padded; store another")
        yield self.rule(
            f"swizzle of {buffer.name}",
            all_of([expr(width) == PADDED_SWIZZLE]),
            f"{self.label} pads {kind}, under a swizzle of {PADDED_SWIZZLE} bytes",
            "launch",
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
        aligned = [of % self.align_bytes == 0 for of in (tensor.align, row_bytes, buffer.pitch_bytes)]
        aligned += _whole_pitches(tensor, self.align_bytes)
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

    def narrow_rules(self, tensor: Tensor, size: Expr, begins: Sequence[Expr], padded: bool) -> Iterator[Constraint]:
        """What it asks of elements narrower than a byte, which it moves as bytes, or pads.

        size    elements of a row of the tensor
        begins  steps along it of where windows begin
        """
        judge: Judge = "emulator"
        together = 8 // tensor.dtype.bits
        of, is_so = f"whole bytes, of {together} elements each", "even"
        if padded:
            together, judge = PADDED_BOX, "launch"
            of, is_so = f"whole boxes of {together} elements, which it pads", f"a multiple of {together}"
        for what, numbers, sentence, by in (
            ("rows", [size], f"rows of {tensor.name} are {of}: {size} is {is_so}", judge),
            ("windows", begins, f"windows of {tensor.name} begin at {of}", "emulator"),
        ):
            if whole := multiples(numbers, together):
                yield self.rule(f"{what} of {tensor.name}", all_of(whole), sentence, by)

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


def _whole_pitches(tensor: Tensor, align: int) -> list[Expr]:
    """That neighbours along every axis but the contiguous one are multiples of `align` bytes apart."""
    bits = tensor.dtype.bits
    pitches = [symbol(name) * bits for _, name in tensor.pitches]
    return [p % (8 * align) == 0 if bits < 8 else p // 8 % align == 0 for p in pitches]
