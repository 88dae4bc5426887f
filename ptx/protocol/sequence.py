"""Pipelines that the warps of one role fill and read themselves: stores, cp.async and bulk copies, between barriers.

All threads of the role do the same, and meet. So it is enough to follow what they have done since they last met: of
every slot, which round it holds, whether writes into it are under way (of which commit group) or only their own threads
know of them, and whether somebody may still be reading it. Rounds are counted from the one that the loop is in, and
rounds to come up to as many as there are slots: that makes finitely many states, whatever the number of rounds and
tiles is. All of them are looked at, so that what is never wrong in one of them is proved; the first that is wrong is
told with its round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from tinygpu.ptx.lowering import sync
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.protocol.counting import steps_of
from tinygpu.ptx.protocol.exploration import Violation
from tinygpu.ptx.protocol.progress import FENCE, Irregular

MOST_STATES = 50_000
NEVER = -1_000  # the round that a slot holds which nobody has written


@dataclass(frozen=True, slots=True)
class Slot:
    """What is known of one slot.

    holds    round, counted from the one that the loop is in
    used     whether that round has been read
    landing  commit groups of cp.async into it that may be under way: commits since, or -1 before the first
    written  whether threads have written into it since they met
    unfenced whether they have, without a fence of the asynchronous proxy since
    read     whether threads have read it since they met
    leaving  groups of agents that may still be reading it, as (agent, commits since)
    """

    holds: int = NEVER
    used: bool = True
    landing: frozenset[int] = frozenset()
    written: bool = False
    unfenced: bool = False
    read: bool = False
    leaving: frozenset[tuple[str, int]] = frozenset()


@dataclass(frozen=True, slots=True)
class State:
    """What the threads of a role have done.

    slots      of all rings that are followed
    registers  that hold slots
    left       rounds that loops still have, this one too, by their index; by its trip count of one that is to come
    """

    slots: tuple[tuple[str, tuple[Slot, ...]], ...]
    registers: tuple[tuple[str, int], ...] = ()
    left: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class _Way:
    """From a place in the text to another.

    kind   act, holds, fails (a condition), enter, again, leave (a loop), or nothing
    turns  rings of which the loop's body is a round
    """

    end: int
    kind: Literal["act", "holds", "fails", "enter", "again", "leave", "on"] = "on"
    action: sync.Action | None = None
    condition: sync.Before | None = None
    trips: sync.Trips | None = None
    index: str = ""  # of the loop
    turns: frozenset[str] = frozenset()
    round: int | None = None  # that is written or read, counted from the one that the loop is in


@dataclass(frozen=True, slots=True)
class Sequenced:
    """What came of it: states that were looked at, and the first that is wrong."""

    states: int
    violation: Violation | None


Steps: TypeAlias = tuple[sync.Step, ...]


def sequence(rings: tuple[sync.Ring, ...], body: Steps, threads: int, most: int = MOST_STATES) -> Sequenced:
    """Follows what the threads of a role do with the slots that they fill and read themselves, in so many states.

    Raises Irregular where there are more, or something cannot be followed.
    """
    graph = _Graph(frozenset(ring.name for ring in rings))
    start = graph.place()
    graph.write(body, start)
    return _Search({ring.name: ring for ring in rings}, graph.ways, threads, most).run(start)


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Rounds ahead of the one that the loop is in, in a block that looks ahead.

    written  into slots, but of the rings `apart`, of which the block is a round
    read     from slots, where it fills none
    behind   rings of which a loop's round reads a slot before it writes the one that the next round reads, and does not
             say how far ahead that is
    """

    written: int = 0
    apart: frozenset[str] = frozenset()
    read: int = 0
    behind: frozenset[str] = frozenset()

    def round(self, step: sync.Step) -> int:
        """That of a slot which a step touches."""
        if not isinstance(step, sync.Touch):
            return 0
        if step.verb == "read":
            return self.read
        return (step.pipeline in self.behind) + (0 if step.pipeline in self.apart else self.written)


