"""What one role does in an instance of its protocol: its statements carried out, with numbers for everything.

An instance says how many tiles a CTA takes and how many rounds each has. Slots, parities and held slots are registers
of the protocol's own statements, so that what comes of it is what the kernel's text would do: a list of events in
which all loops are unrolled. Nothing in it depends on what other roles do; the order in which roles go on does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from tinygpu.language.buffer_space import ANSWER_BYTES
from tinygpu.language.roles import ARRIVALS, HANDED_OVER
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.pipe import Barrier, Side
from tinygpu.ptx.protocol.counting import steps_of

MBARRIERS = (*HANDED_OVER, sync.ANSWERED, "turn")
Pair: TypeAlias = Literal["", "both", "first", "alone", "asked", "home"]


@dataclass(frozen=True, slots=True)
class Instance:
    """rounds: of each tile of a CTA, where CTAs share rounds in a row; otherwise all tiles have as many as the first"""

    rounds: tuple[int, ...]

    @property
    def tiles(self) -> int:
        return len(self.rounds)

    def __str__(self) -> str:
        tiles = f"{self.tiles} tile{'s' if self.tiles > 1 else ''}"
        return f"{tiles} of {' and '.join(map(str, dict.fromkeys(self.rounds)))} rounds"


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a role does.

    kind   wait, arrive, expect, bring, read (from here on), done (with reading)
    slot   of the barrier or buffer; of turns, the number of the role
    round  which use of the ring it belongs to, counted over all tiles
    value  parity of a wait, bytes of expect and bring
    ctas   CTAs that a bring or an arrival goes to, along these axes of the grid
    pair   of each of these pairs of CTAs, "both" get it, or the "first" one; "alone": the first one does it, for both;
           "asked": the first CTA of a cluster does it, for all of them; "home": it is done to the first
    """

    kind: str
    pipeline: str
    side: Side
    slot: int
    round: int
    value: int = 0
    ctas: int = 1
    axes: tuple[int, ...] = ()
    pair: Pair = ""


@dataclass(slots=True, eq=False)
class _Read:
    event: Event
    by: str
    group: int | None = None  # of commit groups; None: in none yet


def roles(protocol: sync.Protocol) -> tuple[sync.RoleBody, ...]:
    """The roles of a kernel that is written role by role."""
    return tuple(step for step in protocol.body if isinstance(step, sync.RoleBody))


def events(protocol: sync.Protocol, role: sync.RoleBody, instance: Instance) -> tuple[Event, ...]:
    """What a warp of a role does in the rings that mbarriers hand over, in order."""
    run = _Run(protocol, role, instance)
    return tuple(run.body(role.body))


