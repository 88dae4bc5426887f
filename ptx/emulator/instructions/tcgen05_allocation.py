"""tcgen05.alloc, .dealloc, .relinquish_alloc_permit (PTX ISA, "Tensor Memory Allocation and Management Instructions").

With .cta_group::2 one warp of each CTA of a pair must come: the first one waits for the other. That dealloc waits too
is the stricter of the two behaviours that the manual allows, so a kernel that relies on the other one is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import shared_access
from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.mbarriers import shared_addresses
from tinygpu.ptx.emulator.instructions.tcgen05_work import active_warps, cta_group, lane_values, warp_value
from tinygpu.ptx.emulator.instructions.warp_collectives import require_whole_warp
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.cohort import Cohort, MustWait
from tinygpu.ptx.emulator.state.tensor_memory import UNIT_COLUMNS, Allocation, TensorMemory, tensor_memory
from tinygpu.ptx.emulator.units.tensor_memory_maps import COLUMNS, join_address, split_address

Verb = Literal["alloc", "dealloc"]


@dataclass(frozen=True, slots=True)
class Request:
    """What one warp asks for.

    columns  how many columns
    start    first column of what is given back; 0 for alloc
    """

    origin: Origin
    columns: int
    start: int = 0

    @property
    def row(self) -> int:
        return self.origin.row


class Meeting:
    """The requests of the two warps of a pair, or of the one warp of a CTA."""

    def __init__(self, memory: TensorMemory, verb: Verb, group: int) -> None:
        self._memory = memory
        self._verb: Verb = verb
        self._group = group

    def ctas(self, request: Request) -> tuple[int, ...]:
        """The CTAs whose warps must come."""
        return self._memory.group_ctas(request.origin.cta, self._group)

    def come(self, request: Request) -> None:
        """A warp is here."""
        ctas = self.ctas(request)
        if len(ctas) == 1:
            return
        here = self._memory.pairs.setdefault((ctas[0], self._verb), {})
        cta = request.origin.cta
        other = here.get(cta)
        if other is not None and other[0] != request.row:
            request.origin.fault(
                "tensor memory",
                f"a second warp of the CTA executes tcgen05.{self._verb} while warp "
                f"{other[0] // len(self._memory.residents.ctas)} waits there for the other CTA of the pair: one warp "
                "of each CTA must do it",
            )
        here[cta] = (request.row, request.columns, request.start)

    def complete(self, request: Request) -> bool:
        """Whether all warps are here that must come."""
        ctas = self.ctas(request)
        here = self._memory.pairs.get((ctas[0], self._verb), {})
        return len(ctas) == 1 or all(cta in here for cta in ctas)

    def leave(self, request: Request) -> dict[int, tuple[int, int, int]]:
        """Everybody is here and goes on: (row, columns, start) by CTA."""
        ctas = self.ctas(request)
        if len(ctas) == 1:
            return {ctas[0]: (request.row, request.columns, request.start)}
        return self._memory.pairs.pop((ctas[0], self._verb))

    def done(self, row: int) -> bool:
        """Whether another warp has done it for both."""
        return (row, self._verb) in self._memory.results


def _free_start(memory: TensorMemory, ctas: tuple[int, ...], columns: int, taken: dict[int, list[int]]) -> int | None:
    """The first block that is free in all these CTAs, `taken` ones (column units) left out."""
    units = range(columns // UNIT_COLUMNS)
    for start in range(0, COLUMNS - columns + 1, UNIT_COLUMNS):
        wanted = {start // UNIT_COLUMNS + unit for unit in units}
        if all(not wanted & set(taken.get(cta, ())) and not wanted & memory.cta(cta).held_units for cta in ctas):
            return start
    return None


def _judge(memory: TensorMemory, request: Request) -> bool:
    """Whether an allocation is legal; faults where not."""
    columns = request.columns
    cta = memory.cta(request.origin.cta)
    if columns < UNIT_COLUMNS or columns > COLUMNS or columns & (columns - 1):
        sentence = f"tcgen05.alloc of {columns} columns: it must be 32, 64, 128, 256 or 512"
    elif cta.relinquished:
        sentence = (
            f"tcgen05.alloc after the CTA executed tcgen05.relinquish_alloc_permit on line {cta.relinquished}: "
            "allocate everything before it"
        )
    elif cta.last and columns > cta.last:
        sentence = (
            f"tcgen05.alloc of {columns} columns after one of {cta.last}: the number of columns must not grow from one "
            "allocation of a CTA to the next"
        )
    else:
        return True
    request.origin.fault("tensor memory", sentence)
    return False


def alloc(b: Binder, i: Instruction) -> Run:
    """tcgen05.alloc: the address of the columns goes to shared memory."""
    group = cta_group(b, i)
    where, count = b.operands(i, 2)
    get, counts = shared_addresses(b, i, where), b.source(count, "u32")
    b.note_shared_width(4)
    site = b.site(i)

    def run(c: Cohort) -> None:
        if not require_whole_warp(c, i):
            return
        memory = tensor_memory(c.residents)
        meeting = Meeting(memory, "alloc", group)
        sizes, addresses = lane_values(c, counts), lane_values(c, get)
        requests: dict[int, Request] = {}
        for at, row in active_warps(c):
            origin = Origin(c.residents, i, row)
            memory.use_group(origin, group)
            request = Request(origin, warp_value(c, i, sizes, at, row, "the number of columns"))
            warp_value(c, i, addresses, at, row, "the address")
            if meeting.done(row) or _judge(memory, request):
                requests[at] = request
                if not meeting.done(row):
                    meeting.come(request)
        starts = _plan(memory, meeting, requests)
        late = {request.row: request for at, request in requests.items() if at not in starts}
        if late:
            ready = np.array([row not in late for row in c.set.index.tolist()], np.bool_)
            raise MustWait(
                ready, lambda row: _waits(memory, meeting, late[row]), lambda row: _reason(memory, meeting, late[row])
            )
        c.emulation.next_tick()
        bases = np.zeros(c.n, np.uint32)
        for at, start in starts.items():
            _allocate(memory, meeting, requests[at], start)
            bases[at] = join_address(0, start)
        if starts:
            _write_addresses(c, list(starts), addresses, bases)

    def _write_addresses(c: Cohort, good: list[int], addresses: NDArray[np.int64], bases: NDArray[np.uint32]) -> None:
        outer = c.mask
        first = np.zeros((c.n, 32), np.bool_)
        first[good, 0] = True
        c.narrow(first)
        shared_access.store(c, site, addresses.astype(np.uint32), bases[good], 4, 1)
        c.narrow(outer)

    return run


def _plan(memory: TensorMemory, meeting: Meeting, requests: dict[int, Request]) -> dict[int, int]:
    """The first column for each request that can be granted now."""
    starts: dict[int, int] = {}
    planned: dict[tuple[int, ...], int] = {}
    taken: dict[int, list[int]] = {}
    for at, request in requests.items():
        ctas = meeting.ctas(request)
        if meeting.done(request.row):
            starts[at] = memory.results[request.row, "alloc"]
        elif len(ctas) == 2 and ctas in planned:
            starts[at] = planned[ctas]
        elif meeting.complete(request):
            start = _free_start(memory, ctas, request.columns, taken)
            if start is not None:
                starts[at] = planned[ctas] = start
                for cta in ctas:
                    first = start // UNIT_COLUMNS
                    taken.setdefault(cta, []).extend(range(first, first + request.columns // UNIT_COLUMNS))
    return starts


def _allocate(memory: TensorMemory, meeting: Meeting, request: Request, start: int) -> None:
    """Take the columns, for both warps of a pair."""
    if memory.results.pop((request.row, "alloc"), None) is not None:
        return
    for cta, (row, columns, _) in meeting.leave(request).items():
        if columns != request.columns:
            request.origin.fault(
                "tensor memory",
                f"tcgen05.alloc of {request.columns} columns, but the other CTA of the pair asks for {columns}: both "
                "must ask for the same",
            )
        memory.cta(cta).allocate(request.columns, start, request.origin.instruction.line)
        if row != request.row:
            memory.results[row, "alloc"] = start
    memory.residents.emulation.signals += 1
    memory.residents.emulation.changes += 1


def _waits(memory: TensorMemory, meeting: Meeting, request: Request) -> bool:
    if meeting.done(request.row):
        return False
    if not meeting.complete(request):
        return True
    return _free_start(memory, meeting.ctas(request), request.columns, {}) is None


def _reason(memory: TensorMemory, meeting: Meeting, request: Request) -> str:
    line = request.origin.instruction.line
    if not meeting.complete(request):
        return f"on line {line} for the other CTA of the pair, which must execute tcgen05.alloc too"
    free = memory.cta(request.origin.cta).free_columns
    return f"on line {line} for {request.columns} columns of tensor memory, of which {free} are free"


def dealloc(b: Binder, i: Instruction) -> Run:
    """tcgen05.dealloc."""
    group = cta_group(b, i)
    where, count = b.operands(i, 2)
    get, counts = b.source(where, "u32"), b.source(count, "u32")

    def run(c: Cohort) -> None:
        if not require_whole_warp(c, i):
            return
        memory = tensor_memory(c.residents)
        meeting = Meeting(memory, "dealloc", group)
        sizes, addresses = lane_values(c, counts), lane_values(c, get)
        requests: dict[int, Request] = {}
        for at, row in active_warps(c):
            origin = Origin(c.residents, i, row)
            memory.use_group(origin, group)
            columns = warp_value(c, i, sizes, at, row, "the number of columns")
            start = warp_value(c, i, addresses, at, row, "the address")
            request = Request(origin, columns, start)
            if not meeting.done(row) and _find(memory, request) is None:
                continue
            requests[at] = request
            if not meeting.done(row):
                meeting.come(request)
        late = {r.row: r for r in requests.values() if not meeting.done(r.row) and not meeting.complete(r)}
        if late:
            ready = np.array([row not in late for row in c.set.index.tolist()], np.bool_)
            raise MustWait(
                ready, lambda row: not meeting.done(row) and not meeting.complete(late[row]),
                lambda row: f"on line {i.line} for the other CTA of the pair, which must execute tcgen05.dealloc too",
            )  # fmt: skip
        c.emulation.next_tick()
        for request in requests.values():
            _deallocate(memory, meeting, request)

    return run


def _find(memory: TensorMemory, request: Request) -> Allocation | None:
    """The allocation that a tcgen05.dealloc names; a fault where there is none."""
    lane, column = split_address(request.start)
    cta = memory.cta(request.origin.cta)
    for allocation in cta.allocations:
        if allocation.start == column and not lane:
            if allocation.columns == request.columns:
                return allocation
            request.origin.fault(
                "tensor memory",
                f"tcgen05.dealloc of {request.columns} columns at column {column}, where {allocation.columns} were "
                f"allocated on line {allocation.line}: give back what was allocated",
            )
            return None
    why = cta.why_not_allocated(column, column + 1) or "no allocation starts there"
    request.origin.fault(
        "tensor memory", f"tcgen05.dealloc at lane {lane}, column {column} of tensor memory, but {why}"
    )
    return None


def _deallocate(memory: TensorMemory, meeting: Meeting, request: Request) -> None:
    if memory.results.pop((request.row, "dealloc"), None) is not None:
        return
    residents = memory.residents
    line = request.origin.instruction.line
    for cta, (row, columns, start) in meeting.leave(request).items():
        origin = Origin(residents, request.origin.instruction, row)
        allocation = _find(memory, Request(origin, columns, start))
        if allocation is not None:
            memory.finished(origin, cta, allocation.start, allocation.columns)
            memory.cta(cta).release(allocation, line)
        if row != request.row:
            memory.results[row, "dealloc"] = 1
    residents.emulation.signals += 1
    residents.emulation.changes += 1


def relinquish(b: Binder, i: Instruction) -> Run:
    """tcgen05.relinquish_alloc_permit: the CTA allocates no more."""
    group = cta_group(b, i)
    b.operands(i, 0)

    def run(c: Cohort) -> None:
        if not require_whole_warp(c, i):
            return
        memory = tensor_memory(c.residents)
        for _, row in active_warps(c):
            origin = Origin(c.residents, i, row)
            memory.use_group(origin, group)
            memory.cta(origin.cta).relinquished = i.line

    return run
