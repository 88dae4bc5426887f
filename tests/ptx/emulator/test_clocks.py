"""Vector clocks against sets: what a warp knows is what some chain of meetings has told it, access by access."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.ptx.emulator.state.clocks import OWN, Clock, Clocks, join, weakest
from tinygpu.ptx.emulator.state.doubts import Doubt

# (CTAs, warps of a CTA, CTAs of a cluster)
SHAPES = [(1, 3, 1), (2, 1, 1), (3, 2, 1), (2, 2, 2), (4, 1, 2), (4, 2, 4)]
Access = tuple[int, int]  # who (a row, or an agent as -1 - its column), and when


@dataclass
class Message:
    """What was known when it was sent, both ways."""

    clock: Clock
    known: set[Access]
    proxied: set[Access]
    executed: set[Access]


@dataclass
class Play:
    """Rows that access, meet and tell each other at random; for each, the accesses that it knows of."""

    clocks: Clocks
    rng: np.random.Generator
    tick: int = 0
    known: dict[int, set[Access]] = field(default_factory=dict)
    proxied: dict[int, set[Access]] = field(default_factory=dict)
    executed: dict[int, set[Access]] = field(default_factory=dict)
    sent: dict[int, list[Message]] = field(default_factory=dict)
    all: set[Access] = field(default_factory=set)
    agents: bool = True

    def __post_init__(self) -> None:
        for row in range(self.rows):
            self.known[row], self.proxied[row], self.executed[row] = set(), set(), set()

    @property
    def rows(self) -> int:
        return self.clocks.ctas * self.clocks.warps_per_cta

    def cluster(self, row: int) -> int:
        return row % self.clocks.ctas // self.clocks.cluster_size

    def mates(self, row: int) -> list[int]:
        return [r for r in range(self.rows) if self.cluster(r) == self.cluster(row)]

    def some(self, rows: list[int]) -> list[int]:
        return sorted(self.rng.choice(rows, int(self.rng.integers(1, len(rows) + 1)), replace=False).tolist())

    def step(self) -> None:
        row = int(self.rng.integers(self.rows))
        often = [self.access, self.send, self.receive] * 2
        once = [
            self.access,
            self.meet_cta,
            self.meet,
            self.meet_lanes,
            self.forward,
            self.receive_execution,
            self.fence,
        ]
        steps = [*often, *once, *([self.agent] if self.agents else [])]
        steps[int(self.rng.integers(len(steps)))](row)

    def access(self, row: int) -> None:
        self.tick += 1
        self.all.add((row, self.tick))
        self.known[row].add((row, self.tick))

    def least(self, row: int) -> int:
        """Up to when all that the cluster's other warps did is known, and its own lanes have met."""
        others = np.delete(self.clocks.vector[row, : self.clocks.members], self.clocks.own_column[row])
        return min([int(self.clocks.warp_synced[row]), *others.tolist()])

    def meet_lanes(self, row: int) -> None:
        self.clocks.sync_warps(np.array([row]), self.tick)
        assert self.clocks.warp_synced[row] == self.tick
        if self.clocks.members == 1:
            assert self.clocks.synced[row] == self.tick

    def meet_cta(self, row: int) -> None:
        cta = row % self.clocks.ctas
        self.clocks.join_cta(np.array([cta]), self.tick)
        group = [r for r in range(self.rows) if r % self.clocks.ctas == cta]
        self._tell(group, group)
        assert (self.clocks.warp_synced[group] == self.tick).all()
        assert self.clocks.synced[group].tolist() == [self.least(r) for r in group]

    def meet(self, row: int) -> None:
        arrived, waiting = self.some(self.mates(row)), self.some(self.mates(row))
        self.clocks.join(np.array(arrived), np.array(waiting), self.tick)
        self._tell(arrived, waiting)
        assert (self.clocks.warp_synced[waiting] == self.tick).all()
        assert self.clocks.synced[waiting].tolist() == [self.least(r) for r in waiting]

    def _tell(self, arrived: list[int], waiting: list[int]) -> None:
        for what in (self.known, self.proxied, self.executed):
            union = set().union(*(what[r] for r in arrived))
            for r in waiting:
                what[r] |= union

    def send(self, row: int) -> None:
        told = Message(
            self.clocks.snapshot(row, self.tick), set(self.known[row]), set(self.proxied[row]), set(self.executed[row])
        )
        self.sent.setdefault(self.cluster(row), []).append(told)

    def agent(self, row: int) -> None:
        """Something that the row starts accesses memory, and whoever waits for it knows that, and what the row knew."""
        self.send(row)
        told = self.sent[self.cluster(row)].pop()
        column = self.clocks.agent(self.cluster(row), int(self.rng.integers(2)), "agent")
        self.tick += 1
        access = (-1 - column - 100 * self.cluster(row), self.tick)
        earlier = {a for a in self.all if a[0] == access[0]}  # an agent works in order
        self.all.add(access)
        clock = told.clock.with_entry(column, self.tick)
        message = Message(*(clock, *(what | earlier | {access} for what in (told.known, told.proxied, told.executed))))
        self.sent[self.cluster(row)].append(message)

    def forward(self, row: int) -> None:
        """Two messages as one: all that either tells, or what both do."""
        messages = self.sent.get(self.cluster(row), [])
        if len(messages) < 2:
            return
        one, two = (messages[i] for i in self.rng.choice(len(messages), 2, replace=False))
        both = join([one.clock, two.clock])
        messages.append(Message(both, one.known | two.known, one.proxied | two.proxied, one.executed | two.executed))
        least = weakest([one.clock, two.clock])
        for access in self.all:
            at = self.column(access)
            if self.cluster_of(access) == self.cluster(row):
                assert (access[1] <= least.tick_of(at)) == (access in one.known & two.known)

    def receive(self, row: int) -> None:
        for told in self.sent.get(self.cluster(row), [])[-2:-1]:
            self.clocks.learn(row, told.clock)
            self.known[row] |= told.known
            self.proxied[row] |= told.proxied
            self.executed[row] |= told.executed
            if self.clocks.members > 1:
                assert self.clocks.synced[row] == self.least(row)

    def receive_execution(self, row: int) -> None:
        if self.clocks.executed is not None:
            for told in self.sent.get(self.cluster(row), [])[-1:]:
                self.clocks.learn_execution(row, told.clock)
                self.executed[row] |= told.executed | told.known

    def fence(self, row: int) -> None:
        rows = self.some(self.mates(row))
        self.clocks.fence_proxy(np.array(rows), self.tick)
        for r in rows:
            self.proxied[r] |= self.known[r]

    def column(self, access: Access) -> int:
        who = access[0]
        return int(self.clocks.own_column[who]) if who >= 0 else (-1 - who) % 100

    def cluster_of(self, access: Access) -> int:
        who = access[0]
        return self.cluster(who) if who >= 0 else (-1 - who) // 100

    def check(self) -> None:
        for row in range(self.rows):
            own = int(self.clocks.own_column[row])
            assert self.clocks.synced[row] <= self.least(row)
            assert self.clocks.vector[row, own] == OWN
            for access in self.all:
                if self.cluster_of(access) != self.cluster(row):
                    continue
                column, when = self.column(access), access[1]
                assert (when <= self.clocks.proxied[row, column]) == (access in self.proxied[row])
                if access[0] == row:
                    continue
                assert (when <= self.clocks.vector[row, column]) == (access in self.known[row])
                executed = access in self.executed[row] | self.known[row]
                assert (when <= self.clocks.executed_tick_of(row, column)) == executed
                if access[0] >= 0 and when <= self.clocks.synced[row]:
                    assert access in self.known[row]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("seed", range(4))
