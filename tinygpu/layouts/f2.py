"""Vectors over F2, written as the bits of integers: elimination, rank, kernel, solutions.

A matrix is the sequence of its columns, the images of one-hot inputs; XOR adds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


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
    return len(eliminate(columns).pivots)


def image(columns: Sequence[int], x: int) -> int:
    """The matrix times x: the XOR of the columns at the set bits of x."""
    total = 0
    for column in columns:
        if x & 1:
            total ^= column
        x >>= 1
    return total
