"""Exhaustive search: every point of the space, in its order."""

from __future__ import annotations

import numpy as np

from tinygpu.search.searchable import Point, Searchable
from tinygpu.search.seen import LISTABLE_POINTS, Seen
from tinygpu.search.strategy import Proposals

# Rows that are evaluated at once: enough that NumPy's cost per call vanishes, few enough that progress is seen.
_CHUNK_ROWS = 16_384


def exhaustive(space: Searchable, seen: Seen, rng: np.random.Generator, batch: int) -> Proposals:
    """All points, as columns of thousands of rows; what was seen is left out by `minimize`."""
    if space.size > LISTABLE_POINTS:
        raise ValueError(
            f"the space has {space.size:,} points and exhaustive search lists {LISTABLE_POINTS:,} at most; "
            "use strategy='annealing' or strategy='random' with a budget"
        )
    for _, columns in space.columns_by_part():
        if not columns:  # a part without parameters is one point, if any
            alone: Point = {}
            yield [alone] if alone in space else []
            continue
        count = len(next(iter(columns.values())))
        for start in range(0, count, _CHUNK_ROWS):
            yield {name: column[start : start + _CHUNK_ROWS] for name, column in columns.items()}