_HERE = _Ahead()


@dataclass(slots=True, eq=False)
class _Graph:
    rings: frozenset[str]
    ways: list[list[_Way]] = field(default_factory=list)

    def place(self) -> int:
        self.ways.append([])
        return len(self.ways) - 1

    def write(self, steps: Steps, start: int, ahead: _Ahead = _HERE) -> int:
        """The place behind the steps."""
        for step in steps:
            end = self.place()
            match step:
                case sync.Tiles(body):
                    turns = self.turned(body)
                    self.ways[self.write(body, start, ahead)].append(_Way(start, "on", turns=turns))
                    self.ways[start].append(_Way(end))
                case sync.Rounds(index, trips, body):
                    head, turns = self.place(), self.turned(body)
                    self.ways[start].append(_Way(head, "enter", trips=trips, index=index))
                    last = self.write(body, head, replace(ahead, behind=self.read_first(body)))
                    self.ways[last].append(_Way(head, "again", trips=trips, index=index, turns=turns))
                    self.ways[last].append(_Way(end, "leave", trips=trips, index=index, turns=turns))
                case sync.When(condition, body):
                    inside = self.place()
                    whether = condition if isinstance(condition, sync.Before) else None
                    if condition == "one thread" and any(isinstance(s, sync.Meet) for s in steps_of(body)):
                        raise Irregular("one thread alone waits at a barrier of all")
                    to_come = self.ahead(whether.offset, body) if whether and whether.offset else ahead
                    self.ways[start].append(_Way(inside, "holds", condition=whether))
                    self.ways[self.write(body, inside, to_come)].append(_Way(end))
                    if condition != "one thread":
                        self.ways[start].append(_Way(end, "fails", condition=whether))
                case sync.Ahead(_, number, body=body):
                    self.ways[self.write(body, start, self.ahead(number, body))].append(_Way(end))
                case sync.RoleBody():
                    raise Irregular("a role stands within a role")
                case _:
                    self.ways[start].append(_Way(end, "act", step, round=ahead.round(step)))
            start = end
        return start

    def ahead(self, number: int, body: Steps) -> _Ahead:
        fills = any(isinstance(s, sync.Touch) and s.verb == "write" for s in steps_of(body))
        return _Ahead(number, self.turned(body), 0 if fills else number)

    def read_first(self, body: Steps) -> frozenset[str]:
        """Rings of which a block is a round that reads a slot before it writes one."""
        first: dict[str, str] = {}
        for s in steps_of(body):
            if isinstance(s, sync.Touch):
                first.setdefault(s.pipeline, s.verb)
        return frozenset(ring for ring in self.turned(body) if first[ring] == "read")

    def turned(self, body: Steps) -> frozenset[str]:
        """Rings of which a block is a round: it writes a slot and reads one, where others write parts of a slot."""
        touched = {(s.pipeline, s.verb) for s in steps_of(body) if isinstance(s, sync.Touch)}
        return frozenset(ring for ring in self.rings if {(ring, "write"), (ring, "read")} <= touched)


class _Wrong(Exception):
    def __init__(self, kind: str, ring: str, sentence: str) -> None:
        self.kind, self.ring, self.sentence = kind, ring, sentence


