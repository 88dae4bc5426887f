"""Every order in which the roles of an instance can go on: the first state in which a hand-over has gone wrong.

Breadth first, so that what is found is found in the fewest steps. Of each role one warp goes on by itself and the
others together: no warp waits for another of its role, so that one may fall behind, or be ahead. Bytes land when they
like, apart in each CTA of a cluster. What goes wrong, and is told with its round: a slot is overwritten while it is
read, or read before it was filled; a barrier is two phases ahead of who waits for it, or gets more arrivals than a
phase has; or nobody can go on.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from tinygpu.ptx.lowering import sync
from tinygpu.ptx.protocol.execution import Event, Instance, events, roles

STATES = 200_000
# What roles do, in the words of a trace, and steps of one that is told.
DONE = {"wait": "waits for", "bring": "fills", "arrive": "releases"}
TURNS = {"wait": "has", "arrive": "hands on"}
LONGEST_TRACE = 12
# What stands for the turn, where slots are numbers.
TURN = -1

# (CTA, pipeline, side, slot)
Place = tuple[int, str, str, int]
# (phases completed, arrivals that the phase still waits for, bytes that it still waits for)
Phase = tuple[int, int, int]
# (steps that every actor has done, what is under way as numbers of landings, the phases of all barriers)
State = tuple[tuple[int, ...], tuple[int, ...], tuple[Phase, ...]]


@dataclass(frozen=True, slots=True)
class Violation:
    """What has gone wrong first.

    kind   overwritten, unfilled, missed, turns, arrivals, unmade, stuck
    round  of the ring, counted over all tiles from 0 on
    trace  what the roles have done before, the last of it
    """

    kind: str
    pipeline: str
    round: int
    sentence: str
    trace: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True, slots=True)
class Explored:
    """What came of it: a violation, or none in so many states; whole says whether these are all there are."""

    instance: Instance
    states: int
    whole: bool
    violation: Violation | None

    def __str__(self) -> str:
        return f"{self.instance}, {self.states:,} states{'' if self.whole else ' of more'}"


@dataclass(frozen=True, slots=True)
class _Actor:
    """Some warps of a role in one CTA.

    steps  each begins with what may have to wait, and is done at once
    reads  before each step, what is being read: (pipeline, slot, round)
    """

    cta: int
    role: str
    warps: int
    steps: tuple[tuple[Event, ...], ...]
    reads: tuple[frozenset[tuple[str, int, int]], ...]


@dataclass(frozen=True, slots=True)
class _Landing:
    """Bytes that one step of an actor brings to one CTA's slot."""

    actor: int
    step: int
    place: Place
    round: int
    bytes: int


class _Wrong(Exception):
    def __init__(self, violation: Violation) -> None:
        self.violation = violation


def explore(protocol: sync.Protocol, instance: Instance, states: int = STATES) -> Explored:
    """Looks at all states of an instance, or at so many of them."""
    return _Search(protocol, instance).run(states)


