"""Sums: objectives whose terms have parameters of their own, as the kernels of a plan have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.evaluation import Evaluation
from tinygpu.search.searchable import Columns, Point


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One term of an objective.

    names   the parameters that it depends on; those that others depend on too are shared
    score   from columns with these parameters to one value per row
    """

    name: str
    names: tuple[str, ...]
    score: Callable[[Columns], NDArray[np.float64]]


@runtime_checkable
class SumObjective(Protocol):
    """An objective that is the sum of terms."""

    @property
    def terms(self) -> Sequence[Term]: ...

    def __call__(self, points: Sequence[Point], /) -> Sequence[Evaluation]: ...
