"""Branch and bound: the best point of a space, with a proof, where the objective bounds whole regions of it.

A region is split by the values of one parameter. The region with the least bound is opened first, and what opens is
narrowed by the space to the values that still lead to an admitted point. Once the least bound of all that is left is
not below the best value, no point that was not tried can be better: that is the proof, and it is as good as the bounds.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tinygpu.search.bounded import BoundedObjective, Region
from tinygpu.search.searchable import Point, Searchable, Value
from tinygpu.search.seen import Seen
from tinygpu.search.strategy import PROVED, ProvingProposals

# Values closer than this share count as equal: the same sum may differ so much when floats are added in another order.
_EQUAL = 1e-12


@dataclass(frozen=True, slots=True)
class BranchAndBound:
    """The strategy for one objective."""

    objective: BoundedObjective

    def __call__(self, space: Searchable, seen: Seen, rng: np.random.Generator, batch: int) -> ProvingProposals:
        """Points in the order of their regions' bounds; it ends when the best of all is proved."""
        left = _Regions(space, self.objective, seen)
        while proposed := left.next_points(batch):
            yield proposed
        return PROVED


@dataclass(frozen=True, slots=True, order=True)
class _Node:
    """A region, in the order in which regions are opened: of equal bounds the one with fewest open parameters."""

    bound: float
    open_names: int
    number: int
    region: Region = field(compare=False)


class _Regions:
    """Regions that are still open, the one with the least bound first."""

    def __init__(self, space: Searchable, objective: BoundedObjective, seen: Seen) -> None:
        self._space = space
        self._objective = objective
        self._seen = seen
        self._numbers = itertools.count()
        self._nodes: list[_Node] = []
        self._best = math.inf
        self._known = 0
        for names in shapes(space):
            self._push({name: tuple(space.legal_values({}, name)) for name in names})

    def next_points(self, count: int) -> list[Point]:
        """Unseen points that may be better than all that was tried; none when there cannot be such."""
        found: list[Point] = []
        self._learn()
        while self._nodes and len(found) < count:
            node = heapq.heappop(self._nodes)
            if not self._may_improve(node.bound):
                self._nodes.clear()
            elif node.open_names:
                self._open(node.region)
            else:
                point = {name: values[0] for name, values in node.region.items()}
                if point in self._space and point not in self._seen:
                    found.append(point)
        return found

    def _learn(self) -> None:
        """The best value so far; only trials that are new are looked at."""
        for trial in itertools.islice(self._seen, self._known, None):
            self._best = min(self._best, trial.evaluation.cost)
        self._known = len(self._seen)

    def _open(self, region: Region) -> None:
        """Split by the open parameter with the fewest values: what is chosen first then narrows the others most."""
        name = min((n for n, values in region.items() if len(values) > 1), key=lambda n: len(region[n]))
        for value in region[name]:
            narrowed = self._narrowed({**region, name: (value,)})
            if narrowed is not None:
                self._push(narrowed)

    def _narrowed(self, region: Region) -> Region | None:
        """The region without values that lead to no admitted point; None where no point is left."""
        chosen = {name: values[0] for name, values in region.items() if len(values) == 1}
        out: dict[str, Sequence[Value]] = {}
        for name, values in region.items():
            if len(values) > 1:
                legal = set(self._space.legal_values(chosen, name))
                values = tuple(value for value in values if value in legal)
                if not values:
                    return None
            out[name] = values
        return out

    def _may_improve(self, bound: float) -> bool:
        return bound < self._best - (_EQUAL * abs(self._best) if math.isfinite(self._best) else 0.0)

    def _push(self, region: Region) -> None:
        bound = self._objective.bound(region)
        if math.isnan(bound):
            raise ValueError(f"the objective's bound of {dict(region)} is not a number")
        if self._may_improve(bound):
            open_names = sum(len(values) > 1 for values in region.values())
            heapq.heappush(self._nodes, _Node(bound, open_names, next(self._numbers), region))


def shapes(space: Searchable) -> list[tuple[str, ...]]:
    """The sets of parameters that points of the space have, each in the order of the space's names."""
    # a listed or replayed space needs none of the libraries behind this one
    from tinygpu.spaces import Space

    found = (
        [part.names for part in space.parts]
        if isinstance(space, Space)
        else [tuple(columns) for _, columns in space.columns_by_part()]
    )
    return list(dict.fromkeys(tuple(name for name in space.names if name in names) for names in found))
