"""TMA: cp.async.bulk.tensor moves boxes of a tensor between GMEM and SMEM, described by a tensor map.

operands   a window of a tensor, and a buffer whose rows are cut to the width of its swizzle
legality   its family's: strides and addresses of 16 bytes, boxes of at most 256 rows, one to five axes
meaning    a copy; elements outside the tensor are zero when loaded and left out when stored
cost       bytes of GMEM; nothing of the threads
lowering   one box per swizzle width of a row, issued by one thread; loads complete on an mbarrier, stores in groups
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.language.instruction import BulkTransfer, Completion, Scope
from tinygpu.language.memories import GMEM, SMEM, Memory


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


@dataclass(frozen=True, eq=False)
class TmaLoad(TmaTransfer):
    """cp.async.bulk.tensor from GMEM to SMEM, completed on an mbarrier; what lies outside the tensor becomes zero."""

    reads: ClassVar[Memory] = GMEM
    writes: ClassVar[Memory] = SMEM
    completion: ClassVar[Completion] = "mbarrier"

    def text(self, rank: int, multicast: bool, pair: bool = False) -> str:
        """The opcode for a tensor of `rank` axes; `multicast` to several CTAs of the cluster; counted for a `pair`."""
        # .shared::cta is not in .version 8.0; an address of the CTA itself is an address in the cluster too.
        form = (".multicast::cluster" if multicast else "") + (".cta_group::2" if pair else "")
        return f"{self.opcode}.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes{form}"

    def statement(
        self, rank: int, shared: str, tensor: str, barrier: str = "", ctas: str = "", pair: bool = False
    ) -> str:
        return f"{self.text(rank, bool(ctas), pair)} {shared}, {tensor}, {barrier}{f', {ctas}' if ctas else ''};"


@dataclass(frozen=True, eq=False)
class TmaStore(TmaTransfer):
    """cp.async.bulk.tensor from SMEM to GMEM, completed in bulk groups; what lies outside the tensor is left out."""

    reads: ClassVar[Memory] = SMEM
    writes: ClassVar[Memory] = GMEM
    completion: ClassVar[Completion] = "bulk group"

    def text(self, rank: int) -> str:
        """The opcode for a tensor of `rank` axes."""
        return f"{self.opcode}.{rank}d.global.shared::cta.tile.bulk_group"

    def statement(
        self, rank: int, shared: str, tensor: str, barrier: str = "", ctas: str = "", pair: bool = False
    ) -> str:
        return f"{self.text(rank)} {tensor}, {shared};"
