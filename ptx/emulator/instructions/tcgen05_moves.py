"""tcgen05.ld, .st and .wait: between the registers of a warp and its quarter of tensor memory.

A load gives its values at once: hardware makes whoever uses the registers wait for them. What it does not wait for is
the end of the read, which only tcgen05.wait::ld tells; a store lands between its issue and tcgen05.wait::st.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.tcgen05_work import (
    active_warps,
    lane_values,
    tensor_address,
    warp_value,
)
from tinygpu.ptx.emulator.instructions.warp_collectives import require_whole_warp
from tinygpu.ptx.emulator.source.syntax import Instruction, Operand, RegisterOperand
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.registers import Slot
from tinygpu.ptx.emulator.state.tensor_memory import CtaTensorMemory, Words, tensor_memory
from tinygpu.ptx.emulator.state.tensor_order import Access, AccessKind, Region, lane_run
from tinygpu.ptx.emulator.units.tensor_memory_maps import (
    ACCESS_SHAPES,
    COLUMNS,
    LANES,
    SLAB_LANES,
    AccessCells,
    access_cells,
    split_address,
)

Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """What the text of a tcgen05.ld or .st says.

    cells   which cells the registers hold
    widths  columns of each window; `starts` are their first columns relative to the address
    """

    cells: AccessCells
    starts: tuple[int, ...]
    width: int

    def regions(self, lane: int, column: int) -> tuple[Region, ...]:
        """The cells that are touched at an address."""
        lanes = lane_run(lane, self.cells.lanes)
        return tuple(Region(lanes, column + start, column + start + self.width) for start in self.starts)


def _form(b: Binder, i: Instruction, split: Operand | None) -> Form:
    shape = next((m for m in i.modifiers if m in ACCESS_SHAPES), None)
    if shape is None:
        raise b.fail(f"`{i.name}` needs a shape: {', '.join('.' + s for s in ACCESS_SHAPES)}")
    count = next((m for m in i.modifiers if m[0] == "x" and m[1:].isdigit()), None)
    if count is None:
        raise b.fail(f"`{i.name}` needs a number of repetitions: .x1, .x2, ...")
    if (shape == "16x32bx2") != (split is not None):
        raise b.fail(f"`{i.name}`: .16x32bx2, and it alone, takes the distance of its two halves as a constant")
    packed = i.has("pack::16b") or i.has("unpack::16b")
    distance = 0 if split is None else b.integer(split, "the distance of the two halves")
    try:
        cells = access_cells(shape, int(count[1:]), packed, distance)
    except ValueError as error:
        raise b.fail(f"`{i.name}`: {error}") from error
    if split is None:
        return Form(cells, (0,), cells.columns)
    return Form(cells, (0, distance), int(count[1:]) * (2 if packed else 1))


def _place(origin: Origin, form: Form, address: int) -> tuple[int, int]:
    """(lane, column) of an access by a warp, which reaches a quarter of the lanes only."""
    lane, column = split_address(address)
    warp, name = origin.warp, origin.instruction.name.split(".")
    what = f"`{'.'.join(name[:2])}` of warp {warp}"
    first = SLAB_LANES * (warp % 4)
    reach = f"it reaches lanes {first} to {first + SLAB_LANES - 1} only"
    within = lane % SLAB_LANES
    where = f"{what} addresses lane {lane}, but {reach}: put {first} into bits 31:16 of the address"
    quarter = lane // SLAB_LANES
    if quarter not in (0, warp % 4) and (lane < LANES or quarter % 4 != warp % 4):
        origin.fault("tensor memory", where, "tensor", column)
    elif quarter != warp % 4:
        # Hardware fills in the quarter. Kernels known to be right give lane 0 in every warp, or count lanes over both
        # CTAs of a pair.
        origin.advise("lanes of another warp addressed", where)
    if form.cells.lanes < SLAB_LANES and within not in (0, 16):
        origin.fault(
            "tensor memory",
            f"{what} starts at lane {lane}: a shape of 16 lanes starts at lane {first} or {first + 16}", "tensor",
            column,
        )  # fmt: skip
        within = 0
    elif form.cells.lanes == SLAB_LANES and within:
        origin.fault(
            "tensor memory", f"{what} starts at lane {lane}: a shape of 32 lanes starts at lane {first}", "tensor",
            column,
        )  # fmt: skip
        within = 0
    return first + within, column


def load(b: Binder, i: Instruction) -> Run:
    """tcgen05.ld."""
    if i.has("red"):
        raise b.unsupported("reductions while loading")
    operands = b.operands(i, 2, 3)
    form = _form(b, i, operands[2] if len(operands) == 3 else None)
    get = tensor_address(b, i, operands[1])
    elements = b.vector(operands[0], form.cells.lane.shape[1], f"`{i.name}`")
    writers = [b.destination(element, "u32") for element in elements]
    slots = [b.slot(element) if isinstance(element, RegisterOperand) else None for element in elements]
    filled = frozenset(slot for slot in slots if slot is not None)
    b.owns_taint = True

    def run(c: Cohort) -> None:
        if not require_whole_warp(c, i):
            return
        tick = c.emulation.next_tick()
        memory = tensor_memory(c.residents)
        addresses = lane_values(c, get)
        values = np.zeros((len(writers), c.n, 32), np.uint32)
        undefined = np.zeros_like(values) if c.residents.tainted else None
        for at, row in active_warps(c):
            origin = Origin(c.residents, i, row)
            lane, column = _place(origin, form, warp_value(c, i, addresses, at, row, "the address"))
            access = Access(origin, "ld", form.regions(lane, column), (), memory.order.own_column(row), tick)
            if not memory.begin(origin.cta, access):
                continue
            memory.order.add_waiting(access)
            cta = memory.cta(origin.cta)
            values[:, at] = _gather(cta.cells, form.cells, lane, column)
            unknown = _gather(cta.undefined, form.cells, lane, column)
            if unknown.any():
                origin.unwritten(f"loaded what nobody had written of {access.extent}")
                undefined = np.zeros_like(values) if undefined is None else undefined
                undefined[:, at] = unknown
        for writer, value in zip(writers, values, strict=True):
            np.copyto(writer(c), value, where=c.where)
        if c.emulation.checking:
            c.residents.in_flight.load(filled, _rows(c), i.line)
        elif undefined is not None:
            undefined[:] = 0
        if undefined is not None:
            for slot, bits in zip(slots, undefined, strict=True):
                if slot is not None:
                    c.residents.set_taint(c, slot, bits)

    return run


def _gather(cells: Words, where: AccessCells, lane: int, column: int) -> Words:
    """(registers, 32) words as a load gives them."""
    places, row = where.places + (COLUMNS * lane + column), cells.reshape(-1)
    first = row.take(places)
    if not where.packed:
        return np.asarray(first)
    return np.asarray((first & np.uint32(0xFFFF)) | (row.take(places + 1) << np.uint32(16)))


@dataclass(slots=True, eq=False)
class StoreWork:
    """A tcgen05.st that was issued and has not landed.

    values     (registers, 32)
    undefined  bits of them that nobody wrote; None for none
    """

    origin: Origin
    queue: Hashable
    memory: CtaTensorMemory
    cells: AccessCells
    lane: int
    column: int
    values: Words
    undefined: Words | None

    def complete(self) -> None:
        """The values arrive in tensor memory."""
        self.origin.residents.emulation.changes += 1
        _scatter(self.memory.cells, self.cells, self.lane, self.column, self.values, 0)
        # The upper half of a cell that got 16 bits holds nothing.
        _scatter(self.memory.undefined, self.cells, self.lane, self.column, self.undefined, 0xFFFF0000)


def _scatter(cells: Words, where: AccessCells, lane: int, column: int, values: Words | None, above: int) -> None:
    places, row = where.places + (COLUMNS * lane + column), cells.reshape(-1)
    if not where.packed:
        row[places] = 0 if values is None else values
        return
    row[places] = above if values is None else (values & np.uint32(0xFFFF)) | np.uint32(above)
    row[places + 1] = above if values is None else (values >> np.uint32(16)) | np.uint32(above)


def store(b: Binder, i: Instruction) -> Run:
    """tcgen05.st."""
    operands = b.operands(i, 2, 3)
    form = _form(b, i, operands[1] if len(operands) == 3 else None)
    get = tensor_address(b, i, operands[0])
    elements = b.vector(operands[-1], form.cells.lane.shape[1], f"`{i.name}`")
    sources = [b.source(element, "u32") for element in elements]
    slots = [b.slot(element) if isinstance(element, RegisterOperand) else None for element in elements]
    b.owns_taint = True

    def run(c: Cohort) -> None:
        if not require_whole_warp(c, i):
            return
        tick = c.emulation.next_tick()
        residents = c.residents
        memory = tensor_memory(residents)
        addresses = lane_values(c, get)
        values = np.empty((len(sources), c.n, 32), np.uint32)
        for value, source in zip(values, sources, strict=True):
            value[...] = source(c)
        undefined = _taint(c, slots)
        for at, row in active_warps(c):
            origin = Origin(residents, i, row)
            lane, column = _place(origin, form, warp_value(c, i, addresses, at, row, "the address"))
            access = Access(origin, "st", (), form.regions(lane, column), memory.order.own_column(row), tick)
            if not memory.begin(origin.cta, access):
                continue
            access.operation = StoreWork(
                origin, ("tcgen05.st", row), memory.cta(origin.cta), form.cells, lane, column, values[:, at],
                None if undefined is None else undefined[:, at],
            )  # fmt: skip
            memory.order.add_waiting(access)
            residents.agents.start(access.operation)

    return run


def _taint(c: Cohort, slots: Sequence[Slot | None]) -> Words | None:
    """(registers, n, 32) bits of some registers that nobody wrote; None for none."""
    known = c.residents.registers.taint
    if known.keys().isdisjoint(slots):
        return None
    bits: Words = np.zeros((len(slots), c.n, 32), np.uint32)
    for position, slot in enumerate(slots):
        if slot is not None and slot in known:
            bits[position] = known[slot][c.set.rows]
    return bits


def wait(b: Binder, i: Instruction) -> Run:
    """tcgen05.wait::ld and tcgen05.wait::st."""
    b.operands(i, 0)
    kind: AccessKind = "ld" if i.has("wait::ld") else "st"

    def run(c: Cohort) -> None:
        if not require_whole_warp(c, i):
            return
        c.emulation.next_tick()
        for _, row in active_warps(c):
            tensor_memory(c.residents).order.wait(row, kind)
        if kind == "ld":
            c.residents.in_flight.loaded(_rows(c))

    return run


def _rows(c: Cohort) -> NDArray[np.int64]:
    return c.set.index if c.mask is None else c.set.index[c.mask.any(axis=1)]
