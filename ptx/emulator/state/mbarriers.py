"""mbarrier objects: phases, pending arrivals, transaction bytes, what those who wait learn (PTX ISA, "mbarrier")."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.clocks import MOST_ACTORS, Clock, both

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.state.residents import Residents

MOST_ARRIVALS = (1 << 20) - 1
"""Largest count of pending arrivals, and largest tx-count either way (PTX ISA, "Contents of the mbarrier object")."""
WHAT_COMPLETES = "what completes"
"""How races call the copies of which an mbarrier hears."""
OTHERS = MOST_ACTORS
"""In the place of a thread's column: arrivals of asynchronous work."""


@dataclass(slots=True, eq=False)
class Mbarrier:
    """One live mbarrier object.

    cta, address  resident CTA and byte address in its shared memory
    expected      arrivals that a phase takes
    pending       arrivals that the current phase still takes
    tx            transaction bytes that the current phase expects, less those that have come
    phase         completed phases
    column        the agent whose accesses complete on this barrier
    gathered      what those released that have arrived so far, to waits of cluster scope
    gathered_near the same, to waits of CTA scope: other CTAs' arrivals release less to them
    arrived       column -> tick of the arrivals of the current phase by threads; OTHERS where asynchronous work did
    completed_by  the same of the last completed phase
    completed_at  when that was
    landed_at     when transaction bytes came last
    found         row -> number of completed phases that the warp has found
    sought        row -> (completed phases then, tick) of its first vain look for the phase that it waits for
    released      what those learn that find a phase completed, by waits of cluster scope
    released_near the same, by waits of CTA scope
    maker         (column, tick) of its initialisation
    users         column -> (tick, line) of the last use
    """

    cta: int
    address: int
    expected: int
    pending: int
    column: int
    maker: tuple[int, int]
    line: int
    tx: int = 0
    phase: int = 0
    gathered: Clock | None = None
    gathered_near: Clock | None = None
    released: Clock | None = None
    released_near: Clock | None = None
    users: dict[int, tuple[int, int]] = field(default_factory=dict)
    arrived: dict[int, int] = field(default_factory=dict)
    completed_by: dict[int, int] = field(default_factory=dict)
    completed_at: int = 0
    landed_at: int = 0
    found: dict[int, int] = field(default_factory=dict)
    sought: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def untouched(self) -> bool:
        """No arrival or transaction is outstanding in the current phase."""
        return self.pending == self.expected and self.tx == 0

    def sought_since(self, row: int) -> int:
        """Since when a row has waited here, for a deadlock: all copies have come, so that bytes that do not match are
        a cause before all others.
        """
        return 0 if self.tx else self.sought[row][1]

    def describe(self) -> str:
        """Its state in words, for faults."""
        state = f"mbarrier {self.address:#x} (initialised on line {self.line}) has {self.phase} completed phases, "
        state += f"{self.expected - self.pending} of {self.expected} arrivals"
        if self.tx > 0:
            state += f" and waits for {self.tx} more transaction bytes"
        elif self.tx < 0:
            state += f" and has {-self.tx} transaction bytes more than were expected"
        return state


