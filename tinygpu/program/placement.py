"""Where the buffers of a filled-in program lie in shared memory, and in which layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.derive import barrier_bytes, buffer_align_bytes
from tinygpu.language.memories import SMEM
from tinygpu.language.tile import Buffer
from tinygpu.layouts.algebra import concatenate
from tinygpu.layouts.composed import ComposedLayout
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.swizzle import Swizzle, xor_swizzle
from tinygpu.program import nodes as n
from tinygpu.program.program import Program


@dataclass(frozen=True, slots=True)
class BufferPlace:
    """One buffer: where it begins in the CTA's shared memory, and where each element lies from there.

    The fields after `layout` say the same of rows and bytes within them, as addresses are computed.

    offset_bytes  of its first stage
    layout        (coordinate along each axis of the buffer, stage) -> bytes from the start of the first stage
    stage_bytes   from one stage to the next
    pitch_bytes   from one row to the next
    xor           (row bit, mask over the byte within the row): the swizzle; where the row has
                  the bit, the mask is XORed into the byte
    swizzle_bytes width of the hardware's swizzle, to which rows are cut and which then is the pitch; else 0
    block_bytes   from one piece of a row to the next
    """

    offset_bytes: int
    layout: ComposedLayout
    stage_bytes: int
    pitch_bytes: int
    stages: int
    xor: tuple[tuple[int, int], ...] = ()
    swizzle_bytes: int = 0
    block_bytes: int = 0

    def addresses(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Bytes from the start of a stage to elements, at coordinates of shape (..., axes of the buffer)."""
        first_stage = np.zeros((*coordinates.shape[:-1], 1), dtype=np.int64)
        return self.layout.at_coordinates(np.concatenate([coordinates, first_stage], axis=-1))


@dataclass(frozen=True, slots=True)
class Placement:
    """Places of all buffers, and the bytes that a CTA needs.

    barriers     per pipeline that mbarriers hand over, the offset of the first of them
    align_bytes  multiple at which shared memory must begin
    """

    places: Mapping[str, BufferPlace]
    total_bytes: int
    barriers: Mapping[str, int]
    align_bytes: int


Swizzles = Mapping[str, tuple[tuple[int, int], ...]]


def place(program: Program, swizzles: Swizzles) -> Placement:
    """Lays the buffers of each scope behind those of the scopes around it; scopes that follow each other share.

    With several roles nothing is shared: a role does not wait for the others at the end of a scope.
    """
    places: dict[str, BufferPlace] = {}
    barriers: dict[str, int] = {}
    total = _place(program, program.body, 0, swizzles, places, barriers)
    return Placement(places, total, barriers, buffer_align_bytes(program))


def _place(
    program: Program,
    body: tuple[n.Statement, ...],
    start: int,
    swizzles: Swizzles,
    places: dict[str, BufferPlace],
    barriers: dict[str, int],
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
            if barrier := int(barrier_bytes(program, program.pipeline(name))):
                barriers[name] = here
                here += barrier
        end = max(end, here)
        for inner in s.children:
            reached = _place(program, inner.statements, here, swizzles, places, barriers)
            here = reached if side_by_side or inner.ahead else here
            end = max(end, reached)
    return end


def _one(b: Buffer, offset: int, swizzles: Swizzles) -> BufferPlace:
    stage, stages = int(b.stage_bytes), int(b.stages)
    if b.swizzle_bytes is None:
        xor, pitch = swizzles.get(b.name, ()), int(b.pitch_bytes)
        return BufferPlace(offset, _rows(b, pitch, xor), stage, pitch, stages, xor)
    width, block = int(b.swizzle_bytes), int(b.rows) * int(b.swizzle_bytes)
    return BufferPlace(offset, _cut(b, width, block), stage, width, stages, HARDWARE_SWIZZLES[width].xor, width, block)


def _rows(b: Buffer, pitch: int, xor: tuple[tuple[int, int], ...]) -> ComposedLayout:
    """Whole rows at a pitch, which is rounded up to a power of two before the swizzle and put back behind it."""
    wide, tall, stages = 1 << (pitch - 1).bit_length(), 1 << (int(b.rows) - 1).bit_length(), int(b.stages)
    steps = [b.dtype.bytes if axis == b.contiguous else wide * int(step) for axis, step in enumerate(b.row_steps)]
    inner = Layout((*map(int, b.shape), stages), (*steps, wide * tall))
    low = wide.bit_length() - 1
    swizzle = xor_swizzle(tuple((low + bit, mask) for bit, mask in xor), (wide * tall * stages - 1).bit_length())
    return ComposedLayout(swizzle, inner, Layout((wide, tall, stages), (1, pitch, int(b.stage_bytes))))


def _cut(b: Buffer, width: int, block: int) -> ComposedLayout:
    """First `width` bytes of every row, then the next of every row; the swizzle of the hardware on all of it."""
    per = width // b.dtype.bytes
    line = Layout((per, int(b.shape[b.contiguous]) // per), (b.dtype.bytes, block))
    rows = [Layout(int(extent), width * int(step)) for extent, step in zip(b.shape, b.row_steps, strict=True)]
    axes = [line if axis == b.contiguous else row for axis, row in enumerate(rows)]
    stages = Layout(int(b.stages), int(b.stage_bytes))
    return ComposedLayout(HARDWARE_SWIZZLES[width].swizzle, concatenate(*axes, stages))


@dataclass(frozen=True, slots=True)
class HardwareSwizzle:
    """How TMA and wgmma exchange 16-byte chunks: on address bits, and as (row bit, mask over the byte in its width)."""

    swizzle: Swizzle
    xor: tuple[tuple[int, int], ...]


# PTX ISA, "Swizzling Modes": chunk c of 16 bytes in 128-byte line l lies at c ^ (l mod 8, 4 or 2); a line holds one,
# two or four rows of a swizzle's width.
HARDWARE_SWIZZLES = {
    128: HardwareSwizzle(Swizzle(3, 4, 3), ((0, 16), (1, 32), (2, 64))),
    64: HardwareSwizzle(Swizzle(2, 4, 3), ((1, 16), (2, 32))),
    32: HardwareSwizzle(Swizzle(1, 4, 3), ((2, 16),)),
}
