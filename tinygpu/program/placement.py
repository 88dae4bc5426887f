"""Where the buffers of a filled-in program lie in shared memory, and in which layout."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.buffer import Buffer
from tinygpu.language.buffer_space import (
    BUFFER_ALIGN_BYTES,
    all_turns,
    answer_bytes,
    barrier_bytes,
    buffer_align_bytes,
    cluster_exchange,
    exchanges,
)
from tinygpu.language.memories import SMEM
from tinygpu.layouts.composed import ComposedLayout
from tinygpu.layouts.rows import Xor, cut_rows, whole_rows
from tinygpu.layouts.swizzle import xor_pairs
from tinygpu.program import nodes as n
from tinygpu.program.program import Program


@dataclass(frozen=True)
class BufferPlace:
    """One buffer: where it begins in the CTA's shared memory, and where each element lies from there.

    offset_bytes  of its first stage
    layout        (coordinate along each axis of the buffer, stage) -> bytes from the start of the first stage, as
                  `tinygpu.layouts.rows` makes it. What addresses are computed from is read off it
    """

    offset_bytes: int
    layout: ComposedLayout

    def addresses(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bytes from the start of a stage to elements, at coordinates of shape (..., axes of the buffer)."""
        return self.layout.at_coordinates(in_first_stage(coordinates))

    def overlaps(self, other: BufferPlace) -> bool:
        """Whether some of its memory is memory of the other as well."""
        (a, b), (c, d) = ((p.offset_bytes, p.offset_bytes + p.stages * p.stage_bytes) for p in (self, other))
        return a < d and c < b

    @cached_property
    def stages(self) -> int:
        return self.layout.layout.modes[-1].size

    @cached_property
    def stage_bytes(self) -> int:
        """From one stage to the next."""
        return (self.layout.outer or self.layout.layout).leaves[-1][1]

    @cached_property
    def pitch_bytes(self) -> int:
        """From one row to the next."""
        return self.layout.outer.leaves[1][1] if self.layout.outer is not None else self.swizzle_bytes

    @cached_property
    def swizzle_bytes(self) -> int:
        """Width of the hardware's swizzle to which rows are cut; 0 where they are whole."""
        return math.prod(self._cut[0])

    @cached_property
    def block_bytes(self) -> int:
        """From one piece of a row to the next, where rows are cut."""
        return self._cut[1][1]

    @cached_property
    def xor(self) -> Xor:
        """The swizzle as (row bit, mask over the byte within the row, or within its piece)."""
        row = self.layout.outer.leaves[0][0] if self.layout.outer is not None else self.swizzle_bytes
        low = row.bit_length() - 1
        return tuple((bit - low, mask) for bit, mask in xor_pairs(self.layout.swizzle))

    @cached_property
    def _cut(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The two leaves of the axis along which rows are cut: within a piece, and from piece to piece."""
        if self.layout.outer is not None:
            return (0, 0), (0, 0)
        (*_, within, pieces), *_ = (mode.leaves for mode in self.layout.layout.modes if len(mode.leaves) > 1)
        return within, pieces


def in_first_stage(coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
    """Coordinates of shape (..., axes of a buffer) with that of the stage behind them."""
    return np.concatenate([coordinates, np.zeros((*coordinates.shape[:-1], 1), dtype=np.int64)], axis=-1)


@dataclass(frozen=True, slots=True)
class Placement:
    """Places of all buffers, and the bytes that a CTA needs.

    barriers     per pipeline that mbarriers hand over, the offset of the first of them
    of_cluster   the same of what the CTA leaves for others of its cluster
    exchanges    per role whose warps exchange something, (offset, bytes that they leave at a time); two such places
    answers      (offset, how many) of those by which clusters take each other over; behind all are their barriers
    align_bytes  multiple at which shared memory must begin
    """

    places: Mapping[str, BufferPlace]
    total_bytes: int
    barriers: Mapping[str, int]
    align_bytes: int
    exchanges: Mapping[str, tuple[int, int]]
    of_cluster: tuple[int, int]
    answers: tuple[int, int] = (0, 0)

    @property
    def asked_bytes(self) -> int:
        """What a launch asks for: where the loader keeps to a smaller alignment, a kernel rounds up where it begins."""
        rounding_up = self.total_bytes > 0 and self.align_bytes > BUFFER_ALIGN_BYTES
        return self.total_bytes + (self.align_bytes if rounding_up else 0)


Swizzles = Mapping[str, Xor]


def place(program: Program, swizzles: Swizzles) -> Placement:
    """Lays the buffers of each scope behind those of the scopes around it; scopes that follow each other share.

    With several roles nothing is shared: a role does not wait for the others at the end of a scope. Behind all buffers
    lies what warps exchange, and then the barriers of all pipelines, which are made before the first scope begins.
    """
    places: dict[str, BufferPlace] = {}
    total = _place(program, program.body, 0, swizzles, places)
    left: dict[str, tuple[int, int]] = {}
    for role, size in exchanges(program):
        if turn := int(size):
            left[role] = total, turn
            total += int(all_turns(size))
    others = cluster_exchange(program)
    of_cluster = total, int(others)
    total += int(all_turns(others))
    answers = total, int(program.grid.scheduler.answers)
    total += int(answer_bytes(program))
    barriers: dict[str, int] = {}
    for pipeline in program.pipelines:
        if own := int(barrier_bytes(program, pipeline)):
            barriers[pipeline.name] = total
            total += own
    return Placement(places, total, barriers, buffer_align_bytes(program), left, of_cluster, answers)


def _place(
    program: Program,
    body: tuple[n.Statement, ...],
    start: int,
    swizzles: Swizzles,
    places: dict[str, BufferPlace],
) -> int:
    end = start
    align = buffer_align_bytes(program)
    side_by_side = len(program.roles) > 1
    for s in body:
        start = end if side_by_side else start
        here = start
        for name in s.scopes:
            for b in program.pipeline(name).buffers:
                if b.memory is SMEM:
                    places[b.name] = _one(b, here, swizzles)
                    here += -(-int(b.bytes) // align) * align
        end = max(end, here)
        for inner in s.children:
            reached = _place(program, inner.statements, here, swizzles, places)
            here = reached if side_by_side or inner.ahead else here
            end = max(end, reached)
    return end


def _one(b: Buffer, offset: int, swizzles: Swizzles) -> BufferPlace:
    return BufferPlace(offset, buffer_layout(b, swizzles.get(b.name, ())))


def buffer_layout(b: Buffer, xor: Xor = ()) -> ComposedLayout:
    """(coordinate along each axis, stage) -> bytes; `xor` swizzles whole rows."""
    axes = [
        (int(extent), int(step), max(b.element_bits // 8, 1) if axis == b.contiguous else 0)
        for axis, (extent, step) in enumerate(zip(b.shape, b.row_steps, strict=True))
    ]
    shared = max(8 // b.element_bits, 1)
    if b.swizzle_bytes is not None:
        return cut_rows(
            tuple(axes), int(b.rows), int(b.swizzle_bytes), int(b.stages), int(b.stage_bytes), shared, b.atom_bytes,
            b.padded,
        )  # fmt: skip
    return whole_rows(tuple(axes), int(b.rows), int(b.pitch_bytes), xor, int(b.stages), int(b.stage_bytes), shared)
