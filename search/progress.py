"""Progress: where a running search stands, for whoever shows it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from tinygpu.search.budget import Budget
from tinygpu.search.evaluation import Trial


@dataclass(frozen=True, slots=True)
class Progress:
    """Told after each batch of evaluations.

    evaluations  so far, failures and those of earlier runs included
    replayed     of these, taken from the journal
    failures     of these, without a value
    kinds        the failures by kind, the most frequent first
    total        how many evaluations there will be at most
    seconds      so far, earlier runs included
    rate         evaluations per second in this run
    best         the best trial so far; None before the first success
    budget       what ends the search
    """

    evaluations: int
    replayed: int
    failures: int
    total: int | None
    seconds: float
    rate: float
    best: Trial | None
    kinds: Mapping[str, int] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)

    @property
    def share_of_floor(self) -> float | None:
        """The floor over the best value, 0 to 1: for times the share of the roofline; None where either is unknown."""
        if self.best is None or self.budget.floor is None:
            return None
        return self.budget.floor / self.best.evaluation.cost

    @property
    def seconds_left(self) -> float | None:
        """Until evaluations or time are spent, at this rate, at most; None where nothing tells."""
        left = []
        if self.budget.seconds is not None:
            left.append(max(0.0, self.budget.seconds - self.seconds))
        if self.total is not None and self.rate > 0:
            left.append((self.total - self.evaluations) / self.rate)
        return min(left, default=None)


Callback: TypeAlias = Callable[[Progress], None]
