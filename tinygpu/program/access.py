"""Accesses: memory o (window + distribution), for every operation that moves data between threads and a memory.

An access says which element each lane of each warp instruction touches, as a layout (threads, instructions) ->
coordinates of a window. Composed with the layout of the memory it is a layout into addresses: what it costs, whether
vectors are aligned and which banks meet is asked of that. Before a program is filled in its leaves are expressions;
with numbers in, every lane can be listed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.expressions import Operand, ceil_div, expr, minimum
from tinygpu.language.instruction import BulkTransfer, Instruction, MatrixLoad, MatrixMove, MatrixStore, Transfer
from tinygpu.language.matrix_fragments import MATRIX_ROW_BYTES
from tinygpu.language.memories import GMEM, RMEM, SMEM
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.layouts.composed import ComposedLayout
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf, leaf, times
from tinygpu.layouts.step import E, Step
from tinygpu.program import nodes as n
from tinygpu.program.matrices import matrix_addresses

AccessKind = Literal["ldst", "cp.async", "ldmatrix"]
WARP = 32
# Rows that values give are taken to lie anywhere: each so many bits farther than the row before it in the tensor, so
# that none shares a piece of memory with another.
APART_BITS = 1 << 20
MATRIX_ROWS = 8


@dataclass(frozen=True, eq=False)
class Access:
    """One operation's accesses to one tensor or buffer.

    name         attribute of the machine's instruction
    instruction  what moves
    tile         the window that is touched
    kind         "ldst", "cp.async" or "ldmatrix" (also stmatrix)
    writes       whether the window is written
    width_bits   that each lane moves
    starts       (threads, instructions) -> coordinates in the window of the first element that a lane touches
    once         of threads that hold the same only the first takes part
    eights       of matrices: how often eight lanes give eight rows in one instruction; 0: lanes move what they hold
    by_engine    a copy engine moves boxes, whose rows stand for the lanes of an instruction; no warp does
    rows_apart   bits from a row that a value names to that of its neighbour; None: anywhere, no two near each other
    """

    name: str
    instruction: Instruction
    tile: Tile
    kind: AccessKind
    writes: bool
    width_bits: Leaf
    starts: Partition
    once: bool = False
    eights: int = 0
    by_engine: bool = False
    rows_apart: Leaf | None = None

    @cached_property
    def layout(self) -> Layout:
        """memory o distribution: (threads, instructions) -> bits from where the window of a tensor begins."""
        pitches = tensor_pitches(self.tile)
        steps: dict[int | str, Leaf] = {
            axis: 0 if home is None else times(leaf(step, "a step"), pitches[home])
            for axis, (home, step) in enumerate(zip(self.tile.axes, self.tile.every, strict=True))
        }
        if self.tile.pick is not None:
            apart = self.rows_apart
            if apart is None:
                apart = leaf(expr(pitches[self.tile.pick.home]) + APART_BITS, "rows that values give")
            for axis in reversed(self.tile.pick.along):
                steps[axis] = apart
                apart = times(apart, leaf(self.tile.shape[axis], "rows that values give"))
        return self.starts.layout.strided(steps)

    # -- with numbers in -------------------------------------------------------------------------------------------

    @property
    def width_bytes(self) -> int:
        """Bytes that each lane moves."""
        return int(self.width_bits) // 8

    @cached_property
    def lanes(self) -> NDArray[np.int64]:
        """(instructions, 32, axes) coordinates in the window of each lane's first element, one entry per warp
        instruction; for matrices (instructions, 8, axes), one entry per eight rows; -1 marks a lane that stays out.
        """
        coordinates = self.starts.coordinates()
        if self.eights:
            threads, count, axes = coordinates.shape
            by_warp = coordinates.reshape(threads // WARP, 4, MATRIX_ROWS, count, axes)[:, : self.eights]
            return by_warp.transpose(0, 3, 1, 2, 4).reshape(-1, MATRIX_ROWS, axes)
        if self.once:
            coordinates = coordinates.copy()
            coordinates[~self.starts.stores()] = -1
        if len(coordinates) % WARP:  # the rest of the last warp takes no part
            idle = np.full((-len(coordinates) % WARP, *coordinates.shape[1:]), -1)
            coordinates = np.concatenate([coordinates, idle])
        threads, count, axes = coordinates.shape
        return coordinates.reshape(threads // WARP, WARP, count, axes).transpose(0, 2, 1, 3).reshape(-1, WARP, axes)

    @cached_property
    def _inside(self) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Which lanes stay out, and `lanes` with 0 for their coordinates."""
        out = np.any(self.lanes < 0, axis=-1)
        return out, np.where(np.expand_dims(out, -1), 0, self.lanes)

    def addresses(self, memory: Layout | ComposedLayout, origin: tuple[int, ...]) -> NDArray[np.int64]:
        """(instructions, lanes): what `memory` says of each lane's first element, in its unit; -1 for who stays out.

        memory  coordinates of what the window is cut from -> addresses: a mode for each axis, and for stages
        origin  where the window begins in it, along each of these modes
        """
        out, inside = self._inside
        moved = np.zeros((*out.shape, len(origin)), dtype=np.int64) + np.array(origin, dtype=np.int64)
        moved[..., : inside.shape[-1]] += inside
        found = memory.at_coordinates(moved)
        found[out] = -1
        return found


