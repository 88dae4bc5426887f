"""How ldmatrix and stmatrix reach a fragment: which lane points at which row, and which register a matrix is in."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.matrix_fragments import ADDRESSED
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
    registers  (instructions, count): index of the 8x8 matrix, in the fragment's order, that each register receives
    """

    count: int
    addresses: Partition
    registers: NDArray[np.int64]


def matrix_addresses(
    partition: Partition, per_register: int, transposed: bool, counts: tuple[int, ...] = (1, 2, 4)
) -> MatrixAddresses:
    """Row addresses for a fragment of 8x8 matrices (`per_register` elements in 32 bits), `counts` of them at once."""
    lanes_of, warps = _digits(partition.threads)[:2], _digits(partition.threads)[2:]
    listed = _digits(partition.values)
    if per_register > 1:
        listed = listed[1:]
    matrices = math.prod(size for size, _ in listed)
    count = max(c for c in counts if matrices % c == 0)
    _, across = lanes_of[0 if transposed else 1]
    (row_axis,) = [axis for axis, _ in across.terms] if isinstance(across, Step) else [None]
    (rows, _), (most, _) = _digits(ADDRESSED[0])
    lanes: list[Digit] = [(rows, 0 if row_axis is None else E(row_axis))]
    rest: list[Digit] = []
    steps_in: list[tuple[int, int]] = []  # (size, step of the matrix index) of the lanes' digits
    steps_out: list[tuple[int, int]] = []
    need, below = count, 1
    for size, stride in listed:
        taken = math.gcd(size, need)
        if taken > 1:
            lanes.append((taken, stride))
            steps_in.append((taken, below))
        if size // taken > 1:
            rest.append((size // taken, stride * taken))
            steps_out.append((size // taken, below * taken))
        need //= taken
        below *= size
    if count < most:
        lanes.append((most // count, 0))
    addresses = Partition(partition.shape, Layout.of([*lanes, *warps], rest))
    return MatrixAddresses(count, addresses, _indices(steps_out)[:, None] + _indices(steps_in)[None, :])


def _digits(mode: Layout) -> list[Digit]:
    return [(size, stride) for size, stride in mode.steps if isinstance(size, int)]


def _indices(steps: list[tuple[int, int]]) -> NDArray[np.int64]:
    out = np.zeros(1, dtype=np.int64)
    for size, step in steps:
        out = (np.arange(size) * step)[:, None] + out[None, :]
        out = out.reshape(-1)
    return out
