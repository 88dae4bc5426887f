"""Encoding: points as vectors of numbers, so that a model can tell how far apart two of them are.

Nothing but points is needed: which values a parameter has is learned from points that the space gave.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.searchable import Columns, Point, Value


@dataclass(frozen=True, slots=True)
class Coordinate:
    """One parameter, or one aspect of it.

    name       the parameter's
    numbers    (values,) the integers that it has, ascending
    positions  (values,) where each lies, from 0 to 1
    words      the words that it has: each is as far from any other as the least number from the greatest
    open       whether some points do not have the parameter; that counts as one word more
    """

    name: str
    numbers: NDArray[np.float64]
    positions: NDArray[np.float64]
    words: tuple[str, ...]
    open: bool

    @property
    def width(self) -> int:
        """Columns of the vectors."""
        labels = len(self.words) + self.open
        return bool(len(self.numbers)) + (labels if labels > 1 or len(self.numbers) else 0)

    def encode(self, values: Sequence[Value | None]) -> NDArray[np.float64]:
        """(values, width) a position for numbers, one column for each word.

        A number between two known ones lies between them; a word that is not known is like none of the known.
        """
        columns = []
        if len(self.numbers):
            known = np.array([float(v) if isinstance(v, int) else np.nan for v in values])
            columns.append(np.where(np.isnan(known), 0.5, np.interp(known, self.numbers, self.positions)))
        labels: list[str | None] = [*self.words, *([None] if self.open else [])]
        if len(columns) + len(labels) > 1:
            # two different words differ in two columns, by sqrt(1/2) each: their distance is 1
            columns += [np.array([v == label for v in values]) * np.sqrt(0.5) for label in labels]
        return np.stack(columns, axis=1)


@dataclass(frozen=True, slots=True)
class Encoding:
    """Vectors for the points of a space; parameters that never differ are left out."""

    coordinates: tuple[Coordinate, ...]

    @property
    def width(self) -> int:
        return sum(c.width for c in self.coordinates)

    @property
    def parameters(self) -> int:
        """How many parameters differ somewhere; one may have two coordinates."""
        return len({c.name for c in self.coordinates})

    @property
    def groups(self) -> NDArray[np.int64]:
        """(width,) which coordinate each column belongs to."""
        return np.repeat(np.arange(len(self.coordinates)), [c.width for c in self.coordinates])

    def encode(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """(points, width) one vector for each point."""
        if not self.coordinates or not points:
            return np.zeros((len(points), self.width))
        return np.concatenate([c.encode([p.get(c.name) for p in points]) for c in self.coordinates], axis=1)


def learn_encoding(parts: Iterable[Columns]) -> Encoding:
    """The encoding of points that are given as columns, part by part.

    A number lies half way between its rank among the values and its place on a logarithmic scale: values such as
    16, 32, 64 are evenly apart on both, 1, 2, .., 30 crowd together at the upper end, where a step matters less. Where
    not every number has more factors of two than the one before, their count is a coordinate of its own.

    >>> encoding = learn_encoding([{"bm": np.array([32, 64, 128]), "bk": np.array([8, 8, 8])}])
    >>> encoding.encode([{"bm": 64, "bk": 8}, {"bm": 128, "bk": 8}]).round(9).tolist()
    [[0.5], [1.0]]
    """
    values: dict[str, dict[Value, None]] = {}
    having: dict[str, int] = {}
    count = 0
    for columns in parts:
        count += 1
        for name, column in columns.items():
            having[name] = having.get(name, 0) + 1
            values.setdefault(name, {}).update(dict.fromkeys(np.asarray(column).tolist()))
    made = [_coordinate(name, found, having[name] < count) for name, found in values.items()]
    made = [c for c in made if c.width and len(c.numbers) + len(c.words) + c.open > 1]
    return Encoding((*made, *(t for t in map(_twos, made) if t is not None)))


def _coordinate(name: str, values: Mapping[Value, None], open_: bool) -> Coordinate:
    numbers = np.array(sorted(v for v in values if isinstance(v, int)), dtype=np.float64)
    words = tuple(sorted(v for v in values if isinstance(v, str)))
    if len(numbers) < 2:
        return Coordinate(name, numbers, np.zeros(len(numbers)), words, open_)
    logs = np.log(numbers - min(numbers[0], 0) + (numbers[0] <= 0))
    scaled = (logs - logs[0]) / (logs[-1] - logs[0])
    return Coordinate(name, numbers, (scaled + np.linspace(0, 1, len(numbers))) / 2, words, open_)


def _twos(coordinate: Coordinate) -> Coordinate | None:
    """How often two divides each number, from 0 to 1; None where the place of a number says so already.

    Warps, vectors, banks and sectors are powers of two, so that 64 and 128 are often more alike than 64 and 72.
    """
    counts = np.array([(n & -n).bit_length() - 1 for n in map(int, np.abs(coordinate.numbers)) if n])
    if len(counts) < len(coordinate.numbers) or len(counts) < 3 or np.all(np.diff(counts) > 0) or np.ptp(counts) == 0:
        return None
    return replace(coordinate, positions=(counts - counts.min()) / np.ptp(counts), words=(), open=False)