class Mbarriers:
    """All live mbarriers of the resident CTAs."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self.live: dict[tuple[int, int], Mbarrier] = {}
        self._places: dict[int, list[int]] = {}  # from low to high
        self._gone: dict[tuple[int, int], str] = {}

    def init(self, origin: Origin, cta: int, address: int, count: int) -> None:
        """Make an mbarrier object; `address` is a byte address in the shared memory of a resident CTA."""
        residents = self._residents
        if not 1 <= count <= MOST_ARRIVALS:
            origin.fault(
                "mbarrier", f"mbarrier.init with a count of {count}: it must be 1 to {MOST_ARRIVALS}", "shared", address
            )
            count = max(1, min(count, MOST_ARRIVALS))
        old = self.live.get((cta, address))
        if old is not None and not old.untouched:
            origin.fault(
                "mbarrier",
                f"initialises an mbarrier that is in use: {old.describe()}; invalidate it (mbarrier.inval) when nobody "
                "uses it any more",
                "shared", address,
            )  # fmt: skip
        elif old is not None and old.phase:
            origin.advise(
                "mbarrier initialised again",
                "an mbarrier that was used is initialised again without mbarrier.inval before it",
            )
        if old is not None:
            self._check_users(origin, old, "initialises")
        cluster = residents.cluster_of(cta)
        column = residents.clocks.agent(
            cluster, ("mbarrier", cta, address), f"{WHAT_COMPLETES} on mbarrier {address:#x}"
        )
        maker = (int(residents.clocks.own_column[origin.row]), residents.emulation.tick)
        places = self._places.setdefault(cta, [])
        if old is None:
            insort(places, address)
        self.live[cta, address] = Mbarrier(cta, address, count, count, column, maker, origin.instruction.line)
        self._gone.pop((cta, address), None)
        residents.emulation.changes += 1

    def invalidate(self, origin: Origin, cta: int, address: int) -> None:
        """mbarrier.inval."""
        barrier = self.find(origin, cta, address)
        if barrier is not None:
            self._check_users(origin, barrier, "invalidates")
            self._check_bytes(origin, barrier)
            del self.live[cta, address]
            self._places[cta].remove(address)
            self._gone[cta, address] = f"it was invalidated on line {origin.instruction.line}"

    def overwritten(self, cta: int, low: int, high: int, line: int) -> None:
        """Bytes [low, high) of a CTA's shared memory were written by something else: barriers there are gone."""
        for key in [(cta, place) for place in self.places_between(cta, low, high)]:
            del self.live[key]
            self._places[cta].remove(key[1])
            self._gone[key] = f"it was overwritten on line {line}"

    def places(self, cta: int) -> tuple[int, ...]:
        """The addresses of a CTA's live mbarriers, from low to high."""
        return tuple(self._places.get(cta, ()))

    def places_between(self, cta: int, low: int, high: int) -> list[int]:
        """The addresses of a CTA's live mbarriers of which one of the bytes [low, high) is part, from low to high."""
        places = self._places.get(cta)
        if not places or places[0] >= high or places[-1] + 8 <= low:
            return []
        return places[bisect_right(places, low - 8) : bisect_left(places, high)]

    def unfinished(self) -> list[str]:
        """The live mbarriers in the middle of a phase, in words: what is left of them once all CTAs have ended."""
        return [barrier.describe() for _, barrier in sorted(self.live.items()) if not barrier.untouched]

    def find(self, origin: Origin, cta: int, address: int) -> Mbarrier | None:
        """The live mbarrier there. A fault, and None, where there is none or where its making is not ordered before."""
        residents = self._residents
        barrier = self.live.get((cta, address))
        if barrier is None:
            why = self._gone.get((cta, address), "no mbarrier.init has been executed there")
            origin.fault(
                "mbarrier", f"uses shared address {address:#x} as an mbarrier, but {why}", "shared", address
            )
            return None
        if residents.emulation.checking:
            column, tick = barrier.maker
            if int(residents.clocks.vector[origin.row, column]) < tick:
                origin.fault(
                    "race",
                    f"uses mbarrier {address:#x}, which {residents.clocks.name(residents.cluster_of(cta), column)} "
                    f"initialised on line {barrier.line}, and nothing orders the two: "
                    + (
                        "fence.mbarrier_init.release.cluster and a cluster barrier must lie between them"
                        if cta != origin.cta else "put bar.sync between them"
                    ),
                    "shared", address,
                )  # fmt: skip
                barrier.maker = (column, 0)
            user = int(residents.clocks.own_column[origin.row])
            barrier.users[user] = (residents.emulation.tick, origin.instruction.line)
        return barrier

    def _check_users(self, origin: Origin, barrier: Mbarrier, verb: str) -> None:
        """A fault where somebody may still be using an mbarrier that this row does away with."""
        clocks = self._residents.clocks
        cluster = self._residents.cluster_of(barrier.cta)
        if self._residents.doubts:
            ticks = np.array([tick for tick, _ in barrier.users.values()], np.int32)
            self._residents.advise_doubts(
                origin.instruction, np.full(1, origin.row), np.array(list(barrier.users), np.int64), ticks
            )
        for column, (tick, line) in barrier.users.items():
            if int(clocks.vector[origin.row, column]) < tick:
                origin.fault(
                    "race",
                    f"{verb} mbarrier {barrier.address:#x}, which {clocks.name(cluster, column)} used on line {line}, "
                    "and nothing orders the two: put bar.sync between the last use and this",
                    "shared", barrier.address,
                )  # fmt: skip
                return

    def _check_bytes(self, origin: Origin, barrier: Mbarrier) -> None:
        """A fault where copies may still complete on an mbarrier that this row invalidates."""
        known = int(self._residents.clocks.vector[origin.row, barrier.column])
        if self._residents.emulation.checking and (barrier.tx or known < barrier.landed_at):
            origin.fault(
                "mbarrier",
                f"invalidates mbarrier {barrier.address:#x} (initialised on line {barrier.line}) while a copy may "
                "still complete on it: wait for its phase, and order the wait before this",
                "shared", barrier.address,
            )  # fmt: skip

    def arrive(
        self, origin: Origin, barrier: Mbarrier, count: int, clock: Clock | None, near: Clock | None, *,
        drop: bool = False, by_thread: bool = False,
    ) -> int:  # fmt: skip
        """Count arrivals; returns the state token as it was before.

        clock      what they release (None: nothing) to waits of cluster scope
        near       what they release to waits of CTA scope
        by_thread  they are the thread's own, not those of asynchronous work that it issued
        """
        token = barrier.phase << 32 | barrier.pending
        if count < 1 or count > barrier.pending:
            origin.fault(
                "mbarrier",
                f"{count} arrivals at an mbarrier whose phase takes {barrier.pending} more: {barrier.describe()}; the "
                "count of mbarrier.init must be that of all arrivals of a phase",
                "shared", barrier.address,
            )  # fmt: skip
            count = min(max(count, 0), barrier.pending)
        self._gather(barrier, clock, near)
        column = int(self._residents.clocks.own_column[origin.row]) if by_thread else OTHERS
        barrier.arrived[column] = self._residents.emulation.tick
        barrier.pending -= count
        if drop:
            barrier.expected -= count
        self._settle(barrier)
        return token

    def expect_tx(self, origin: Origin, barrier: Mbarrier, size_bytes: int) -> None:
        """Expect so many more transaction bytes in the current phase."""
        barrier.tx += size_bytes
        self._check_tx(origin, barrier)

    def complete_tx(self, origin: Origin, barrier: Mbarrier, size_bytes: int, clock: Clock | None = None) -> None:
        """So many transaction bytes have come; `clock` is what they release besides the barrier's own agent."""
        self._gather(barrier, clock, clock)
        barrier.arrived[OTHERS] = self._residents.emulation.tick
        barrier.landed_at = self._residents.emulation.tick
        barrier.tx -= size_bytes
        self._check_tx(origin, barrier)
        self._settle(barrier)

    def learn(self, rows: list[int], barrier: Mbarrier, relaxed: bool, wide: bool) -> None:
        """Rows have found a phase completed: they know what was released to a wait of their scope.

        relaxed  they know it from their next fence on
        wide     the wait is of cluster scope (or wider); else it learns the rest at the next fence of such a scope
        """
        residents = self._residents
        barrier.found.update(dict.fromkeys(rows, barrier.phase))
        told = barrier.released if wide else barrier.released_near
        if told is None:
            return
        if not relaxed:
            residents.learn_all(rows, told)
        apart = barrier.released is not barrier.released_near
        for row in rows if relaxed or (apart and not wide) else ():
            if relaxed:
                residents.clocks.learn_execution(row, told)
                residents.learn_after_fence(row, barrier.released_near, barrier)
            if apart:
                residents.learn_after_fence(row, barrier.released, barrier, abroad=True)

    def certain(self, row: int, barrier: Mbarrier) -> bool:
        """Whether the last completion is ordered before what a row does now, so that it cannot miss it."""
        if not barrier.phase or barrier.found.get(row) == barrier.phase:
            return True
        known = self._residents.clocks.vector[row]
        if int(known[barrier.column]) >= barrier.completed_at:
            return True
        return all(column != OTHERS and int(known[column]) >= tick for column, tick in barrier.completed_by.items())

    def _gather(self, barrier: Mbarrier, clock: Clock | None, near: Clock | None) -> None:
        together = clock is near and barrier.gathered is barrier.gathered_near
        barrier.gathered = both(barrier.gathered, clock)
        barrier.gathered_near = barrier.gathered if together else both(barrier.gathered_near, near)

    def _check_tx(self, origin: Origin, barrier: Mbarrier) -> None:
        if abs(barrier.tx) > MOST_ARRIVALS:
            origin.fault(
                "mbarrier",
                f"the tx-count of an mbarrier becomes {barrier.tx}, beyond +-{MOST_ARRIVALS}: {barrier.describe()}",
                "shared", barrier.address,
            )  # fmt: skip
            barrier.tx = 0

    def _settle(self, barrier: Mbarrier) -> None:
        """Complete the phase if nothing is outstanding."""
        emulation = self._residents.emulation
        emulation.changes += 1
        if barrier.pending == 0 and barrier.tx == 0:
            emulation.signals += 1
            barrier.phase += 1
            barrier.completed_by, barrier.arrived = barrier.arrived, {}
            barrier.completed_at = emulation.tick
            barrier.pending = barrier.expected
            # Later phases keep what earlier ones released: arrivals on one barrier are ordered among each other.
            together = barrier.gathered is barrier.gathered_near and barrier.released is barrier.released_near
            barrier.released = self._release(barrier, both(barrier.released, barrier.gathered))
            if together:
                barrier.released_near = barrier.released
            else:
                barrier.released_near = self._release(barrier, both(barrier.released_near, barrier.gathered_near))
            barrier.gathered = barrier.gathered_near = None

    def _release(self, barrier: Mbarrier, clock: Clock | None) -> Clock:
        """What a phase that completes now releases, the accesses of the barrier's own agent among it."""
        base = self._residents.clocks.nothing() if clock is None else clock
        return base.with_entry(barrier.column, self._residents.emulation.tick)
