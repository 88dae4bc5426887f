"""CPU time of a verification: which runs may begin, and what is said of those that may not."""

from __future__ import annotations

import time

# CPU time of CTAs of the problem itself, where there are several: the first of them has the largest offsets.
SAMPLED_CPU_SECONDS = 4.0


class Budget:
    """CPU time that is left for runs: each is taken to cost by its rounds what those before it cost."""

    def __init__(self, seconds: float) -> None:
        self.begun, self.seconds = time.process_time(), seconds
        self.rounds = 0
        self.left_out: list[str] = []

    def allows(self, sentence: str, rounds: int, one_more: bool = False) -> bool:
        """Whether a run of so many rounds may begin; if not, its sentence is kept.

        one_more  of several CTAs of the problem itself, which have less time
        """
        spent, cost = self._spent_and_cost(rounds)
        if spent + cost > self.seconds and self.rounds:
            self.left_out.append(f"{sentence}: more than {self.seconds:g} s of CPU time in all")
            return False
        if one_more and cost > SAMPLED_CPU_SECONDS:
            those = "for CTAs of the problem itself"
            self.left_out.append(f"{sentence}: more than {SAMPLED_CPU_SECONDS:g} s of CPU time {those}")
            return False
        return True

    def allows_in(self, seconds: float, rounds: int) -> bool:
        """Whether a run of so many rounds is over in some seconds, and there are as many left."""
        spent, cost = self._spent_and_cost(rounds)
        return cost <= min(seconds, self.seconds - spent)

    def begins(self, rounds: int) -> None:
        """A run of so many rounds begins."""
        self.rounds += rounds

    def _spent_and_cost(self, rounds: int) -> tuple[float, float]:
        """Seconds until now, and those that so many rounds would take."""
        spent = time.process_time() - self.begun
        return spent, spent / self.rounds * rounds if self.rounds else 0.0
