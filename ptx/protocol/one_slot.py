"""A family's text carried out on what is known of one slot, any of them, in terms of Z3: what has to be shown of it.

What holds at the head of a loop is a choice among sentences: that nobody uses the slot; that all is as it was; or, of a
loop that goes through slots, where the slot lies, seen from the one that is read, and what its filling has left open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import z3

from tinygpu.ptx.protocol import family as f
from tinygpu.ptx.protocol.induction import OVERWRITTEN, UNFILLED
from tinygpu.ptx.protocol.left_in_turn import left_in_turn
from tinygpu.ptx.protocol.progress import Irregular

# What is known of the slot, by name, and what registers hold: terms of Z3.
State: TypeAlias = "dict[str, Any]"
# A sentence about a state in round c of a loop.
Sentence: TypeAlias = "Callable[[State, Any], Any]"
# Of each loop, in the order of the text, the names of the sentences that hold at its head.
Holding: TypeAlias = "tuple[frozenset[str], ...]"
COPIES = "cp.async"
DOING = ("landing", "written", "unfenced", "read")
HEADS = "what holds at the head of a loop is kept"


@dataclass(frozen=True, slots=True)
class Goal:
    """What is to be shown at a place of the text: that a term holds, where some facts do.

    head  of a sentence about a loop: its number, whether it holds "at first" or is "kept", and which it is
    """

    claim: str
    facts: tuple[Any, ...]
    term: Any
    head: tuple[int, str, str] | None = None


class OneSlot:
    """The text of a family, carried out on terms of Z3, and what has to be shown of it.

    holding  what holds at the heads of loops; None: of each sentence a literal says so
    """

    def __init__(self, family: f.Family, context: Any, holding: Holding | None = None) -> None:
        self.family, self.context, self.holding = family, context, holding
        self.facts: list[Any] = []
        self.path: list[Any] = []  # conditions under which the text is at this place
        self.found: list[Goal] = []
        self.names: list[tuple[str, ...]] = []  # of the sentences about the heads of loops
        self.trips: dict[str, Any] = {}
        self.rounds: dict[str, Any] = {}  # that loops count, by their index
        self.blocks: list[Any] = []  # numbers of the blocks that fill ahead
        self.made = 0
        parts = list(f.parts_of(family.body))
        self.agents = sorted({p.by for p in parts if isinstance(p, f.Use) and p.verb == "read"} - {"threads"})
        self.of = dict(family.registers())
        self.slot = z3.Int("slot", context)
        self.stages = self.all_stages(family.ring)
        goes_round = any(isinstance(p, f.Next) for p in parts)
        self.facts = [self.stages == 1 if family.single else self.stages >= (2 if goes_round else 1)]
        others = {name for p in parts for a in _amounts(p) for name in a.rings} - {family.ring}
        self.facts += [self.all_stages(name) >= 2 for name in sorted(others)]
        self.facts += [self.slot >= 0, self.slot < self.stages]

    def goals(self) -> list[Goal]:
        self.body(self.family.body, self.unused())
        return self.found

    # -- terms -----------------------------------------------------------------------------------------------------
    def all_stages(self, ring: str) -> Any:
        return z3.Int(f"stages of {ring}", self.context)

    def said(self, head: int, name: str) -> Any:
        """Whether a sentence is taken to hold at the head of a loop."""
        return z3.Bool(f"loop {head}: {name}", self.context)

    def new(self, of: Any, name: str) -> Any:
        self.made += 1
        return of(f"{name} {self.made}", self.context)

    def amount(self, amount: f.Amount) -> Any:
        match amount:
            case f.Short(rings, fewer):
                fewest = self.all_stages(rings[0])
                for name in rings[1:]:
                    fewest = z3.If(self.all_stages(name) < fewest, self.all_stages(name), fewest)
                return fewest - fewer
            case "ahead":
                return self.blocks[-1]
            case _:
                return z3.IntVal(amount, self.context)

    def times(self, trips: str) -> Any:
        """How many rounds a loop has."""
        if trips.isdigit():
            return z3.IntVal(int(trips), self.context)
        if trips not in self.trips:
            self.trips[trips] = self.new(z3.Int, "trips")
            self.facts.append(self.trips[trips] >= 0)
        return self.trips[trips]

    def unused(self) -> State:
        yes, no = z3.BoolVal(True, self.context), z3.BoolVal(False, self.context)
        none, zero = z3.IntVal(-1, self.context), z3.IntVal(0, self.context)
        state: State = {
            "holds": none, "used": yes, "landing": no, "closed": zero, "written": no, "unfenced": no, "read": no,
        }  # fmt: skip
        for agent in self.agents:
            state |= {f"leaving to {agent}": no, f"closed of {agent}": zero}
        return state

    def fact(self, term: Any) -> None:
        self.facts.append(z3.Implies(z3.And(*self.path), term) if self.path else term)

    def goal(self, claim: str, term: Any, *when: Any) -> None:
        self.found.append(Goal(claim, (*self.facts, *self.path, *when), term))

    def either(self, condition: Any, yes: State, no: State) -> State:
        """What is so in one case or the other."""
        if yes is no:
            return yes
        out: State = {}
        for name in {**yes, **no}:
            a, b = yes.get(name), no.get(name)
            if a is None or b is None:  # a register that only one of them has; nobody reads it behind
                out[name] = b if a is None else a
            else:
                out[name] = a if a is b else z3.If(condition, a, b)
        return out

    # -- text ------------------------------------------------------------------------------------------------------
    def body(self, parts: tuple[f.Part, ...], state: State) -> State:
        for part in parts:
            state = self.part(part, state)
        return state

    def part(self, part: f.Part, state: State) -> State:
        no = z3.BoolVal(False, self.context)
        match part:
            case f.Use(slot, verb, by, round_number):
                return self.use(state, slot, verb, by, round_number)
            case f.Overwrite():
                idle = [z3.Not(state[name]) for name in ("read", "landing", "written", *self.leaving())]
                unused = z3.And(state["holds"] >= 0, z3.Not(state["used"]))
                self.goal(OVERWRITTEN, z3.And(*idle, z3.Not(unused)))
                return state | self.unused()
            case f.Assign(register, value):
                return {**state, register: self.amount(value)}
            case f.Next(register):
                now = self.register(state, register)
                return {**state, register: z3.If(now + 1 == self.stages, 0, now + 1)}
            case f.Close(agent):
                name = "closed" if agent == COPIES else f"closed of {agent}"
                return {**state, name: state[name] + 1} if name in state else state
            case f.Await(agent, left):
                return self.awaited(state, agent, left)
            case f.Meeting():
                return {**state, "written": no, "read": no}
            case f.Fenced():
                return {**state, "unfenced": no}
            case f.Given():
                return self.given(part, state)
            case f.Walk():
                return self.walk(part, state)
            case f.Loop() | f.Fill():
                return self.loop(part, state)

    def leaving(self) -> list[str]:
        return [f"leaving to {agent}" for agent in self.agents]

    def register(self, state: State, name: str) -> Any:
        if name not in state:
            raise Irregular(f"a slot of {self.family.ring} is used that no statement has said")
        return state[name]

    def use(self, state: State, slot: str | f.Amount, verb: str, by: str, round_number: f.Amount) -> State:
        known = isinstance(slot, str) and slot != "ahead"
        at = self.register(state, str(slot)) if known else self.amount(slot)  # type: ignore[arg-type]
        here = at == self.slot
        yes = z3.BoolVal(True, self.context)
        self.goal(OVERWRITTEN if verb == "write" else UNFILLED, z3.And(at >= 0, at < self.stages))
        new = dict(state)
        if verb == "write":
            comes = self.amount(round_number)
            again = z3.And(state["holds"] == comes, z3.Or(state["landing"], state["written"]))
            idle = [z3.Not(state[name]) for name in ("read", "landing", *self.leaving())]
            unused = z3.And(state["holds"] >= 0, z3.Not(state["used"]), state["holds"] != comes)
            self.goal(OVERWRITTEN, z3.Or(again, z3.And(*idle, z3.Not(unused))), here)
            new |= {"holds": comes, "used": z3.BoolVal(False, self.context)}
            new |= (
                {"landing": yes, "closed": z3.IntVal(-1, self.context)}
                if by == COPIES
                else {"written": yes, "unfenced": yes}
            )
        else:
            wanted = state["holds"] == self.amount(round_number)
            full = [z3.Not(state["landing"]), z3.Not(state["written"]), wanted]
            self.goal(UNFILLED, z3.And(*full, *([] if by == "threads" else [z3.Not(state["unfenced"])])), here)
            new["used"] = yes
            if by == "threads":
                new["read"] = yes
            else:
                new |= {f"leaving to {by}": yes, f"closed of {by}": z3.IntVal(-1, self.context)}
        return self.either(here, new, state)

    def awaited(self, state: State, agent: str, left: f.Amount | None) -> State:
        doing, then, closed = ("landing", "written", "closed")
        if agent != COPIES:
            doing, then, closed = f"leaving to {agent}", "read", f"closed of {agent}"
        if doing not in state:
            return state
        over = state[doing] if left is None else z3.And(state[doing], state[closed] >= self.amount(left))
        return {**state, doing: z3.And(state[doing], z3.Not(over)), then: z3.Or(state[then], over)}

    def given(self, part: f.Given, state: State) -> State:
        if part.trips:
            before = self.rounds[part.index] if part.index else z3.IntVal(0, self.context)
            condition = before + self.amount(part.offset) < self.times(part.trips)
        else:
            condition = self.new(z3.Bool, "condition")
        self.path.append(condition)
        after = self.body(part.body, state)
        self.path.pop()
        return self.either(condition, after, state)

    def turned(self, state: State, turn: bool) -> State:
        """What was to come is nearer by a round."""
        return {**state, "holds": z3.If(state["holds"] >= 0, state["holds"] - 1, state["holds"])} if turn else state

    # -- loops -----------------------------------------------------------------------------------------------------
    def walk(self, part: f.Walk, state: State) -> State:
        known, self.trips = self.trips, {}
        sentences = self.idle(part.body) if part.turn else self.framed(state)
        zero = z3.IntVal(0, self.context)
        head, begun = self.head(sentences, part.body, part.turn, state, zero)
        after = self.turned(self.body(part.body, begun), part.turn)
        self.shown(head, "kept", sentences, after, zero)
        self.trips = known
        return self.at_head(head, sentences, part.body, part.turn, state, zero)

    def loop(self, part: f.Loop | f.Fill, state: State) -> State:
        if isinstance(part, f.Fill):
            times, turn = self.amount(part.times), False
        else:
            times, turn = self.times(part.trips), part.turn
            self.fact(times >= 1)
        through = isinstance(part, f.Fill) and part.own
        through = through or any(isinstance(step, f.Next) and not self.in_turn(step.register) for step in part.body)
        touched = any(isinstance(step, (f.Use, f.Overwrite)) for step in f.parts_of(part.body))
        first = z3.IntVal(0, self.context)
        if through or turn or not touched:
            sentences = self.going(part) if through else self.idle(part.body) if turn else self.framed(state)
            if not isinstance(part, f.Fill) or part.first == part.body:
                return self.from_round(part, times, turn, state, first, sentences)
        once = self.round(replace(part, body=part.first) if isinstance(part, f.Fill) else part, first, state)
        if not through:  # what a first round has done, the others do again
            sentences = self.framed(once)
        self.path.append(times > 1)
        after = self.from_round(part, times, turn, once, first + 1, sentences)
        self.path.pop()
        return self.either(times > 1, after, once)

    def round(self, part: f.Loop | f.Fill, number: Any, state: State) -> State:
        if isinstance(part, f.Fill):
            self.blocks.append(number)
            after = self.body(part.body, state)
            self.blocks.pop()
            return after
        around, known = self.rounds.get(part.index), self.trips
        self.rounds[part.index] = number
        self.trips = {name: term for name, term in known.items() if name not in part.varying}
        after = self.body(part.body, state)
        self.trips = known | {name: term for name, term in self.trips.items() if name not in part.varying}
        if around is None:
            del self.rounds[part.index]
        else:
            self.rounds[part.index] = around
        return after

    def from_round(
        self, part: f.Loop | f.Fill, times: Any, turn: bool, state: State, first: Any, sentences: dict[str, Sentence]
    ) -> State:
        """All rounds from one on, of which there is one at least."""
        number = self.new(z3.Int, "round")
        head, begun = self.head(sentences, part.body, turn, state, first, number)
        self.fact(z3.And(number >= first, number < times))
        after = self.turned(self.round(part, number, begun), turn)
        self.shown(head, "kept", sentences, after, number + 1, number + 1 < times)
        self.fact(number + 1 == times)
        return after

    def head(
        self, sentences: dict[str, Sentence], body: tuple[f.Part, ...], turn: bool, state: State, first: Any,
        number: Any = None,
    ) -> tuple[int, State]:
        """(its number, what is known at the head of a loop)."""
        head = len(self.names)
        self.names.append(tuple(sentences))
        self.shown(head, "at first", sentences, state, first)
        return head, self.at_head(head, sentences, body, turn, state, first if number is None else number)

    def shown(
        self, head: int, when: str, sentences: dict[str, Sentence], state: State, number: Any, *also: Any
    ) -> None:
        """The sentences about a loop, which are to hold in a state."""
        facts = (*self.facts, *self.path, *also)
        for name, sentence in sentences.items():
            if self.holding is None or name in self.holding[head]:
                self.found.append(Goal(HEADS, facts, sentence(state, number), (head, when, name)))

    def at_head(
        self, head: int, sentences: dict[str, Sentence], body: tuple[f.Part, ...], turn: bool, state: State, number: Any
    ) -> State:
        """Any state of which the sentences hold, but what the body leaves as it is."""
        begun = dict(state)
        for name in _changed(body, turn, self.agents):
            if name in state:
                of = z3.Bool if z3.is_bool(state[name]) else z3.Int
                begun[name] = self.new(of, name)
        for name, sentence in sentences.items():
            if self.holding is None:
                self.fact(z3.Implies(self.said(head, name), sentence(begun, number)))
            elif name in self.holding[head]:
                self.fact(sentence(begun, number))
        return begun

    # -- sentences -------------------------------------------------------------------------------------------------
    def in_turn(self, register: str) -> bool:
        """Whether what a register says is filled and drained before the next one is."""
        return self.of.get(register) == {"read", "write"}

    def idle(self, body: tuple[f.Part, ...]) -> dict[str, Sentence]:
        """Nobody uses the slot; of slots in turn, the one whose turn it is, and the others are left in turn."""
        out: dict[str, Sentence] = {"it holds nothing": lambda s, c: s["holds"] < 0, "used": lambda s, c: s["used"]}
        for agent in self.agents:
            out[f"{agent} in groups"] = partial(_grouped, agent)
        out |= {f"not {name}": partial(_not, name) for name in (*DOING, *self.leaving())}
        going = [p.register for p in f.parts_of(body) if isinstance(p, f.Next) and self.in_turn(p.register)]
        for register in dict.fromkeys(going):
            out |= left_in_turn(register, self.slot, self.stages, self.agents)
        return out

    def framed(self, base: State) -> dict[str, Sentence]:
        """All is as it was, or less is under way."""

        def same(name: str, s: State, c: Any) -> Any:
            return s[name] == base[name]

        def less(name: str, s: State, c: Any) -> Any:
            return z3.Implies(s[name], base[name])

        def older(name: str, doing: str, s: State, c: Any) -> Any:
            return z3.Implies(s[doing], s[name] >= base[name])

        def landed(s: State, c: Any) -> Any:
            return z3.Implies(s["written"], z3.Or(base["written"], base["landing"]))

        def left(s: State, c: Any) -> Any:
            return z3.Implies(s["read"], z3.Or(base["read"], *(base[name] for name in self.leaving())))

        out: dict[str, Sentence] = {f"the same {name}": partial(same, name) for name in self.unused()}
        out |= {f"no more {name}": partial(less, name) for name in (*DOING, *self.leaving())}
        out |= {"closed since": partial(older, "closed", "landing"), "written or landed": landed, "read or left": left}
        out |= {f"closed since of {a}": partial(older, f"closed of {a}", f"leaving to {a}") for a in self.agents}
        return out | {f"not {name}": partial(_not, name) for name in ("landing", "written", "read")}

    def going(self, part: f.Loop | f.Fill) -> dict[str, Sentence]:
        """Where the slot lies, seen from the one that is read, and what is known of those that are filled ahead."""
        if isinstance(part, f.Fill):
            asked = [p.trips for p in part.body if isinstance(p, f.Given) and p.offset == "ahead"]
            times = self.times(asked[0]) if asked else None

            def behind(s: State) -> Any:
                return self.slot

            def live(s: State, c: Any) -> Any:
                return z3.And(self.slot < c, *([] if times is None else [self.slot < times]))

            def groups(s: State, c: Any) -> Any:
                return c - 1 - self.slot

            out: dict[str, Sentence] = {}
            last = None
        else:
            inside = list(f.parts_of(part.body))
            readers = sorted(r for r, verbs in self.of.items() if "read" in verbs and f.Next(r) in part.body)
            writers = sorted(r for r, verbs in self.of.items() if verbs == {"write"} and f.Next(r) in part.body)
            if len(readers) != 1:
                raise Irregular(f"slots of {self.family.ring} are read in {len(readers)} places of a round at a time")
            (reader,) = readers
            filled = [p.offset for p in inside if isinstance(p, f.Given) and p.index == part.index and _writes(p)]
            ahead = self.amount(filled[0]) if filled else self.stages - 1
            total = self.times(part.trips)

            def behind(s: State) -> Any:
                read = s[reader]
                return z3.If(self.slot >= read, self.slot - read, self.slot - read + self.stages)

            def live(s: State, c: Any) -> Any:
                return z3.And(behind(s) < ahead, c + behind(s) < total)

            def groups(s: State, c: Any) -> Any:
                return ahead - 1 - behind(s)

            def ranged(name: str, s: State, c: Any) -> Any:
                return z3.And(s[name] >= 0, s[name] < self.stages)

            def before(name: str, s: State, c: Any) -> Any:
                return s[name] == z3.If(s[reader] == 0, self.stages - 1, s[reader] - 1)

            out = {f"{name} is a slot": partial(ranged, name) for name in (reader, *writers)}
            out |= {f"{name} is the slot before": partial(before, name) for name in writers}
            last = self.stages - 1

        def says(name: str, when: Sentence, what: Sentence) -> None:
            out[name] = lambda s, c: z3.Implies(when(s, c), what(s, c))

        def idle(s: State, c: Any) -> Any:
            return z3.Not(live(s, c))

        def left(s: State, c: Any) -> Any:
            return z3.And(idle(s, c), *([] if last is None else [behind(s) != last]))

        def next_up(s: State, c: Any) -> Any:
            """Of the round that begins: something may be read of it already."""
            return z3.And(live(s, c), behind(s) == 0)

        def later(s: State, c: Any) -> Any:
            return z3.And(live(s, c), behind(s) != 0)

        says("filled ahead: its round", live, lambda s, c: s["holds"] == behind(s))
        says("filled ahead: not used", live, partial(_not, "used"))
        says("filled later: not used", later, partial(_not, "used"))
        says("filled ahead: groups since", live, lambda s, c: z3.Implies(s["landing"], s["closed"] >= groups(s, c)))
        says("else: it holds nothing", idle, lambda s, c: s["holds"] < 0)
        for name in (*DOING, *self.leaving()):
            says(f"filled ahead: not {name}", live, partial(_not, name))
            says(f"next up: not {name}", next_up, partial(_not, name))
            says(f"filled later: not {name}", later, partial(_not, name))
            says(f"else: not {name}", idle, partial(_not, name))
            says(f"left: not {name}", left, partial(_not, name))
        return out


def _not(name: str, state: State, number: Any) -> Any:
    return z3.Not(state[name])


def _grouped(agent: str, state: State, number: Any) -> Any:
    return z3.Implies(state[f"leaving to {agent}"], state[f"closed of {agent}"] >= 0)


def _writes(part: f.Given) -> bool:
    return any(isinstance(p, f.Use) and p.verb == "write" for p in f.parts_of(part.body))


def _amounts(part: f.Part) -> Iterator[f.Short]:
    """Numbers that follow from how many stages there are."""
    found: tuple[Any, ...] = ()
    match part:
        case f.Use(slot, _, _, round_number):
            found = slot, round_number
        case f.Assign(_, value):
            found = (value,)
        case f.Await(_, left):
            found = (left,)
        case f.Fill(_, times):
            found = (times,)
        case f.Given(_, offset):
            found = (offset,)
    yield from (a for a in found if isinstance(a, f.Short))


def _changed(body: tuple[f.Part, ...], turn: bool, agents: list[str]) -> list[str]:
    """What a body may change."""
    found: dict[str, None] = {"holds": None} if turn else {}
    of_agents = [name for a in agents for name in (f"leaving to {a}", f"closed of {a}")]
    for part in f.parts_of(body):
        match part:
            case f.Use() | f.Overwrite():
                names = ["holds", "used", "landing", "closed", "written", "unfenced", "read", *of_agents]
            case f.Assign(register) | f.Next(register):
                names = [register]
            case f.Close() | f.Await() | f.Meeting():
                names = ["landing", "closed", "written", "read", *of_agents]
            case f.Fenced():
                names = ["unfenced"]
            case f.Loop(turn=True) | f.Walk(turn=True):
                names = ["holds"]
            case _:
                names = []
        found |= dict.fromkeys(names)
    return list(found)
