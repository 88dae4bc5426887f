"""Attempts that fail although they might succeed: what the manual lets fail, a kernel must try again.

`mbarrier.try_wait` may come back before the phase completes, and a look at a phase, or a strong load (older_values.py),
sees what another thread did only some time after it was done. Only order makes certain: what is already ordered before
an attempt, it finds. An attempt is let fail a few times and no more, so that a loop that tries again always ends.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

# Under these orders attempts fail.
SETBACK_ORDERS = ("random", "spurious")
# In a row, an attempt fails at most so often.
MOST_IN_A_ROW = 3
# Under order="random", one attempt of so many begins to fail.
_RARELY = 4


class Setbacks:
    """How often each attempt still fails.

    always  it fails at least once (order="spurious"), or only by chance (order="random")
    """

    def __init__(self, random: np.random.Generator, always: bool) -> None:
        self._random = random
        self._always = always
        self._left: dict[Hashable, tuple[Hashable, int]] = {}

    def fails(self, who: Hashable, what: Hashable) -> bool:
        """Whether the next attempt fails; it counts as made only with `count`.

        who   the one who tries, and where
        what  what is tried for: another thing begins anew
        """
        known = self._left.get(who)
        if known is None or known[0] != what:
            most = 1 + int(self._random.integers(MOST_IN_A_ROW))
            times = most if self._always or not self._random.integers(_RARELY) else 0
            known = self._left[who] = (what, times)
        return known[1] > 0

    def pick(self, count: int) -> int:
        """Which of so many ways to fail is taken, the last being the worst."""
        return count - 1 if self._always else int(self._random.integers(count))

    def count(self, who: Hashable) -> None:
        """The attempt has failed."""
        what, times = self._left[who]
        self._left[who] = (what, times - 1)


def make_setbacks(order: str, random: np.random.Generator) -> Setbacks | None:
    """For the orders under which attempts fail; None under the others."""
    return Setbacks(random, order == "spurious") if order in SETBACK_ORDERS else None
