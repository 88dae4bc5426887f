"""Every layout of a program, as values: who holds each register tile, and where the elements of each buffer lie.

Of a traced program the layouts are symbolic; of one that is filled in they are numbers, and have pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tinygpu.expressions import Expr, joined
from tinygpu.language.buffer import Buffer
from tinygpu.language.data_paths import columns_taken, copies, rows_in_lanes
from tinygpu.language.memories import CELL_BITS, SMEM
from tinygpu.language.partition import Partition
from tinygpu.layouts.algebra import concatenate
from tinygpu.layouts.composed import ComposedLayout
from tinygpu.layouts.draw import bank_picture, banks_together
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.picture import Picture
from tinygpu.layouts.rows import CHUNK_BYTES
from tinygpu.layouts.step import E, Step
from tinygpu.program.placement import Placement
from tinygpu.program.program import Program
from tinygpu.program.tree import walk

# Of 128 bytes, that a picture of a buffer shows: as many as the widest swizzle's period.
LINES = 8


@dataclass(frozen=True, slots=True, eq=False)
class Distribution:
    """Who holds a tile of registers in one statement.

    statement  as the listing of the program has it
    tile       its name; of a copy through registers the buffer or tensor that is written
    """

    statement: str
    tile: str
    dtype: str
    partition: Partition

    @property
    def layout(self) -> Layout:
        """(threads, values) -> coordinates of the tile, in the fewest modes."""
        return self.partition.coalesced.layout

    @property
    def shape(self) -> str:
        return joined(self.partition.shape, " x ")

    def picture(self, window: tuple[int, int]) -> Picture:
        """Who holds each element, at most so many rows and columns; for numbers."""
        return self.partition.coalesced.picture(window)


def distributions(program: Program) -> Iterator[Distribution]:
    """The partition of every register tile that a statement touches, and of every copy that threads carry out."""
    turns = frozenset(p.name for p in program.pipelines if not p.buffers)
    for s in walk(program.body):
        line = s.headline(turns).rstrip(":")
        tiles = {tile.name: tile for tile in (*s.writes, *s.reads) if tile.partition is not None}
        for tile in tiles.values():
            if tile.partition is not None:
                yield Distribution(line, tile.name, str(tile.dtype), tile.partition)
        if s.moves_under is not None:
            (moved,) = s.writes
            yield Distribution(line, moved.name, str(moved.dtype), s.moves_under)


@dataclass(frozen=True, slots=True, eq=False)
class BufferLayout:
    """Where the elements of one buffer lie.

    layout   (coordinate along each axis, stage) -> bytes from the start of the buffer's first stage, or lanes and
             columns of tensor memory; None where elements are narrower than a column
    swizzle  what is said of it in words
    """

    buffer: Buffer
    pipeline: str
    layout: Layout | ComposedLayout | None
    swizzle: str

    @property
    def shape(self) -> str:
        return joined(self.buffer.shape, " x ")

    def picture(self, lines: int) -> Picture | None:
        """What lies in each bank in the first stage, at most so many lines of 128 bytes; for numbers in SMEM."""
        if not isinstance(self.layout, ComposedLayout) or self.buffer.padded:
            return None
        first = concatenate(*self.layout.layout.modes[:-1])
        stage = ComposedLayout(self.layout.swizzle, first, self.layout.outer)
        bits = self.buffer.dtype.bits
        return bank_picture(stage, bits, 8, lines, banks_together(stage, bits, 8))


def buffer_layouts(program: Program, placement: Placement | None = None) -> Iterator[BufferLayout]:
    """The layout of every buffer: of a filled-in program as it was placed, else symbolic."""
    for pipeline in program.pipelines:
        for b in pipeline.buffers:
            if placement is not None and b.memory is SMEM:
                place = placement.places[b.name]
                swizzled = _of_hardware(b, place.swizzle_bytes) if place.swizzle_bytes else "solved"
                yield BufferLayout(b, pipeline.name, place.layout, swizzled if place.xor else "none")
            else:
                yield BufferLayout(b, pipeline.name, _symbolic(b), _said(b))


def _said(b: Buffer) -> str:
    if b.memory is not SMEM:
        return "none"
    if b.swizzle_bytes is not None:
        return _of_hardware(b, b.swizzle_bytes)
    return f"{b.layout}, solved for each candidate" if b.layout else "none"


def _of_hardware(b: Buffer, width: Expr | int) -> str:
    return f"of the hardware, {width} B wide" + (f", {b.atom_bytes} B together" if b.atom_bytes > CHUNK_BYTES else "")


def _symbolic(b: Buffer) -> Layout | None:
    """Before any swizzle, with the names of parameters."""
    if b.memory is not SMEM:
        return _tensor_memory(b)
    modes: list[list[tuple[Leaf, Leaf | Step]]] = []
    for axis, (extent, step) in enumerate(zip(b.shape, b.row_steps, strict=True)):
        if axis != b.contiguous:
            modes.append([(extent, step * (b.pitch_bytes if b.swizzle_bytes is None else b.swizzle_bytes))])
        elif b.swizzle_bytes is None:
            modes.append([(extent, b.dtype.bytes)] if b.dtype.bits >= 8 else [(2, 0), (extent // 2, 1)])
        else:
            per: Expr = b.swizzle_bytes * 8 // b.element_bits
            row = [(per, b.dtype.bytes)] if b.dtype.bits >= 8 else [(2, 0), (per // 2, 1)]
            if b.padded:
                row = [(CHUNK_BYTES, 0), (per // CHUNK_BYTES, CHUNK_BYTES)]
            modes.append([*row, (extent // per, b.rows * b.swizzle_bytes)])
    return Layout.of(*modes, [(b.stages, b.stage_bytes)])


def _tensor_memory(b: Buffer) -> Layout | None:
    """By its path; stages lie side by side."""
    if b.element_bits != CELL_BITS or len(b.shape) != 2:
        return None
    path = rows_in_lanes(*b.shape) if b.path is None else b.path
    return Layout.of(path[0].steps, path[1].steps, *copies(path), [(b.stages, columns_taken(path) * E("column"))])
