"""Where the buffers of a filled-in program lie in tensor memory: columns of all lanes, allocated once for a CTA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tinygpu.language.buffer_space import TMEM_COLUMN_BYTES, allocated_tmem_bytes, tmem_bytes
from tinygpu.language.memories import TMEM
from tinygpu.program.program import Program


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
            if b.memory is TMEM and not b.over:
                pipeline = pipeline or p.name
                width = int(tmem_bytes(b)) // TMEM_COLUMN_BYTES
                places[b.name] = CellPlace(end, width // int(b.stages))
                end += width
        places |= {b.name: places[b.over] for b in p.buffers if b.over}
    return Columns(pipeline, places, int(allocated_tmem_bytes(program)) // TMEM_COLUMN_BYTES) if places else None
