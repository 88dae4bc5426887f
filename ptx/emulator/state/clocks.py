"""Happens-before as vector clocks: what each warp knows of every other actor's accesses.

Time is a counter (the tick) that rises with every memory instruction that is carried out. An actor is a warp, or an
agent: something that works on its own between issue and completion (copies that complete on an mbarrier, a warpgroup's
matrix instructions, the bulk copies of a warp). Actors of one cluster have numbers, its columns: first the warps of
its CTAs by rank, then the agents in order of appearance. The clock of a warp says, per column, up to which tick that
actor's accesses happened before now; an access is a race when a conflicting one before it has a later tick than that,
whatever order the emulator happened to run them in.

A second plane, `proxied`, says the same of accesses of the generic proxy that a proxy fence has made known to the
asynchronous proxy (PTX ISA, "Async proxy"): TMA, wgmma and tcgen05 see only those. Of agents it says up to when their
accesses are known to have completed for whoever writes through the asynchronous proxy next (Clock.from_abroad).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.state.doubts import NO_DOUBTS, Doubt, Doubts, actor_of

Ticks = NDArray[np.int32]
PENDING = np.int32(2**31 - 1)
"""Tick of bytes that an agent may access at any moment: later than every clock."""
OWN = np.int32(2**31 - 2)
"""Clock entry of a warp for itself: all of its own accesses happened before."""
ACTOR_BITS = 10
MOST_ACTORS = 1 << ACTOR_BITS


@dataclass(frozen=True, slots=True, eq=False)
class Clock:
    """What was known at one moment: ticks per column, known to the generic and to the asynchronous proxy.

    Both have as many columns as there were actors then; later ones are unknown.
    strict and lenient are what was known of warps of other clusters, by their number in the launch (CtaOrder).
    doubts say which of what is known is known from some lanes only, far_doubts the same of other clusters.
    executed is what was known to have been executed, whether or not its accesses of memory were released; only where
    it is followed (Clocks.follow_execution).
    """

    known: Ticks
    proxied: Ticks
    strict: Ticks | None = None
    lenient: Ticks | None = None
    doubts: Doubts = field(default_factory=dict)
    executed: Ticks | None = None
    far_doubts: Doubts = field(default_factory=dict)

    def limit(self, columns: NDArray[np.int64]) -> Ticks:
        """Ticks up to which the accesses of these actors happened before."""
        return _take(self.known, columns)

    def proxied_limit(self, columns: NDArray[np.int64]) -> Ticks:
        """The same for what the asynchronous proxy may see."""
        return _take(self.proxied, columns)

    def tick_of(self, column: int) -> int:
        """Tick up to which one actor's accesses happened before."""
        return int(self.known[column]) if column < self.known.size else 0

    def far_tick_of(self, warp: int) -> int:
        """Tick up to which the accesses of a warp of another cluster happened before."""
        return 0 if self.strict is None else int(self.strict[warp])

    def executed_tick_of(self, column: int) -> int:
        """Tick up to which one actor's instructions were executed before."""
        if self.executed is None or column >= self.executed.size:
            return self.tick_of(column)
        return max(int(self.executed[column]), self.tick_of(column))

    def completed_limit(self, columns: NDArray[np.int64]) -> Ticks:
        """Ticks up to which accesses happened before, for a write through the asynchronous proxy.

        What the asynchronous proxy knows of warps, whoever tells it knows too: only of agents it may know more.
        """
        return np.maximum(self.limit(columns), self.proxied_limit(columns))

    def from_abroad(self, fenced: Clock | None, members: int) -> Clock:
        """What of this an arrival of CTA scope tells another CTA: its release does not reach there.

        What a fence released before (`fenced`) does. So does one thing more, which is no release of memory: that the
        agents' accesses (columns from `members` on) have completed, for writes through the asynchronous proxy only.
        TMA, wgmma and tcgen05 access shared memory in a proxy of their own, and whoever arrives has waited for them;
        no access of a thread lies between the two. Published Hopper kernels give slots back like this, for the release
        at cluster scope is a fence of all memory in every round.
        """
        told = np.zeros(self.proxied.size, np.int32)
        told[members:] = np.maximum(self.proxied, self.known)[members:]
        if fenced is None:
            return Clock(np.zeros(told.size, np.int32), told, executed=self.executed)
        told[: fenced.proxied.size] = np.maximum(told[: fenced.proxied.size], fenced.proxied)
        known = np.zeros(told.size, np.int32)
        known[: fenced.known.size] = fenced.known
        return replace(fenced, known=known, proxied=told, executed=self.executed)

    def with_entry(self, column: int, tick: int) -> Clock:
        """The same clock, which also knows an actor up to a tick."""
        size = max(self.known.size, column + 1)
        known, proxied = _resized(self.known, size), _resized(self.proxied, size)
        known[column] = max(int(known[column]), tick)
        proxied[column] = max(int(proxied[column]), tick)
        executed = self.executed
        if executed is not None:
            executed = np.maximum(known, executed if executed.size == size else _resized(executed, size))
        return Clock(known, proxied, self.strict, self.lenient, self.doubts, executed, self.far_doubts)


