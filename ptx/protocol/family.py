"""A role's text as one of many: the same for every number of stages, told for one pipeline.

Lowering writes numbers into a text that it could write for any number of stages: the blocks that fill slots ahead of a
loop, one for each slot but the last; the rounds by which a loop fills ahead; the groups that a wait leaves under way;
the slot that is written first. Here each of them is told from the number of stages, and the blocks that are written out
are one block, for any number. What is no such text (a block that differs from the others, a slot of its own) is told in
a sentence, and is then followed for the kernel's own number of stages alone.

Of other pipelines nothing remains but what touches this one: their commits and waits, the barriers of their rounds, and
what they write over its memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from tinygpu.ptx.lowering import sync
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.protocol.counting import steps_of
from tinygpu.ptx.protocol.progress import FENCE, Irregular


@dataclass(frozen=True, slots=True)
class Short:
    """So many fewer than a pipeline has stages; of several pipelines, the one with the fewest."""

    rings: tuple[str, ...]
    fewer: int


# What the register is called that would have the slot whose turn it is, where a number says so.
IN_TURN = "in turn"
# A number, one that follows from the number of stages, or the number of the block that fills ahead.
Amount: TypeAlias = "int | Short | Literal['ahead']"
_NOW: Amount = 0


@dataclass(frozen=True, slots=True)
class Use:
    """A slot is read or written; a register of that name says which, or a number does.

    round  that is written, or read ahead, counted from the one that the loop is in
    """

    slot: str | Amount
    verb: Literal["read", "write"]
    by: str
    round: Amount = 0


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Another pipeline writes over the memory of all slots."""

    ring: str


@dataclass(frozen=True, slots=True)
class Assign:
    register: str
    value: Amount


@dataclass(frozen=True, slots=True)
class Next:
    """The next slot, and behind the last one the first."""

    register: str


@dataclass(frozen=True, slots=True)
class Close:
    """What an agent was given since the last time is a group."""

    agent: str


@dataclass(frozen=True, slots=True)
class Await:
    """At most so many groups of an agent stay under way; None: nothing does."""

    agent: str
    left: Amount | None


@dataclass(frozen=True, slots=True)
class Meeting:
    """All threads of the role meet."""


@dataclass(frozen=True, slots=True)
class Fenced:
    """Stores of threads are there for the asynchronous proxy."""


@dataclass(frozen=True, slots=True)
class Loop:
    """Rounds of a loop, one at least.

    index    by which conditions call it
    trips    how many there are, by a name, or as a number
    varying  names of trips that may differ from round to round
    turn     whether a slot is written and read in a round
    """

    index: str
    trips: str
    varying: tuple[str, ...]
    turn: bool
    body: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Walk:
    """Tile after tile, or none; loops have other numbers of rounds in each."""

    turn: bool
    body: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Fill:
    """The block that is written out so many times, ahead of a loop.

    own    it fills this pipeline's slots
    first  the first of them, before which nothing may be in use
    """

    own: bool
    times: Amount
    first: tuple[Part, ...]
    body: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """What is done where round `offset`, counted from the one that loop `index` is in, is one of `trips`.

    trips  "" where nothing is known of the condition
    """

    index: str
    offset: Amount
    trips: str
    body: tuple[Part, ...]


Part: TypeAlias = Use | Overwrite | Assign | Next | Close | Await | Meeting | Fenced | Loop | Walk | Fill | Given
Steps: TypeAlias = tuple[sync.Step, ...]


@dataclass(frozen=True, slots=True)
class Family:
    """What the threads of a role do with one pipeline.

    single  the pipeline has one slot, in a text that no larger number of stages has
    """

    ring: str
    single: bool
    body: tuple[Part, ...]

    def registers(self) -> dict[str, set[str]]:
        """What registers are used for: "read" or "write"."""
        found: dict[str, set[str]] = {}
        for part in parts_of(self.body):
            if isinstance(part, Use) and isinstance(part.slot, str) and part.slot != "ahead":
                found.setdefault(part.slot, set()).add(part.verb)
        return found


