"""TMA: cp.async.bulk.tensor moves boxes of a tensor between GMEM and SMEM, described by a tensor map.

operands   a window of a tensor, and a buffer whose rows are cut to the width of its swizzle
legality   strides and addresses of 16 bytes, boxes of at most 256 rows, one to five axes
meaning    a copy; elements outside the tensor are zero when loaded and left out when stored
cost       bytes of GMEM; nothing of the threads
lowering   one box per swizzle width of a row, issued by one thread; loads complete on an mbarrier, stores in groups
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, all_of
from tinygpu.language.instruction import BulkTransfer, Completion, Scope
from tinygpu.language.memories import GMEM, SMEM, Memory
from tinygpu.language.tile import Tile

# cuTensorMapEncodeTiled: axes of a tensor; elements of a box along one axis.
MOST_AXES = 5
MOST_BOX = 256
# CUDA programming guide, tensor copies: alignment of a box in shared memory.
BOX_ALIGN_BYTES = 128


@dataclass(frozen=True, eq=False)
class TmaTransfer(BulkTransfer):
    """cp.async.bulk.tensor in either direction."""

    target: ClassVar[int] = 90
    isa: ClassVar[tuple[int, int]] = (8, 0)
    scope: ClassVar[Scope] = "thread"
    opcode: ClassVar[str] = "cp.async.bulk.tensor"
    source: ClassVar[str] = "PTX ISA, cp.async.bulk.tensor; CUDA driver API, cuTensorMapEncodeTiled"

    @property
    def label(self) -> str:
        return self.opcode

    @staticmethod
    def has_axes(rank: int) -> bool:
        """Whether tensors of this rank can be described."""
        return 1 <= rank <= MOST_AXES

    def legality(self, source: Tile, target: Tile) -> tuple[Constraint, ...]:
        window, memory_side = (source, target) if source.tensor is not None else (target, source)
        tensor, buffer = window.tensor, memory_side.buffer
        if tensor is None or buffer is None:
            raise ValueError("a tensor map describes a window of a tensor in GMEM, moved to or from a buffer")
        name = tensor.name
        if buffer.swizzle_bytes is None:
            raise ValueError(f"{buffer.name} is moved by TMA: give the width of its swizzle, swizzle=32, 64 or 128")
        if window.contiguous != buffer.contiguous:
            raise ValueError(
                f"{buffer.name} has its rows along axis {buffer.contiguous}, and {name} is contiguous along axis "
                f"{window.contiguous}: TMA does not transpose"
            )
        pitch_bytes = tensor.ld * tensor.dtype.bits // 8
        align = self.align_bytes
        aligned = [tensor.align % align == 0, *([pitch_bytes % align == 0] if tensor.rank > 1 else [])]
        rows = [e for axis, e in enumerate(window.shape) if axis != buffer.contiguous]
        return (
            self.rule(
                f"axes of {name}",
                self.has_axes(tensor.rank),
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
                f"a box of {name} has at most {MOST_BOX} rows",
                "launch",
            ),
        )


@dataclass(frozen=True, eq=False)
class TmaLoad(TmaTransfer):
    """cp.async.bulk.tensor from GMEM to SMEM, completed on an mbarrier; what lies outside the tensor becomes zero."""

    reads: ClassVar[Memory] = GMEM
    writes: ClassVar[Memory] = SMEM
    completion: ClassVar[Completion] = "mbarrier"

    def text(self, rank: int, multicast: bool) -> str:
        """The opcode for a tensor of `rank` axes; `multicast` to several CTAs of the cluster."""
        # .shared::cta is not in .version 8.0; an address of the CTA itself is an address in the cluster too.
        form = ".multicast::cluster" if multicast else ""
        return f"{self.opcode}.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{form}"

    def statement(self, rank: int, shared: str, tensor: str, barrier: str = "", ctas: str = "") -> str:
        return f"{self.text(rank, bool(ctas))} {shared}, {tensor}, {barrier}{f', {ctas}' if ctas else ''};"

    def multicast_rules(self, source: Tile, target: Tile, ctas: Expr) -> tuple[Constraint, ...]:
        """Each CTA brings as many rows as the others, to a place where a box may begin.

        The swizzle follows the address, not the box: a part lands as if the whole tile had been brought at once.
        """
        buffer = target.buffer
        if buffer is None or buffer.swizzle_bytes is None:
            raise ValueError(f"{target.name} is moved by TMA: give the width of its swizzle, swizzle=32, 64 or 128")
        rows = target.shape[1 - (target.contiguous or 0)]
        rule = self.rule(
            f"parts of {source.name}",
            all_of([rows % ctas == 0, rows // ctas * buffer.swizzle_bytes % BOX_ALIGN_BYTES == 0]),
            f"each CTA of the cluster brings the same number of rows of {source.name}, "
            f"a multiple of {BOX_ALIGN_BYTES} bytes",
            "emulator",
        )
        return (rule,)


@dataclass(frozen=True, eq=False)
class TmaStore(TmaTransfer):
    """cp.async.bulk.tensor from SMEM to GMEM, completed in bulk groups; what lies outside the tensor is left out."""

    reads: ClassVar[Memory] = SMEM
    writes: ClassVar[Memory] = GMEM
    completion: ClassVar[Completion] = "bulk group"

    def text(self, rank: int) -> str:
        """The opcode for a tensor of `rank` axes."""
        return f"{self.opcode}.{rank}d.global.shared::cta.tile.bulk_group"

    def statement(self, rank: int, shared: str, tensor: str, barrier: str = "", ctas: str = "") -> str:
        return f"{self.text(rank)} {tensor}, {shared};"
