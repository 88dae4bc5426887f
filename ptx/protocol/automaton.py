"""What a role does in any round of its rings: its statements, carried out for slots and parities of a round `n`.

Every value that a role keeps is written relative to `n`, the number of slots that it has used or passed over: the slot
of use n + d, the parity of that use (how often the slots have begun again by then, odd or even), or no slot. So the
endless run of a role becomes finitely many states, whatever the stages, rounds and tiles are. How far it is in the
round is counted beside: uses that it has waited for, filled, and given back, each as a number relative to n.

Where this fails, a sentence says why: a slot or a parity is no function of the round, uses are out of order, a slot is
given back while it is read. Then nothing is proved, and the protocol is explored.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tinygpu.language.buffer_space import ANSWER_BYTES
from tinygpu.language.roles import ARRIVALS, HANDED_OVER
from tinygpu.ptx.lowering import sync
from tinygpu.ptx.lowering.emitter import Number, Reg
from tinygpu.ptx.lowering.pipe import Barrier, Pipe
from tinygpu.ptx.protocol.counting import steps_of
from tinygpu.ptx.protocol.progress import (
    FARTHEST,
    WAITED_FOR,
    Automaton,
    Constant,
    Irregular,
    Move,
    ParityOf,
    Progress,
    Reading,
    SlotOf,
    State,
    Value,
    ordered,
)  # fmt: skip

# States of a role that are looked at, at most.
MOST_STATES = 3_000


@dataclass(slots=True, eq=False)
class _Graph:
    """Places in a role's text, and ways from one to another: by an action, or by none."""

    ways: list[list[tuple[sync.Action | None, int]]] = field(default_factory=list)

    def place(self) -> int:
        self.ways.append([])
        return len(self.ways) - 1

    def way(self, start: int, action: sync.Action | None, end: int) -> None:
        self.ways[start].append((action, end))

    def write(self, steps: tuple[sync.Step, ...], start: int) -> int:
        """The place behind the steps. A touch that is like another, with touches alone between, says nothing new."""
        touches: set[sync.Step] = set()
        for step in steps:
            if step in touches:
                continue
            touches = {*touches, step} if isinstance(step, sync.Touch) else set()
            end = self.place()
            match step:
                case sync.Tiles(body):
                    self.way(self.write(body, start), None, start)
                    self.way(start, None, end)
                case sync.Rounds(_, _, body):
                    last = self.write(body, start := self._beginning(start))
                    self.way(last, None, start)
                    self.way(last, None, end)
                case sync.When(condition, body):
                    self.way(self.write(body, start := self._beginning(start)), None, end)
                    if condition != "one thread":
                        self.way(start, None, end)
                case sync.Ahead(body=body):
                    self.way(self.write(body, start), None, end)
                case sync.RoleBody():
                    self.way(start, None, end)
                case _:
                    self.way(start, step, end)
            start = end
        return start

    def _beginning(self, start: int) -> int:
        """A place of its own for a block, so that coming again is not coming from before it."""
        own = self.place()
        self.way(start, None, own)
        return own


def automaton(protocol: sync.Protocol, role: sync.RoleBody) -> Automaton:
    """What a role does in any round. Raises Irregular."""
    _check_tails(role)
    graph = _Graph()
    beginning = graph.place()
    end = graph.write(role.body, beginning)
    run = _Run({ring.name: ring for ring in protocol.rings}, _does(graph), role.share[1] > 1)
    seen = {(beginning, State())}
    waiting = [(beginning, State())]
    ends: dict[tuple[tuple[str, Progress], ...], None] = {}
    while waiting:
        place, state = waiting.pop()
        if place == end:
            ends[state.progress] = None
        for action, target in graph.ways[place]:
            following = target, run.after(state, action) if action is not None else state
            if following not in seen:
                seen.add(following)
                waiting.append(following)
        if len(seen) > MOST_STATES:
            raise Irregular(f"{role.role} has more than {MOST_STATES} states")
    return Automaton(role, tuple(run.moves), tuple(ends), tuple(run.loads), tuple(sorted(run.tails)))


