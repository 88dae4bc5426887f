"""Distinct rows of tables that are given by columns: what is counted once for all candidates that are alike in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray


def distinct(columns: Sequence[NDArray[Any]]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(where each distinct row stands first, which of these each row is) of columns of one length, 64 bits an element.

    >>> first, which = distinct([np.array([5, 7, 5]), np.array([1, 1, 1])])
    >>> first[which].tolist()
    [0, 1, 0]
    """
    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    for column, factor in zip(columns, _FACTORS[: len(columns)], strict=True):
        mixed += np.ascontiguousarray(column).view(np.uint64) * factor
    _, first, which = np.unique(mixed ^ mixed >> np.uint64(29), return_index=True, return_inverse=True)
    if all(np.array_equal(column[first][which], column) for column in columns):
        return first, which
    # two rows were mixed alike
    exact = np.stack([np.ascontiguousarray(column).view(np.uint64) for column in columns], axis=1)
    _, first, which = np.unique(exact, axis=0, return_index=True, return_inverse=True)
    return first, which.reshape(-1)


_FACTORS = np.random.default_rng(1).integers(1, 1 << 63, 64, dtype=np.uint64) | np.uint64(1)
