"""Which instructions are bulk, tensor and asynchronous stores, among those that share their first word with others."""

from __future__ import annotations

from tinygpu.ptx.emulator.instructions.async_stores import async_store
from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.bulk_copies import bulk_copy
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.tensor_copies import tensor_copy
from tinygpu.ptx.emulator.instructions.tensormaps import tensormap_fence
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.units.reductions import OPERATIONS

# Everything that may stand in the name of a bulk copy (PTX ISA, "Data Movement and Conversion Instructions", bulk and
# tensor copies); a word that is missing here is a form without semantics.
_WORDS = frozenset(
    {
        "async", "bulk", "tensor", "prefetch", "reduce", "L2", "global", "shared::cta", "shared::cluster", "bulk_group",
        "mbarrier::complete_tx::bytes", "multicast::cluster", "L2::cache_hint", "cp_mask", "commit_group", "wait_group",
        "read", "cta_group::1", "cta_group::2", "tile", "tile::gather4", "tile::scatter4", "im2col", "im2col::w",
        "im2col::w::128", "im2col_no_offs", "1d", "2d", "3d", "4d", "5d", "noftz", *OPERATIONS,
    }
)  # fmt: skip


def bulk_form(i: Instruction) -> Compile | None:
    """How such an instruction is compiled; None where it is another one."""
    if i.opcode == "cp" and i.has("bulk"):
        if any(m not in _WORDS and m not in i.types for m in i.modifiers):
            return _unsupported
        return tensor_copy if i.has("tensor") else bulk_copy
    if i.opcode in ("st", "red") and i.has("async"):
        return async_store
    if i.opcode == "fence" and any(m.startswith("tensormap::") for m in i.modifiers):
        return tensormap_fence
    return None


def _unsupported(b: Binder, i: Instruction) -> Run:
    raise b.unsupported(", ".join(f".{m}" for m in i.modifiers if m not in _WORDS and m not in i.types))
