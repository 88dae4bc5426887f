"""Groups of asynchronous products: where a role waits for which of them, and gives back the slots that they read.

The products of a block that consumes a slot are one group. Groups complete in the order in which they were committed,
and a wait says how many of the youngest may still be under way. So a group is waited for as late as may be: before the
first statement that touches its sums, before its own operands in registers are written again, or those that its role
stores in a slot, before another slot of its ring is held or a slot that it reads is given back to another role, and
where its loop ends. What is waited for then gives its slot back. Everything younger goes on, which is how two products
overlap, and one of them with what threads compute.

A loop goes round: what is under way at its head is what comes into it and what its last round leaves, with as few
younger groups as on either way. Outside loops, and in rings of one slot whose sums no statement of the loop uses, a
group is waited for where its block ends: nothing would go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tinygpu.language.memories import RMEM
from tinygpu.program import nodes as n
from tinygpu.program.products import products, sums, touched, used_in_rounds
from tinygpu.program.tree import uses, walk

# Block of a group -> how many younger groups there are at least.
Flight = Mapping[n.Statement, int]


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait for groups.

    pending  how many of the youngest may be left under way
    done     the blocks whose groups are complete behind it; each gives the slot back that it held
    """

    pending: int
    done: tuple[n.Consume, ...]

    @property
    def returned(self) -> tuple[str, ...]:
        """The pipelines of which a slot is given back."""
        return tuple(dict.fromkeys(s.pipeline for s in self.done))


@dataclass(frozen=True, slots=True)
class Groups:
    """All waits of a program for asynchronous products.

    before   statement -> what is waited for where it begins
    entered  block -> what is waited for when its slot has come: threads write operands of its last group again
    behind   block -> what is waited for behind its own group, or before it gives back a slot that others read
    late     blocks whose products go on behind them
    carried  those that may go on into the next round of their loop
    heads    loop -> blocks whose products may be under way where a round begins
    left     loop -> blocks whose products may be under way where it ends, and are waited for
    flying   statement -> blocks whose products may be under way while it is carried out
    """

    before: Mapping[n.Statement, Wait]
    entered: Mapping[n.Statement, Wait]
    behind: Mapping[n.Statement, Wait]
    late: frozenset[n.Statement]
    carried: frozenset[n.Statement]
    heads: Mapping[n.Statement, tuple[n.Consume, ...]]
    left: Mapping[n.Statement, tuple[n.Consume, ...]]
    flying: Mapping[n.Statement, tuple[n.Consume, ...]]


def groups(body: tuple[n.Statement, ...], one_slot: frozenset[str] = frozenset()) -> Groups:
    """Where the roles of a program wait for products; `one_slot`: the pipelines that have one slot."""
    found = _Follower(body, one_slot)
    found.follow(body, {}, False)
    carried = frozenset(g for loop, under_way in found.heads.items() for g in under_way if g in set(walk((loop,))))
    return Groups(
        found.before, found.entered, found.behind, frozenset(found.late), carried, found.heads, found.left, found.flying
    )