def _take(ticks: Ticks, columns: NDArray[np.int64]) -> Ticks:
    if columns.size and int(columns.max()) >= ticks.size:
        return np.where(columns < ticks.size, ticks[np.minimum(columns, ticks.size - 1)], 0).astype(np.int32)
    return np.asarray(ticks[columns])


def _resized(ticks: Ticks, size: int) -> Ticks:
    """An array of its own of so many columns; those beyond are unknown."""
    if ticks.size == size:
        return ticks.copy()
    found = np.zeros(size, np.int32)
    found[: ticks.size] = ticks[:size]
    return found


def join(clocks: list[Clock]) -> Clock:
    """What is known by whoever knows all that these know."""
    known, proxied = _most([clock.known for clock in clocks]), _most([clock.proxied for clock in clocks])
    followed = [clock.executed[: known.size] for clock in clocks if clock.executed is not None]
    executed = _most([known, *followed]) if followed else None
    far = [clock for clock in clocks if clock.strict is not None]
    doubts = NO_DOUBTS
    if any(clock.doubts for clock in clocks):
        doubts = _common_doubts([clock.doubts for clock in clocks], [clock.tick_of for clock in clocks])
    if not far:
        return Clock(known, proxied, doubts=doubts, executed=executed)
    strict = np.maximum.reduce([clock.strict for clock in far if clock.strict is not None])
    lenient = np.maximum.reduce([clock.lenient for clock in far if clock.lenient is not None])
    far_doubts = _common_doubts([clock.far_doubts for clock in far], [clock.far_tick_of for clock in far])
    return Clock(known, proxied, strict, lenient, doubts, executed, far_doubts)


def _most(ticks: list[Ticks]) -> Ticks:
    """The largest tick of each column, 0 where the column is unknown; an array of its own."""
    first, *others = ticks
    if len(others) == 1 and first.size == others[0].size:
        return np.maximum(first, others[0])
    found = _resized(first, max(part.size for part in ticks))
    for part in others:
        np.maximum(found[: part.size], part, out=found[: part.size])
    return found


def both(one: Clock | None, other: Clock | None) -> Clock | None:
    """What is known by whoever knows both; None for nothing."""
    if one is None or other is None:
        return one if other is None else other
    return join([one, other])


def _common_doubts(doubts: list[Doubts], known: list[Callable[[int], int]]) -> Doubts:
    """What is doubtful for whoever knows all that some know.

    doubts  of each of them
    known   for each of them, actor -> tick up to which its accesses happened before
    """
    result: dict[int, Doubt] = {}
    for mine in doubts:
        for key, doubt in mine.items():
            sure = (tick_of(actor_of(key)) for other, tick_of in zip(doubts, known, strict=True) if key not in other)
            left = doubt.beyond(max(sure, default=0))
            if left is not None:
                result[key] = left.both(result[key]) if key in result else left
    return result or NO_DOUBTS


