"""Bounds: what an objective can say of many points at once, without trying any of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from tinygpu.search.evaluation import Evaluation
from tinygpu.search.searchable import Point, Value

# A region: for every parameter the values that its points may have. Each of its points has all these parameters.
Region: TypeAlias = Mapping[str, Sequence[Value]]


@runtime_checkable
class BoundedObjective(Protocol):
    """An objective that knows how good the points of a region can be at best.

    `bound` gives a number that no value in the region is below; infinity where no point of it can have a value. It
    must hold for every admitted point of the region; the tighter it is, the fewer points are tried.
    """

    def __call__(self, points: Sequence[Point], /) -> Sequence[Evaluation]: ...

    def bound(self, region: Region, /) -> float: ...