def _check_tails(role: sync.RoleBody) -> None:
    """A role waits for all slots at its very end: then nobody waits for what comes behind that."""
    places = [at for at, step in enumerate(role.body) if isinstance(step, sync.Tail)]
    last = role.body[places[0] :] if places else ()
    inside = sum(isinstance(step, sync.Tail) for step in steps_of(role.body))
    if inside != len(places) or not all(isinstance(step, sync.Tail | sync.WaitGroup) for step in last):
        raise Irregular("it waits until all slots are empty, and goes on behind that")


def _does(graph: _Graph) -> dict[str, frozenset[str]]:
    """What a role does at the barriers of each ring."""
    kinds = {
        sync.Wait: "wait", sync.Expect: "expect", sync.Bring: "bring", sync.Ask: "bring", sync.Arrive: "arrive",
    }  # fmt: skip
    found: dict[str, set[str]] = {}
    for ways in graph.ways:
        for action, _ in ways:
            if isinstance(action, sync.CommitAt):
                kind = "expect" if action.barrier.side == "full" else "arrive"
                found.setdefault(action.barrier.pipeline, set()).add(kind)
            if isinstance(action, sync.Touch) and (action.verb, action.by) == ("write", "tcgen05"):
                found.setdefault(action.pipeline, set()).add("bring")
            if isinstance(action, sync.Arrive) and action.barrier.side == "full":
                found.setdefault(action.barrier.pipeline, set()).update(("bring", "expect"))
                continue
            if isinstance(action, (sync.Wait, sync.Expect, sync.Bring, sync.Ask, sync.Arrive)):
                found.setdefault(action.barrier.pipeline, set()).add(kinds[type(action)])
    return {ring: frozenset(of) for ring, of in found.items()}


