"""Proofs by induction that a ring is handed over well: for all stages, rounds, tiles, and CTAs of a cluster, by Z3.

One slot is looked at, any of them, and how often what was done to it: by a CTA x whose consumers read the slot, by a
CTA y that fills it (x itself, or a neighbour), and by one warp that consumes it, any of them. What all others do is in
that a barrier completes a phase only when everybody has arrived, this warp among them. No product of two unknowns is
needed: a use is (how often the slots have begun again, slot), which go on together, and the uses of one slot that come
before it are counted by comparing slots.

The invariant says that the counts of the slot follow each other around the ring, at most one apart:

    given back by y's phases <= by the warp <= waited for by the warp <= filled phases of x
    <= bytes landed, expected <= brought, waited for by the producers <= given back + 1

It holds at the beginning, and every move keeps it. From it follows, at each wait, that its parity tells the phase that
is wanted from the one before, which are the only two that there can be; at each fill, that all have given the slot
back; at each read, that it is full. Whoever the first of all producers waits for, waits for nobody: so one can always
go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import z3

from tinygpu.constraints.query import Answer, Notebook, Query, ask
from tinygpu.ptx.protocol.progress import Automaton, Move, Progress

# Z3 needs some 10,000 units for each of these questions.
RLIMIT = 5_000_000
Names = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Question:
    """claim  what it is about; name  of the question; build  the terms of which no values may make all true"""

    claim: str
    name: str
    build: Callable[[Any], list[Any]]


OVERWRITTEN = "no slot is overwritten before it was read"
UNFILLED = "no slot is read before it was filled"
MISSED = "no phase is missed"
STUCK = "no wait lasts for ever"
CLAIMS = (OVERWRITTEN, UNFILLED, MISSED, STUCK)


@dataclass(frozen=True, slots=True)
class _Use:
    """A use of the ring: how often the slots have begun again, and the slot."""

    wraps: Any
    slot: Any

    def plus(self, distance: int, stages: Any) -> _Use:
        wraps, slot = self.wraps, self.slot
        for _ in range(distance):
            wraps, slot = z3.If(slot + 1 == stages, wraps + 1, wraps), z3.If(slot + 1 == stages, 0, slot + 1)
        for _ in range(-distance):
            wraps, slot = z3.If(slot == 0, wraps - 1, wraps), z3.If(slot == 0, stages - 1, slot - 1)
        return _Use(wraps, slot)

    def before(self, slot: Any) -> Any:
        """Uses of a slot that come before this one."""
        return self.wraps + z3.If(self.slot > slot, 1, 0)

    def __le__(self, other: _Use) -> Any:
        return z3.Or(self.wraps < other.wraps, z3.And(self.wraps == other.wraps, self.slot <= other.slot))

    def __lt__(self, other: _Use) -> Any:
        return z3.Or(self.wraps < other.wraps, z3.And(self.wraps == other.wraps, self.slot < other.slot))


@dataclass(frozen=True, slots=True)
class _Frame:
    """The unknowns of one question: stages, the slot that is looked at, and uses."""

    context: Any
    least: int  # stages

    @property
    def stages(self) -> Any:
        return z3.Int("stages", self.context)

    @property
    def slot(self) -> Any:
        return z3.Int("slot", self.context)

    def use(self, name: str) -> _Use:
        return _Use(z3.Int(f"wraps of {name}", self.context), z3.Int(f"slot of {name}", self.context))

    def exists(self, *uses: _Use) -> list[Any]:
        return [
            self.stages >= self.least,
            self.slot >= 0,
            self.slot < self.stages,
            *(term for use in uses for term in (use.wraps >= 0, use.slot >= 0, use.slot < self.stages)),
        ]

    def reached(self, use: _Use, how_far: Progress) -> list[Any]:
        """Nobody has done anything less than no times."""
        numbers = (how_far.waited, how_far.expected, how_far.brought, how_far.released)
        return [use.plus(number, self.stages).wraps >= 0 for number in set(numbers)]


# What is counted of the slot. x is the CTA that has it, y one that fills it: the same where `apart` is not said.
COUNTS = ("given x", "given y", "full", "waits x", "expects", "waits y", "brought", "landed", "released", "waited")


def _names(context: Any, apart: bool) -> dict[str, Any]:
    made = {name: z3.Int(name, context) for name in COUNTS}
    if not apart:
        made |= {"given y": made["given x"], "waits y": made["waits x"]}
    return made


def invariant(v: Names) -> list[Any]:
    """Counts of one slot follow each other around the ring."""
    return [
        v["given x"] >= 0, v["given y"] >= 0,
        v["given x"] <= v["released"], v["released"] <= v["given x"] + 1,
        v["given y"] <= v["released"], v["released"] <= v["given y"] + 1,
        v["released"] <= v["waited"], v["waited"] <= v["full"],
        v["full"] <= v["expects"], v["expects"] <= v["full"] + 1,
        v["full"] <= v["landed"], v["landed"] <= v["full"] + 1,
        v["landed"] <= v["brought"], v["brought"] <= v["waits y"], v["expects"] <= v["waits x"],
        v["waits x"] <= v["given x"] + 1, v["waits y"] <= v["given y"] + 1,
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class RingProof:
    """The questions about one ring: equal for all kernels whose roles make the same moves.

    produced, consumed  moves of the roles that do so
    through, ended      how far these are when they have ended
    tails               of those that produce, who then waits until all slots are empty: whether parities are flipped
    least               stages that the ring has at least
    apart               whether CTAs of a cluster fill each other's slots
    """

    ring: str
    produced: tuple[Move, ...]
    consumed: tuple[Move, ...]
    through: tuple[Progress, ...]
    ended: tuple[Progress, ...]
    least: int
    apart: bool
    tails: tuple[int, ...] = ()

    @staticmethod
    def of(
        ring: str, producers: tuple[Automaton, ...], consumers: tuple[Automaton, ...], least: int, apart: bool
    ) -> RingProof:
        through, ended = (
            tuple(sorted({_counts(dict(end)[ring]) for machine in group for end in machine.ends}))
            for group in (producers, consumers)
        )
        tails = tuple(sorted({flipped for a in producers for name, flipped in a.tails if name == ring}))
        return RingProof(ring, _moves(producers, ring), _moves(consumers, ring), through, ended, least, apart, tails)

    def questions(self) -> Iterator[Question]:
        yield from self._progress()
        yield Question(MISSED, "at first", self._initial)
        for apart in (False, True) if self.apart else (False,):
            where = ", of a neighbour" if apart else ""
            yield from self._barriers(apart, where)
            for produced in self.produced:
                for of in ("x", "y") if apart else ("x",):
                    yield from self._of_producer(produced, apart, of, where)
            for consumed in self.consumed:
                yield from self._of_consumer(consumed, apart, where)
            for flipped in self.tails:
                for of in ("x", "y") if apart else ("x",):
                    yield from self._of_tail(flipped, apart, of, where)

    def _initial(self, context: Any) -> list[Any]:
        v = {name: z3.IntVal(0, context) for name in COUNTS}
        return [z3.Not(z3.And(*invariant(v)))]

    def _barriers(self, apart: bool, where: str) -> Iterator[Question]:
        """A barrier completes its phase when all have arrived; bytes land."""

        def kept(context: Any, change: str) -> list[Any]:
            v = _names(context, apart)
            when = {
                "full": [v["expects"] == v["full"] + 1, v["landed"] == v["full"] + 1],
                "landed": [v["landed"] < v["brought"]],
            }.get(change, [v["released"] == v[change] + 1])
            after = _changed(v, {change: v[change] + 1}, apart)
            return [*invariant(v), *when, z3.Not(z3.And(*invariant(after)))]

        for of in ("x", "y") if apart else ("x",):
            yield Question(OVERWRITTEN, f"a slot is given back{where}", partial(kept, change=f"given {of}"))
        yield Question(UNFILLED, f"a slot is full{where}", partial(kept, change="full"))
        yield Question(OVERWRITTEN, f"bytes land{where}", partial(kept, change="landed"))

    def _of_producer(self, move: Move, apart: bool, of: str, where: str) -> Iterator[Question]:
        count = {"wait": f"waits {of}", "expect": "expects", "bring": "brought"}[move.kind]
        if apart and (move.kind, of) in (("expect", "y"), ("bring", "x")):
            return  # x expects what y brings

        def build(context: Any, claim: str) -> list[Any]:
            frame = _Frame(context, self.least)
            n, v = frame.use("the producer"), _names(context, apart)
            own = n.plus(move.use, frame.stages)
            here = own.slot == frame.slot
            terms = [*frame.exists(n), *frame.reached(n, move.before), *invariant(v)]
            numbers = {f"waits {of}": move.before.waited}
            if of == "x":
                numbers["expects"] = move.before.expected
            if of == "y" or not apart:
                numbers["brought"] = move.before.brought
            terms += [v[name] == n.plus(d, frame.stages).before(frame.slot) for name, d in numbers.items()]
            given = v[f"given {of}"]
            passes = given % 2 != (own.wraps + move.flipped) % 2
            if move.kind == "wait" and claim == MISSED:
                # the parity tells whether all earlier uses were given back, and no more than these can have been
                return [*terms, here, z3.Not(z3.And(passes == (given >= own.wraps), given <= own.wraps))]
            if move.kind == "wait":
                terms.append(z3.Implies(here, passes))
            if move.kind == "bring" and claim == OVERWRITTEN:
                safe = z3.And(v["released"] >= own.wraps, v["landed"] >= own.wraps)
                return [*terms, here, z3.Not(safe)]
            after = _changed(v, {count: v[count] + z3.If(here, 1, 0)}, apart)
            return [*terms, z3.Not(z3.And(*invariant(after)))]

        claims = {"wait": (OVERWRITTEN, MISSED), "expect": (UNFILLED,), "bring": (UNFILLED, OVERWRITTEN)}[move.kind]
        for claim in claims:
            yield Question(claim, f"the producer: {move.kind}{where}, {of}", partial(build, claim=claim))

    def _of_consumer(self, move: Move, apart: bool, where: str) -> Iterator[Question]:
        def build(context: Any, claim: str) -> list[Any]:
            frame = _Frame(context, self.least)
            n, v = frame.use("the consumer"), _names(context, apart)
            own = n.plus(move.use, frame.stages)
            here = own.slot == frame.slot
            terms = [*frame.exists(n), *frame.reached(n, move.before), *invariant(v)]
            terms += [
                v["waited"] == n.plus(move.before.waited, frame.stages).before(frame.slot),
                v["released"] == n.plus(move.before.released, frame.stages).before(frame.slot),
            ]
            full = v["full"]
            passes = full % 2 != (own.wraps + move.flipped) % 2
            if move.kind == "read":
                return [*terms, here, z3.Not(z3.And(full >= own.wraps + 1, v["brought"] <= own.wraps + 1))]
            if move.kind == "wait" and claim == MISSED:
                known = z3.And(passes == (full >= own.wraps + 1), full <= own.wraps + 1)
                return [*terms, here, z3.Not(known)]
            if move.kind == "wait":
                terms.append(z3.Implies(here, passes))
            changed = "waited" if move.kind == "wait" else "released"
            after = _changed(v, {changed: v[changed] + z3.If(here, 1, 0)}, apart)
            return [*terms, z3.Not(z3.And(*invariant(after)))]

        claims = {"wait": (UNFILLED, MISSED), "read": (UNFILLED,), "arrive": (OVERWRITTEN,)}[move.kind]
        for claim in claims:
            yield Question(claim, f"the consumer: {move.kind}{where}", partial(build, claim=claim))

    def _of_tail(self, flipped: int, apart: bool, of: str, where: str) -> Iterator[Question]:
        """Behind its last use a producer waits for the use of each slot that would be next: all are given back then."""

        def build(context: Any, claim: str, end: Progress) -> list[Any]:
            frame = _Frame(context, self.least)
            n, v = frame.use("the end"), _names(context, apart)
            wanted, given = n.before(frame.slot), v[f"given {of}"]
            terms = [*frame.exists(n), *frame.reached(n, end), *invariant(v)]
            if claim == STUCK:  # a consumer has ended
                return [*terms, v["released"] == n.plus(end.released, frame.stages).before(frame.slot),
                        given == v["released"], given < wanted]  # fmt: skip
            terms.append(v[f"waits {of}"] == n.plus(end.waited, frame.stages).before(frame.slot))
            passes = given % 2 != (wanted + flipped) % 2
            return [*terms, z3.Not(z3.And(passes == (given >= wanted), given <= wanted))]

        for claim, ends in ((MISSED, self.through), (STUCK, self.ended)):
            for end in ends:
                yield Question(claim, f"the end of the producer{where}, {of}", partial(build, claim=claim, end=end))

    def _progress(self) -> Iterator[Question]:
        """Of producers that wait, one that is behind no other waits for a consumer that is further than it."""
        waits = [m for m in self.produced if m.kind == "wait"]
        takes = [m for m in self.consumed if m.kind == "wait"]
        for move in waits:
            for take in takes:
                for other in waits:
                    yield Question(
                        STUCK, "a producer and a consumer wait",
                        partial(self._both_wait, move=move, take=take, other=other),
                    )  # fmt: skip
            for end in self.ended:
                yield Question(STUCK, "a producer waits", partial(self._producer_waits, move=move, end=end))
        for take in takes:
            for end in self.through:
                yield Question(STUCK, "a consumer waits", partial(self._consumer_waits, take=take, end=end))

    def _both_wait(self, context: Any, move: Move, take: Move, other: Move) -> list[Any]:
        frame = _Frame(context, self.least)
        y, c, z = frame.use("the producer"), frame.use("the consumer"), frame.use("another producer")
        own, wanted = y.plus(move.use, frame.stages), c.plus(take.use, frame.stages)
        return [
            *frame.exists(y, c, z), *frame.reached(c, take.before), *frame.reached(z, other.before),
            # the consumer has not given back what the producer waits for
            c.plus(take.before.released, frame.stages).before(own.slot) < own.wraps,
            # another producer, or the same, has not filled what the consumer waits for, and is not behind the first
            z.plus(min(other.before.brought, other.before.expected), frame.stages).before(wanted.slot) <= wanted.wraps,
            y <= z,
        ]  # fmt: skip

    def _producer_waits(self, context: Any, move: Move, end: Progress) -> list[Any]:
        """The consumer has ended, behind a use that the producer still has."""
        frame = _Frame(context, self.least)
        y, last = frame.use("the producer"), frame.use("the end")
        own = y.plus(move.use, frame.stages)
        given = last.plus(end.released, frame.stages).before(own.slot)
        return [*frame.exists(y, last), *frame.reached(last, end), y < last, given < own.wraps]

    def _consumer_waits(self, context: Any, take: Move, end: Progress) -> list[Any]:
        frame = _Frame(context, self.least)
        c, last = frame.use("the consumer"), frame.use("the end")
        wanted = c.plus(take.use, frame.stages)
        brought = last.plus(min(end.brought, end.expected), frame.stages).before(wanted.slot)
        return [*frame.exists(c, last), *frame.reached(last, end), c < last, brought <= wanted.wraps]


def _changed(v: Names, change: Mapping[str, Any], apart: bool) -> dict[str, Any]:
    after = {**v, **change}
    if not apart:
        after |= {"given y": after["given x"], "waits y": after["waits x"]}
    return after


def _counts(of: Progress) -> Progress:
    """How far a role is, in numbers alone."""
    return Progress(of.waited, of.expected, of.brought, of.released)


def _moves(automata: tuple[Automaton, ...], ring: str) -> tuple[Move, ...]:
    """Moves that differ in what a proof looks at."""
    moves = (m for machine in automata for m in machine.of(ring))
    plain = (Move(m.kind, ring, m.side, m.use, m.flipped, _counts(m.before), _counts(m.after)) for m in moves)
    return tuple(dict.fromkeys(plain))


def answer(question: Question, ring: str, notebook: Notebook | None, rlimit: int = RLIMIT) -> Answer:
    """What Z3 says: unsat where the claim holds."""
    return ask(Query(f"{ring}: {question.claim}: {question.name}", question.build, rlimit=rlimit), notebook)
