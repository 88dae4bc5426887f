"""What a search has already evaluated, and the points that it has not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tinygpu.search.evaluation import Evaluation, Trial
from tinygpu.search.searchable import Point, Searchable, Value, rows

# A space of up to this many points may be listed, to find the last unseen ones (about 1 GB at 12 parameters).
LISTABLE_POINTS = 10_000_000
_LISTED_AT_ONCE = 256


class Seen:
    """The evaluations of a search so far, by point."""

    def __init__(self) -> None:
        self._trials: dict[frozenset[tuple[str, Value]], Trial] = {}

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[Trial]:
        return iter(self._trials.values())

    def __contains__(self, point: Point) -> bool:
        return bool(self._trials) and frozenset(point.items()) in self._trials

    def __getitem__(self, point: Point) -> Evaluation:
        return self._trials[frozenset(point.items())].evaluation

    def add(self, point: Point, evaluation: Evaluation) -> None:
        self._trials[frozenset(point.items())] = Trial(point, evaluation)


class UnseenPoints:
    """Uniform draws, without replacement, from the points of a space that were not evaluated."""

    def __init__(self, space: Searchable, seen: Seen, rng: np.random.Generator) -> None:
        self._space = space
        self._seen = seen
        self._rng = rng
        self._rest: list[dict[str, Value]] | None = None
        if space.size <= _LISTED_AT_ONCE:
            self._list()

    def draw(self, count: int) -> list[Point]:
        """Up to `count` different unseen points; fewer only when no others are left."""
        drawn = Seen()
        found: list[Point] = []
        while len(found) < count and self._rest is None:
            offered = self._space.sample(max(count - len(found), 16), self._rng)
            new = 0
            for point in offered:
                if len(found) < count and point not in self._seen and point not in drawn:
                    drawn.add(point, _DRAWN)
                    found.append(point)
                    new += 1
            # Rejection slows down as the unseen points become few; then the space is listed once.
            if new * 4 < len(offered) and len(found) < count and self._space.size <= LISTABLE_POINTS:
                self._list()
        while len(found) < count and self._rest:
            point = self._rest.pop()
            if point not in self._seen and point not in drawn:
                found.append(point)
        return found

    def _list(self) -> None:
        listed = [point for _, columns in self._space.columns_by_part() for point in rows(columns) or [{}]]
        unseen = [point for point in listed if point not in self._seen and (point or point in self._space)]
        self._rest = [unseen[i] for i in self._rng.permutation(len(unseen))]


_DRAWN = Evaluation(0.0)


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The trial with the least value, the first of equal ones; None where every one failed."""
    succeeded = [trial for trial in trials if trial.value is not None]
    return min(succeeded, key=lambda trial: trial.evaluation.cost, default=None)
