"""What a search needs of a space: the points that were admitted, and ways to walk among them.

A strategy never sees a machine. Whatever has these members can be searched: the space of a machine, or a table of
points that somebody measured before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

Value: TypeAlias = int | str
# A point gives every parameter of its part, by name, one of its values.
Point: TypeAlias = Mapping[str, Value]
# Many points at once: per parameter one array, all of the same length.
Columns: TypeAlias = Mapping[str, NDArray[Any]]


class Searchable(Protocol):
    """The admitted points, in parts; the points of one part have the same parameters."""

    @property
    def size(self) -> int:
        """How many points there are."""

    @property
    def names(self) -> tuple[str, ...]:
        """Every parameter of every part, in the order in which a point is best put together."""

    def __contains__(self, point: object) -> bool: ...

    def columns_by_part(self) -> Iterable[tuple[object, Columns]]:
        """All points: for each part the part itself, and one array per parameter, in the space's order."""

    def sample(self, count: int, rng: np.random.Generator) -> Sequence[Point]:
        """`count` points drawn uniformly; a point may come twice."""

    def neighbours(self, point: Point) -> Iterable[Point]:
        """The admitted points one step away from an admitted point."""

    def legal_values(self, partial: Point, name: str) -> Sequence[Value]:
        """The values of `name` that some admitted point has together with the values in `partial`; none where the
        points with these values have no such parameter."""


def rows(columns: Columns, start: int = 0, stop: int | None = None) -> list[dict[str, Value]]:
    """The points of `columns` from row `start` up to row `stop`, as dictionaries of Python values.

    >>> rows({"bm": np.array([64, 128]), "load": np.array(["direct", "staged"])})
    [{'bm': 64, 'load': 'direct'}, {'bm': 128, 'load': 'staged'}]
    """
    names = tuple(columns)
    values = [np.asarray(columns[name])[start:stop].tolist() for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)]
