"""Maps that are linear over F2, kept as columns: column i is the image of input bit i, one Python int each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def rank(columns: Sequence[int]) -> int:
    """Rank over F2 of the matrix with these columns.

    >>> rank([1, 2, 3])
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
