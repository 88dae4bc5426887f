"""Order between clusters: what warps learn of each other's accesses through fences, atomics and strong accesses.

The PTX memory model ("Release and Acquire Patterns"): a fence (or .release) and then a strong write or atomic publishes
what the warp knew; a strong read or atomic of that location and then a fence (or .acquire) learns it. All of them must
be of a scope that reaches other clusters (within a cluster, see Flags). The fences need not be of the threads that
write and read, where all are fence.sc and barriers order them beside these: the first of two in their order
synchronises with the other, and the other way round nothing could have been read. Reading what was published without a
fence behind the strong read is taken as an advisory: kernels known to be right on hardware do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.doubts import Doubt, Doubts, actor_of, advise, relied_on
from tinygpu.ptx.emulator.state.scopes import Scope

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.source.syntax import Instruction
    from tinygpu.ptx.emulator.state.cohort import Cohort
    from tinygpu.ptx.emulator.state.residents import Residents

Known = NDArray[np.int32]
"""Per launch-wide warp: tick up to which its accesses happened before."""
Missed = Mapping[tuple[int, int], Known | None]
"""By row and address: whose strong read came before a write there, and what had been published until then."""


def both_known(one: Known | None, other: Known | None) -> Known | None:
    """What is known by whoever knows both; None for nothing."""
    if one is None or other is None:
        return one if other is None else other
    return np.asarray(np.maximum(one, other))


@dataclass(frozen=True, slots=True, eq=False)
class Publication:
    """What a strong write or an atomic of a row tells other clusters; of some lanes only, as the doubts say."""

    known: Known
    doubts: dict[int, Doubt]

    def beside(self, other: Publication) -> Publication:
        """What both tell."""
        return Publication(np.maximum(self.known, other.known), {**other.doubts, **self.doubts})


class CtaOrder:
    """What each resident warp knows of the accesses of other clusters.

    strict   (warps, warps of the launch) by fences as the memory model wants them; None while nothing is known
    lenient  the same without a fence behind the strong read
    doubts   per row, what it knows of warps of other clusters (by number in the launch) from some of their lanes only
    """

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._fenced: dict[int, Publication] = {}
        # By row: what those published by fence.sc whose fences came before, by barriers.
        self._handed: dict[int, Publication] = {}
        # By the scope that a fence must have to confirm it, and row.
        self._unconfirmed: dict[Scope, dict[int, Known]] = {scope: {} for scope in Scope}
        # By row: what those have read whose reads came before, by barriers; fence.sc confirms it.
        self._read: dict[int, Known] = {}
        self.doubts: dict[int, dict[int, Doubt]] = {}
        self.strict: Known | None = None
        self.lenient: Known | None = None

    def _snapshot(self, row: int) -> Known:
        """All that happened before now, as this row knows."""
        residents = self._residents
        clocks = residents.clocks
        known = np.zeros(residents.emulation.total_warps, np.int32) if self.strict is None else self.strict[row].copy()
        first = self._first(row)
        own = clocks.vector[row, : clocks.members].copy()
        own[clocks.own_column[row]] = residents.emulation.tick
        known[first : first + clocks.members] = np.maximum(known[first : first + clocks.members], own)
        return known

    def _first(self, row: int) -> int:
        """Launch-wide number of the first warp of the row's cluster."""
        residents = self._residents
        cta = row % len(residents.ctas)
        return (cta - cta % residents.cluster_size + residents.first_number) * residents.warps_per_cta

    def confirm(self, row: int, scope: Scope, sc: bool) -> None:
        """A row passes a fence: what it has read before is known for good, where the fence reaches."""
        read = self._read.pop(row, None) if sc and scope is Scope.LAUNCH else None
        if read is not None:
            self._learn(row, read, True)
        for within, waiting in self._unconfirmed.items():
            known = waiting.pop(row, None) if within <= scope else None
            if known is not None:
                self._learn(row, known, True)

    def fence(self, row: int, lanes: int, sc: bool) -> None:
        """A row passes a fence that reaches other clusters: what it does now may publish what it knows.

        lanes  those that pass it, a bit each
        sc     whether it is a fence.sc: what others do behind a barrier may publish it, too
        """
        self._fenced[row] = Publication(self._snapshot(row), self._doubts_of_release(row, lanes))
        if sc:
            self._handed[row] = self._fenced[row]

    def access(
        self, c: Cohort, addresses: Array, reads: bool, writes: bool, acquire: bool = False, release: bool = False,
        missed: Missed | None = None,
    ) -> None:  # fmt: skip
        """Active lanes carry out strong accesses or atomics, one after another, at these addresses.

        missed  reads that saw an older value learn what had been published with that
        """
        locations, doubted = c.emulation.locations, c.emulation.location_doubts
        publishes = writes and (release or bool(self._fenced) or bool(self._handed))
        if not c.emulation.checking or addresses.size == 0 or not (publishes or (reads and locations)):
            return
        missed = missed or {}
        rows = np.broadcast_to(c.pick_column(c.set.column), addresses.shape).reshape(-1)
        # Many lanes meet the same clocks: joins and publications are made once each.
        joins: dict[tuple[int, int], Known] = {}
        publications: dict[int, Publication | None] = {}
        learned: set[tuple[int, int]] = set()
        for row, address in dict.fromkeys(zip(rows.tolist(), addresses.reshape(-1).tolist(), strict=True)):
            old = missed[row, address] if (row, address) in missed else locations.get(address)
            if reads and old is not None and (row, id(old)) not in learned:
                learned.add((row, id(old)))
                if address in doubted:
                    self.doubt(row, doubted[address])
                if self._learn(row, old, acquire):
                    publications.pop(row, None)
            if not publishes:
                continue
            if row not in publications:
                publications[row] = self.publication(c, row, release)
            told = publications[row]
            if told is None or told.known is old:
                continue
            if told.doubts or address in doubted:
                self._publish_doubts(address, told.doubts, told.known)
            if old is None:
                locations[address] = told.known
            else:
                key = (id(old), id(told.known))
                if key not in joins:
                    joins[key] = np.maximum(old, told.known)
                locations[address] = joins[key]

    def publication(self, c: Cohort, row: int, release: bool) -> Publication | None:
        """What a strong write or an atomic of a row publishes; None for nothing."""
        fenced, handed = self._fenced.get(row), self._handed.get(row)
        if not release and fenced is None:
            return handed
        doubts = self._doubts_of_release(row, self._residents.active_bits(c, row))
        if release or fenced is None:
            return Publication(self._snapshot(row), doubts)
        own = self._first(row) + int(self._residents.clocks.own_column[row])
        if own in doubts:
            doubts[own] = doubts[own].by_fence(fenced.doubts.get(own))
        published = Publication(fenced.known, {**fenced.doubts, **doubts})
        return published if handed is None or handed is fenced else published.beside(handed)

    def everything_before(self, row: int) -> Known:
        """Per warp of the launch, the tick up to which its accesses happened before what a row does now."""
        known = self._snapshot(row)
        return known if self.lenient is None else np.maximum(known, self.lenient[row])

    def happened_before(self, row: int) -> Callable[[int, int], bool]:
        """(warp of the launch, tick) -> whether what it did then happened before what a row does now."""
        residents = self._residents
        first, members = self._first(row), residents.clocks.members
        near, far = residents.clocks.vector[row], None if self.lenient is None else self.lenient[row]

        def happened(warp: int, tick: int) -> bool:
            if first <= warp < first + members:
                return tick <= int(near[warp - first])
            return far is not None and tick <= int(far[warp])

        return happened

    def _learn(self, row: int, known: Known, strictly: bool) -> bool:
        """The row learns; returns whether that was news."""
        residents = self._residents
        strict, lenient = self._tables()
        if bool((known <= (strict if strictly else lenient)[row]).all()):
            return False
        first = self._first(row)
        near = known[first : first + residents.clocks.members]
        if strictly:
            strict[row] = np.maximum(strict[row], known)
            lenient[row] = np.maximum(lenient[row], known)
            residents.confirm_doubts(row, near)
        else:
            self.learn_unconfirmed(row, known, known, Scope.LAUNCH)
            unfenced = residents.unfenced(row, near, Scope.LAUNCH)
            if unfenced:
                residents.doubts.setdefault(row, {}).update(unfenced)
        residents.clocks.learn_members(row, 0, near)
        return True

    def learn_unconfirmed(self, row: int, strict: Known, lenient: Known, within: Scope) -> None:
        """A row has read, without .acquire, a flag of somebody who knew this.

        strict  what is known for good from a fence on
        within  the scope that the fence must have
        """
        table = self._tables()[1]
        table[row] = np.maximum(table[row], lenient)
        waiting = self._unconfirmed[within].get(row)
        self._unconfirmed[within][row] = strict if waiting is None else np.maximum(waiting, strict)

    def _tables(self) -> tuple[Known, Known]:
        if self.strict is None or self.lenient is None:
            shape = (self._residents.warps, self._residents.emulation.total_warps)
            self.strict, self.lenient = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        return self.strict, self.lenient

    # ---- what is known from some lanes only (see doubts) ----------------------------------------------------------

    def _doubts_of_release(self, row: int, lanes: int) -> dict[int, Doubt]:
        first = self._first(row)
        near = self._residents.doubts_of_release(row, lanes)
        members = self._residents.clocks.members
        mine = {first + key: doubt for key, doubt in near.items() if actor_of(key) < members}
        return {**self.doubts.get(row, {}), **mine}

    def _publish_doubts(self, address: int, doubts: dict[int, Doubt], told: Known) -> None:
        """Who reads this location next learns `told`, some of it from some lanes only."""
        old = self._residents.emulation.location_doubts.pop(address, {})
        left: dict[int, Doubt] = {}
        for warp in old.keys() | doubts.keys():
            mine, other = doubts.get(warp), old.get(warp)
            if mine is not None:
                left[warp] = mine if other is None else mine.both(other)
            elif other is not None and (rest := other.beyond(int(told[actor_of(warp)]))) is not None:
                left[warp] = rest
        if left:
            self._residents.emulation.location_doubts[address] = left

    def doubt(self, row: int, doubts: Doubts) -> None:
        """A row is about to learn what is doubtful so far; of its own cluster the residents keep it."""
        residents = self._residents
        first, members = self._first(row), residents.clocks.members
        for key, doubt in doubts.items():
            warp = actor_of(key)
            near = first <= warp < first + members
            known = 0 if self.lenient is None else int(self.lenient[row, warp])
            if near:
                known = int(residents.clocks.vector[row, warp - first])
            rest = doubt.beyond(known)
            if rest is not None and near:
                residents.doubts.setdefault(row, {})[key - first] = rest
            elif rest is not None:
                self.doubts.setdefault(row, {})[key] = rest

    def advise_doubts(self, instruction: Instruction, rows: Known, warps: Known, ticks: Known) -> None:
        """Tell who relies on accesses of other clusters that other lanes released than those that made them."""
        emulation = self._residents.emulation
        for row in [row for row in np.unique(rows).tolist() if row in self.doubts]:
            mine, whose, when = np.broadcast_arrays(rows == row, warps, ticks)
            warp = relied_on(self.doubts[row], whose[mine], when[mine], emulation.lanes, 0)
            if warp is not None:
                doubt = self.doubts[row].pop(warp)
                cta, number = divmod(actor_of(warp), self._residents.warps_per_cta)
                advise(emulation, instruction, doubt, f"warp {number} of CTA {emulation.cta_of(cta)}")

    @property
    def follows(self) -> bool:
        """Whether anything is known of other CTAs."""
        return self.strict is not None or bool(self.doubts) or bool(self._handed)

    def join(self, arrived: NDArray[np.int64], waiting: NDArray[np.int64]) -> None:
        """Warps of one CTA met at a barrier: those `waiting` know what any that `arrived` knew."""
        if self.doubts:
            shared = {w: d for row in arrived.tolist() for w, d in self.doubts.get(row, {}).items()}
            for row in waiting.tolist():
                self.doubts[row] = {**shared, **self.doubts.get(row, {})}
        for table in (self.strict, self.lenient):
            if table is not None:
                table[waiting] = np.maximum(table[waiting], table[arrived].max(axis=0))
        told = [self._handed[row] for row in arrived.tolist() if row in self._handed]
        if told:
            met = reduce(Publication.beside, told)
            for row in waiting.tolist():
                self._handed[row] = met
        reads = [self._unconfirmed[Scope.LAUNCH].get(row) for row in arrived.tolist()]
        reads += [self._read.get(row) for row in arrived.tolist()]
        read = reduce(both_known, reads, None)
        if read is not None:
            self._read |= dict.fromkeys(waiting.tolist(), read)

    def known(self, row: int) -> tuple[Known, Known] | None:
        """(strict, lenient) of a row, None while nothing is known of other clusters."""
        if self.strict is None or self.lenient is None:
            return None
        return self.strict[row].copy(), self.lenient[row].copy()

    def absorb(self, row: int, strict: Known, lenient: Known, doubts: Doubts) -> None:
        """A row learns what another one of its cluster knew of other clusters."""
        if self.doubts.get(row):
            mine = self.doubts.pop(row).items()
            left = {k: d if k in doubts else d.beyond(int(strict[actor_of(k)])) for k, d in mine}
            self.doubts[row] = {key: doubt for key, doubt in left.items() if doubt is not None}
        self.doubt(row, doubts)
        for table, known in zip(self._tables(), (strict, lenient), strict=True):
            np.maximum(table[row], known, out=table[row])

    def limits(self, rows: NDArray[np.int64], who: NDArray[np.int32]) -> tuple[Known, Known | None]:
        """Per pair of row and warp of another CTA: ticks up to which it is ordered (strictly, leniently or None)."""
        if self.strict is None or self.lenient is None:
            return np.zeros(1, np.int32), None
        column = np.minimum(who, self.strict.shape[1] - 1)
        return np.asarray(self.strict[rows, column]), np.asarray(self.lenient[rows, column])
