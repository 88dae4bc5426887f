"""Order between CTAs: what warps learn of each other's accesses through fences, atomics and strong accesses.

PTX memory model ("Release and Acquire Patterns"): a fence (or .release) and then a strong write or atomic publishes what
the warp knew; a strong read or atomic of that location and then a fence (or .acquire) learns it. Reading what was
published without a fence behind the strong read is taken as an advisory: kernels known to be right on hardware do it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.types import Array

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.residents import Cohort, Residents

Known = NDArray[np.int32]
"""Per launch-wide warp: tick up to which its accesses happened before."""


class CtaOrder:
    """What each resident warp knows of the accesses of other CTAs.

    strict   (warps, warps of the launch) by fences as the memory model wants them; None while nothing is known
    lenient  the same without a fence behind the strong read
    """

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._fenced: dict[int, Known] = {}
        self._unconfirmed: dict[int, Known] = {}
        self.strict: Known | None = None
        self.lenient: Known | None = None

    def _snapshot(self, row: int) -> Known:
        """All that happened before now, as this row knows."""
        residents = self._residents
        wpc, count = residents.warps_per_cta, len(residents.ctas)
        known = np.zeros(residents.emulation.total_warps, np.int32) if self.strict is None else self.strict[row].copy()
        first = (row % count + residents.first_number) * wpc
        own = residents.clocks.vector[row].copy()
        own[row // count] = residents.emulation.tick
        known[first : first + wpc] = np.maximum(known[first : first + wpc], own)
        return known

    def fence(self, c: Cohort) -> None:
        """Active warps pass a fence of gpu or system scope."""
        if not c.emulation.checking:
            return
        for row in c.set.index if c.mask is None else c.set.index[c.mask.any(axis=1)]:
            known = self._unconfirmed.pop(int(row), None)
            if known is not None:
                self._learn(int(row), known, True)
            self._fenced[int(row)] = self._snapshot(int(row))

    def access(
        self, c: Cohort, addresses: Array, reads: bool, writes: bool, acquire: bool = False, release: bool = False
    ) -> None:
        """Active lanes carry out strong accesses or atomics, one after another, at these addresses."""
        emulation = c.emulation
        locations = emulation.locations
        publishes = writes and (release or bool(self._fenced))
        if not emulation.checking or addresses.size == 0 or not (publishes or (reads and locations)):
            return
        rows = np.broadcast_to(c.pick_column(c.set.column), addresses.shape).reshape(-1)
        pairs = dict.fromkeys((int(r), int(a)) for r, a in zip(rows, addresses.reshape(-1), strict=True))
        for row, address in pairs:
            known = locations.get(address) if reads else None
            if known is not None:
                self._learn(row, known, acquire)
                if not acquire:
                    old = self._unconfirmed.get(row)
                    self._unconfirmed[row] = known if old is None else np.maximum(old, known)
            if publishes:
                told = self._snapshot(row) if release else self._fenced.get(row)
                if told is not None:
                    old = locations.get(address)
                    locations[address] = told if old is None else np.maximum(old, told)

    def _learn(self, row: int, known: Known, strictly: bool) -> None:
        residents = self._residents
        if self.strict is None or self.lenient is None:
            shape = (residents.warps, residents.emulation.total_warps)
            self.strict, self.lenient = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        self.lenient[row] = np.maximum(self.lenient[row], known)
        if strictly:
            self.strict[row] = np.maximum(self.strict[row], known)
        first = (row % len(residents.ctas) + residents.first_number) * residents.warps_per_cta
        residents.clocks.learn(row, known[first : first + residents.warps_per_cta])

    def join(self, arrived: NDArray[np.int64], waiting: NDArray[np.int64]) -> None:
        """Warps of one CTA met at a barrier: those `waiting` know what any that `arrived` knew."""
        for table in (self.strict, self.lenient):
            if table is not None:
                table[waiting] = np.maximum(table[waiting], table[arrived].max(axis=0))

    def limits(self, rows: NDArray[np.int64], who: NDArray[np.int32]) -> tuple[Known, Known | None]:
        """Per pair of row and warp of another CTA: ticks up to which it is ordered (strictly, leniently or None)."""
        if self.strict is None or self.lenient is None:
            return np.zeros(1, np.int32), None
        column = np.minimum(who, self.strict.shape[1] - 1)
        return np.asarray(self.strict[rows, column]), np.asarray(self.lenient[rows, column])