@dataclass(slots=True, eq=False)
class _Search:
    rings: dict[str, sync.Ring]
    ways: list[list[_Way]]
    threads: int
    most: int

    def run(self, start: int) -> Sequenced:
        first = State(tuple((name, (Slot(),) * ring.stages) for name, ring in sorted(self.rings.items())))
        seen = {(start, first)}
        waiting = deque([(start, first, 0)])
        while waiting:
            place, state, rounds = waiting.popleft()
            for way in self.ways[place]:
                try:
                    found = list(self.after(state, way))
                except _Wrong as wrong:
                    sentence = f"round {rounds} of {wrong.ring}: {wrong.sentence}"
                    return Sequenced(len(seen), Violation(wrong.kind, wrong.ring, rounds, sentence))
                for new in found:
                    if (way.end, new) not in seen:
                        seen.add((way.end, new))
                        waiting.append((way.end, new, rounds + bool(way.turns)))
            if len(seen) > self.most:
                raise Irregular(f"there are more than {self.most:,} states")
        return Sequenced(len(seen), None)

    # -- ways ------------------------------------------------------------------------------------------------------
    def after(self, state: State, way: _Way) -> Iterator[State]:
        left = dict(state.left)
        if way.turns:
            state = self.turned(state, way.turns)
        match way.kind, way.trips, way.condition:
            case "enter", sync.Trips(text) as trips, _:
                chosen = [left[text]] if text in left else self.counts(1, trips)
                entered = self.with_left(state, text, None)
                yield from (self.with_left(entered, way.index, count) for count in chosen if count)
            case "again", _, _:
                count = left[way.index]
                following = [count - 1] * (count > 1) + [count] * self.many(count)
                yield from (self.with_left(_anew(state), way.index, still) for still in following)
            case "leave", _, _ if left[way.index] == 1:
                yield self.with_left(state, way.index, None)
            case ("holds" | "fails") as how, _, sync.Before(index, offset, trips):
                yield from self.branch(state, how == "holds", offset, index or trips.text, trips)
            case "act", _, _ if way.action is not None:
                yield self.acted(state, way.action, way.round or 0)
            case ("holds" | "fails" | "on"), _, _:
                yield _anew(state) if way.turns else state

    def counts(self, least: int, trips: sync.Trips | None = None) -> range:
        """Numbers of rounds that a loop may have; the last one stands for all that are larger."""
        most = max(ring.stages for ring in self.rings.values()) + 1
        if trips is not None and isinstance(trips.number, int):
            return range(min(trips.number, most), min(trips.number, most) + 1)
        return range(least, most + 1)

    def many(self, count: int) -> bool:
        return count == self.counts(0)[-1]

    def branch(self, state: State, holds: bool, offset: int, text: str, trips: sync.Trips) -> Iterator[State]:
        left = dict(state.left)
        if text in left:
            if (offset < left[text]) == holds:
                yield state
        else:
            for count in self.counts(0, trips):
                if (offset < count) == holds:
                    yield self.with_left(state, text, count)

    def with_left(self, state: State, text: str, count: int | None) -> State:
        left = {name: number for name, number in state.left if name != text}
        if count is not None:
            left[text] = count
        return replace(state, left=tuple(sorted(left.items())))

    def turned(self, state: State, turns: frozenset[str]) -> State:
        """The next round: what was to come is nearer."""
        slots = dict(state.slots)
        for ring in turns:
            slots[ring] = tuple(replace(s, holds=s.holds - 1 if s.holds > -1 else NEVER) for s in slots[ring])
        return replace(state, slots=tuple(sorted(slots.items())))

    # -- actions ---------------------------------------------------------------------------------------------------
    def acted(self, state: State, action: sync.Action, round_number: int) -> State:
        registers = dict(state.registers)
        match action:
            case sync.Set(register, value) if isinstance(value, int):
                registers[register.name] = value
            case sync.Same(register, of) if of.name in registers:
                registers[register.name] = registers[of.name]
            case sync.Advance(slot, stages) if slot.name in registers:
                registers[slot.name] = (registers[slot.name] + 1) % stages
            case sync.Touch(ring) if ring in self.rings:
                at = self.slot(registers, action.slot, ring)
                slots = dict(state.slots)
                if action.verb == "write":
                    self.apart(slots, ring, at)
                change = self.written if action.verb == "write" else self.read
                new = change(slots[ring][at], action, round_number, at)
                slots[ring] = (*slots[ring][:at], new, *slots[ring][at + 1 :])
                return replace(state, slots=tuple(sorted(slots.items())))
            case sync.Meet(_, threads) if threads != self.threads:
                raise Irregular(f"{threads} threads meet, and the role has {self.threads}")
            case _:
                changed = tuple((name, tuple(_ordered(s, action) for s in of)) for name, of in state.slots)
                return replace(state, slots=changed)
        return replace(state, registers=tuple(sorted(registers.items())))

    def slot(self, registers: dict[str, int], slot: Number, ring: str) -> int:
        at = registers.get(slot.name, NEVER) if isinstance(slot, Reg) else slot
        if at == NEVER:
            raise Irregular(f"a slot of {ring} is used that no statement has said")
        if not 0 <= at < self.rings[ring].stages:
            raise _Wrong("unmade", ring, f"slot {at} is used, and there are {self.rings[ring].stages}")
        return at

    def apart(self, slots: dict[str, tuple[Slot, ...]], ring: str, at: int) -> None:
        """What is written over the slots of another pipeline, in the same memory, is written when nobody uses these."""
        for name, others in slots.items():
            if name == ring or not self.rings[name].overlaps(self.rings[ring]):
                continue
            if any(s.read or s.leaving or s.landing or s.written or (s.holds >= 0 and not s.used) for s in others):
                raise _Wrong("overwritten", ring, f"slot {at} is written over slots of {name} that may be in use")
            slots[name] = (Slot(),) * len(others)

    def written(self, now: Slot, action: sync.Touch, round_number: int, at: int) -> Slot:
        ring = action.pipeline
        if now.holds != round_number or not (now.landing or now.written):  # not another part of the same round
            if now.read or now.leaving:
                raise _Wrong("overwritten", ring, f"slot {at} is written while it may be read")
            if now.holds >= 0 and not now.used and now.holds != round_number:
                raise _Wrong("overwritten", ring, f"slot {at} is written before it was read")
            if now.landing:
                raise _Wrong("overwritten", ring, f"slot {at} is written while copies into it are under way")
        new = replace(now, holds=round_number, used=False)
        if action.by == "cp.async":
            return replace(new, landing=new.landing | {-1})
        return replace(new, written=True, unfenced=True)

    def read(self, now: Slot, action: sync.Touch, round_number: int, at: int) -> Slot:
        ring = action.pipeline
        if now.landing:
            raise _Wrong("unfilled", ring, f"slot {at} is read while copies into it may be under way")
        if now.written:
            raise _Wrong("unfilled", ring, f"slot {at} is read before its readers have met those who wrote it")
        if now.holds != round_number:
            raise _Wrong("unfilled", ring, f"slot {at} is read, and holds another round or none")
        if action.by == "threads":
            return replace(now, used=True, read=True)
        if now.unfenced:
            raise _Wrong("unfilled", ring, f"slot {at} is read by {action.by} without a fence behind the stores")
        return replace(now, used=True, leaving=now.leaving | {(action.by, -1)})


def _anew(state: State) -> State:
    """In another round, a loop that had no rounds may have some."""
    return replace(state, left=tuple((text, count) for text, count in state.left if count))


def _ordered(slot: Slot, action: sync.Action) -> Slot:
    """What a barrier, a fence, a commit or a wait for groups says of a slot."""
    match action:
        case sync.Meet():
            return replace(slot, written=False, read=False)
        case sync.Fence(text) if text.startswith(FENCE):
            return replace(slot, unfenced=False)
        case sync.Commit("cp.async"):
            return replace(slot, landing=frozenset(group + 1 for group in slot.landing))
        case sync.Commit(of):
            later = frozenset((by, group + 1 if by == of else group) for by, group in slot.leaving)
            return replace(slot, leaving=later)
        case sync.WaitGroup("cp.async", pending):
            over = frozenset(g for g in slot.landing if pending is None or g >= pending)
            return replace(slot, landing=slot.landing - over, written=slot.written or bool(over))
        case sync.WaitGroup(of, pending):
            gone = frozenset((by, g) for by, g in slot.leaving if by == of and g >= (pending or 0))
            return replace(slot, leaving=slot.leaving - gone, read=slot.read or bool(gone))
        case _:
            return slot
