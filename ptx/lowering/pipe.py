"""A role's place in a pipeline that is handed over by mbarriers, and these: a full and an empty one for each slot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from tinygpu.language.buffer_space import BARRIER_BYTES
from tinygpu.ptx.lowering.emitter import Number, Reg

Side: TypeAlias = Literal["full", "empty", "turn"]


@dataclass(frozen=True, slots=True)
class Barrier:
    """One mbarrier.

    side    what it says: that a slot is full, that it is empty, or that it is a role's turn
    slot    the slot; of turns, the number of the role
    offset  where the barriers of this side begin in shared memory, in bytes
    """

    pipeline: str
    side: Side
    slot: Number
    offset: int


@dataclass(frozen=True, slots=True)
class Pipe:
    """One role's place in a pipeline.

    offset  of the pipeline's barriers in shared memory
    slot    the slot that is next
    parity  what the barrier of that slot is waited for with
    held    a slot that asynchronous instructions still read, or a number that no slot has
    """

    name: str
    stages: int
    offset: int
    slot: Reg
    parity: Reg
    held: Reg

    def full(self, slot: Number) -> Barrier:
        """The barrier that says that a slot is full."""
        return full_barrier(self.name, self.offset, slot)

    def empty(self, slot: Number) -> Barrier:
        """The barrier that says that a slot is empty."""
        return empty_barrier(self.name, self.offset, self.stages, slot)


def full_barrier(pipeline: str, offset: int, slot: Number) -> Barrier:
    return Barrier(pipeline, "full", slot, offset)


def empty_barrier(pipeline: str, offset: int, stages: int, slot: Number) -> Barrier:
    return Barrier(pipeline, "empty", slot, offset + stages * BARRIER_BYTES)


def turn_barrier(pipeline: str, offset: int, number: int) -> Barrier:
    return Barrier(pipeline, "turn", number, offset)
