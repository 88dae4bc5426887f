"""Warps that run later than others by chance: under order="random" a kernel must not rely on who comes first.

Clocks judge what is ordered whoever comes first; but which atomic is first, how often a flag is polled, who counts to
the end: that depends on speed. Whole warps are delayed, never some of their lanes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# A delay begins with one block of so many, and lasts less than 2^10 blocks.
_BLOCKS_PER_DELAY = 12
_LONGEST = 10


class Delays:
    """Chooses which warps are delayed, and for how long."""

    def __init__(self, random: np.random.Generator, ctas: int) -> None:
        self._random = random
        self._ctas = ctas

    def choose(self, rows: NDArray[np.int64], step: int) -> NDArray[np.int64]:
        """Of these rows those that are delayed from now on, never all of them; mostly none.

        step  blocks that have run
        """
        none = np.zeros(0, np.int64)
        if rows.size < 2 or self._random.integers(2 if step == 0 else _BLOCKS_PER_DELAY):
            return none
        how = self._random.integers(3)
        if how == 0:
            return rows[self._random.integers(rows.size, size=1)]
        if how == 1:
            late = self._random.random(self._ctas) < 0.5
            chosen = rows[late[rows % self._ctas]]
        else:
            chosen = rows[self._random.random(rows.size) < 0.5]
        return chosen if chosen.size < rows.size else none

    def length(self) -> int:
        """Blocks that run before a delay is over."""
        return 1 << int(self._random.integers(_LONGEST))
