"""Flags in shared memory: what strong accesses and atomics there publish and learn, and who has seen what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.state.clocks import Clock, join
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.cta_order import Published
from tinygpu.ptx.emulator.state.scopes import Scope, scopes_of_launch

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.state.residents import Residents

MissedClocks = Mapping[tuple[int, int], Published[Clock] | None]
"""As Missed of CtaOrder, for bytes of shared memory."""


class SharedFlags:
    """The flags of resident CTAs; places are byte indices of the shared memory of all of them."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._scopes = scopes_of_launch(residents.cluster_size)
        # By scope, group of threads (Scope.group of resident CTAs) and place: what has been published there.
        self._locations: dict[Scope, dict[tuple[int, int], Clock]] = {scope: {} for scope in Scope}
        # By row and place: when the warp last saw what strong accesses left there.
        self._observed: dict[tuple[int, int], int] = {}

    def exchange(
        self, c: Cohort, index: NDArray[np.int64], scope: Scope, reads: bool, writes: bool, release: bool = False,
        acquire: bool = False, missed: MissedClocks | None = None,
    ) -> None:  # fmt: skip
        """Active lanes carry out strong accesses or atomics on bytes `index` of shared memory, one after another.

        As through global memory (CtaOrder): what was fenced before a strong write or atomic is learned by who reads it,
        within the scope of both; without .acquire it is doubtful until a fence. Reads that saw an older value
        (`missed`) learn what had been published with that.
        """
        if not c.emulation.checking or not index.size:
            return
        for within in self._scopes:
            publishes = writes and (release or self._residents.any_fenced(within > Scope.CTA))
            if within <= scope and (publishes or (reads and self._locations[within])):
                self._exchange_within(c, index, within, reads, publishes, release, acquire, missed or {})

    def _exchange_within(
        self, c: Cohort, index: NDArray[np.int64], within: Scope, reads: bool, publishes: bool, release: bool,
        acquire: bool, missed: MissedClocks,
    ) -> None:  # fmt: skip
        locations, abroad = self._locations[within], within > Scope.CTA
        rows = np.broadcast_to(c.pick_column(c.set.column), index.shape).reshape(-1)
        for row, place in dict.fromkeys(zip(rows.tolist(), index.reshape(-1).tolist(), strict=True)):
            group = within.group(row % len(self._residents.ctas), self._residents.cluster_size)
            old = locations.get((group, place))
            if (row, place) in missed:
                before = missed[row, place]
                old = None if before is None else before.within(within, group, old)
            if reads and old is not None and acquire:
                self._residents.learn(row, old)
            elif reads and old is not None:
                self._residents.doubt_until_fence(row, old, abroad)
            told = self.publication(c, row, release, abroad) if publishes else None
            if told is not None:
                locations[group, place] = told if old is None else join([old, told])

    def published(self, place: int, row: int) -> Published[Clock]:
        """What has been published so far at a byte of shared memory that a row is about to write to."""
        groups = tuple(scope.group(row % len(self._residents.ctas), self._residents.cluster_size) for scope in Scope)
        return Published(groups, tuple(self._locations[scope].get((groups[scope], place)) for scope in Scope))

    def publication(self, c: Cohort, row: int, release: bool, abroad: bool) -> Clock | None:
        """What a strong write or an atomic of a row to shared memory publishes; None for nothing.

        abroad  to other CTAs
        """
        residents, lanes = self._residents, self._residents.active_bits(c, row)
        return residents.snapshot(row, lanes) if release else residents.fenced(row, lanes, abroad)

    def note_observed(self, c: Cohort, index: NDArray[np.int64], missed: MissedClocks) -> None:
        """Active lanes have seen, by strong loads, what was written at these byte indices of shared memory.

        missed  reads, by row and byte, that saw an older value

        Who resets a lock after it has seen its release need not be ordered behind that by anything else: a write after
        a read of the same place comes after what was read (PTX memory model, "Coherence").
        """
        rows = np.broadcast_to(c.pick_column(c.set.column), index.shape).reshape(-1).tolist()
        places = index.reshape(-1).tolist()
        self._observed.update((key, c.emulation.tick) for key in zip(rows, places, strict=True) if key not in missed)

    def observed(self, rows: NDArray[np.int64], index: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """When the warp of each access last saw what stands there, 0 where it never has; None where nobody has."""
        if not self._observed:
            return None
        whose = np.broadcast_to(rows, index.shape).reshape(-1).tolist()
        seen = [self._observed.get(key, 0) for key in zip(whose, index.reshape(-1).tolist(), strict=True)]
        return np.array(seen, np.int64).reshape(index.shape)
