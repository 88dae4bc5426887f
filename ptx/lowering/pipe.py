"""A role's place in a pipeline that is handed over by mbarriers: a full and an empty one for every slot."""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.ptx.lowering.emitter import Emitter, Number, Reg

BARRIER_BYTES = 8


@dataclass(slots=True, eq=False)
class Pipe:
    """One role's place in a pipeline.

    smem    where the CTA's shared memory begins
    offset  of the pipeline's barriers there
    slot    the slot that is next
    parity  what the barrier of that slot is waited for with
    held    a slot that asynchronous instructions still read, or a number that no slot has
    """

    name: str
    stages: int
    smem: Reg
    offset: int
    slot: Reg
    parity: Reg
    held: Reg

    def full(self, emit: Emitter, slot: Number) -> Number:
        """Address of the barrier that says that a slot is full."""
        return barrier(emit, self.smem, self.offset, slot)

    def empty(self, emit: Emitter, slot: Number) -> Number:
        """Address of the barrier that says that a slot is empty."""
        return barrier(emit, self.smem, self.offset + self.stages * BARRIER_BYTES, slot)


def barrier(emit: Emitter, smem: Reg, offset: int, slot: Number) -> Number:
    """Address of a slot's barrier, where those of all slots begin at an offset in shared memory."""
    return emit.add(emit.add(smem, emit.mul(slot, BARRIER_BYTES)), offset)