def weakest(clocks: list[Clock]) -> Clock:
    """What every one of these knows."""
    size = min(clock.known.size for clock in clocks)
    known = np.minimum.reduce([clock.known[:size] for clock in clocks])
    return Clock(known, np.minimum.reduce([clock.proxied[:size] for clock in clocks]))


class Clocks:
    """Vector clocks of resident warps; row = warp * ctas + cta, and the CTAs of a cluster follow each other by rank.

    vector       (rows, columns) tick up to which the actor's accesses happened before
    proxied      (rows, columns) the same for the asynchronous proxy
    synced       (rows,) the least entry over the other warps of the cluster; what a warp did until then is ordered
    warp_synced  (rows,) when the lanes of the warp last synchronised with each other
    accessed     (rows,) when the warp last accessed memory through the generic proxy
    executed     (rows, columns) tick up to which the actor's instructions were executed before, which relaxed arrivals
                 and waits pass on too (tensor memory is ordered by execution); None while it is not followed
    members      warps of a cluster: columns from here on are agents
    """

    def __init__(self, ctas: int, warps_per_cta: int, cluster_size: int, start: int) -> None:
        rows = ctas * warps_per_cta
        self.ctas = ctas
        self.warps_per_cta = warps_per_cta
        self.cluster_size = cluster_size
        self.members = warps_per_cta * cluster_size
        self.start = start
        index = np.arange(rows)
        self.own_column: NDArray[np.int64] = index % ctas % cluster_size * warps_per_cta + index // ctas
        self._rows = index
        self.vector: Ticks = np.full((rows, self.members), start, np.int32)
        self.vector[index, self.own_column] = OWN
        self.proxied: Ticks = np.full((rows, self.members), start, np.int32)
        self.executed: Ticks | None = None
        self.synced: Ticks = np.full(rows, start, np.int32)
        self.warp_synced: Ticks = np.full(rows, start, np.int32)
        self.accessed: Ticks = np.full(rows, start, np.int32)
        if cluster_size > 1:
            self.follow_execution()
        self.agents = 0
        self._fenced = False
        self._columns: dict[tuple[int, object], int] = {}
        self._counts: dict[int, int] = {}
        self._names: dict[tuple[int, int], str] = {}

    # ---- agents ---------------------------------------------------------------------------------------------------

    def agent(self, cluster: int, key: object, name: str) -> int:
        """The column of an agent of a resident cluster; made on first use. `name` is how races call it."""
        found = self._columns.get((cluster, key))
        if found is None:
            number = self._counts.get(cluster, 0)
            self._counts[cluster] = number + 1
            found = self.members + number
            if found >= MOST_ACTORS:
                raise OverflowError(f"a cluster with more than {MOST_ACTORS} warps, mbarriers and copy queues")
            self._columns[cluster, key] = found
            self._names[cluster, found] = name
            if number + 1 > self.agents:
                self._grow(number + 1)
        return found

    def name(self, cluster: int, column: int) -> str:
        """How races call an actor."""
        if column >= self.members:
            return self._names[cluster, column]
        rank, warp = divmod(column, self.warps_per_cta)
        return f"warp {warp}" if self.cluster_size == 1 else f"warp {warp} of the cluster's CTA {rank}"

    def _grow(self, agents: int) -> None:
        self.agents = agents
        wanted = self.members + agents
        if wanted > self.vector.shape[1]:
            more = np.full((self._rows.size, max(wanted, 16) - self.vector.shape[1] + 8), self.start, np.int32)
            self.vector = np.concatenate([self.vector, more], axis=1)
            self.proxied = np.concatenate([self.proxied, more], axis=1)
            if self.executed is not None:
                self.executed = np.concatenate([self.executed, more], axis=1)

    # ---- execution ------------------------------------------------------------------------------------------------

    def follow_execution(self) -> None:
        """From now on, order of execution is followed besides that of memory."""
        if self.executed is None:
            self.executed = self.vector.copy()

    def executed_tick_of(self, row: int, column: int) -> int:
        """Tick up to which an actor's instructions were executed before, as a row knows."""
        table = self.vector if self.executed is None else self.executed
        return max(int(table[row, column]), int(self.vector[row, column]))

    def learn_execution(self, row: int, clock: Clock) -> None:
        """A row learns what a clock knows of execution."""
        if self.executed is None:
            return
        for ticks in (clock.known, clock.executed):
            if ticks is not None:
                part = self.executed[row, : ticks.size]
                np.maximum(part, ticks[: part.size], out=part)
        self.executed[row, self.own_column[row]] = OWN

    def _meet_execution(self, arrived: NDArray[np.int64], waiting: NDArray[np.int64], tick: int) -> None:
        if self.executed is None:
            return
        meet = np.maximum(self.executed[arrived], self.vector[arrived])
        meet[np.arange(arrived.size), self.own_column[arrived]] = tick
        self.executed[waiting] = np.maximum(self.executed[waiting], meet.max(axis=0)[None, :])
        self.executed[waiting, self.own_column[waiting]] = OWN

    def _meet_executions(self, groups: NDArray[np.int64], tick: int) -> None:
        """All rows of each group, (groups, rows), have met."""
        if self.executed is None:
            return
        group, member = np.ogrid[: groups.shape[0], : groups.shape[1]]
        own = self.own_column[groups]
        met = np.maximum(self.executed[groups], self.vector[groups])
        met[group, member, own] = tick
        known = np.maximum(self.executed[groups], met.max(axis=1, keepdims=True))
        known[group, member, own] = OWN
        self.executed[groups] = known

    # ---- what rows know -------------------------------------------------------------------------------------------

    def snapshot(self, row: int, tick: int) -> Clock:
        """All that happened before now, as this row knows; its own accesses up to `tick` among them."""
        known = self.vector[row].copy()
        known[self.own_column[row]] = tick
        executed = None
        if self.executed is not None:
            executed = np.maximum(self.executed[row], known)
            executed[self.own_column[row]] = tick
        return Clock(known, self.proxied[row].copy(), executed=executed)

    def issue(self, row: int) -> Clock:
        """The clock of something that this row starts now."""
        executed = None if self.executed is None else np.maximum(self.executed[row], self.vector[row])
        return Clock(self.vector[row].copy(), self.proxied[row].copy(), executed=executed)

    def nothing(self) -> Clock:
        """The clock of one who knows nobody."""
        return Clock(np.zeros(self.members, np.int32), np.zeros(self.members, np.int32))

    def learn(self, row: int, clock: Clock) -> None:
        """A row learns what a clock knows."""
        size = clock.known.size
        own = self.own_column[row]
        mine, fenced = self.vector[row, :size], self.proxied[row, :size]
        np.maximum(mine, clock.known, out=mine)
        np.maximum(fenced, clock.proxied, out=fenced)
        if own < size and int(clock.known[own]) < OWN:
            # What the warp released before: its lanes have met in whoever passed that on.
            self.warp_synced[row] = max(int(self.warp_synced[row]), int(clock.known[own]))
        self.vector[row, own] = OWN
        self._update_synced(row)
        self.learn_execution(row, clock)

    def learn_all(self, rows: NDArray[np.int64], clock: Clock) -> None:
        """Different rows of one cluster learn what a clock knows."""
        size = clock.known.size
        own = self.own_column[rows]
        self.vector[rows, :size] = np.maximum(self.vector[rows, :size], clock.known)
        self.proxied[rows, :size] = np.maximum(self.proxied[rows, :size], clock.proxied)
        self.vector[rows, own] = OWN
        released = _take(clock.known, own)
        released = np.where(released < OWN, released, 0)
        self.warp_synced[rows] = np.maximum(self.warp_synced[rows], released)
        if self.members > 1:
            self.synced[rows] = np.minimum(self.vector[rows, : self.members].min(axis=1), self.warp_synced[rows])
        if self.executed is None:
            return
        for ticks in (clock.known, clock.executed):
            if ticks is not None:
                size = min(ticks.size, self.executed.shape[1])
                self.executed[rows, :size] = np.maximum(self.executed[rows, :size], ticks[:size])
        self.executed[rows, own] = OWN

    def learn_members(self, row: int, first: int, known: Ticks) -> None:
        """A row learns of the warps from column `first` on."""
        part = self.vector[row, first : first + known.size]
        np.maximum(part, known, out=part)
        self.vector[row, self.own_column[row]] = OWN
        self._update_synced(row)

    def _update_synced(self, row: int) -> None:
        if self.members > 1:
            # The own entry is the greatest of all, so the least is another warp's.
            self.synced[row] = min(int(self.vector[row, : self.members].min()), int(self.warp_synced[row]))

    def fence_proxy(self, rows: NDArray[np.int64], tick: int) -> None:
        """These warps pass a proxy fence: what they know of is known to the asynchronous proxy too."""
        known = self.vector[rows]
        known[np.arange(rows.size), self.own_column[rows]] = tick
        self.proxied[rows] = np.maximum(self.proxied[rows], known)
        self._fenced = True

    # ---- meeting --------------------------------------------------------------------------------------------------

    def join_cta(self, ctas: NDArray[np.int64] | slice, tick: int) -> None:
        """Every warp of these CTAs has met every other: all that they did up to `tick` happened before."""
        if self.executed is not None:
            self._meet_executions(self._rows.reshape(self.warps_per_cta, self.ctas)[:, ctas].T, tick)
        if self.cluster_size == 1 and not self.agents:
            shaped = self.vector.reshape(self.warps_per_cta, self.ctas, -1)
            shaped[:, ctas] = tick
            self.vector[self._rows, self.own_column] = OWN
            self.synced.reshape(self.warps_per_cta, self.ctas)[:, ctas] = tick
            if self._fenced:
                fenced = self.proxied.reshape(self.warps_per_cta, self.ctas, -1)
                fenced[:, ctas] = fenced[:, ctas].max(axis=0)
        else:
            self._join_groups(self._rows.reshape(self.warps_per_cta, self.ctas)[:, ctas].T, tick)
        self.warp_synced.reshape(self.warps_per_cta, self.ctas)[:, ctas] = tick

    def _join_groups(self, groups: NDArray[np.int64], tick: int) -> None:
        """All rows of each group, (groups, rows), have met."""
        known = self.vector[groups]
        own = self.own_column[groups]
        np.put_along_axis(known, own[..., None], np.int32(tick), axis=2)
        met = np.broadcast_to(known.max(axis=1, keepdims=True), known.shape).copy()
        np.put_along_axis(met, own[..., None], OWN, axis=2)
        self.vector[groups] = met
        self.proxied[groups] = self.proxied[groups].max(axis=1, keepdims=True)
        others = np.where(np.arange(self.members) == own[..., None], OWN, met[..., : self.members])
        self.synced[groups] = np.minimum(others.min(axis=2), tick)

    def join(
        self, arrived: NDArray[np.int64], waiting: NDArray[np.int64], tick: int, early: list[Clock] | None = None
    ) -> None:
        """`arrived` rows (of one cluster) came to a barrier; what they did until then is ordered for `waiting` ones.

        early  clocks of others, who came before and went on
        """
        if early:
            met = join(early)
            for row in waiting.tolist():
                self.learn(row, met)
        self._meet_execution(arrived, waiting, tick)
        meet = self.vector[arrived].copy()
        meet[np.arange(arrived.size), self.own_column[arrived]] = tick
        rows = np.maximum(self.vector[waiting], meet.max(axis=0)[None, :])
        rows[np.arange(waiting.size), self.own_column[waiting]] = OWN
        self.vector[waiting] = rows
        self.proxied[waiting] = np.maximum(self.proxied[waiting], self.proxied[arrived].max(axis=0)[None, :])
        self.synced[waiting] = np.minimum(rows[:, : self.members].min(axis=1), tick)
        self.warp_synced[waiting] = tick

    def sync_warps(self, rows: NDArray[np.int64], tick: int) -> None:
        """The lanes of each of these warps have synchronised with each other."""
        self.warp_synced[rows] = tick
        if self.members == 1:
            self.synced[rows] = tick