def parts_of(body: tuple[Part, ...]) -> Iterator[Part]:
    """All parts, those within others included."""
    for part in body:
        yield part
        if isinstance(part, Fill):
            yield from parts_of(part.first)
        if isinstance(part, (Loop, Walk, Fill, Given)):
            yield from parts_of(part.body)


def family(ring: sync.Ring, rings: tuple[sync.Ring, ...], body: Steps, threads: int) -> Family:
    """What a role does with one of its pipelines, for any number of stages. Raises Irregular."""
    steps = tuple(steps_of(body))
    leads = {name: s.pipeline for s in steps if isinstance(s, sync.Ahead) for name in s.along}
    of_register: dict[str, str] = {}
    same = {s.register.name: s.of.name for s in steps if isinstance(s, sync.Same)}
    for s in steps:
        if isinstance(s, sync.Touch) and isinstance(s.slot, Reg):
            name = leads.get(s.pipeline, s.pipeline)
            register = same.get(s.slot.name, s.slot.name)
            if of_register.setdefault(register, name) != name:
                raise Irregular(f"slots of {name} and {of_register[register]} are one register")
    # slots of pipelines that are filled ahead have registers that are used themselves
    itself = {s.slot.name for s in steps if isinstance(s, sync.Touch) and isinstance(s.slot, Reg)}
    reader = _Reader(ring, {r.name: r for r in rings}, threads, of_register, leads, frozenset(same.values()) - itself)
    return Family(reader.lead(ring.name), ring.stages == 1, reader.read(body, _Where()))


@dataclass(frozen=True, slots=True)
class _Where:
    """What stands around a step.

    ahead  number of the block that fills ahead, and its pipeline
    rings  whose slots the innermost loop goes through
    round  that is written, of pipelines that the block does not read as well
    apart  those that it does
    read   round that is read: of a block that looks ahead and fills no slot, the one that it asks for
    """

    ahead: tuple[int, str] | None = None
    rings: tuple[str, ...] = ()
    round: Amount = 0
    apart: frozenset[str] = frozenset()
    read: Amount = 0


