"""Order between CTAs: what warps learn of each other's accesses through fences, atomics and strong accesses.

The PTX memory model ("Release and Acquire Patterns"): a fence (or .release) and then a strong write or atomic publishes
what the warp knew; a strong read or atomic of that location and then a fence (or .acquire) learns it. Reading what was
published without a fence behind the strong read is taken as an advisory: kernels known to be right on hardware do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.doubts import Doubt, advise, relied_on

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.source.syntax import Instruction
    from tinygpu.ptx.emulator.state.cohort import Cohort
    from tinygpu.ptx.emulator.state.residents import Residents

Known = NDArray[np.int32]
"""Per launch-wide warp: tick up to which its accesses happened before."""


NO_CTA = -1


@dataclass(frozen=True, slots=True, eq=False)
class Published:
    """What had been published at an address when a CTA (by number in the launch) wrote there.

    far   to all
    near  within that CTA
    """

    cta: int
    far: Known | None
    near: Known | None

    def joined(self, known: Known | None) -> Published:
        """With what one more warp publishes; what it tells its own CTA is taken from what counts now."""
        both = [k for k in (self.far, known) if k is not None]
        return Published(NO_CTA, np.maximum.reduce(both) if both else None, None)


Missed = Mapping[tuple[int, int], Published | None]
"""By row and address: whose strong read came before a write there, and what had been published until then."""


class CtaOrder:
    """What each resident warp knows of the accesses of other CTAs.

    strict   (warps, warps of the launch) by fences as the memory model wants them; None while nothing is known
    lenient  the same without a fence behind the strong read
    doubts   per row, what it knows of warps of other clusters (by number in the launch) from some of their lanes only
    """

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._fenced: dict[int, Known] = {}
        self._fenced_doubts: dict[int, dict[int, Doubt]] = {}
        self.doubts: dict[int, dict[int, Doubt]] = {}
        self._unconfirmed: dict[int, Known] = {}
        # The same within a CTA, where fences and accesses of CTA scope are enough.
        self._fenced_near: dict[int, Known] = {}
        self._unconfirmed_near: dict[int, Known] = {}
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

    def fence(self, c: Cohort, near: bool = False) -> None:
        """Active warps pass a fence.

        near  it is of CTA scope: it orders for warps of the same CTA only
        """
        if not c.emulation.checking:
            return
        for row in (c.set.index if c.mask is None else c.set.index[c.mask.any(axis=1)]).tolist():
            for waiting in (self._unconfirmed_near,) if near else (self._unconfirmed_near, self._unconfirmed):
                known = waiting.pop(row, None)
                if known is not None:
                    self._learn(row, known, True)
            self._fenced_near[row] = self._snapshot(row)
            if not near:
                self._fenced[row] = self._fenced_near[row]
                self._fenced_doubts[row] = self._doubts_of_release(c, row)

    def access(
        self, c: Cohort, addresses: Array, reads: bool, writes: bool, acquire: bool = False, release: bool = False,
        near: bool = False, missed: Mapping[tuple[int, int], Published | None] | None = None,
    ) -> None:  # fmt: skip
        """Active lanes carry out strong accesses or atomics, one after another, at these addresses.

        near    they are of CTA scope: they tell nothing to other CTAs, and learn nothing from them
        missed  reads that saw an older value learn what had been published with that
        """
        missed = missed or {}
        emulation = c.emulation
        publishes = writes and (release or bool(self._fenced_near))
        if not emulation.checking or addresses.size == 0:
            return
        if publishes or (reads and emulation.near_locations):
            self._access_near(c, addresses, reads, publishes, acquire, release, missed)
        if near:
            return
        locations = emulation.locations
        publishes = writes and (release or bool(self._fenced))
        if not (publishes or (reads and locations)):
            return
        rows = np.broadcast_to(c.pick_column(c.set.column), addresses.shape).reshape(-1)
        # Many lanes meet the same clocks: joins and snapshots are made once each.
        joins: dict[tuple[int, int], Known] = {}
        snapshots: dict[int, Known | None] = {}
        learned: set[tuple[int, int]] = set()
        for row, address in dict.fromkeys(zip(rows.tolist(), addresses.reshape(-1).tolist(), strict=True)):
            old = locations.get(address)
            if (row, address) in missed:
                before = missed[row, address]
                old = None if before is None else before.far
            if reads and old is not None and (row, id(old)) not in learned:
                learned.add((row, id(old)))
                if address in emulation.location_doubts:
                    self._doubt(row, emulation.location_doubts[address])
                if self._learn(row, old, acquire):
                    snapshots.pop(row, None)
            if not publishes:
                continue
            if row not in snapshots:
                snapshots[row] = self.publication(row, release)
            told = snapshots[row]
            if told is None or told is old:
                continue
            doubts = self._doubts_of_release(c, row)
            if not release:
                doubts = {**self._fenced_doubts.get(row, {}), **doubts}
            if doubts or address in emulation.location_doubts:
                self._publish_doubts(address, doubts, told)
            if old is None:
                locations[address] = told
            else:
                key = (id(old), id(told))
                if key not in joins:
                    joins[key] = np.maximum(old, told)
                locations[address] = joins[key]

    def _access_near(
        self, c: Cohort, addresses: Array, reads: bool, publishes: bool, acquire: bool, release: bool, missed: Missed
    ) -> None:
        """What these accesses tell and learn within their CTA."""
        locations = c.emulation.near_locations
        count = len(self._residents.ctas)
        rows = np.broadcast_to(c.pick_column(c.set.column), addresses.shape).reshape(-1)
        for row, address in dict.fromkeys(zip(rows.tolist(), addresses.reshape(-1).tolist(), strict=True)):
            place = (row % count + self._residents.first_number, address)
            old = locations.get(place)
            if (row, address) in missed:
                before = missed[row, address]
                if before is None or before.cta == place[0]:
                    old = None if before is None else before.near
            if reads and old is not None:
                self._learn(row, old, acquire, near=True)
            told = None
            if publishes:
                told = self._snapshot(row) if release else self._fenced_near.get(row)
            if told is not None and told is not old:
                locations[place] = told if old is None else np.maximum(old, told)

    def published(self, address: int, cta: int) -> Published:
        """What has been published at an address so far, which a CTA is about to write to."""
        emulation = self._residents.emulation
        return Published(cta, emulation.locations.get(address), emulation.near_locations.get((cta, address)))

    def publication(self, row: int, release: bool) -> Known | None:
        """What a strong write or an atomic of a row publishes to all; None for nothing."""
        return self._snapshot(row) if release else self._fenced.get(row)

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

    def _learn(self, row: int, known: Known, strictly: bool, near: bool = False) -> bool:
        """The row learns; returns whether that was news."""
        residents = self._residents
        if self.strict is None or self.lenient is None:
            shape = (residents.warps, residents.emulation.total_warps)
            self.strict, self.lenient = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        table = self.strict if strictly else self.lenient
        if bool((known <= table[row]).all()):
            return False
        self.lenient[row] = np.maximum(self.lenient[row], known)
        if strictly:
            self.strict[row] = np.maximum(self.strict[row], known)
        else:
            unconfirmed = self._unconfirmed_near if near else self._unconfirmed
            waiting = unconfirmed.get(row)
            unconfirmed[row] = known if waiting is None else np.maximum(waiting, known)
        first = self._first(row)
        residents.clocks.learn_members(row, 0, known[first : first + residents.clocks.members])
        return True

    # ---- what is known from some lanes only (see doubts) ----------------------------------------------------------

    def _doubts_of_release(self, c: Cohort, row: int) -> dict[int, Doubt]:
        first = self._first(row)
        near = self._residents.doubts_of_release(row, self._residents.active_bits(c, row))
        members = self._residents.clocks.members
        return {**self.doubts.get(row, {}), **{first + k: d for k, d in near.items() if k < members}}

    def _publish_doubts(self, address: int, doubts: dict[int, Doubt], told: Known) -> None:
        """Who reads this location next learns `told`, some of it from some lanes only."""
        old = self._residents.emulation.location_doubts.pop(address, {})
        left: dict[int, Doubt] = {}
        for warp in old.keys() | doubts.keys():
            mine, other = doubts.get(warp), old.get(warp)
            if mine is not None:
                left[warp] = mine if other is None else mine.both(other)
            elif other is not None and (rest := other.beyond(int(told[warp]))) is not None:
                left[warp] = rest
        if left:
            self._residents.emulation.location_doubts[address] = left

    def _doubt(self, row: int, doubts: dict[int, Doubt]) -> None:
        """A row is about to learn what is doubtful so far; of its own cluster the residents keep it."""
        residents = self._residents
        first, members = self._first(row), residents.clocks.members
        for warp, doubt in doubts.items():
            near = first <= warp < first + members
            known = 0 if self.lenient is None else int(self.lenient[row, warp])
            if near:
                known = int(residents.clocks.vector[row, warp - first])
            rest = doubt.beyond(known)
            if rest is not None and near:
                residents.doubts.setdefault(row, {})[warp - first] = rest
            elif rest is not None:
                self.doubts.setdefault(row, {})[warp] = rest

    def advise_doubts(self, instruction: Instruction, rows: Known, warps: Known, ticks: Known) -> None:
        """Tell who relies on accesses of other clusters that other lanes released than those that made them."""
        emulation = self._residents.emulation
        for row in [row for row in np.unique(rows).tolist() if row in self.doubts]:
            mine, whose, when = np.broadcast_arrays(rows == row, warps, ticks)
            warp = relied_on(self.doubts[row], whose[mine], when[mine], emulation.lanes, 0)
            if warp is not None:
                doubt = self.doubts[row].pop(warp)
                cta, number = divmod(warp, self._residents.warps_per_cta)
                advise(emulation, instruction, doubt, f"warp {number} of CTA {emulation.cta_of(cta)}")

    @property
    def follows(self) -> bool:
        """Whether anything is known of other CTAs."""
        return self.strict is not None or bool(self.doubts)

    def join(self, arrived: NDArray[np.int64], waiting: NDArray[np.int64]) -> None:
        """Warps of one CTA met at a barrier: those `waiting` know what any that `arrived` knew."""
        if self.doubts:
            shared = {w: d for row in arrived.tolist() for w, d in self.doubts.get(row, {}).items()}
            for row in waiting.tolist():
                self.doubts[row] = {**shared, **self.doubts.get(row, {})}
        for table in (self.strict, self.lenient):
            if table is not None:
                table[waiting] = np.maximum(table[waiting], table[arrived].max(axis=0))

    def known(self, row: int) -> tuple[Known, Known] | None:
        """(strict, lenient) of a row, None while nothing is known of other clusters."""
        if self.strict is None or self.lenient is None:
            return None
        return self.strict[row].copy(), self.lenient[row].copy()

    def absorb(self, row: int, strict: Known, lenient: Known) -> None:
        """A row learns what another one of its cluster knew of other clusters."""
        if self.strict is None or self.lenient is None:
            shape = (self._residents.warps, self._residents.emulation.total_warps)
            self.strict, self.lenient = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        np.maximum(self.strict[row], strict, out=self.strict[row])
        np.maximum(self.lenient[row], lenient, out=self.lenient[row])

    def limits(self, rows: NDArray[np.int64], who: NDArray[np.int32]) -> tuple[Known, Known | None]:
        """Per pair of row and warp of another CTA: ticks up to which it is ordered (strictly, leniently or None)."""
        if self.strict is None or self.lenient is None:
            return np.zeros(1, np.int32), None
        column = np.minimum(who, self.strict.shape[1] - 1)
        return np.asarray(self.strict[rows, column]), np.asarray(self.lenient[rows, column])
