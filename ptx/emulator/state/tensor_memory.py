"""Tensor memory of the resident CTAs: cells, allocations, and who accessed what (PTX ISA, "Tensor Memory").

Each CTA has 128 lanes x 512 columns of 32-bit cells, as if it were alone on its multiprocessor. Columns must be
allocated before they are used, and deallocated before the CTA exits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.residents import Residents
from tinygpu.ptx.emulator.state.tensor_order import Access, Region, TensorOrder
from tinygpu.ptx.emulator.units.tensor_memory_maps import COLUMNS, LANES

Words = NDArray[np.uint32]
UNIT_COLUMNS = 32
"""Allocations are multiples of this many columns (PTX ISA, "tcgen05.alloc")."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """Columns [start, start + columns), allocated on a line."""

    start: int
    columns: int
    line: int


class CtaTensorMemory:
    """Tensor memory of one CTA.

    cells        (128, 512)
    undefined    (128, 512) bits that nobody wrote
    allocations  what is allocated
    freed        what was allocated once, by (start, columns, line of its deallocation)
    last         columns of the latest allocation; 0 before the first
    relinquished line on which the CTA gave up its right to allocate; 0 while it has it
    accesses     the last accesses, of which later ones must be ordered
    collectors   what the collector buffers hold: operand by buffer
    """

    def __init__(self) -> None:
        self.cells: Words = np.zeros((LANES, COLUMNS), np.uint32)
        self.undefined: Words = np.full((LANES, COLUMNS), 0xFFFFFFFF, np.uint32)
        self.allocations: list[Allocation] = []
        self.freed: list[tuple[int, int, int]] = []
        self.last = 0
        self.relinquished = 0
        self.accesses: list[Access] = []
        self.collectors: dict[str, object] = {}

    @property
    def held_units(self) -> set[int]:
        """What is allocated, in units of 32 columns."""
        return {
            unit
            for a in self.allocations
            for unit in range(a.start // UNIT_COLUMNS, (a.start + a.columns) // UNIT_COLUMNS)
        }

    @property
    def free_columns(self) -> int:
        return COLUMNS - sum(a.columns for a in self.allocations)

    def allocate(self, columns: int, start: int, line: int) -> None:
        """Take free columns; their contents are undefined."""
        self.allocations.append(Allocation(start, columns, line))
        self.undefined[:, start : start + columns] = 0xFFFFFFFF
        self.last = columns

    def release(self, allocation: Allocation, line: int) -> None:
        """Give columns back."""
        self.allocations.remove(allocation)
        self.freed.append((allocation.start, allocation.columns, line))
        end = allocation.start + allocation.columns
        self.accesses = [
            a for a in self.accesses
            if not all(allocation.start <= r.first and r.end <= end for r in (*a.reads, *a.writes))
        ]  # fmt: skip

    def why_not_allocated(self, first: int, end: int) -> str | None:
        """Why columns [first, end) may not be used, in words; None when they may."""
        if end > COLUMNS:
            return f"tensor memory has {COLUMNS} columns"
        column = first
        while column < end:
            inside = [a for a in self.allocations if a.start <= column < a.start + a.columns]
            if not inside:
                break
            column = inside[0].start + inside[0].columns
        if column >= end:
            return None
        for start, columns, line in reversed(self.freed):
            if start <= column < start + columns:
                return f"column {column} was deallocated on line {line}"
        if not self.allocations:
            return "the CTA has allocated no tensor memory (tcgen05.alloc)"
        held = ", ".join(f"{a.start} to {a.start + a.columns - 1}" for a in sorted(self.allocations, key=_start))
        return f"column {column} is not allocated: the CTA holds columns {held}"


def _start(allocation: Allocation) -> int:
    return allocation.start


class TensorMemory:
    """Tensor memory of all resident CTAs.

    order  happens-before between its accesses
    pairs  for cta_group::2, which CTAs of a pair have come to an allocation: see instructions.tcgen05_allocation
    group  the .cta_group of the kernel's tcgen05 instructions; 0 before the first
    """

    def __init__(self, residents: Residents) -> None:
        self.residents = residents
        self.order = TensorOrder(residents)
        self.pairs: dict[tuple[int, str], dict[int, tuple[int, int, int]]] = {}
        self.results: dict[tuple[int, str], int] = {}
        self._group = 0
        self._group_line = 0
        self._ctas: dict[int, CtaTensorMemory] = {}
        residents.reach.leaving.append(self._check_leaving)

    def cta(self, cta: int) -> CtaTensorMemory:
        """Tensor memory of a resident CTA."""
        found = self._ctas.get(cta)
        if found is None:
            found = self._ctas[cta] = CtaTensorMemory()
        return found

    def use_group(self, origin: Origin, group: int) -> None:
        """A fault where instructions of one kernel differ in .cta_group, or where a pair's CTA has no peer."""
        if self._group not in (0, group):
            origin.fault(
                "tensor memory",
                f"`{origin.instruction.name}` has .cta_group::{group}, but line {self._group_line} has "
                f".cta_group::{self._group}: all tcgen05 instructions of a kernel must have the same",
            )
        elif not self._group and group == 2 and self.residents.cluster_size % 2:
            origin.fault(
                "cluster",
                f"`{origin.instruction.name}` needs a pair of CTAs, but the cluster has {self.residents.cluster_size}: "
                "launch clusters of an even number of CTAs",
            )
        self._group, self._group_line = group, origin.instruction.line

    def group_ctas(self, cta: int, group: int) -> tuple[int, ...]:
        """The resident CTAs on which an instruction of this .cta_group works: even rank first."""
        if group == 1 or self.residents.cluster_size % 2:
            return (cta,)
        rank = cta % self.residents.cluster_size
        even = cta - rank % 2
        return (even, even + 1)

    def begin(self, cta: int, access: Access) -> bool:
        """An access starts: faults where it touches what is not allocated or races. False where not allocated."""
        memory = self.cta(cta)
        for region in (*access.reads, *access.writes):
            why = memory.why_not_allocated(region.first, region.end)
            if why is not None:
                access.origin.fault(
                    "tensor memory", f"`{access.origin.instruction.name}` accesses {region}, but {why}", "tensor",
                    region.first,
                )  # fmt: skip
                return False
        if self.residents.emulation.checking:
            memory.accesses = self.order.enter(access, memory.accesses)
        return True

    def finished(self, origin: Origin, cta: int, first: int, columns: int) -> None:
        """A fault where accesses to these columns may go on although they are being deallocated."""
        if not self.residents.emulation.checking:
            return
        whole = Region((1 << LANES) - 1, first, first + columns)
        access = Access(origin, "dealloc", (), (whole,), self.order.own_column(origin.row), self.order.tick)
        self.order.enter(access, self.cta(cta).accesses)

    def _check_leaving(self, cta: int, instruction: Instruction) -> None:
        """A CTA must not exit with columns allocated (PTX ISA, "tcgen05.alloc")."""
        memory = self._ctas.get(cta)
        if memory is None or not memory.allocations:
            return
        lines = ", ".join(str(a.line) for a in memory.allocations)
        total = sum(a.columns for a in memory.allocations)
        row = int(self.residents.rows_of(cta)[0])
        self.residents.emulation.fault(
            "tensor memory", instruction, self.residents, row, None,
            f"the CTA exits with {total} columns of tensor memory allocated (line {lines}): tcgen05.dealloc must give "
            "them back before",
        )  # fmt: skip


def tensor_memory(residents: Residents) -> TensorMemory:
    """The tensor memory of resident CTAs; made on first use."""
    found = residents.extensions.get("tensor memory")
    if found is None:
        residents.clocks.follow_execution()
        found = residents.extensions["tensor memory"] = TensorMemory(residents)
    if not isinstance(found, TensorMemory):
        raise TypeError("another extension has taken the name of tensor memory")
    return found