def test_a_row_knows_what_it_was_told(shape: tuple[int, int, int], seed: int) -> None:
    play = Play(Clocks(*shape, start=0), np.random.default_rng(seed), agents=seed < 2)
    if seed % 2:
        play.clocks.follow_execution()
    for _ in range(120):
        play.step()
        play.check()
    alone = shape[1:] == (1, 1) and not play.agents
    assert alone or any(play.known[row] - {a for a in play.all if a[0] == row} for row in range(play.rows))


def test_what_a_clock_has_no_column_for_is_not_known() -> None:
    clock = Clock(np.array([3, 0, 9], np.int32), np.array([5, 0, 2], np.int32))
    columns = np.array([0, 2, 3, 7])
    assert clock.limit(columns).tolist() == [3, 9, 0, 0]
    assert clock.proxied_limit(columns).tolist() == [5, 2, 0, 0]
    # columns from 1 on are agents: what is known of them in either way counts
    assert clock.completed_limit(columns).tolist() == [5, 9, 0, 0]
    assert [clock.tick_of(column) for column in (0, 2, 3)] == [3, 9, 0]
    assert clock.with_entry(4, 6).known.tolist() == [3, 0, 9, 0, 6]
    assert clock.with_entry(1, 6).known.tolist() == [3, 6, 9]
    assert clock.with_entry(4, 6).proxied.tolist()[:3] == [5, 0, 2]


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=4), st.integers(0, 6))
def test_together_clocks_know_what_one_of_them_knows(ticks: list[list[int]], column: int) -> None:
    """Of any sizes, and of some of which execution is followed: the latest tick of each column."""
    clocks = [
        Clock(*(np.array(some, np.int32) for some in (known, known[::-1])), executed=None if k % 2 else np.full(7, k))
        for k, known in enumerate(ticks)
    ]
    found, columns = join(clocks), range(8)
    for name, lists in (("known", ticks), ("proxied", [known[::-1] for known in ticks])):
        wanted = [max((known[c] for known in lists if c < len(known)), default=0) for c in columns]
        there = getattr(found, name)
        assert [*there.tolist(), *[0] * (8 - there.size)] == wanted
    executed = [max(c.executed_tick_of(k) if k < found.known.size else 0 for c in (*clocks, found)) for k in columns]
    assert [found.executed_tick_of(k) for k in columns] == executed
    entered = found.with_entry(column, 5)
    for k in columns:
        assert entered.tick_of(k) == max(found.tick_of(k), 5 * (k == column))
        before = found.executed_tick_of(k) if k < entered.known.size else 0
        assert entered.executed_tick_of(k) == max(before, 5 * (k == column))
    assert all(part is not mine for mine in (c.known for c in clocks) for part in (found.known, entered.known))


