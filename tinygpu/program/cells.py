"""Where the buffers of a filled-in program lie in tensor memory: columns of all lanes, allocated once for a CTA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tinygpu.language.memories import TMEM
from tinygpu.program.program import Program

# PTX ISA, tcgen05.alloc: powers of two from 32 to 512 columns.
LEAST_COLUMNS, MOST_COLUMNS = 32, 512
CELL_BITS = 32


@dataclass(frozen=True, slots=True)
class CellPlace:
    """Columns of one buffer: `first` of its first slot, and `width` of each."""

    first: int
    width: int


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a CTA.

    pipeline  the first one with buffers in TMEM
    places    of each buffer
    total     columns that are allocated
    """

    pipeline: str
    places: Mapping[str, CellPlace]
    total: int


def columns(program: Program) -> Columns | None:
    """The buffers in TMEM, one behind the other; None where there are none."""
    places: dict[str, CellPlace] = {}
    end, pipeline = 0, ""
    for p in program.pipelines:
        for b in p.buffers:
            if b.memory is TMEM:
                pipeline = pipeline or p.name
                width = -(-int(b.shape[-1]) * b.dtype.bits // CELL_BITS)
                places[b.name] = CellPlace(end, width)
                end += width * int(b.stages)
    if not places:
        return None
    return Columns(pipeline, places, max(LEAST_COLUMNS, 1 << (end - 1).bit_length()))
