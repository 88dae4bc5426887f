"""What the tcgen05 instructions share: their operands, who issues them, and the work of the tensor core.

The tensor core of a CTA (or pair) carries out tcgen05.mma, .cp, .shift and .commit of one thread one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import async_shared
from tinygpu.ptx.emulator.access.async_shared import Agent, Bools, Index
from tinygpu.ptx.emulator.access.swizzled_reads import advise_swizzle
from tinygpu.ptx.emulator.instructions.binder import Binder, Getter
from tinygpu.ptx.emulator.source.syntax import AddressOperand, Instruction, Operand, RegisterOperand
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.registers import Slot
from tinygpu.ptx.emulator.state.tensor_memory import TensorMemory, tensor_memory
from tinygpu.ptx.emulator.state.tensor_order import Access
from tinygpu.ptx.emulator.units.matrix_descriptors import MatrixDescriptor
from tinygpu.ptx.emulator.units.operand_tiles import Chunks
from tinygpu.ptx.emulator.units.swizzles import Swizzle

CHUNK_BYTES = 16


def cta_group(b: Binder, i: Instruction) -> int:
    """1 or 2, as `.cta_group` says."""
    for group in (1, 2):
        if i.has(f"cta_group::{group}"):
            return group
    raise b.fail(f"`{i.name}` needs .cta_group::1 or .cta_group::2")


def tensor_address(b: Binder, i: Instruction, operand: Operand) -> Getter:
    """Getter of a tensor memory address in brackets: a register plus a constant."""
    if not isinstance(operand, AddressOperand) or not isinstance(operand.base, RegisterOperand):
        raise b.fail(f"`{i.name}` takes a tensor memory address here: a 32-bit register in brackets")
    get, _, _ = b.address(operand)
    return get


def register_slots(b: Binder, operands: tuple[Operand, ...]) -> tuple[Slot, ...]:
    """Where the registers among these operands live, those of addresses left out."""
    return tuple(b.slot(operand) for operand in operands if isinstance(operand, RegisterOperand))


def lane_values(c: Cohort, get: Getter) -> NDArray[np.int64]:
    """(n, 32) values of an operand as Python-sized integers; 64-bit ones wrap to negative numbers."""
    return c.spread(get(c)).astype(np.int64)


def threads(c: Cohort) -> Iterator[tuple[int, int, int]]:
    """(position of the row in the cohort, row, lane) of each active thread."""
    for at, row in enumerate(c.set.index.tolist()):
        for lane in range(32) if c.mask is None else np.flatnonzero(c.mask[at]).tolist():
            yield at, row, lane


def active_warps(c: Cohort) -> Iterator[tuple[int, int]]:
    """(position of the row in the cohort, row) of each warp with an active lane."""
    for at, row in enumerate(c.set.index.tolist()):
        if c.mask is None or c.mask[at].any():
            yield at, row


def warp_value(c: Cohort, i: Instruction, values: NDArray[np.int64], at: int, row: int, what: str) -> int:
    """The value that all lanes of a warp must give; a fault where they differ."""
    first = int(values[at, 0])
    if (values[at] != first).any():
        lane = int(np.argmax(values[at] != first))
        Origin(c.residents, i, row, lane).fault(
            "collective",
            f"`{i.name}` gets {what} {int(values[at, lane]):#x} in lane {lane} and {first:#x} in lane 0: all lanes of "
            "the warp must give the same",
        )
    return first


@dataclass(slots=True, eq=False)
class TensorWork:
    """One tcgen05.mma, .cp or .shift that was issued and is not complete.

    agent     who reads shared memory
    queue     the thread that issued it: its work is carried out in order
    accesses  to tensor memory, one per CTA
    reads     (byte indices, bytes of each) of what it reads from shared memory
    work      moves the data
    """

    agent: Agent
    queue: Hashable
    accesses: list[Access]
    reads: list[tuple[Index, int]]
    work: Callable[[], None] = field(default=lambda: None)

    @property
    def origin(self) -> Origin:
        return self.agent.origin

    def complete(self) -> None:
        """Carry it out, after what it must follow."""
        residents = self.origin.residents
        for access in self.accesses:
            for operation in access.follows:
                residents.agents.finish(operation)
        residents.emulation.next_tick()
        self.work()
        for index, size in self.reads:
            async_shared.end_read(self.agent, index, size)
        for access in self.accesses:
            access.tick = residents.emulation.tick
            access.operation = None
        residents.emulation.changes += 1


@dataclass(slots=True, eq=False)
class Issue:
    """A thread issues tensor core work: what it will touch, step by step; `start` hands it over."""

    memory: TensorMemory
    agent: Agent
    group: int
    ctas: tuple[int, ...]
    accesses: list[Access] = field(default_factory=list)
    reads: list[tuple[Index, int]] = field(default_factory=list)
    good: bool = True

    @property
    def origin(self) -> Origin:
        return self.agent.origin

    def read_shared(
        self, cta: int, chunks: Chunks, swizzle: Swizzle, verb: str, used_bytes: int = CHUNK_BYTES
    ) -> tuple[Index, Bools | None]:
        """Start to read an operand from a CTA's shared memory: (byte indices, which chunks are uninitialised).

        swizzle     by which its descriptor reads
        used_bytes  how many bytes of each 16-byte chunk are no padding, a multiple of 4
        """
        low, high = chunks.range_bytes
        if not async_shared.check_shared_range(self.agent, chunks.base + low, high - low, CHUNK_BYTES, verb):
            self.good = False
            return np.zeros((0, 0), np.int64), None
        index = chunks.offsets + (chunks.base + cta * self.memory.residents.shared.stride_bytes)
        advise_swizzle(self.memory.residents, self.origin.instruction, int(index[0, 0]), swizzle, verb)
        if used_bytes == CHUNK_BYTES:
            self.reads.append((index, CHUNK_BYTES))
            return index, async_shared.begin_read(self.agent, index, CHUNK_BYTES)
        words = index[..., None] + np.arange(0, used_bytes, 4)
        self.reads.append((words, 4))
        invalid = async_shared.begin_read(self.agent, words, 4)
        return index, None if invalid is None else np.asarray(invalid.any(axis=-1))

    def touch(self, cta: int, access: Access) -> None:
        """Start to access the tensor memory of a CTA."""
        self.good &= self.memory.begin(cta, access)
        self.accesses.append(access)

    def fault(self, sentence: str) -> None:
        """What is asked for is illegal."""
        self.origin.fault("tensor memory", sentence)
        self.good = False

    def advise_constant(self, descriptor: MatrixDescriptor, word: int) -> None:
        """Say that a matrix descriptor lacks the bits that must be set in every one."""
        if descriptor.constant_missing:
            self.origin.advise(
                "matrix descriptor without its constant bits",
                f"matrix descriptor {word:#018x}: bits 46-48 are 0b000, but the manual wants 0b001",
            )

    def start(self, work: Callable[[], None]) -> None:
        """Hand the work over; not where something was illegal."""
        origin = self.origin
        operation = TensorWork(self.agent, work_queue(origin), self.accesses, self.reads, work)
        if not self.good:
            operation.work = _nothing
        for access in self.accesses:
            access.operation = operation
        origin.residents.agents.start(operation)


def _nothing() -> None:
    return


def work_queue(origin: Origin) -> Hashable:
    """What a thread issues to the tensor core is carried out in order."""
    return ("tcgen05", origin.row, origin.lane)


def issue(c: Cohort, i: Instruction, site: Site, row: int, lane: int, group: int) -> Issue:
    """A thread starts to issue tensor core work."""
    residents = c.residents
    origin = Origin(residents, i, row, lane)
    memory = tensor_memory(residents)
    memory.use_group(origin, group)
    column = memory.order.work_column(origin)
    ctas = memory.group_ctas(origin.cta, group)
    for cta in ctas:
        if cta != origin.cta and c.emulation.checking:
            residents.reach.touch(i, row, cta, column)
    return Issue(memory, Agent(origin, site, column, residents.clocks.issue(row)), group, ctas)
