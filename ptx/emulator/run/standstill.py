"""Standstill: threads that poll are back in a state in which they were before, and nothing else has changed.

While no memory changes and no asynchronous work is left, what a thread does follows from its registers, its local
memory and its place alone. If all threads have gone on and all of these come back, they come back for ever: nobody
will leave the loop. Snapshots are taken at growing distances (Brent's cycle detection), so that a cycle of any length
is found in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.run.groups import Group, Place
from tinygpu.ptx.emulator.state.residents import Residents

# Polls without any change before the first snapshot; most waiting is over before.
FIRST_SNAPSHOT = 256


Places: TypeAlias = "Mapping[Place, Sequence[Group]]"


class Standstill:
    """Watches one batch of CTAs while it polls."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._where: object = None
        self._state: list[Any] = []
        self._moved = np.zeros(residents.warps, np.bool_)

    @property
    def watching(self) -> bool:
        """There is a snapshot."""
        return self._where is not None

    def moved(self, rows: slice | NDArray[np.int64]) -> None:
        """Some lanes of these warps go on."""
        self._moved[rows] = True

    def forget(self) -> None:
        """Something else than memory has changed: what comes back from now on counts."""
        self._where = None

    def came_back(self, polls: int, ready: Places, held: Places) -> bool:
        """Whether everybody is where they were at the last snapshot; to be asked at every poll.

        polls  so far without any change of memory
        ready  threads that can go on
        held   threads that cannot before others have come
        """
        if polls < FIRST_SNAPSHOT:
            self.forget()
            return False
        where = (self._residents.emulation.clock_reads, _positions(ready), _positions(held))
        state = self._arrays()
        everybody = all(bool(self._moved[rowset.index].all()) for items in ready.values() for rowset, _ in items)
        if everybody and where == self._where and all(map(np.array_equal, state, self._state)):
            return True
        if self._where is None or polls & (polls - 1) == 0:
            self._where, self._state = where, [array.copy() for array in state]
            self._moved[:] = False
        return False

    def _arrays(self) -> list[Any]:
        return [*self._residents.registers.groups, self._residents.local.data]


def _positions(places: Places) -> object:
    return frozenset(
        (place, rowset.index.tobytes(), None if mask is None else mask.tobytes())
        for place, items in places.items()
        for rowset, mask in items
    )
