"""How ldmatrix and stmatrix reach a fragment: which lane points at which row, and which register a matrix is in."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.matrix_fragments import WARP, Matrices
from tinygpu.language.partition import Partition
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import E, Step

Digit = tuple[int, Leaf | Step]


@dataclass(frozen=True, slots=True)
class MatrixAddresses:
    """How ldmatrix reads a fragment: who supplies which row address, and which matrix lands in which register.

    count      matrices per instruction: 1, 2 or 4
    addresses  its threads give the row that each lane points at; its values enumerate the instructions
    registers  (instructions, registers): index, in the fragment's order, of each register, those of a matrix together
    """

    count: int
    addresses: Partition
    registers: NDArray[np.int64]


def matrix_addresses(partition: Partition, of: Matrices, counts: tuple[int, ...] = (1, 2, 4)) -> MatrixAddresses:
    """Row addresses for a fragment of matrices that are held as `of` says, `counts` of them at once."""
    warps = _digits(partition.threads)[len(of.lanes) :]
    listed: list[tuple[int, Leaf | Step, int]] = []  # (size, stride, step of the register's index)
    below = 1
    for size, stride in _digits(partition.values)[len(of.register) :]:
        listed.append((size, stride, below))
        below *= size
    inside: list[tuple[int, int]] = []
    for wanted, stride in of.inside:
        place = next(i for i, (_, other, _) in enumerate(listed) if other == stride)
        size, _, step = listed[place]
        inside.append((int(wanted), step))
        listed[place] = (size // int(wanted), stride * int(wanted), step * int(wanted))
    matrices = math.prod(size for size, _, _ in listed)
    count = max(c for c in counts if matrices % c == 0)
    lanes: list[Digit] = [(of.rows, E(of.row_axis))]
    rest: list[Digit] = []
    steps_in: list[tuple[int, int]] = []  # (size, step of the register's index) of the lanes' digits
    steps_out: list[tuple[int, int]] = []
    need = count
    for size, stride, step in listed:
        taken = math.gcd(size, need)
        if taken > 1:
            lanes.append((taken, stride))
            steps_in.append((taken, step))
        if size // taken > 1:
            rest.append((size // taken, stride * taken))
            steps_out.append((size // taken, step * taken))
        need //= taken
    if count * of.rows < WARP:
        lanes.append((WARP // (count * of.rows), 0))
    addresses = Partition(partition.shape, Layout.of([*lanes, *warps], rest))
    together = _indices(inside + steps_in)  # of one instruction
    return MatrixAddresses(count, addresses, _indices(steps_out)[:, None] + together[None, :])


def _digits(mode: Layout) -> list[Digit]:
    return [(size, stride) for size, stride in mode.steps if isinstance(size, int)]


def _indices(steps: list[tuple[int, int]]) -> NDArray[np.int64]:
    out = np.zeros(1, dtype=np.int64)
    for size, step in steps:
        out = (np.arange(size) * step)[:, None] + out[None, :]
        out = out.reshape(-1)
    return out
