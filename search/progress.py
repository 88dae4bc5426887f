"""Progress: where a running search stands, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from tinygpu.search.evaluation import Trial


@dataclass(frozen=True, slots=True)
class Progress:
    """Told after each batch of evaluations.

    evaluations  so far, failures and those of earlier runs included
    replayed     of these, taken from the journal
    failures     of these, without a value
    total        how many there will be at most; None where only time ends the search
    seconds      so far, earlier runs included
    rate         evaluations per second in this run
    best         the best trial so far; None before the first success
    """

    evaluations: int
    replayed: int
    failures: int
    total: int | None
    seconds: float
    rate: float
    best: Trial | None


Callback: TypeAlias = Callable[[Progress], None]
