"""Where the buffers of a filled-in program lie in shared memory, and in which layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tinygpu.language.derive import BUFFER_ALIGN_BYTES, barrier_bytes
from tinygpu.language.memories import SMEM
from tinygpu.language.tile import Buffer
from tinygpu.program import nodes as n


@dataclass(frozen=True, slots=True)
class BufferPlace:
    """One buffer.

    offset_bytes  of its first stage in the CTA's shared memory
    stage_bytes   from one stage to the next
    pitch_bytes   from one row to the next
    xor           (row bit, mask over the byte within the row): the swizzle; where the row has
                  the bit, the mask is XORed into the byte
    """

    offset_bytes: int
    stage_bytes: int
    pitch_bytes: int
    stages: int
    xor: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Placement:
    """Places of all buffers, and the bytes that a CTA needs."""

    places: Mapping[str, BufferPlace]
    total_bytes: int


Swizzles = Mapping[str, tuple[tuple[int, int], ...]]


def place(program: n.Program, swizzles: Swizzles) -> Placement:
    """Lays the buffers of each scope behind those of the scopes around it; scopes that follow each other share.

    With several roles nothing is shared: a role does not wait for the others at the end of a scope.
    """
    places: dict[str, BufferPlace] = {}
    total = _place(program, program.body, 0, swizzles, places)
    return Placement(places, total)


def _place(
    program: n.Program, body: tuple[n.Statement, ...], start: int, swizzles: Swizzles, places: dict[str, BufferPlace]
) -> int:
    end = start
    side_by_side = len(program.roles) > 1
    for s in body:
        start = end if side_by_side else start
        if isinstance(s, n.Scope):
            here = start
            for name in s.pipelines:
                for b in program.pipeline(name).buffers:
                    if b.memory is SMEM:
                        places[b.name] = _one(b, here, swizzles)
                        here += -(-int(b.bytes) // BUFFER_ALIGN_BYTES) * BUFFER_ALIGN_BYTES
                here += int(barrier_bytes(program.pipeline(name)))
            end = max(end, here, _place(program, s.body, here, swizzles, places))
        elif isinstance(s, (n.InRole, n.Loop, n.Fill, n.Drain)):
            end = max(end, _place(program, s.body, start, swizzles, places))
    return end


def _one(b: Buffer, offset: int, swizzles: Swizzles) -> BufferPlace:
    return BufferPlace(offset, int(b.stage_bytes), int(b.pitch_bytes), int(b.stages), swizzles.get(b.name, ()))
