"""Touches: the coordinates that each lane of each warp instruction touches, in every memory access of a program."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.expressions import expr
from tinygpu.language.instruction import Instruction, MatrixLoad, MatrixMove, MatrixStore, Transfer
from tinygpu.language.matrix_fragments import MATRIX_ROW_BYTES
from tinygpu.language.memories import GMEM, RMEM, SMEM
from tinygpu.language.partition import Partition
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.matrices import matrix_addresses
from tinygpu.program.tree import places

TouchKind = Literal["ldst", "cp.async", "ldmatrix"]


@dataclass(frozen=True, slots=True, eq=False)
class Touch:
    """One operation's accesses to one tensor or buffer.

    name         attribute of the machine's instruction
    instruction  what moves
    tile         the window that is touched
    kind         "ldst", "cp.async" or "ldmatrix" (also stmatrix)
    writes       whether the window is written
    width_bytes  bytes per lane
    lanes        (instances, 32, axes) coordinates in the window of each lane's first element, one entry per warp
                 instruction; for ldmatrix (instances, 8, axes), one entry per 8 rows of matrices; -1 marks a lane
                 that stays out
    """

    name: str
    instruction: Instruction
    tile: Tile
    kind: TouchKind
    writes: bool
    width_bytes: int
    lanes: NDArray[np.int64]


def touches(statement: n.Statement) -> Iterator[Touch]:
    """The accesses of one statement, without the offsets of its windows."""
    match statement:
        case n.Load() if isinstance(statement.instruction, MatrixLoad):
            yield _matrix(statement.name, statement.instruction, statement.source, statement.result.partition, False)
        case n.Store() if isinstance(statement.instruction, MatrixStore):
            yield _matrix(statement.name, statement.instruction, statement.target, statement.value.partition, True)
        case n.Load() if isinstance(statement.instruction, Transfer) and statement.result.partition is not None:
            yield _vectors(statement.name, statement.instruction, statement.source, statement.result.partition, False)
        case n.Store() if isinstance(statement.instruction, Transfer) and statement.value.partition is not None:
            yield _vectors(statement.name, statement.instruction, statement.target, statement.value.partition, True)
        case n.Copy() if statement.partition is not None:
            for hop in statement.instructions:
                if isinstance(hop, Transfer):
                    if hop.reads is not RMEM:
                        yield _vectors(statement.name, hop, statement.source, statement.partition, False)
                    if hop.writes is not RMEM:
                        yield _vectors(statement.name, hop, statement.target, statement.partition, True)


def _vectors(name: str, hop: Transfer, tile: Tile, partition: Partition, writes: bool) -> Touch:
    vector = int(expr(hop.vector))
    coordinates = partition.coordinates()[:, ::vector, :].copy()
    if writes and tile.memory in (GMEM, SMEM) and hop.reads is RMEM:
        coordinates[~partition.stores()] = -1
    if len(coordinates) % 32:  # the rest of the last warp takes no part
        idle = np.full((-len(coordinates) % 32, *coordinates.shape[1:]), -1)
        coordinates = np.concatenate([coordinates, idle])
    threads, values, axes = coordinates.shape
    warps = coordinates.reshape(threads // 32, 32, values, axes).transpose(0, 2, 1, 3).reshape(-1, 32, axes)
    kind: TouchKind = "cp.async" if hop.completion == "commit group" else "ldst"
    return Touch(name, hop, tile, kind, writes, vector * tile.dtype.bytes, warps)


def _matrix(
    name: str, instruction: MatrixMove, tile: Tile, partition: Partition | None, writes: bool
) -> Touch:
    if partition is None:
        raise ValueError(f"{name} has no matrix addresses")
    held = instruction.matrices(tile, partition)
    if held is None:
        raise ValueError(f"{name} has no form for {tile.name}")
    plan = matrix_addresses(partition, held, instruction.counts)
    coordinates = plan.addresses.coordinates()  # (threads, instructions, axes)
    threads, count, axes = coordinates.shape
    by_warp = coordinates.reshape(threads // 32, 4, 8, count, axes)[:, : plan.count * held.rows // 8]
    rows = by_warp.transpose(0, 3, 1, 2, 4).reshape(-1, 8, axes)
    return Touch(name, instruction, tile, "ldmatrix", writes, MATRIX_ROW_BYTES, rows)


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A statement and one combination of the unrolled indices around it."""

    statement: n.Statement
    indices: tuple[tuple[str, int], ...]


def unrolled_statements(body: tuple[n.Statement, ...]) -> Iterator[Placed]:
    """Every statement that contains no others, once for each round of the unrolled loops around it."""
    for place in places(body):
        if not place.statement.children:
            around = [loop for loop in place.loops if loop.written_out]
            for rounds in itertools.product(*[range(int(loop.trips)) for loop in around]):
                yield Placed(place.statement, tuple((loop.index, r) for loop, r in zip(around, rounds, strict=True)))


def offsets(tile: Tile, indices: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
    """Where a window of a buffer begins, for these rounds of the unrolled loops; run-time indices count as 0."""
    known = dict(indices)
    out = []
    for offset in tile.offset:
        total = 0
        for node, coefficient in offset.sympy.as_coefficients_dict().items():
            if node.is_Symbol:
                total += int(coefficient) * known.get(node.name, 0)
            else:
                total += int(coefficient) * int(node)
        out.append(total)
    return tuple(out)