@dataclass(slots=True)
class _Follower:
    """Follows what is under way through a program; loops until nothing changes at their heads."""

    whole: tuple[n.Statement, ...]
    one_slot: frozenset[str]
    own: frozenset[str] = frozenset()  # pipelines that the role itself fills
    before: dict[n.Statement, Wait] = field(default_factory=dict)
    entered: dict[n.Statement, Wait] = field(default_factory=dict)
    behind: dict[n.Statement, Wait] = field(default_factory=dict)
    late: dict[n.Statement, None] = field(default_factory=dict)
    heads: dict[n.Statement, tuple[n.Consume, ...]] = field(default_factory=dict)
    left: dict[n.Statement, tuple[n.Consume, ...]] = field(default_factory=dict)
    flying: dict[n.Statement, tuple[n.Consume, ...]] = field(default_factory=dict)

    def follow(self, body: tuple[n.Statement, ...], flight: Flight, in_rounds: bool) -> Flight:
        """What is under way behind some statements."""
        for s in body:
            flight = self.statement(s, flight, in_rounds)
        return flight

    def statement(self, s: n.Statement, flight: Flight, in_rounds: bool) -> Flight:
        if isinstance(s, n.InRole):
            self.own = frozenset(f.pipeline for f in walk(s.body) if isinstance(f, n.Produce))
            self.follow(s.body, {}, False)
            return flight
        names = _touched_from(s)
        hit = [g for g in flight if names & _sums(g)]
        if isinstance(s, n.Consume) and s.pipeline in self.one_slot:
            hit += [g for g in flight if _ring(g) == s.pipeline]  # its slot comes when this one was given back
        if isinstance(s, n.Produce):
            hit += [g for g in flight if s.pipeline in _read(g)]  # its stores would change what they read
        flight = self.wait(self.before, s, flight, hit)
        self.flying[s] = tuple(g for g in flight if isinstance(g, n.Consume))
        if isinstance(s, n.Consume):
            return self.consume(s, flight, in_rounds)
        if isinstance(s, n.Repeated):
            return self.rounds(s, flight, in_rounds)
        for inner in s.children:
            flight = _joined(flight, self.follow(inner.statements, flight, in_rounds))
        return flight

    def consume(self, s: n.Consume, flight: Flight, in_rounds: bool) -> Flight:
        own = list(products(s.body))
        if any(m.a.memory is RMEM for m in own):
            flight = self.wait(self.entered, s, flight, [g for g in flight if g is s])
        flight = self.follow(s.body, flight, in_rounds)
        if not own and s.pipeline in self.own:
            return flight
        if not own:
            return self.wait(self.behind, s, flight, [g for g in flight if s.pipeline in _read(g)])
        flight = {g: younger + 1 for g, younger in flight.items()}
        if not self.goes_on(s, in_rounds):
            self.behind[s] = Wait(0, tuple(g for g in flight if isinstance(g, n.Consume)))
            return {}
        self.late[s] = None
        flight = self.wait(self.behind, s, flight, [g for g in flight if _ring(g) == s.pipeline])
        return {**flight, s: 0}

    def goes_on(self, s: n.Consume, in_rounds: bool) -> bool:
        """Whether something may be done while the products of a block are under way."""
        if not in_rounds or s.pipeline not in self.one_slot:
            return in_rounds
        return any(used_in_rounds(use) for use in uses(self.whole, s.pipeline) if use.place.statement is s)

    def rounds(self, s: n.Repeated, flight: Flight, in_rounds: bool) -> Flight:
        at_run_time = isinstance(s, n.Loop) and not s.written_out
        head, out = flight, flight
        while True:
            out = head
            for inner in s.children:
                out = self.follow(inner.statements, out, in_rounds or at_run_time)
            following = _joined(head, out)
            if following == head:
                break
            head = following
        self.heads[s] = tuple(g for g in head if isinstance(g, n.Consume))
        if not at_run_time:
            return _joined(flight, out)
        inside = set(walk((s,)))
        self.left[s] = tuple(g for g in out if g in inside and isinstance(g, n.Consume))
        return {g: younger for g, younger in head.items() if g not in inside}

    def wait(
        self, waits: dict[n.Statement, Wait], s: n.Statement, flight: Flight, hit: list[n.Statement]
    ) -> Flight:
        """What is under way behind a wait for some groups, which completes all that are as old."""
        waits.pop(s, None)
        if not hit:
            return flight
        pending = min(flight[g] for g in hit)
        done = tuple(g for g, younger in flight.items() if younger >= pending and isinstance(g, n.Consume))
        waits[s] = Wait(pending, done)
        return {g: younger for g, younger in flight.items() if younger < pending}


def _joined(a: Flight, b: Flight) -> Flight:
    """What is under way where two ways meet."""
    return {g: min(of[g] for of in (a, b) if g in of) for g in (*a, *(g for g in b if g not in a))}


def _touched_from(s: n.Statement) -> frozenset[str]:
    """Tiles that a statement touches, and what stands in it where it is a branch or a loop at run time: the groups
    that were under way before are waited for once, and on every way.
    """
    through = isinstance(s, n.Repeated) and not s.written_out
    if not (through or s.taken_where is not None or isinstance(s, n.FixUp)):
        return touched(s)
    return frozenset().union(*(touched(inner) for inner in walk((s,))))


def _ring(group: n.Statement) -> str:
    return group.pipeline if isinstance(group, n.Consume) else ""


def _sums(group: n.Statement) -> frozenset[str]:
    return frozenset().union(*(sums(inner) for inner in group.children))


def _read(group: n.Statement) -> frozenset[str]:
    """The pipelines of which the products of a block read a slot."""
    own = (m for inner in group.children for m in products(inner.statements))
    return frozenset(t.name.split(".")[0] for m in own for t in (m.a, m.b) if t.memory is not RMEM)


__all__ = ["Groups", "Wait", "groups"]