@dataclass(slots=True, eq=False)
class _Search:
    protocol: sync.Protocol
    instance: Instance
    actors: list[_Actor] = field(default_factory=list)
    barriers: dict[Place, int] = field(default_factory=dict)
    counts: list[int] = field(default_factory=list)
    landings: list[_Landing] = field(default_factory=list)
    issued: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    into: dict[Place, list[int]] = field(default_factory=dict)
    ctas: list[tuple[int, ...]] = field(default_factory=list)
    stages: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ctas = list(itertools.product(*(range(extent) for extent in self.protocol.cluster)))
        self.stages = {ring.name: ring.stages for ring in self.protocol.rings}
        inits = [step for step in self.protocol.body if isinstance(step, sync.Init)]
        for cta, init in itertools.product(range(len(self.ctas)), inits):
            b = init.barrier
            if not isinstance(b.slot, int):
                raise ValueError(f"a barrier of {b.pipeline} is made at {b.slot}, and not at a number")
            self.barriers[cta, b.pipeline, b.side, b.slot] = len(self.counts)
            self.counts.append(init.arrivals)
        for role in roles(self.protocol):
            all_events = events(self.protocol, role, self.instance)
            for cta in range(len(self.ctas)):
                first = not self.ctas[cta] or self.ctas[cta][-1] % 2 == 0
                if role.pair > 1 and not first:
                    continue
                mine = (e for e in all_events if (first or e.pair != "alone") and not (cta and e.pair == "asked"))
                steps = tuple(_steps(tuple(mine)))
                # in one CTA, one warp goes on by itself
                parts = [1] if role.one or role.warps == 1 else [role.warps] if cta else [role.warps - 1, 1]
                self.actors += [_Actor(cta, role.role, warps, steps, tuple(_reads(steps))) for warps in parts]
        for number, actor in enumerate(self.actors):
            for at, step in enumerate(actor.steps):
                self.bring(number, actor, at, step)

    def bring(self, number: int, actor: _Actor, at: int, step: tuple[Event, ...]) -> None:
        """What a step brings, by CTA."""
        sums: dict[tuple[Place, int], int] = {}
        for event in step:
            if event.kind == "bring":
                for cta in self.neighbours(actor.cta, event):
                    key = (cta, event.pipeline, "full", event.slot), event.round
                    sums[key] = sums.get(key, 0) + event.value
        for (place, round_number), count in sums.items():
            self.issued.setdefault((number, at), []).append(len(self.landings))
            self.into.setdefault(place, []).append(len(self.landings))
            self.landings.append(_Landing(number, at, place, round_number, count))

    def neighbours(self, cta: int, event: Event) -> list[int]:
        """The CTAs that an arrival or a bring goes to: the own one, and those beside it along the axes."""
        if event.pair == "home":
            return [0]
        if event.pair == "asked":
            return list(range(event.ctas))
        own, found = self.ctas[cta], [cta]
        paired = event.pair in ("both", "first")
        if event.ctas > 1:
            for axis in event.axes:
                every = 2 if paired and axis == len(own) - 1 else 1
                found += [
                    other
                    for other, place in enumerate(self.ctas)
                    if other != cta and (*own[:axis], *own[axis + 1 :]) == (*place[:axis], *place[axis + 1 :])
                    and (own[axis] - place[axis]) % every == 0
                ]  # fmt: skip
        if paired:  # neighbours along the last axis, which runs fastest
            found = [other // 2 * 2 for other in found]
        return found if event.pair != "both" else [*found, *(other + 1 for other in found)]

    # -- states ----------------------------------------------------------------------------------------------------
    def run(self, most: int) -> Explored:
        start: State = (tuple(0 for _ in self.actors), (), tuple((0, count, 0) for count in self.counts))
        before: dict[State, State | None] = {start: None}
        waiting = deque([start])
        while waiting:
            now = waiting.popleft()
            try:
                for state in self.following(now):
                    if state not in before:
                        before[state] = now
                        waiting.append(state)
            except _Wrong as wrong:
                violation = replace(wrong.violation, trace=self.trace(before, now))
                return Explored(self.instance, len(before), True, violation)
            if len(before) > most:
                return Explored(self.instance, len(before), False, None)
        return Explored(self.instance, len(before), True, None)

    def trace(self, before: dict[State, State | None], state: State) -> tuple[str, ...]:
        """What the roles have done to come to a state, the last of it; all warps of a role are one."""
        said: dict[str, None] = {}
        earlier = before[state]
        while earlier is not None:
            for actor, done, was in zip(self.actors, state[0], earlier[0], strict=True):
                if done != was and not actor.cta:
                    for event in reversed(actor.steps[was]):
                        if event.kind in DONE:
                            turn = "its turn" if event.side == "turn" else f"slot {event.slot} of {event.pipeline}"
                            verb = TURNS.get(event.kind, "") if event.side == "turn" else self.verb(event)
                            said.setdefault(f"{actor.role} {verb} {turn} in round {event.round}")
            state, earlier = earlier, before[earlier]
            if len(said) > LONGEST_TRACE:
                break
        return tuple(reversed(list(said)[:LONGEST_TRACE]))

    @staticmethod
    def verb(event: Event) -> str:
        if (event.kind, event.side) == ("arrive", "full"):
            return "commits"
        return DONE[event.kind] if event.side != "empty" or event.kind != "wait" else "acquires"

    def following(self, state: State) -> Iterator[State]:
        done, under_way, phases = state
        any_goes_on = False
        for landing in under_way:
            any_goes_on = True
            yield self.land(state, landing)
        for number, actor in enumerate(self.actors):
            at = done[number]
            if at < len(actor.steps) and self.passes(actor, actor.steps[at], phases):
                any_goes_on = True
                yield self.go_on(state, number)
        if not any_goes_on and any(at < len(a.steps) for at, a in zip(done, self.actors, strict=True)):
            raise _Wrong(self.stuck(done))

    def passes(self, actor: _Actor, step: tuple[Event, ...], phases: tuple[Phase, ...]) -> bool:
        for event in step:
            if event.kind == "wait":
                phase = phases[self.barrier(actor, event, actor.cta)][0]
                if event.side != "turn":
                    wanted = event.round // self.stages[event.pipeline] + (event.side == "full")
                    if phase > wanted:
                        raise _Wrong(self.told("missed", actor, event, "barrier is past the phase that it waits for"))
                return phase & 1 != event.value
        return True

    def land(self, state: State, number: int) -> State:
        done, under_way, phases = state
        landing = self.landings[number]
        changed = list(phases)
        place = self.barriers[landing.place]
        phase, pending, left = changed[place]
        changed[place] = _completed((phase, pending, left - landing.bytes), self.counts[place])
        return done, tuple(n for n in under_way if n != number), tuple(changed)

    def go_on(self, state: State, number: int) -> State:
        done, under_way, phases = state
        actor, at = self.actors[number], done[number]
        changed = list(phases)
        after = (*done[:number], at + 1, *done[number + 1 :])
        new = self.issued.get((number, at), [])
        for landing in new:
            self.check_written(self.landings[landing], actor, after)
        for event in actor.steps[at]:
            if event.kind in ("arrive", "expect"):
                for cta in self.neighbours(actor.cta, event):
                    place = self.barrier(actor, event, cta)
                    phase, pending, left = changed[place]
                    pending -= actor.warps if event.kind == "arrive" else 1
                    if pending < 0:
                        raise _Wrong(self.told("arrivals", actor, event, "barrier gets more arrivals than a phase has"))
                    changed[place] = _completed((phase, pending, left + event.value), self.counts[place])
            elif event.kind == "wait" and event.side == "turn":
                self.check_turn(actor, event, done)
            elif event.kind == "bring":
                self.barrier(actor, event, actor.cta)
            elif event.kind == "read":
                self.check_read(actor, event, done, under_way)
        return after, tuple(sorted((*under_way, *new))), tuple(changed)

    def barrier(self, actor: _Actor, event: Event, cta: int) -> int:
        """The number of a barrier that an event is about."""
        place = cta, event.pipeline, event.side, event.slot
        if place not in self.barriers:
            raise _Wrong(self.told("unmade", actor, event, "barrier was never made"))
        return self.barriers[place]

    # -- what is wrong ---------------------------------------------------------------------------------------------
    def check_read(self, actor: _Actor, event: Event, done: tuple[int, ...], under_way: tuple[int, ...]) -> None:
        brought = 0
        for number in self.into.get((actor.cta, event.pipeline, "full", event.slot), []):
            landing = self.landings[number]
            is_issued = done[landing.actor] > landing.step
            if landing.round == event.round:
                brought += 1
                if not is_issued or number in under_way:
                    raise _Wrong(self.told("unfilled", actor, event, "slot is read before it was filled"))
            elif is_issued and landing.round > event.round:
                sentence = f"slot is overwritten in round {landing.round} before it was read"
                raise _Wrong(self.told("overwritten", actor, event, sentence))
        if not brought:
            raise _Wrong(self.told("unfilled", actor, event, "slot is read, which nobody fills in this round"))

    def check_turn(self, actor: _Actor, event: Event, done: tuple[int, ...]) -> None:
        turn = event.pipeline, TURN, 0
        for other, at in zip(self.actors, done, strict=True):
            if other.cta == actor.cta and other.role != actor.role and turn in other.reads[at]:
                raise _Wrong(self.told("turns", actor, event, f"turn begins while {other.role} has one"))

    def check_written(self, landing: _Landing, by: _Actor, done: tuple[int, ...]) -> None:
        cta, pipeline, _, slot = landing.place
        for actor, at in zip(self.actors, done, strict=True):
            if actor.cta == cta:
                for name, read, round_number in actor.reads[at]:
                    if (name, read) == (pipeline, slot):
                        sentence = (
                            f"round {landing.round} of {pipeline}: {by.role} overwrites slot {slot}, "
                            f"which {actor.role} is reading for round {round_number}"
                        )
                        raise _Wrong(Violation("overwritten", pipeline, landing.round, sentence))

    def told(self, kind: str, actor: _Actor, event: Event, what: str) -> Violation:
        where = f"slot {event.slot}" if event.side != "turn" else f"turn {event.slot}"
        subject = "its" if what.startswith(("slot", "turn")) else f"its {event.side}"
        sentence = f"round {event.round} of {event.pipeline}, {actor.role}, {where}: {subject} {what}"
        return Violation(kind, event.pipeline, event.round, sentence)

    def stuck(self, done: tuple[int, ...]) -> Violation:
        """Who waits for what, in the earliest round first."""
        waits = [
            (step[0] if step[0].kind == "wait" else next(e for e in step if e.kind == "wait"), actor)
            for at, actor in zip(done, self.actors, strict=True)
            if at < len(actor.steps)
            for step in [actor.steps[at]]
        ]
        waits.sort(key=lambda w: (w[0].round, w[0].pipeline, w[1].cta))
        told = dict.fromkeys(
            f"{actor.role} for its turn {event.round}"
            if event.side == "turn"
            else f"{actor.role} in round {event.round} until slot {event.slot} is {event.side}"
            for event, actor in waits
        )
        first = waits[0][0]
        sentence = f"round {first.round} of {first.pipeline}: nobody can go on: {'; '.join(told)}"
        return Violation("stuck", first.pipeline, first.round, sentence)


def _completed(phase: Phase, count: int) -> Phase:
    completed, pending, left = phase
    return phase if pending or left else (completed + 1, count, 0)


def _steps(all_events: tuple[Event, ...]) -> Iterator[tuple[Event, ...]]:
    """Events that are done at once: what ends a read or has to wait begins another step."""
    step: list[Event] = []
    for event in all_events:
        begins = event.kind in ("wait", "arrive", "done") and any(e.kind != "done" for e in step)
        if begins:
            yield tuple(step)
            step = []
        step.append(event)
    if step:
        yield tuple(step)


def _reads(steps: tuple[tuple[Event, ...], ...]) -> Iterator[frozenset[tuple[str, int, int]]]:
    """What is being read before each step, and behind the last one; a turn is held like a slot."""
    reading: set[tuple[str, int, int]] = set()
    yield frozenset()
    for step in steps:
        for event in step:
            key = event.pipeline, event.slot, event.round
            if event.kind == "read":
                reading.add(key)
            elif event.kind == "done":
                reading.discard(key)
            elif event.side == "turn" and event.kind == "wait":
                reading.add((event.pipeline, TURN, 0))
            elif event.side == "turn":
                reading.discard((event.pipeline, TURN, 0))
        yield frozenset(reading)
