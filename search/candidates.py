"""Candidates: points that a model may choose from, with the vectors that it knows them by."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.encoding import learn_encoding
from tinygpu.search.searchable import Columns, Point, Searchable, Value, rows

Array = NDArray[np.float64]

# A space of up to this many points is listed and encoded once; of a larger one, points are drawn as they are needed.
LISTED_POINTS = 50_000
# Random points from which the encoding of a larger space is learned.
_ENCODING_SAMPLE = 4_096
# Of the points that are drawn from a larger space, one in so many is new in each call.
_FRESH = 10


@dataclass(frozen=True, slots=True, eq=False)
class Drawn:
    """Some points of a space.

    vectors  (points, width)
    listed   where they are rows of a list: the list's columns by part, and the rows' numbers
    given    where they are not: the points themselves
    """

    vectors: Array
    listed: tuple[Sequence[Columns], Sequence[int], NDArray[np.int64]] | None
    given: Sequence[Point]

    def point(self, number: int) -> Point:
        """The point whose vector is in this row."""
        if self.listed is None:
            return self.given[number]
        parts, starts, chosen = self.listed
        row = int(chosen[number])
        part = bisect_right(starts, row) - 1
        return rows(parts[part], row - starts[part], row - starts[part] + 1)[0]


class Candidates:
    """Draws points and encodes them."""

    def __init__(self, space: Searchable, rng: np.random.Generator) -> None:
        self._space = space
        self._rng = rng
        self._parts: list[Columns] = []
        self._starts = [0]
        if space.size <= LISTED_POINTS:
            self._parts = [columns for _, columns in space.columns_by_part() if columns]
            self.encoding = learn_encoding(self._parts)
            vectors = [self.encoding.encode(rows(columns)) for columns in self._parts]
            for block in vectors:
                self._starts.append(self._starts[-1] + len(block))
            self._vectors = np.concatenate(vectors) if vectors else np.zeros((0, self.encoding.width))
        else:
            self.encoding = learn_encoding(by_names(space.sample(_ENCODING_SAMPLE, rng)))
        self._reserve = Drawn(np.zeros((0, self.encoding.width)), None, ())

    def draw(self, count: int) -> Drawn:
        """`count` points drawn uniformly, all of them where there are fewer.

        Of a space that is not listed, most of them are those of the call before: encoding points takes time.
        """
        if self._space.size > LISTED_POINTS:
            fresh = self.given(self._space.sample(max(count - len(self._reserve.given), count // _FRESH), self._rng))
            kept = slice(len(fresh.given) + len(self._reserve.given) - count, None)
            vectors = np.concatenate([self._reserve.vectors[kept], fresh.vectors])
            self._reserve = Drawn(vectors, None, [*self._reserve.given[kept], *fresh.given])
            return self._reserve
        total = self._starts[-1]
        chosen = self._rng.choice(total, count, replace=False) if count < total else np.arange(total)
        return Drawn(self._vectors[chosen], (self._parts, self._starts, chosen), ())

    def given(self, points: Sequence[Point]) -> Drawn:
        """These points."""
        return Drawn(self.encoding.encode(points), None, points)


def by_names(points: Sequence[Point]) -> list[Columns]:
    """Points as columns, those with the same parameters together."""
    groups: dict[frozenset[str], list[Point]] = {}
    for point in points:
        groups.setdefault(frozenset(point), []).append(point)
    return [{name: _column([point[name] for point in group]) for name in group[0]} for group in groups.values()]


def _column(values: list[Value]) -> NDArray[np.object_]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column