def test_a_release_of_its_cta_tells_another_one_that_agents_are_done_and_what_a_fence_released() -> None:
    clock = Clock(np.array([3, 4, 9, 1], np.int32), np.array([5, 0, 2, 7], np.int32))
    plain = clock.from_abroad(None, 2)
    assert plain.known.tolist() == [0, 0, 0, 0]
    assert plain.proxied.tolist() == [0, 0, 9, 7]
    fenced = clock.from_abroad(Clock(np.array([2, 6, 8], np.int32), np.array([1, 3, 11], np.int32)), 2)
    assert fenced.known.tolist() == [2, 6, 8, 0]
    assert fenced.proxied.tolist() == [1, 3, 11, 7]


def test_what_a_warp_started_itself_does_not_make_its_lanes_meet() -> None:
    clocks = Clocks(1, 2, 1, start=0)
    clocks.sync_warps(np.array([0]), 3)
    clocks.learn(0, clocks.issue(0))
    assert clocks.warp_synced.tolist() == [3, 0]
    clocks.learn(0, clocks.snapshot(0, 8))  # what it released comes back: its lanes met in who passed it on
    assert clocks.warp_synced.tolist() == [8, 0]


def test_a_doubt_is_over_where_anybody_else_is_sure() -> None:
    def clock(known: int, doubt: Doubt | None) -> Clock:
        ticks = np.array([0, known], np.int32)
        return Clock(ticks, ticks, doubts={} if doubt is None else {1: doubt})

    doubted = Doubt(low=2, high=6, lanes=0b01)
    assert join([clock(6, doubted), clock(0, None)]).doubts == {1: doubted}
    assert join([clock(0, None), clock(6, doubted), clock(4, None)]).doubts == {1: Doubt(4, 6, 0b01)}
    assert join([clock(6, doubted), clock(6, None)]).doubts == {}
    # each releases its own lanes: what both leave open is between the later start and the later end
    both = join([clock(6, doubted), clock(8, Doubt(3, 8, 0b10))]).doubts
    assert both == {1: Doubt(3, 8, 0b11)}
    assert join([clock(9, None), clock(6, doubted), clock(8, Doubt(3, 8, 0b10))]).doubts == {}


def test_what_a_row_starts_knows_what_the_row_knows_either_way() -> None:
    clocks = Clocks(1, 3, 1, start=0)
    clocks.join(np.array([0, 1]), np.array([0]), 4)
    clocks.fence_proxy(np.array([0]), 5)
    clocks.join(np.array([2]), np.array([0]), 7)
    started = clocks.issue(0)
    assert started.known.tolist() == [OWN, 4, 7]
    assert started.proxied.tolist() == [5, 4, 0]
    assert started.executed is None
    clocks.learn_execution(0, started)  # nobody follows it here
    assert clocks.executed is None


def test_actors_have_numbers_of_their_own_and_no_more_than_a_cluster_holds() -> None:
    clocks = Clocks(4, 1, 2, start=0)
    keys = [(cluster, key) for key in range(3) for cluster in range(2)]
    found = {(cluster, key): clocks.agent(cluster, key, f"{cluster}.{key}") for cluster, key in keys}
    assert [found[at] for at in keys] == [2, 2, 3, 3, 4, 4]
    assert {at: clocks.agent(*at, "again") for at in keys} == found
    names = [clocks.name(1, column) for column in (0, 1, 3)]
    assert names == ["warp 0 of the cluster's CTA 0", "warp 0 of the cluster's CTA 1", "1.1"]
    for key in range(3, 1024 - 2):
        clocks.agent(0, key, "more")
    with pytest.raises(OverflowError) as refused:
        clocks.agent(0, "one too many", "more")
    assert str(refused.value) == "a cluster with more than 1024 warps, mbarriers and copy queues"
