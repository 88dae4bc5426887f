"""TMA: cp.async.bulk.tensor moves boxes of a tensor between GMEM and SMEM, described by a tensor map.

operands   a window of a tensor, and a buffer whose rows are cut into swizzled spans
legality   strides and addresses of 16 bytes, boxes of at most 256 elements, spans as wide as the swizzle
semantics  a copy; elements outside the tensor are zero when loaded and left out when stored
cost       bytes of GMEM; nothing of the threads
lowering   one box per span of a row, issued by one thread; loads complete on an mbarrier, stores in bulk groups
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.expressions import Expr, all_of
from tinygpu.language.instruction import BulkTransfer, Completion, Scope
from tinygpu.language.memories import GMEM, SMEM, Memory
from tinygpu.language.tile import Tile

# cuTensorMapEncodeTiled: elements of a box along one axis; alignment of the address and of every stride.
MOST_BOX = 256
ALIGN_BYTES = 16


@dataclass(frozen=True, eq=False)
class TmaTransfer(BulkTransfer):
    """cp.async.bulk.tensor in either direction."""

    target: ClassVar[int] = 90
    isa: ClassVar[tuple[int, int]] = (8, 0)
    scope: ClassVar[Scope] = "thread"
    source: ClassVar[str] = "PTX ISA, cp.async.bulk.tensor; CUDA driver API, cuTensorMapEncodeTiled"

    @property
    def label(self) -> str:
        return "cp.async.bulk.tensor"

    def legality(self, source: Tile, target: Tile) -> tuple[Constraint, ...]:
        window, memory_side = (source, target) if source.tensor is not None else (target, source)
        tensor, buffer = window.tensor, memory_side.buffer
        if tensor is None or buffer is None:
            raise ValueError("a tensor map describes a window of a tensor in GMEM, moved to or from a buffer")
        name = tensor.name
        pitch_bytes = tensor.ld * tensor.dtype.bits // 8
        aligned = [tensor.align % ALIGN_BYTES == 0, *([pitch_bytes % ALIGN_BYTES == 0] if tensor.rank > 1 else [])]
        rules = [
            self.rule(
                f"strides of {name}",
                all_of(aligned),
                f"the pointer and the rows of {name} are multiples of {ALIGN_BYTES} bytes",
                "launch",
            )
        ]
        if buffer.span is None:
            raise ValueError(f"{buffer.name} is moved by TMA: say in which spans its rows lie, with swizzle=")
        if window.contiguous != buffer.contiguous:
            raise ValueError(
                f"{buffer.name} has its rows along axis {buffer.contiguous}, and {name} is contiguous along axis "
                f"{window.contiguous}: TMA does not transpose"
            )
        rows = [e for axis, e in enumerate(window.shape) if axis != buffer.contiguous]
        rules.append(
            self.rule(
                f"box of {name}",
                all_of([e <= MOST_BOX for e in rows]),
                f"a box of {name} has at most {MOST_BOX} rows",
                "launch",
            )
        )
        return tuple(rules)


@dataclass(frozen=True, eq=False)
class TmaLoad(TmaTransfer):
    """GMEM to SMEM; what lies outside the tensor becomes zero."""

    reads: ClassVar[Memory] = GMEM
    writes: ClassVar[Memory] = SMEM
    completion: ClassVar[Completion] = "mbarrier"

    def multicast_rules(self, source: Tile, target: Tile, ctas: Expr) -> tuple[Constraint, ...]:
        """Each CTA brings whole groups of 8 rows, after which every swizzle begins again."""
        rows = target.shape[1 - (target.contiguous or 0)]
        rule = self.rule(
            f"parts of {source.name}",
            all_of([rows % (ctas * 8) == 0]),
            f"each CTA of the cluster brings the same number of rows of {source.name}, whole groups of 8",
            "emulator",
        )
        return (rule,)


@dataclass(frozen=True, eq=False)
class TmaStore(TmaTransfer):
    """SMEM to GMEM; what lies outside the tensor is left out."""

    reads: ClassVar[Memory] = SMEM
    writes: ClassVar[Memory] = GMEM
    completion: ClassVar[Completion] = "bulk group"
