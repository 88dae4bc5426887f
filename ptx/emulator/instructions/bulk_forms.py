"""Which instructions are bulk, tensor and asynchronous stores, among those that share their first word with others."""

from __future__ import annotations

from tinygpu.ptx.emulator.instructions.async_stores import async_store
from tinygpu.ptx.emulator.instructions.bulk_copies import bulk_copy
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.tensor_copies import tensor_copy
from tinygpu.ptx.emulator.instructions.tensormaps import tensormap_fence
from tinygpu.ptx.emulator.source.syntax import Instruction


def bulk_form(i: Instruction) -> Compile | None:
    """How such an instruction is compiled; None where it is another one."""
    if i.opcode == "cp" and i.has("bulk"):
        return tensor_copy if i.has("tensor") else bulk_copy
    if i.opcode in ("st", "red") and i.has("async"):
        return async_store
    if i.opcode == "fence" and any(m.startswith("tensormap::") for m in i.modifiers):
        return tensormap_fence
    return None
