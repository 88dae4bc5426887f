"""Order between CTAs: what warps learn of each other's accesses through fences, atomics and strong accesses.

The PTX memory model ("Release and Acquire Patterns"): a fence (or .release) and then a strong write or atomic publishes
what the warp knew; a strong read or atomic of that location and then a fence (or .acquire) learns it. Reading what was
published without a fence behind the strong read is taken as an advisory: kernels known to be right on hardware do it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.doubts import Doubt, actor_of, advise, relied_on
from tinygpu.ptx.emulator.state.scopes import Scope, scopes_of_launch

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.source.syntax import Instruction
    from tinygpu.ptx.emulator.state.cohort import Cohort
    from tinygpu.ptx.emulator.state.residents import Residents

Known = NDArray[np.int32]
"""Per launch-wide warp: tick up to which its accesses happened before."""
Told = TypeVar("Told")
NO_GROUP = -1


@dataclass(frozen=True, slots=True, eq=False)
class Published(Generic[Told]):
    """What had been published at a place when a warp wrote there, by scope.

    groups  numbers of the warp's CTA, of its cluster, of the launch
    told    what had been told within each of them (None: nothing)
    """

    groups: tuple[int, ...]
    told: tuple[Told | None, ...]

    def within(self, scope: Scope, group: int, now: Told | None) -> Told | None:
        """What had been told within a group then; what counts now, where that is not known."""
        return self.told[scope] if self.groups[scope] == group else now

    @property
    def everywhere(self) -> Told | None:
        """What had been told to all."""
        return self.told[Scope.LAUNCH]

    @staticmethod
    def to_all(told: Told | None) -> Published[Told]:
        """What has been told to all, with nothing known of narrower scopes."""
        return Published((NO_GROUP, NO_GROUP, Scope.LAUNCH.group(0, 1)), (None, None, told))


def both_known(one: Known | None, other: Known | None) -> Known | None:
    """What is known by whoever knows both; None for nothing."""
    if one is None or other is None:
        return one if other is None else other
    return np.asarray(np.maximum(one, other))


Missed = Mapping[tuple[int, int], Published[Known] | None]
"""By row and address: whose strong read came before a write there, and what had been published until then."""


@dataclass(frozen=True, slots=True, eq=False)
class Publication:
    """What a strong write or an atomic of a row tells within a scope; of some lanes only, as the doubts say."""

    known: Known
    doubts: dict[int, Doubt]


class CtaOrder:
    """What each resident warp knows of the accesses of other warps through global memory.

    strict   (warps, warps of the launch) by fences as the memory model wants them; None while nothing is known
    lenient  the same without a fence behind the strong read
    doubts   per row, what it knows of warps of other clusters (by number in the launch) from some of their lanes only

    A message passes within a scope where the write and the read, and the fences beside them, reach that far.
    """

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._scopes = scopes_of_launch(residents.cluster_size)
        self._fenced: dict[Scope, dict[int, Publication]] = {scope: {} for scope in Scope}
        self._unconfirmed: dict[Scope, dict[int, Known]] = {scope: {} for scope in Scope}
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

    def confirm(self, row: int, scope: Scope) -> None:
        """A row passes a fence: what it has read before is known for good, where the fence reaches."""
        for within in self._scopes:
            known = self._unconfirmed[within].pop(row, None) if within <= scope else None
            if known is not None:
                self._learn(row, known, True, within)

    def fence(self, row: int, lanes: int, scope: Scope) -> None:
        """A row passes a fence: what it does from now on may publish what it knows, where the fence reaches.

        lanes  those that pass it, a bit each
        """
        publication = Publication(self._snapshot(row), self._doubts_of_release(row, lanes))
        for within in self._scopes:
            if within <= scope:
                self._fenced[within][row] = publication

    def access(
        self, c: Cohort, addresses: Array, scope: Scope, reads: bool, writes: bool, acquire: bool = False,
        release: bool = False, missed: Missed | None = None,
    ) -> None:  # fmt: skip
        """Active lanes carry out strong accesses or atomics, one after another, at these addresses.

        missed  reads that saw an older value learn what had been published with that
        """
        if not c.emulation.checking or addresses.size == 0:
            return
        for within in self._scopes:
            publishes = writes and (release or bool(self._fenced[within]))
            if within <= scope and (publishes or (reads and c.emulation.locations[within])):
                self._access_within(c, addresses, within, reads, publishes, acquire, release, missed or {})

    def _access_within(
        self, c: Cohort, addresses: Array, within: Scope, reads: bool, publishes: bool, acquire: bool, release: bool,
        missed: Missed,
    ) -> None:  # fmt: skip
        """What these accesses tell and learn within each group of a scope."""
        locations, doubted = c.emulation.locations[within], c.emulation.location_doubts
        rows = np.broadcast_to(c.pick_column(c.set.column), addresses.shape).reshape(-1)
        # Many lanes meet the same clocks: joins and publications are made once each.
        joins: dict[tuple[int, int], Known] = {}
        publications: dict[int, Publication | None] = {}
        learned: set[tuple[int, int]] = set()
        for row, address in dict.fromkeys(zip(rows.tolist(), addresses.reshape(-1).tolist(), strict=True)):
            group = self._group(row, within)
            place = (group, address)
            old = locations.get(place)
            if (row, address) in missed:
                before = missed[row, address]
                old = None if before is None else before.within(within, group, old)
            if reads and old is not None and (row, id(old)) not in learned:
                learned.add((row, id(old)))
                if (within, *place) in doubted:
                    self._doubt(row, doubted[within, *place])
                if self._learn(row, old, acquire, within):
                    publications.pop(row, None)
            if not publishes:
                continue
            if row not in publications:
                publications[row] = self.publication(c, row, within, release)
            published = publications[row]
            told = None if published is None else published.known
            if published is None or told is None or told is old:
                continue
            if published.doubts or (within, *place) in doubted:
                self._publish_doubts((within, *place), published.doubts, told)
            if old is None:
                locations[place] = told
            else:
                key = (id(old), id(told))
                if key not in joins:
                    joins[key] = np.maximum(old, told)
                locations[place] = joins[key]

    def _group(self, row: int, scope: Scope) -> int:
        residents = self._residents
        return scope.group(row % len(residents.ctas) + residents.first_number, residents.cluster_size)

    def published(self, address: int, row: int) -> Published[Known]:
        """What has been published so far at an address that a row is about to write to."""
        groups = tuple(self._group(row, scope) for scope in Scope)
        locations = self._residents.emulation.locations
        return Published(groups, tuple(locations[scope].get((groups[scope], address)) for scope in Scope))

    def publication(self, c: Cohort, row: int, within: Scope, release: bool) -> Publication | None:
        """What a strong write or an atomic of a row publishes within a scope; None for nothing."""
        fenced = self._fenced[within].get(row)
        if not release and fenced is None:
            return None
        doubts = self._doubts_of_release(row, self._residents.active_bits(c, row))
        if release or fenced is None:
            return Publication(self._snapshot(row), doubts)
        return Publication(fenced.known, {**fenced.doubts, **doubts})

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

    def _learn(self, row: int, known: Known, strictly: bool, within: Scope) -> bool:
        """The row learns; returns whether that was news."""
        residents = self._residents
        if self.strict is None or self.lenient is None:
            shape = (residents.warps, residents.emulation.total_warps)
            self.strict, self.lenient = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
        table = self.strict if strictly else self.lenient
        if bool((known <= table[row]).all()):
            return False
        first = self._first(row)
        near = known[first : first + residents.clocks.members]
        self.lenient[row] = np.maximum(self.lenient[row], known)
        if strictly:
            self.strict[row] = np.maximum(self.strict[row], known)
            residents.fenced_at_last(row, near)
        else:
            waiting = self._unconfirmed[within].get(row)
            self._unconfirmed[within][row] = known if waiting is None else np.maximum(waiting, known)
            unfenced = residents.unfenced(row, near, abroad=within > Scope.CTA)
            if unfenced:
                residents.doubts.setdefault(row, {}).update(unfenced)
        residents.clocks.learn_members(row, 0, near)
        return True

    # ---- what is known from some lanes only (see doubts) ----------------------------------------------------------

    def _doubts_of_release(self, row: int, lanes: int) -> dict[int, Doubt]:
        first = self._first(row)
        near = self._residents.doubts_of_release(row, lanes)
        members = self._residents.clocks.members
        mine = {first + key: doubt for key, doubt in near.items() if actor_of(key) < members}
        return {**self.doubts.get(row, {}), **mine}

    def _publish_doubts(self, place: tuple[Scope, int, int], doubts: dict[int, Doubt], told: Known) -> None:
        """Who reads this location next learns `told`, some of it from some lanes only."""
        old = self._residents.emulation.location_doubts.pop(place, {})
        left: dict[int, Doubt] = {}
        for warp in old.keys() | doubts.keys():
            mine, other = doubts.get(warp), old.get(warp)
            if mine is not None:
                left[warp] = mine if other is None else mine.both(other)
            elif other is not None and (rest := other.beyond(int(told[actor_of(warp)]))) is not None:
                left[warp] = rest
        if left:
            self._residents.emulation.location_doubts[place] = left

    def _doubt(self, row: int, doubts: dict[int, Doubt]) -> None:
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
