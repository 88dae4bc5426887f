"""Budget: when a search ends by itself, at the latest."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Budget:
    """Whichever is spent first ends the search; None is no limit.

    evaluations  points tried at most
    seconds      wall time after which no further evaluation is begun
    within       enough is a value of at most (1 + within) x floor
    floor        a value that no point can be below
    """

    evaluations: int | None = None
    seconds: float | None = None
    within: float | None = None
    floor: float | None = None

    def __post_init__(self) -> None:
        if self.evaluations is not None and self.evaluations < 1:
            raise ValueError(f"a search needs at least 1 evaluation, not {self.evaluations}")
        if self.seconds is not None and not self.seconds > 0:
            raise ValueError(f"a search needs more than 0 seconds, not {self.seconds:g}")
        if self.floor is not None and not 0 < self.floor < math.inf:
            raise ValueError(f"a floor is a number above 0 that no value is below, not {self.floor:g}")
        if self.within is not None and not self.within >= 0:
            raise ValueError(f"within is a share of the floor, 0.05 for 5 %, not {self.within:g}")
        if self.within is not None and self.floor is None:
            raise ValueError(f"within={self.within:g} of what? Give floor=..., a value that no point can be below")

    @property
    def open_ended(self) -> bool:
        """Whether nothing but the space ends the search."""
        return self.evaluations is None and self.seconds is None and self.within is None

    def enough(self, value: float) -> bool:
        """Whether a value is as good as was asked for."""
        return self.within is not None and self.floor is not None and value <= (1 + self.within) * self.floor
