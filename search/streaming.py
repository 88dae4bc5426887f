"""Objectives that answer as they go: each evaluation is handed over, and on disk, before its whole batch is done."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

from tinygpu.search.evaluation import Evaluation
from tinygpu.search.searchable import Point


@runtime_checkable
class StreamingObjective(Protocol):
    """An objective that works on several points at once and finishes them in any order."""

    def __call__(self, points: Sequence[Point], /) -> Sequence[Evaluation]: ...

    def stream(self, points: Sequence[Point], /) -> Iterator[tuple[int, Evaluation]]:
        """Each point's number in `points` with its evaluation, once each, as soon as it is known."""
