"""Survivors as points: from their ranks, by way of whole columns, to one dictionary each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.spaces.part import Choice
from tinygpu.spaces.solution import PartSolution


def points_at(solution: PartSolution, ranks: NDArray[Any]) -> list[dict[str, Choice]]:
    """The survivors of a part with these ranks, each from 0 to size - 1."""
    return _as_points(solution.values(solution.choices(ranks), len(ranks)), len(ranks))


def first_point(solution: PartSolution) -> dict[str, Choice]:
    """The survivor of rank 0, of a part that has survivors."""
    (first,) = points_at(solution, np.zeros(1, dtype=np.int64))
    return first


def _as_points(columns: Mapping[str, NDArray[Any]], count: int) -> list[dict[str, Choice]]:
    if not columns:  # a part without any parameter has one point
        return [{} for _ in range(count)]
    return _dictionary_maker(tuple(columns))(zip(*(c.tolist() for c in columns.values()), strict=True))


@cache
def _dictionary_maker(names: tuple[str, ...]) -> Callable[[Iterable[tuple[Choice, ...]]], list[dict[str, Choice]]]:
    """Turns rows into dictionaries with these keys: a display written out is twice as fast as dict(zip(...))."""
    variables = [f"v{i}" for i in range(len(names))]
    display = ", ".join(f"{name!r}: {v}" for name, v in zip(names, variables, strict=True))
    maker: Callable[[Iterable[tuple[Choice, ...]]], list[dict[str, Choice]]] = eval(
        f"lambda rows: [{{{display}}} for ({', '.join(variables)},) in rows]"
    )
    return maker