@dataclass(slots=True, eq=False)
class _Reader:
    """Registers, indices and trip counts get other names: a family is the same whatever they are called."""

    ring: sync.Ring
    rings: Mapping[str, sync.Ring]
    threads: int
    of_register: Mapping[str, str]
    leads: Mapping[str, str]  # the pipelines with which others go, slot by slot, by the names of these
    in_turn: frozenset[str] = frozenset()  # registers that have the slot whose turn it is
    called: dict[tuple[str, str], str] = field(default_factory=dict)
    same: dict[str, str] = field(default_factory=dict)  # registers that have the slot of another, as long as it stays
    turn: int | None = None  # the slot whose turn it is, where numbers say which

    def lead(self, name: str) -> str:
        return self.leads.get(name, name)

    @property
    def own(self) -> str:
        """Whose slots those of the pipeline are, one by one."""
        return self.lead(self.ring.name)

    def name(self, kind: str, of: str) -> str:
        return self.called.setdefault((kind, of), f"{kind} {sum(k == kind for k, _ in self.called)}")

    def trips(self, trips: sync.Trips) -> str:
        return str(trips.number) if isinstance(trips.number, int) else self.name("trips", trips.text)

    def varying(self, index: str, body: Steps) -> tuple[str, ...]:
        """Trip counts within a loop that are told from its index."""
        inside = dict.fromkeys(s.trips.text for s in steps_of(body) if isinstance(s, sync.Rounds))
        return tuple(self.name("trips", text) for text in inside if re.search(rf"\b{re.escape(index)}\b", text))

    def read(self, steps: Steps, where: _Where, again: bool = False) -> tuple[Part, ...]:
        """again: the steps may be carried out several times or never, and end at the slot that they begin with."""
        turn = self.turn
        out = self.parts(steps, where)
        if again and self.turn != turn:
            raise Irregular(f"numbers say which slots of {self.ring.name} are used, and rounds end at another slot")
        return out

    def parts(self, steps: Steps, where: _Where) -> tuple[Part, ...]:
        out: list[Part] = []
        blocks: list[sync.Ahead] = []
        for step in steps:
            if blocks and not (isinstance(step, sync.Ahead) and step.pipeline == blocks[0].pipeline and step.number):
                out += self.fill(blocks, where)
                blocks = []
            if isinstance(step, sync.Ahead):
                blocks.append(step)
            else:
                for part in self.part(step, where):
                    if not out or part != out[-1] or not isinstance(part, (Use, Overwrite)):  # again adds nothing
                        out.append(part)
        return (*out, *(self.fill(blocks, where) if blocks else ()))

    def part(self, step: sync.Step, where: _Where) -> Iterator[Part]:
        match step:
            case sync.Tiles(body):
                if inside := self.read(body, where, again=True):
                    yield Walk(self.turns(body), inside)
            case sync.Rounds(index, trips, body):
                own = self.through(body)
                if inside := self.read(body, _Where(where.ahead, own, where.round, where.apart), again=True):
                    called = self.name("loop", index), self.trips(trips)
                    yield Loop(*called, self.varying(index, body), self.turns(body), inside)
            case sync.When(condition, body):
                yield from self.given(condition, body, where)
            case sync.Touch():
                yield from self.touch(step, where)
            case sync.Set(register, value) if self.of_register.get(register.name) == self.own:
                yield Assign(self.name("slot", register.name), self.first(value))
            case sync.Same(register, of):
                self.same[register.name] = of.name
            case sync.Turn(pipeline, slot) if pipeline == self.ring.name:
                yield self.following(slot)
            case sync.Advance(slot, stages) if self.of_register.get(slot.name) == self.own:
                if stages != self.ring.stages:
                    raise Irregular(f"slots begin again behind {stages} of {self.ring.stages}")
                self.same = {register: of for register, of in self.same.items() if of != slot.name}
                yield Next(self.name("slot", slot.name))
            case sync.Commit(of):
                yield Close(of)
            case sync.WaitGroup(of, pending, slots=name) if name and pending is not None:
                yield Await(of, Short((self.lead(name),), self.rings[name].stages - pending))
            case sync.WaitGroup("cp.async", pending):
                yield Await("cp.async", self.left(pending, where))
            case sync.WaitGroup(of, pending):
                yield Await(of, pending or 0)
            case sync.Meet(_, threads):
                if threads != self.threads:
                    raise Irregular(f"{threads} threads meet, and the role has {self.threads}")
                yield Meeting()
            case sync.Fence(text) if text.startswith(FENCE):
                yield Fenced()
            case sync.RoleBody():
                raise Irregular("a role stands within a role")
            case _:
                pass

    def touch(self, step: sync.Touch, where: _Where) -> Iterator[Part]:
        if step.pipeline != self.ring.name:
            other = self.rings.get(step.pipeline)
            if step.verb == "write" and other is not None and other.overlaps(self.ring):
                yield Overwrite(other.name)
            return
        round_number = where.read
        if step.verb == "write":
            round_number = where.round if self.ring.name not in where.apart else 0
        yield Use(self.slot(step.slot, where), step.verb, step.by, round_number)

    def slot(self, slot: Number, where: _Where) -> str | Amount:
        if isinstance(slot, Reg):
            return self.name("slot", self.same.get(slot.name, slot.name))
        if self.turn is not None:
            if slot != self.turn:
                raise Irregular(f"slot {slot} of {self.ring.name} is used when it is the turn of slot {self.turn}")
            return self.name("slot", IN_TURN)
        if where.ahead is not None and where.ahead[1] == self.own:
            if slot == where.ahead[0]:
                return "ahead"
        elif not slot:
            return 0
        raise Irregular(f"slot {slot} of {self.ring.name} is used by its number")

    def following(self, slot: int) -> Part:
        """The first slot's turn, or the next one's."""
        if self.turn is None:
            if slot:
                raise Irregular(f"the first slot of {self.ring.name} is slot {slot}")
            self.turn = slot
            return Assign(self.name("slot", IN_TURN), slot)
        if slot != (self.turn + 1) % self.ring.stages:
            raise Irregular(f"slot {slot} of {self.ring.name} follows slot {self.turn}")
        self.turn = slot
        return Next(self.name("slot", IN_TURN))

    def first(self, value: Number) -> Amount:
        if isinstance(value, Reg):
            raise Irregular(f"a slot of {self.ring.name} is another one")
        return Short((self.own,), self.ring.stages - value) if value else 0

    def given(self, condition: sync.Condition, body: Steps, where: _Where) -> Iterator[Part]:
        inside, to_come = where, _NOW
        if not isinstance(condition, sync.Before):
            if condition == "one thread" and any(isinstance(s, sync.Meet) for s in steps_of(body)):
                raise Irregular("one thread alone waits at a barrier of all")
            index, trips = "", ""
        else:
            index = self.name("loop", condition.index) if condition.index else ""
            trips = self.trips(condition.trips)
            filled = {s.pipeline for s in steps_of(body) if isinstance(s, sync.Touch) and s.verb == "write"}
            if condition.offset and filled:
                to_come = self.to_come(condition.offset, filled & set(self.rings), where)
                inside = _Where(where.ahead, where.rings, to_come, self.both(body))
            elif condition.offset:
                to_come = condition.offset
                inside = replace(where, read=to_come)
        if within := self.read(body, inside, again=condition != "one thread"):
            if condition == "one thread":  # what it does is the role's
                yield from within
            else:
                yield Given(index, to_come, trips, within)

    def to_come(self, offset: int, filled: set[str], where: _Where) -> Amount:
        """A round to come is told from the stages of the pipeline that the block fills."""
        filled = {self.lead(name) for name in filled}
        of = [name for name in where.rings if name in filled] or sorted(filled)
        if len(of) != 1:
            raise Irregular(f"it looks {offset} rounds ahead, and fills slots of {len(of)} pipelines")
        return Short((of[0],), self.rings[of[0]].stages - offset)

    def left(self, pending: int | None, where: _Where) -> Amount | None:
        if not pending and not where.rings:
            return pending
        grouped = tuple(name for name in where.rings if self.rings[name].completion == "commit group")
        if pending is None:
            return None
        if not grouped:
            raise Irregular(f"it waits until {pending} groups are under way, outside of a loop through slots")
        return Short(grouped, min(self.rings[name].stages for name in grouped) - pending)

    def fill(self, blocks: list[sync.Ahead], where: _Where) -> Iterator[Part]:
        """The blocks that are written out as one."""
        name = blocks[0].pipeline
        if [b.number for b in blocks] != list(range(len(blocks))):
            raise Irregular(f"slots of {name} are filled ahead in another order than that of their numbers")
        first, *others = [self.block(b, where) for b in blocks]
        if len(set(others)) > 1:
            raise Irregular(f"the slots of {name} that are filled ahead are not all filled in the same way")
        if inside := others[0] if others else first:
            times = Short((name,), self.rings[name].stages - len(blocks))
            yield Fill(name == self.own, times, first, inside)

    def block(self, block: sync.Ahead, where: _Where) -> tuple[Part, ...]:
        out: list[Part] = []
        inside = _Where((block.number, block.pipeline), where.rings, "ahead", self.both(block.body))
        for step in block.body:
            if isinstance(step, sync.When) and isinstance(step.condition, sync.Before):
                if step.condition.offset != block.number:
                    raise Irregular(f"the block that fills slot {block.number} asks for another round")
                if within := self.read(step.body, inside):
                    out.append(Given("", "ahead", self.trips(step.condition.trips), within))
            else:
                out += self.read((step,), inside)
        return tuple(out)

    def through(self, body: Steps) -> tuple[str, ...]:
        """The pipelines whose slots a loop goes through."""
        advanced = (s.slot.name for s in body if isinstance(s, sync.Advance) and s.slot.name not in self.in_turn)
        found = (self.of_register.get(name, "") for name in advanced)
        return tuple(dict.fromkeys(name for name in found if name in self.rings))

    def turns(self, body: Steps) -> bool:
        return self.ring.name in self.both(body)

    def both(self, body: Steps) -> frozenset[str]:
        """Pipelines that a block writes into and reads from: it is a round of them."""
        touched = {(s.pipeline, s.verb) for s in steps_of(body) if isinstance(s, sync.Touch)}
        return frozenset(name for name in self.rings if {(name, "write"), (name, "read")} <= touched)
