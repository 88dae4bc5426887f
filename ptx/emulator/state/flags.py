"""Flags: what strong accesses and atomics of a place publish to the threads of their CTA and cluster, and learn there.

What a strong write or atomic publishes, who reads that place next learns, as far as the scopes of both and of the
fences beside them reach. Within a cluster, whose warps have clocks of each other, that is all that a clock says: of
agents and of the asynchronous proxy too. What flags in global memory tell other clusters, CtaOrder follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.clocks import Clock, join
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.published import Published
from tinygpu.ptx.emulator.state.scopes import Scope

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.state.residents import Residents

MissedClocks = Mapping[tuple[int, int], Published | None]
"""By row and place: whose strong read came before a write there, and what had been published until then."""


class Flags:
    """The flags of resident CTAs in one memory; a place is a global address, or a byte index of all shared memory."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._scopes = (Scope.CTA,) if residents.cluster_size == 1 else (Scope.CTA, Scope.CLUSTER)
        # By scope, group of threads (Scope.group of resident CTAs) and place: what has been published there.
        self._locations: dict[Scope, dict[tuple[int, int], Clock]] = {Scope.CTA: {}, Scope.CLUSTER: {}}
        # By row and place: when the warp last saw what strong accesses left there.
        self._observed: dict[tuple[int, int], int] = {}

    def exchange(
        self, c: Cohort, places: Array, scope: Scope, reads: bool, writes: bool, release: bool = False,
        acquire: bool = False, missed: MissedClocks | None = None,
    ) -> None:  # fmt: skip
        """Active lanes carry out strong accesses or atomics at these places, one after another.

        Without .acquire, what is learned is doubtful until a fence. Reads that saw an older value (`missed`) learn what
        had been published with that.
        """
        if not c.emulation.checking or not places.size:
            return
        for within in self._scopes:
            publishes = writes and (release or self._residents.any_fenced(within > Scope.CTA))
            if within <= scope and (publishes or (reads and self._locations[within])):
                self._exchange_within(c, places, within, reads, publishes, release, acquire, missed or {})

    def _exchange_within(
        self, c: Cohort, places: Array, within: Scope, reads: bool, publishes: bool, release: bool, acquire: bool,
        missed: MissedClocks,
    ) -> None:  # fmt: skip
        residents, locations = self._residents, self._locations[within]
        rows = np.broadcast_to(c.pick_column(c.set.column), places.shape).reshape(-1)
        # Many lanes meet the same clocks: what is told, learned and joined is worked out once.
        tells: dict[int, Clock | None] = {}
        joins: dict[tuple[int, int], Clock] = {}
        learned: set[tuple[int, int]] = set()
        for row, place in dict.fromkeys(zip(rows.tolist(), places.reshape(-1).tolist(), strict=True)):
            group = self._group(row, within)
            old = locations.get((group, place))
            if (row, place) in missed:
                before = missed[row, place]
                old = None if before is None else before.within(within, group, old)
            if reads and old is not None and (row, id(old)) not in learned:
                learned.add((row, id(old)))
                tells.pop(row, None)
                if acquire:
                    residents.learn(row, old)
                else:
                    residents.learn_until_fence(row, old, within)
            if publishes and row not in tells:
                tells[row] = self.publication(c, row, release, within)
            told = tells.get(row)
            if told is None or told is old:
                continue
            key = (id(old), id(told))
            if old is not None and key not in joins:
                joins[key] = join([old, told])
            locations[group, place] = told if old is None else joins[key]

    def _group(self, row: int, scope: Scope) -> int:
        return scope.group(row % len(self._residents.ctas), self._residents.cluster_size)

    def published(self, place: int, row: int) -> Published:
        """What has been published so far at a place that a row is about to write to."""
        groups = (self._group(row, Scope.CTA), self._group(row, Scope.CLUSTER))
        near, abroad = (self._locations[scope].get((groups[scope], place)) for scope in (Scope.CTA, Scope.CLUSTER))
        return Published(groups, (near, abroad))

    def publication(self, c: Cohort, row: int, release: bool, within: Scope) -> Clock | None:
        """What a strong write or an atomic of a row publishes; None for nothing."""
        residents, lanes = self._residents, self._residents.active_bits(c, row)
        return residents.snapshot(row, lanes) if release else residents.fenced(row, lanes, within > Scope.CTA)

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