@dataclass(slots=True, eq=False)
class _Run:
    protocol: sync.Protocol
    role: sync.RoleBody
    instance: Instance
    registers: dict[str, int] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)  # rounds of loops, by their index
    uses: dict[str, int] = field(default_factory=dict)  # slots that were used or passed over, by pipeline
    pipes: dict[str, str] = field(default_factory=dict)  # register of a pipe's slot -> pipeline
    reads: list[_Read] = field(default_factory=list)
    groups: dict[str, int] = field(default_factory=dict)
    last: dict[tuple[str, int], int] = field(default_factory=dict)  # the use of a slot that was waited for last
    added: dict[str, int] = field(default_factory=dict)  # the use in which products are added up
    tile: int = 0
    asking: bool = False  # who asks for answers goes through their ring beside who hears them

    def body(self, steps: tuple[sync.Step, ...]) -> Iterator[Event]:
        for step in steps:
            yield from self.step(step)

    def step(self, step: sync.Step) -> Iterator[Event]:
        match step:
            case sync.Tiles(body):
                first, every = self.role.share
                for tile in range(first, self.instance.tiles, every):
                    self.tile = tile
                    yield from self.body(body)
            case sync.Rounds(index, trips, body):
                for count in range(self.trips(trips)):
                    self.counters[index] = count
                    yield from self.body(body)
            case sync.When(sync.ASKING, body):
                self.asking = True
                yield from self.body(body)
                self.asking = False
            case sync.When(condition, body):
                if not isinstance(condition, sync.Before) or self.holds(condition):
                    yield from self.body(body)
            case sync.Ahead(body=body):
                yield from self.body(body)
            case sync.RoleBody():
                pass
            case sync.Touch():
                yield from self.touch(step)
            case sync.Hear(slot):
                yield from self.touch(sync.Touch(sync.ANSWERS, slot, "read", "threads"))
            case _:
                yield from self.finished("threads")
                yield from self.action(step)

    def action(self, action: sync.Action) -> Iterator[Event]:
        match action:
            case sync.Start(pipe, parity):
                self.registers |= {pipe.slot.name: 0, pipe.parity.name: parity, pipe.held.name: sync.NOBODY}
                name = self.place(pipe.name)
                self.uses.setdefault(name, 0)
                self.pipes |= {pipe.slot.name: name, pipe.parity.name: name}
            case sync.Take(pipe, slot, parity):
                self.registers[slot.name] = self.value(pipe.slot)
                self.registers[parity.name] = self.value(pipe.parity)
            case sync.Set(register, value):
                self.registers[register.name] = self.value(value)
            case sync.Same(register, of):
                self.registers[register.name] = self.value(of)
            case sync.Advance(slot, stages, parity):
                self.advance(slot, stages, parity)
            case sync.Skip(pipe, _, slots):
                count = self.slots(slots)
                self.uses[pipe.name] += count
                total = self.value(pipe.slot) + count
                self.registers[pipe.slot.name] = total % pipe.stages
                self.registers[pipe.parity.name] ^= total // pipe.stages & 1
            case sync.Tail(pipe):
                for _ in range(pipe.stages):
                    yield self.event("wait", pipe.empty(pipe.slot), self.value(pipe.parity))
                    self.advance(pipe.slot, pipe.stages, pipe.parity)
            case sync.Flip(parity):
                self.registers[parity.name] ^= 1
                self.uses[self.pipes[parity.name]] += 1
            case sync.Wait(barrier, parity):
                yield self.event("wait", barrier, self.value(parity), pair="asked" if self.asking else "")
            case sync.Expect(barrier, count) if self.asking:
                yield self.event("expect", barrier, count, action.ctas, pair="asked")
            case sync.Ask(barrier, ctas=ctas):
                yield self.event("bring", barrier, ANSWER_BYTES, ctas, pair="asked")
            case sync.Expect(barrier, count, pair):
                yield self.event("expect", barrier, count, pair="alone" if pair > 1 else "")
            case sync.Bring(barrier, count, ctas, axis, pair):
                to: Pair = "first" if pair > 1 else ""
                yield self.event("bring", barrier, count, ctas, () if axis is None else (axis,), to)
            case sync.Arrive(barrier, pair=pair) if barrier.side == "full":  # it says that what it has stored is there
                yield self.event("arrive", barrier, 1, pair="first" if pair > 1 else "")
            case sync.Arrive(barrier, home=home) if barrier.pipeline == sync.ANSWERS:
                yield self.event("arrive", barrier, pair="home" if home > 1 else "")
            case sync.Arrive(barrier, ctas, held, _, axes, pair):
                if not (held and self.value(barrier.slot) == sync.NOBODY):
                    yield self.event("arrive", barrier, 0, ctas, axes, "first" if pair > 1 else "")
            case sync.CommitAt(barrier, ctas, axes, pair):
                yield from self.finished("tcgen05")
                full = barrier.side == "full"
                kind = "expect" if full else "arrive"
                yield self.event(kind, barrier, int(full), ctas, axes, "both" if pair > 1 else "")
            case sync.Settled(of):
                yield from self.finished(of)
            case sync.Commit(of):
                self.commit(of)
            case sync.WaitGroup(of, pending):
                yield from self.finished(of, pending or 0)
            case _:
                pass  # meeting and fences order what one role does, and add nothing to what roles wait for

    # -- registers -------------------------------------------------------------------------------------------------
    def value(self, number: Number) -> int:
        return self.registers[number.name] if isinstance(number, Reg) else number

    def advance(self, slot: Reg, stages: int, parity: Reg | None) -> None:
        following = self.value(slot) + 1
        self.registers[slot.name] = 0 if following == stages else following
        if parity is not None and following == stages:
            self.registers[parity.name] ^= 1
        if slot.name in self.pipes:
            self.uses[self.pipes[slot.name]] += 1

    def trips(self, trips: sync.Trips) -> int:
        if isinstance(trips.number, int):
            return trips.number
        if not trips.shared:
            return max(0, self.instance.rounds[0] + trips.more)
        tile = self.tile + trips.ahead
        return self.instance.rounds[tile] if tile < self.instance.tiles else 0

    def slots(self, slots: sync.Slots) -> int:
        return slots.some + sum(self.trips(trips) * self.slots(inside) for trips, inside in slots.loops)

    def holds(self, condition: sync.Before) -> bool:
        count = self.counters[condition.index] if condition.index else 0
        return count + condition.offset < self.trips(condition.trips)

    def place(self, ring: str) -> str:
        """What uses of a ring are counted under: those that are asked for beside those that are heard."""
        return f"{ring}, asked" if self.asking else ring

    # -- events ----------------------------------------------------------------------------------------------------
    def event(
        self, kind: str, b: Barrier, value: int = 0, ctas: int = 1, axes: tuple[int, ...] = (), pair: Pair = ""
    ) -> Event:
        slot, use = self.value(b.slot), self.uses[self.place(b.pipeline)]
        if kind == "wait":
            self.last[b.pipeline, slot] = use
        elif kind == "arrive" and b.side == "empty":
            use = self.last.get((b.pipeline, slot), use)
        return Event(kind, b.pipeline, b.side, slot, use, value, ctas, axes, pair)

    def touch(self, touch: sync.Touch) -> Iterator[Event]:
        fills = self.fills(touch.pipeline)
        if touch.verb == "write" and touch.pipeline in self.uses and (fills or touch.by == "tcgen05"):
            slot, use = self.value(touch.slot), self.uses[touch.pipeline]
            if self.added.get(touch.pipeline) != use:
                self.added[touch.pipeline] = use
                ring = next(r for r in self.protocol.rings if r.name == touch.pipeline)
                to: Pair = "" if ring.pair == 1 else "first" if ring.completion == ARRIVALS else "both"
                yield Event("bring", touch.pipeline, "full", slot, use, 1, pair=to)
            return
        if fills:
            return  # it reads what was left in the slot that it has acquired
        if (touch.verb == "read" or touch.by == "tcgen05.st") and touch.pipeline in self.uses:
            slot = self.value(touch.slot)
            event = Event("read", touch.pipeline, "full", slot, self.uses[touch.pipeline])
            if all((r.event, r.by) != (event, touch.by) for r in self.reads):
                self.reads.append(_Read(event, touch.by))
                yield event

    def fills(self, ring: str) -> bool:
        """Whether the role adds up or stores in slots of a ring, and says when they are full."""
        return any(
            isinstance(s, sync.Arrive | sync.CommitAt) and (s.barrier.pipeline, s.barrier.side) == (ring, "full")
            for s in steps_of(self.role.body)
        )

    def commit(self, of: str) -> None:
        self.groups[of] = self.groups.get(of, 0) + 1
        for read in self.reads:
            if read.by == of and read.group is None:
                read.group = self.groups[of]

    def finished(self, by: str, pending: int = 0) -> Iterator[Event]:
        """Reads that are over: those of threads, and those of all groups but the last `pending`."""
        last = self.groups.get(by, 0) - pending
        at_once = by not in ("wgmma", "cp.async", "cp.async.bulk")
        over = [r for r in self.reads if r.by == by and (at_once or (r.group is not None and r.group <= last))]
        self.reads = [r for r in self.reads if r not in over]
        for read in over:
            e = read.event
            yield Event("done", e.pipeline, "full", e.slot, e.round)
