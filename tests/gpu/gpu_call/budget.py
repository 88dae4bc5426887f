"""How the time of one call is shared among its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """A step's claim on the time.

    least_s  with less it is not begun; so much is kept for it while earlier steps run
    most_s   it never gets more
    """

    step: str
    least_s: float
    most_s: float

    def __post_init__(self) -> None:
        if not 0 < self.least_s <= self.most_s:
            raise ValueError(f"{self.step} takes more than 0 s, and at most no less than at least: {self}")

    def scaled(self, factor: float) -> Share:
        return Share(self.step, self.least_s * factor, self.most_s * factor)


class Budget:
    """Shares of a total, given one after the other.

    A step that ends early leaves its time to those behind it.
    """

    def __init__(self, shares: Sequence[Share], total_s: float) -> None:
        if total_s <= 0:
            raise ValueError(f"a call takes more than 0 s, not {total_s:g}")
        self.shares = tuple(shares)
        self.total_s = total_s
        self._next = 0

    def limit(self, spent_s: float) -> tuple[Share, float]:
        """The next step's share, and the seconds that it gets; 0 where too few are left.

        spent_s  of the total, since the call began
        """
        share = self.shares[self._next]
        self._next += 1
        left = self.total_s - spent_s
        # what later steps need is kept for them, as far as this one still gets its least
        kept = sum(s.least_s for s in self.shares[self._next :])
        limit = min(share.most_s, max(left - kept, min(left, share.least_s)))
        # a sum of fractions may be a hair below
        return share, limit if limit >= share.least_s - 1e-6 else 0.0