def accesses(statement: n.Statement) -> Iterator[Access]:
    """The accesses of one statement, but for those to rows of a buffer that values name: data say where these lie."""
    return (a for a in _accesses(statement) if a.tile.buffer is None or a.tile.pick is None)


def _accesses(statement: n.Statement) -> Iterator[Access]:
    match statement:
        case n.Load() if isinstance(statement.instruction, MatrixLoad):
            yield _matrix(statement.name, statement.instruction, statement.source, statement.result.partition, False)
        case n.Store() if isinstance(statement.instruction, MatrixStore):
            yield _matrix(statement.name, statement.instruction, statement.target, statement.value.partition, True)
        case n.Load() if isinstance(statement.instruction, Transfer) and statement.result.partition is not None:
            yield vectors(statement.name, statement.instruction, statement.source, statement.result.partition, False)
        case n.Store() if isinstance(statement.instruction, Transfer) and statement.value.partition is not None:
            yield vectors(statement.name, statement.instruction, statement.target, statement.value.partition, True)
        case n.Copy() if statement.partition is not None:
            for hop in statement.instructions:
                if isinstance(hop, Transfer):
                    if hop.reads is not RMEM:
                        yield vectors(statement.name, hop, statement.source, statement.partition, False)
                    if hop.writes is not RMEM:
                        yield vectors(statement.name, hop, statement.target, statement.partition, True)


def vectors(name: str, hop: Transfer, tile: Tile, partition: Partition, writes: bool) -> Access:
    """What a transfer of vectors touches of a tile, whose threads hold what `partition` says."""
    tile, partition = tile.finest_under(partition)
    kind: AccessKind = "cp.async" if hop.completion == "commit group" else "ldst"
    width = leaf(expr(hop.vector) * tile.dtype.bits, "the width of a vector")
    once = writes and tile.memory in (GMEM, SMEM) and hop.reads is RMEM
    return Access(name, hop, tile, kind, writes, width, first_of_vectors(partition, hop.vector), once)


def boxes(s: n.Copy, bulk: BulkTransfer) -> Access:
    """What a bulk copy touches in GMEM: box by box, as wide as the swizzle, or row by row; a lane is a row."""
    writes = s.target.memory is GMEM
    tile, buffer = (s.target, s.source.buffer) if writes else (s.source, s.target.buffer)
    if buffer is None:
        raise ValueError(f"{s.name} moves {tile.name} to or from no buffer")
    across, bits, held = buffer.contiguous, tile.dtype.bits, buffer.element_bits
    if tile.apart is not None:
        (across,), tile = tile.groups[across], tile.apart
    run = tile.shape[across]
    if buffer.swizzle_bytes is not None:
        run = minimum(run, buffer.swizzle_bytes * 8 // held)
    rows: list[tuple[Leaf, Leaf | Step]] = [
        (leaf(extent, "rows"), E(axis)) for axis, extent in enumerate(tile.shape) if axis != across
    ]
    side_by_side: list[tuple[Leaf, Leaf | Step]] = [
        (leaf(ceil_div(tile.shape[across], run), "boxes"), leaf(run, "a box") * E(across))
    ]
    lanes, instructions = ([], [*rows, *side_by_side]) if bulk.by_rows else (rows, side_by_side)
    starts = Partition(tile.shape, Layout.of(lanes, instructions))
    return Access(s.name, bulk, tile, "ldst", writes, leaf(run * bits, "a box"), starts, by_engine=True)


def first_of_vectors(partition: Partition, vector: Operand) -> Partition:
    """(threads, instructions) -> coordinates: of each thread's values every `vector`-th, from the first on."""
    left, steps = expr(vector), list[tuple[Leaf, Leaf | Step]]()
    for size, stride in partition.values.steps:
        together = minimum(size, left)
        left = left // together
        steps.append((leaf(expr(size) // together, "a size"), _strided(stride, leaf(together, "a size"))))
    layout = Layout.regrouped(partition.threads.steps, steps)
    return Partition(partition.shape, layout, partition.conditions, partition.made_for)


def _strided(stride: Leaf | Step, count: Leaf) -> Leaf | Step:
    return stride * count if isinstance(stride, Step) else times(stride, count)


def _matrix(name: str, instruction: MatrixMove, tile: Tile, partition: Partition | None, writes: bool) -> Access:
    if partition is None:
        raise ValueError(f"{name} has no matrix addresses")
    held = instruction.matrices(tile, partition)
    if held is None:
        raise ValueError(f"{name} has no form for {tile.name}")
    plan = matrix_addresses(partition, held, instruction.counts)
    eights = plan.count * held.rows // MATRIX_ROWS
    return Access(name, instruction, tile, "ldmatrix", writes, 8 * MATRIX_ROW_BYTES, plan.addresses, eights=eights)


def tensor_pitches(tile: Tile) -> Mapping[int, Leaf]:
    """Bits between neighbours along each axis of the tensor that a window is cut from."""
    if tile.tensor is None:
        raise ValueError(f"{tile.name} is no window of a tensor")
    bits = tile.dtype.bits
    return {axis: times(leaf(step, "a pitch"), bits) for axis, step in enumerate(tile.tensor.strides)}