@dataclass(slots=True, eq=False)
class _Run:
    rings: dict[str, sync.Ring]
    does: dict[str, frozenset[str]]
    of_other_tiles: bool  # other roles go on in its rings, each with a tile of its own
    next_slots: set[str] = field(default_factory=set)  # registers that hold the slot of use n
    moves: dict[Move, None] = field(default_factory=dict)
    loads: dict[tuple[str, int, tuple[tuple[int, int, int | None], ...]], None] = field(default_factory=dict)
    tails: set[tuple[str, int]] = field(default_factory=set)

    def after(self, state: State, action: sync.Action) -> State:
        registers = dict(state.registers)
        progress = dict(state.progress)
        turn = state.turn
        match action:
            case sync.Start(pipe, parity):
                if pipe.name in progress:
                    raise Irregular(f"it begins anew in {pipe.name}, where it has been before")
                self.next_slots.add(pipe.slot.name)
                registers[pipe.slot.name] = SlotOf(pipe.name, 0)
                registers[pipe.parity.name] = ParityOf(pipe.name, 0, parity)
                registers[pipe.held.name] = Constant(sync.NOBODY)
                progress[pipe.name] = Progress()
            case sync.Take(pipe, slot, parity):
                registers[slot.name] = registers[pipe.slot.name]
                registers[parity.name] = registers[pipe.parity.name]
            case sync.Set(register, value):
                registers[register.name] = self.value(registers, value)
            case sync.Advance(slot, stages, parity) if isinstance(registers.get(slot.name), SlotOf):
                self.advance(registers, progress, slot, stages, parity)
            case sync.Skip(pipe):
                self.skip(registers, progress, pipe)
            case sync.Tail(pipe):
                self.tail(registers, progress, pipe)
            case sync.Flip(parity):
                ring = self.parity(registers, parity).ring
                self.next_use(registers, progress, ring)
                registers[parity.name] = replace(self.parity(registers, parity), ahead=0)
            case sync.Wait(barrier, parity) if barrier.side == "turn":
                turn = self.begin_turn(state, registers, progress, barrier, parity)
            case sync.Wait(barrier, parity):
                self.wait(state, registers, progress, barrier, parity)
            case sync.Expect(barrier, count):
                self.expect(state, registers, progress, barrier, count)
            case sync.Bring():
                self.bring(state, registers, progress, action)
            case sync.Ask(barrier, ctas=ctas):
                self.bring(state, registers, progress, sync.Bring(barrier, ANSWER_BYTES, ctas))
            case sync.Hear(slot):
                self.touch(state, registers, progress, sync.Touch(sync.ANSWERS, slot, "read", "threads"))
            case sync.Arrive(barrier) if barrier.side == "turn":
                turn = self.end_turn(state, progress, barrier)
            case sync.Arrive(barrier) if barrier.side == "full":
                self.filled(state, registers, progress, barrier)
            case sync.Arrive():
                self.arrive(state, registers, progress, action)
            case sync.CommitAt(barrier) if barrier.side == "full":
                self.nothing_added(state, registers, progress, barrier)
                self.expect(state, registers, progress, barrier, 1)
            case sync.CommitAt(barrier, ctas, axes):
                self.arrive(state, registers, progress, sync.Arrive(barrier, ctas, axes=axes), "tcgen05")
            case sync.Touch(verb="write", by="tcgen05"):
                self.add_up(state, registers, progress, action)
            case sync.Touch(verb="write", by="tcgen05.st" | "threads") if self.fills(action.pipeline):
                self.add_up(state, registers, progress, action)
                self.storing(registers, progress, action)
            case sync.Touch():
                self.touch(state, registers, progress, action)
            case _:
                progress = {ring: ordered(p, action) for ring, p in progress.items()}
        return State(tuple(sorted(registers.items())), tuple(sorted(progress.items())), turn)

    # -- registers -------------------------------------------------------------------------------------------------
    def value(self, registers: dict[str, Value], number: Number) -> Value:
        return registers[number.name] if isinstance(number, Reg) else Constant(number)

    def parity(self, registers: dict[str, Value], parity: Reg) -> ParityOf:
        found = registers[parity.name]
        if not isinstance(found, ParityOf):
            raise Irregular(f"the parity {parity} is no function of the round")
        return found

    def use(self, registers: dict[str, Value], barrier: Barrier, what: str) -> int:
        """The use that a barrier's slot is of, relative to n."""
        found = self.value(registers, barrier.slot)
        if not isinstance(found, SlotOf) or found.ring != barrier.pipeline:
            raise Irregular(f"{what} the {barrier.side} barrier of a slot that is no function of the round")
        return found.ahead

    def advance(
        self, registers: dict[str, Value], progress: dict[str, Progress], slot: Reg, stages: int, parity: Reg | None
    ) -> None:
        found = registers[slot.name]
        if not isinstance(found, SlotOf):
            raise Irregular(f"{slot} goes on from a slot that is no function of the round")
        self.whole(found.ring, stages)
        if slot.name not in self.next_slots:
            registers[slot.name] = replace(found, ahead=found.ahead + 1)
            return
        if found.ahead:
            raise Irregular(f"{slot} goes on from a slot that is not the next one")
        flips = (parity is not None and self.parity(registers, parity)) or None
        self.next_use(registers, progress, found.ring)
        registers[slot.name] = found
        if parity is not None and flips is not None:
            if flips.ahead or flips.ring != found.ring:
                raise Irregular(f"the parity {parity} flips with another use than its own")
            registers[parity.name] = flips

    def whole(self, ring: str, stages: int) -> None:
        if stages != self.rings[ring].stages:
            raise Irregular(f"slots begin again behind {stages} of {self.rings[ring].stages}")

    def next_use(self, registers: dict[str, Value], progress: dict[str, Progress], ring: str) -> None:
        """n is one more."""
        for name, value in registers.items():
            if isinstance(value, (SlotOf, ParityOf)) and value.ring == ring:
                registers[name] = replace(value, ahead=value.ahead - 1)
        self.no_older(registers, ring)
        now = progress[ring]
        if now.bytes:
            self.loads[ring, now.expecting, now.bytes] = None
            progress[ring] = replace(now, bytes=(), expecting=0)
        progress[ring] = progress[ring].shifted(self.does.get(ring, frozenset()))

    def no_older(self, registers: dict[str, Value], ring: str) -> None:
        """Registers of uses long past are not kept: who used one would be told that it is no function of the round."""
        for name, value in list(registers.items()):
            if isinstance(value, (SlotOf, ParityOf)) and value.ring == ring and value.ahead < -FARTHEST:
                del registers[name]

    def skip(self, registers: dict[str, Value], progress: dict[str, Progress], pipe: Pipe) -> None:
        ring = pipe.name
        self.whole(ring, pipe.stages)
        now = progress[ring]
        slot, parity, held = (registers.get(r.name) for r in (pipe.slot, pipe.parity, pipe.held))
        if (now.waited or now.released or now.reading) and self.consumes(now):
            raise Irregular("slots are passed over while a slot is in use")
        if slot != SlotOf(ring, 0) or not isinstance(parity, ParityOf) or parity.ahead or isinstance(held, SlotOf):
            raise Irregular("slots are passed over from a place that is no function of the round")
        for name, value in list(registers.items()):
            own = (pipe.slot.name, pipe.parity.name)
            if isinstance(value, (SlotOf, ParityOf)) and value.ring == ring and name not in own:
                del registers[name]

    def tail(self, registers: dict[str, Value], progress: dict[str, Progress], pipe: Pipe) -> None:
        """Waits for all slots from the next one on, and has none behind that."""
        ring = pipe.name
        self.whole(ring, pipe.stages)
        slot, parity = registers.get(pipe.slot.name), registers.get(pipe.parity.name)
        if slot != SlotOf(ring, 0) or not isinstance(parity, ParityOf) or parity.ahead:
            raise Irregular(f"it waits for all slots of {ring} from a place that is no function of the round")
        if self.consumes(progress[ring]):
            raise Irregular(f"it waits for all slots of {ring} while it uses one")
        self.tails.add((ring, parity.flipped))
        registers[pipe.slot.name] = Constant(sync.NOBODY)

    def consumes(self, now: Progress) -> bool:
        return (now.waited, now.expected, now.brought) != (0, 0, 0) or bool(now.released)

    # -- barriers --------------------------------------------------------------------------------------------------
    def moved(
        self, state: State, kind: str, barrier: Barrier, use: int, after: Progress, flipped: int = 0,
        to: tuple[int, tuple[int, ...]] = (1, ()),
    ) -> None:  # fmt: skip
        ring = barrier.pipeline
        number = barrier.slot if barrier.side == "turn" and isinstance(barrier.slot, int) else 0
        move = Move(kind, ring, barrier.side, use, flipped, state.of(ring), after, state.turn, number, *to)
        self.moves[move] = None

    def wait(
        self, state: State, registers: dict[str, Value], progress: dict[str, Progress], barrier: Barrier, parity: Reg
    ) -> None:
        ring, now = barrier.pipeline, progress[barrier.pipeline]
        use, how = self.use(registers, barrier, "it waits at"), self.parity(registers, parity)
        if how.ring != ring or how.ahead != use:
            raise Irregular("it waits with the parity of another use")
        if use != now.waited:
            raise Irregular(f"it waits for use n{use:+d}, and the next one to wait for is n{now.waited:+d}")
        progress[ring] = replace(now, waited=use + 1)
        self.moved(state, "wait", barrier, use, progress[ring], how.flipped)

    def expect(
        self, state: State, registers: dict[str, Value], progress: dict[str, Progress], barrier: Barrier, count: int
    ) -> None:
        ring, now = barrier.pipeline, progress[barrier.pipeline]
        use = self.use(registers, barrier, "it expects bytes at")
        if use != now.expected or use >= now.waited:
            raise Irregular("bytes are expected for a slot that is not the one that was waited for")
        progress[ring] = replace(now, expected=use + 1, expecting=count)
        self.moved(state, "expect", barrier, use, progress[ring])

    def bring(
        self, state: State, registers: dict[str, Value], progress: dict[str, Progress], action: sync.Bring
    ) -> None:
        ring, now = action.barrier.pipeline, progress[action.barrier.pipeline]
        use = self.use(registers, action.barrier, "bytes complete at")
        if use not in (now.brought, now.brought - 1) or use >= now.waited:
            raise Irregular("bytes are brought into a slot that is not the one that was waited for")
        first = use == now.brought
        box = action.bytes, action.ctas, action.axis
        boxes = (box,) if first else (*now.bytes, box)
        progress[ring] = replace(now, brought=use + 1, bytes=boxes)
        if first:
            self.moved(state, "bring", action.barrier, use, progress[ring])

    def add_up(
        self, state: State, registers: dict[str, Value], progress: dict[str, Progress], action: sync.Touch
    ) -> None:
        """Products are added up in a slot: the first of them brings what the commit behind the last one completes."""
        ring, now = action.pipeline, progress[action.pipeline]
        found = self.value(registers, action.slot)
        if not isinstance(found, SlotOf) or not now.expected <= found.ahead < now.waited:
            raise Irregular("products are added up in a slot that was not waited for, or was committed")
        if found.ahead == now.brought:
            progress[ring] = replace(now, brought=found.ahead + 1, bytes=((1, 1, None),))
            self.moved(state, "bring", Barrier(ring, "full", 0, 0), found.ahead, progress[ring])

    def nothing_added(
        self, state: State, registers: dict[str, Value], progress: dict[str, Progress], barrier: Barrier
    ) -> None:
        """A commit behind a loop that had no round completes at once: the slot is handed over as it is."""
        use, ring = self.use(registers, barrier, "a commit arrives at"), barrier.pipeline
        now = progress[ring]
        if use == now.brought and now.expected <= use < now.waited:
            progress[ring] = replace(now, brought=use + 1, bytes=((1, 1, None),))
            self.moved(state, "bring", Barrier(ring, "full", 0, 0), use, progress[ring])

    def fills(self, ring: str) -> bool:
        """Whether the role's warps arrive where slots of a ring are full."""
        return self.rings[ring].completion == ARRIVALS and "bring" in self.does.get(ring, frozenset())

    def storing(self, registers: dict[str, Value], progress: dict[str, Progress], action: sync.Touch) -> None:
        """Stores are under way into a slot that is filled: what is told of it comes behind them."""
        now, found = progress[action.pipeline], self.value(registers, action.slot)
        if isinstance(found, SlotOf):
            left = tuple(r for r in now.reading if (r.ahead, r.by) != (found.ahead, action.by))
            reading = (*left, Reading(found.ahead, action.by, self.needs_no_fence(action)))
            progress[action.pipeline] = replace(now, reading=tuple(sorted(reading)))

    def needs_no_fence(self, action: sync.Touch) -> bool:
        """Whether barriers alone order what threads do in a slot: threads fill it, and no other proxy."""
        return action.by == "threads" and self.rings[action.pipeline].completion == ARRIVALS

    def filled(
        self, state: State, registers: dict[str, Value], progress: dict[str, Progress], barrier: Barrier
    ) -> None:
        """One of the arrivals that make a slot full, of a warp whose stores are complete and ordered."""
        use, ring = self.use(registers, barrier, "it arrives at"), barrier.pipeline
        now = progress[ring]
        for storing in now.reading:
            if storing.ahead == use and not (storing.fenced and storing.met):
                raise Irregular(f"it says that a slot is full while {storing.by} may be storing into it")
        progress[ring] = replace(now, reading=tuple(r for r in now.reading if r.ahead != use))
        self.expect(state, registers, progress, barrier, 1)

    def arrive(
        self, state: State, registers: dict[str, Value], progress: dict[str, Progress], action: sync.Arrive,
        when: str = "",
    ) -> None:
        """when: the arrival comes when all that this agent was given has completed"""
        barrier, ring = action.barrier, action.barrier.pipeline
        if action.held and self.value(registers, barrier.slot) == Constant(sync.NOBODY):
            return
        now, use = progress[ring], self.use(registers, barrier, "it arrives at")
        if use != now.released:
            raise Irregular(f"it gives back use n{use:+d}, and the next one to give back is n{now.released:+d}")
        if use >= now.waited:
            raise Irregular("it gives a slot back before it has waited for it")
        for reading in now.reading:
            if reading.ahead == use and not (reading.by == when or (reading.fenced and reading.met)):
                raise Irregular(f"it gives a slot back while {reading.by} may be reading it")
        progress[ring] = replace(now, released=use + 1, reading=tuple(r for r in now.reading if r.ahead != use))
        self.moved(state, "arrive", barrier, use, progress[ring], 0, (action.ctas, action.axes))

    def touch(
        self, state: State, registers: dict[str, Value], progress: dict[str, Progress], action: sync.Touch
    ) -> None:
        ring = action.pipeline
        if ring not in progress:
            return
        found = self.value(registers, action.slot)
        now = progress[ring]
        if action.verb == "write" and action.by != "tcgen05.st":
            raise Irregular(f"{action.by} write into a slot of {ring}, which bulk copies fill")
        if not isinstance(found, SlotOf) or not now.released <= found.ahead < now.waited:
            raise Irregular("it reads a slot that it has not waited for, or has given back")
        own = "bring" in self.does.get(ring, frozenset())  # what was left in a slot that it has acquired
        if own and action.by == "tcgen05":
            return  # complete before what the slot's commit tells
        reading = Reading(found.ahead, action.by, self.needs_no_fence(action))
        if action.by in WAITED_FOR:  # what was complete is under way again
            now = replace(now, reading=tuple(r for r in now.reading if (r.ahead, r.by) != (found.ahead, action.by)))
        if reading not in now.reading:
            progress[ring] = replace(now, reading=tuple(sorted((*now.reading, reading))))
        if not own:
            self.moved(state, "read", Barrier(ring, "full", 0, 0), found.ahead, progress[ring])

    # -- turns -----------------------------------------------------------------------------------------------------
    def begin_turn(
        self, state: State, registers: dict[str, Value], progress: dict[str, Progress], barrier: Barrier, parity: Reg
    ) -> str:
        ring, now, how = barrier.pipeline, progress[barrier.pipeline], self.parity(registers, parity)
        if state.turn:
            raise Irregular(f"it waits for a turn of {ring} while it has one of {state.turn}")
        if how.ring != ring or how.ahead or now.waited:
            raise Irregular("it waits for its turn with the parity of another")
        progress[ring] = replace(now, waited=1)
        self.moved(state, "wait", barrier, 0, progress[ring], how.flipped)
        return ring

    def end_turn(self, state: State, progress: dict[str, Progress], barrier: Barrier) -> str:
        ring, now = barrier.pipeline, progress[barrier.pipeline]
        if state.turn != ring or now.released != now.waited - 1:
            raise Irregular(f"it hands on a turn of {ring} that it has not, or has handed on")
        for name, other in progress.items() if self.of_other_tiles else ():
            if name != ring and (other.waited != other.released and self.rings[name].completion in HANDED_OVER):
                raise Irregular(f"it hands on its turn while it holds a slot of {name}")
        progress[ring] = replace(now, released=now.released + 1)
        self.moved(state, "arrive", barrier, now.released, progress[ring])
        return ""
