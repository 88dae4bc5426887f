"""A partition with its numbers in: which coordinates each thread and each of its values stands for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.language.partition import Mode, Partition

Digit = tuple[int, int | None, int]  # extent, axis, stride


@dataclass(frozen=True, slots=True)
class Spread:
    """A filled-in partition.

    shape    extents of the tile
    threads  digits (extent, axis, stride) of the thread id, fastest first
    values   digits of the value index, fastest first
    """

    shape: tuple[int, ...]
    threads: tuple[Digit, ...]
    values: tuple[Digit, ...]

    @property
    def thread_count(self) -> int:
        return math.prod(e for e, _, _ in self.threads)

    @property
    def value_count(self) -> int:
        return math.prod(e for e, _, _ in self.values)

    def value_coordinates(self) -> NDArray[np.int64]:
        """(values, axes): the part of the coordinate that the value index decides."""
        return _coordinates(self.values, len(self.shape))

    def thread_coordinates(self) -> NDArray[np.int64]:
        """(threads, axes): the part of the coordinate that the thread id decides."""
        return _coordinates(self.threads, len(self.shape))

    def coordinates(self) -> NDArray[np.int64]:
        """(threads, values, axes): who holds what."""
        return self.thread_coordinates()[:, None, :] + self.value_coordinates()[None, :, :]


def _coordinates(digits: tuple[Digit, ...], rank: int) -> NDArray[np.int64]:
    index = np.arange(math.prod(e for e, _, _ in digits), dtype=np.int64)
    out = np.zeros((len(index), rank), dtype=np.int64)
    below = 1
    for extent, axis, stride in digits:
        if axis is not None:
            out[:, axis] += index // below % extent * stride
        below *= extent
    return out


def spread(partition: Partition) -> Spread:
    """The numbers of a filled-in partition; digits with one value are left out."""

    def digits(modes: tuple[Mode, ...]) -> tuple[Digit, ...]:
        out: list[Digit] = []
        for m in modes:
            extent = int(m.extent)
            if extent == 1:
                continue
            stride = int(m.stride)
            if out and out[-1][1] == m.axis and (m.axis is None or out[-1][2] * out[-1][0] == stride):
                out[-1] = (out[-1][0] * extent, m.axis, out[-1][2])
            else:
                out.append((extent, m.axis, stride))
        return tuple(out)

    return Spread(tuple(int(s) for s in partition.shape), digits(partition.threads), digits(partition.values))


@dataclass(frozen=True, slots=True)
class MatrixAddresses:
    """How ldmatrix reads a fragment: who supplies which row address, and which matrix lands in which register.

    count      matrices per instruction: 1, 2 or 4
    addresses  its threads give the row that each lane points at; its values enumerate the instructions
    registers  (instructions, count): index of the 8x8 matrix, in the fragment's order, that each register receives
    """

    count: int
    addresses: Spread
    registers: NDArray[np.int64]


def matrix_addresses(partition: Partition, per_register: int, transposed: bool) -> MatrixAddresses:
    """Row addresses for a fragment of 8x8 matrices (`per_register` elements in 32 bits)."""
    raw = [(int(m.extent), m.axis, int(m.stride)) for m in partition.threads]
    inner, outer = raw[0], raw[1]
    warps = raw[2:]
    listed = [(int(m.extent), m.axis, int(m.stride)) for m in partition.values]
    if per_register > 1:
        listed = listed[1:]
    matrices = math.prod(e for e, _, _ in listed)
    count = 4 if matrices % 4 == 0 else 2 if matrices % 2 == 0 else 1
    row_axis = inner[1] if transposed else outer[1]
    lanes: list[Digit] = [(8, row_axis, 1)]
    rest: list[Digit] = []
    steps_in: list[tuple[int, int]] = []  # (extent, step of the matrix index) of the lanes' digits
    steps_out: list[tuple[int, int]] = []
    need, below = count, 1
    for extent, axis, stride in listed:
        taken = math.gcd(extent, need)
        if taken > 1:
            lanes.append((taken, axis, stride))
            steps_in.append((taken, below))
        if extent // taken > 1:
            rest.append((extent // taken, axis, stride * taken))
            steps_out.append((extent // taken, below * taken))
        need //= taken
        below *= extent
    if count < 4:
        lanes.append((4 // count, None, 0))
    shape = tuple(int(s) for s in partition.shape)
    registers = _indices(steps_out)[:, None] + _indices(steps_in)[None, :]
    return MatrixAddresses(count, Spread(shape, tuple(lanes) + tuple(warps), tuple(rest)), registers)


def _indices(steps: list[tuple[int, int]]) -> NDArray[np.int64]:
    out = np.zeros(1, dtype=np.int64)
    for extent, step in steps:
        out = (np.arange(extent) * step)[:, None] + out[None, :]
        out = out.reshape(-1)
    return out
