"""Vectors over F2, written as the bits of integers: elimination, rank, kernel, solutions.

A matrix is the sequence of its columns, the images of one-hot inputs; XOR adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Elimination:
    """The columns of a matrix in echelon form.

    pivots   {leading bit: (vector, combination)}: the vector is the XOR of the columns in the combination's bits
    kernel   a basis of the combinations of columns that XOR to 0
    """

    pivots: dict[int, tuple[int, int]]
    kernel: tuple[int, ...]

    def solve(self, target: int) -> int | None:
        """A combination of columns that XORs to `target`, or None where there is none."""
        combination = 0
        while target:
            pivot = self.pivots.get(target.bit_length() - 1)
            if pivot is None:
                return None
            target ^= pivot[0]
            combination ^= pivot[1]
        return combination


def eliminate(columns: Sequence[int]) -> Elimination:
    """Gaussian elimination of the columns."""
    pivots: dict[int, tuple[int, int]] = {}
    kernel = []
    for k, column in enumerate(columns):
        vector, combination = column, 1 << k
        while vector:
            pivot = pivots.get(vector.bit_length() - 1)
            if pivot is None:
                pivots[vector.bit_length() - 1] = (vector, combination)
                break
            vector ^= pivot[0]
            combination ^= pivot[1]
        else:
            kernel.append(combination)
    return Elimination(pivots, tuple(kernel))


def rank(columns: Sequence[int]) -> int:
    """The dimension of the span.

    >>> rank([0b01, 0b10, 0b11])
    2
    """
    basis: list[int] = []
    for column in columns:
        if column < 0:
            raise ValueError(f"[F2 rank] columns are bit vectors, so none may be negative, not {column}")
        for vector in basis:
            column = min(column, column ^ vector)
        if column:
            basis.append(column)
    return len(basis)


def image(columns: Sequence[int], x: int) -> int:
    """The matrix times x: the XOR of the columns at the set bits of x."""
    total = 0
    for column in columns:
        if x & 1:
            total ^= column
        x >>= 1
    return total


def images(columns: Sequence[int], constant: int = 0) -> NDArray[np.int64]:
    """Images of every input 0 .. 2^n - 1, shape (2^n,): constant XOR the columns of the input's set bits.

    >>> images([1, 4]).tolist()
    [0, 1, 4, 5]
    """
    values = np.array([constant], dtype=np.int64)
    for column in columns:
        values = np.concatenate([values, values ^ column])
    return values


def linear_form(values: NDArray[np.int64]) -> tuple[tuple[int, ...], int] | None:
    """Columns and constant of the map i -> values[i], or None where it is not linear up to an XOR constant.

    values   (2^n,) non-negative images of 0 .. 2^n - 1; other lengths have no linear form

    >>> linear_form(np.array([5, 4, 7, 6]))
    ((1, 2), 5)
    """
    size = len(values)
    if size == 0 or size & (size - 1) or np.any(values < 0):
        return None
    constant = int(values[0])
    columns = tuple(int(values[1 << bit]) ^ constant for bit in range(size.bit_length() - 1))
    return (columns, constant) if np.array_equal(images(columns, constant), values) else None
