"""tcgen05.cp, from shared to tensor memory, and tcgen05.shift, of rows within tensor memory."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import async_shared
from tinygpu.ptx.emulator.access.async_shared import Agent, Bools, Index
from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.tcgen05_work import (
    CHUNK_BYTES,
    Issue,
    cta_group,
    issue,
    lane_values,
    register_slots,
    tensor_address,
    threads,
)
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.tensor_memory import CtaTensorMemory
from tinygpu.ptx.emulator.state.tensor_order import Access, Region, lane_run
from tinygpu.ptx.emulator.units.matrix_descriptors import decode_descriptor, operand_problems
from tinygpu.ptx.emulator.units.operand_tiles import k_major_chunks
from tinygpu.ptx.emulator.units.tcgen05_math import copy_data_bytes, expand_copy
from tinygpu.ptx.emulator.units.tensor_memory_maps import COPY_SHAPES, LANES, SLAB_LANES, CopyShape, split_address

_SOURCES = ("b6x16_p32", "b4x16_p64")
_WORD_MASK = 0xFFFFFFFFFFFFFFFF


def copy(b: Binder, i: Instruction) -> Run:
    """tcgen05.cp."""
    group = cta_group(b, i)
    name = _shape_name(b, i)
    shape = COPY_SHAPES[name]
    source = next((m for m in i.modifiers if m in _SOURCES), None)
    if (source is not None) != i.has("b8x16"):
        raise b.fail(f"`{i.name}`: decompression needs .b8x16 and one of .b6x16_p32 and .b4x16_p64")
    where, described = b.operands(i, 2)
    get, words = tensor_address(b, i, where), b.source(described, "u64")
    slots = register_slots(b, i.operands)
    site = b.site(i)
    b.owns_taint = True

    def run(c: Cohort) -> None:
        for slot in slots if c.residents.tainted else ():
            c.residents.require_initialised(c, slot, i, "is an operand of tcgen05.cp")
        addresses, values = lane_values(c, get), lane_values(c, words)
        for at, row, lane in threads(c):
            c.emulation.next_tick()
            start = issue(c, i, site, row, lane, group)
            _copy(start, shape, name, source, int(addresses[at, lane]), int(values[at, lane]) & _WORD_MASK)

    return run


def _shape_name(b: Binder, i: Instruction) -> str:
    parts = [m for m in i.modifiers if m.startswith("warpx")]
    for name in COPY_SHAPES:
        size, _, multicast = name.partition(".")
        if i.has(size) and parts == ([multicast] if multicast else []):
            return name
    raise b.fail(f"`{i.name}` needs a shape: {', '.join('.' + s for s in COPY_SHAPES)}")


def _copy(start: Issue, shape: CopyShape, name: str, source: str | None, address: int, word: int) -> None:
    """Issue one copy: into the tensor memory of each CTA from its own shared memory."""
    lane, column = split_address(address)
    if lane and (shape.aligned_lane or lane >= SLAB_LANES):
        last = f"0 to {SLAB_LANES - 1}" if not shape.aligned_lane else "0"
        start.fault(f"tcgen05.cp.{name} to lane {lane} of tensor memory: the lane must be {last}")
        lane = 0
    descriptor = decode_descriptor(word, "tcgen05")
    problems = operand_problems(descriptor, "the source", 8, False, shape.rows, shape.row_bytes)
    if problems:
        start.origin.fault("descriptor", f"matrix descriptor {word:#018x}: {'; '.join(problems)}")
        start.good = False
        return
    start.advise_constant(descriptor, word)
    chunks = k_major_chunks(descriptor, shape.rows, shape.row_bytes)
    lanes = 0
    for targets in shape.lanes:
        for target in targets:
            lanes |= 1 << target + lane
    region = Region(lanes, column, column + shape.columns)
    moves = []
    for cta in start.ctas:
        index, invalid = start.read_shared(
            cta, chunks, descriptor.swizzle, "the source of tcgen05.cp", copy_data_bytes(source)
        )
        access = Access(
            start.origin, "cp" if shape.aligned_lane else "cp.4x256b", (), (region,), start.agent.column,
            start.memory.order.tick,
        )  # fmt: skip
        start.touch(cta, access)
        into = start.memory.cta(cta)
        moves.append(partial(_land, start.agent, into, shape, source, index, invalid, lane, column))

    def work() -> None:
        for move in moves:
            move()

    start.start(work)


def _land(
    agent: Agent, memory: CtaTensorMemory, shape: CopyShape, source: str | None, index: Index, invalid: Bools | None,
    lane: int, column: int,
) -> None:  # fmt: skip
    data = async_shared.read_bytes(agent, index, CHUNK_BYTES).reshape(shape.rows, shape.row_bytes)
    if source is not None:
        data = expand_copy(data, source)
    words = np.ascontiguousarray(data).view(np.uint32)
    undefined: NDArray[np.uint32] = np.zeros_like(words)
    if invalid is not None:
        undefined[np.repeat(invalid, CHUNK_BYTES // 4, axis=1)] = 0xFFFFFFFF
    for targets in shape.lanes:
        rows = np.array(targets) + lane
        memory.cells[rows, column : column + shape.columns] = words
        memory.undefined[rows, column : column + shape.columns] = undefined


def shift(b: Binder, i: Instruction) -> Run:
    """tcgen05.shift: in 32 lanes, the 32 bytes of each lane but the last become those of the next lane."""
    group = cta_group(b, i)
    if not i.has("down"):
        raise b.fail(f"`{i.name}` needs .down")
    get = tensor_address(b, i, b.operands(i, 1)[0])
    site = b.site(i)
    b.owns_taint = True

    def run(c: Cohort) -> None:
        addresses = lane_values(c, get)
        for at, row, lane in threads(c):
            c.emulation.next_tick()
            start = issue(c, i, site, row, lane, group)
            _shift(start, int(addresses[at, lane]))

    return run


def _shift(start: Issue, address: int) -> None:
    lane, column = split_address(address)
    if lane % SLAB_LANES or lane >= LANES:
        start.fault(f"tcgen05.shift at lane {lane} of tensor memory: the lane must be 0, 32, 64 or 96")
        return
    region = Region(lane_run(lane, SLAB_LANES), column, column + SHIFTED_COLUMNS)
    memories = []
    for cta in start.ctas:
        start.touch(
            cta,
            Access(
                start.origin, "shift", (region,), (region,), start.agent.column, start.memory.order.tick,
            ),
        )  # fmt: skip
        memories.append(start.memory.cta(cta))

    def work() -> None:
        for memory in memories:
            shift_rows(memory, lane, column)

    start.start(work)


SHIFTED_COLUMNS = 8
"""tcgen05.shift moves 32 bytes per lane (PTX ISA, "Data Movement Shape": 31x256b)."""


def shift_rows(memory: CtaTensorMemory, lane: int, column: int) -> None:
    """Lane l of a slab gets what lane l + 1 held; the last lane keeps its own.

    The manual does not say which way is down; a published example of the vendor states it, as seen on hardware.
    """
    for cells in (memory.cells, memory.undefined):
        slab = cells[lane : lane + SLAB_LANES, column : column + SHIFTED_COLUMNS]
        slab[:-1] = slab[1:].copy()
