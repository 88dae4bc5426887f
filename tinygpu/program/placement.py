"""Where the buffers of a filled-in program lie in shared memory, and in which layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tinygpu.language.derive import barrier_bytes, buffer_align_bytes
from tinygpu.language.memories import SMEM
from tinygpu.language.tile import Buffer
from tinygpu.program import nodes as n
from tinygpu.program.program import Program


@dataclass(frozen=True, slots=True)
class BufferPlace:
    """One buffer.

    offset_bytes  of its first stage in the CTA's shared memory
    stage_bytes   from one stage to the next
    pitch_bytes   from one row to the next
    xor           (row bit, mask over the byte within the row): the swizzle; where the row has
                  the bit, the mask is XORed into the byte
    span_bytes    where rows are cut into spans: their length, which then is the pitch too; else 0
    block_bytes   from one span of a row to the next
    """

    offset_bytes: int
    stage_bytes: int
    pitch_bytes: int
    stages: int
    xor: tuple[tuple[int, int], ...] = ()
    span_bytes: int = 0
    block_bytes: int = 0


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
    if b.span is None:
        return BufferPlace(offset, int(b.stage_bytes), int(b.pitch_bytes), int(b.stages), swizzles.get(b.name, ()))
    span = int(b.span)
    return BufferPlace(
        offset, int(b.stage_bytes), span, int(b.stages), SPAN_SWIZZLES[span], span, int(b.rows) * span
    )


# PTX ISA, "Swizzling Modes": chunk c of 16 bytes in 128-byte line l lies at c ^ (l mod 8, 4 or 2); a line holds one,
# two or four rows of a span. As (row bit, mask over the byte within the span).
SPAN_SWIZZLES = {128: ((0, 16), (1, 32), (2, 64)), 64: ((1, 16), (2, 32)), 32: ((2, 16),)}
