"""Proofs that roles which wait in several rings never lock up: an order of all that they do, in which no wait is early.

What a role waits for stays so until the role has gone on, and a role does its things one after another. So if all that
roles ever do can be put in one order in which every wait comes behind what it waits for, then they lock up in no order
in which they really go on: of what is not done yet, the first in that order has nothing to wait for. It is the rank of
a well-founded order: a tile, rounds of its loops, a step in the round.

The order is found by carrying out the roles side by side, tile by tile. Loops that go through the same rings are gone
through together, round by round; between two heads of loops each role goes on as far as it can. How far each is in a
ring is counted from a use of that ring, so that one round is like another: where the heads of loops meet in a state
that was there before, all rounds are known. What each stretch between two heads needs is then asked of Z3, for any
number of uses before it and any number of stages from the least on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias

import z3

from tinygpu.ptx.lowering import sync
from tinygpu.ptx.protocol.automaton import Automaton, Irregular
from tinygpu.ptx.protocol.induction import STUCK, Question
from tinygpu.ptx.protocol.turns import in_order

# States in which roles may come to the heads of loops; rounds of a known number that are written out.
MOST_STATES, MOST_ROUNDS = 200, 16
Verb: TypeAlias = Literal["acquire", "fill", "wait", "release", "hand back", "hold", "drop"]
Counter: TypeAlias = Literal["acquired", "filled", "waited", "released"]
# What each deed counts; "hand back" releases what is held, where something is.
COUNTS: Mapping[str, Counter] = {
    "acquire": "acquired", "fill": "filled", "wait": "waited", "release": "released", "hand back": "released",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Deed:
    """What a role does in a ring; of turns, it waits for one and releases it."""

    verb: Verb
    ring: str


@dataclass(frozen=True, slots=True)
class Block:
    """A loop, or what is done where a condition holds: all roles go alike through those with the same key.

    rounds  where their number is known
    loop    it has one round at least; else it has one or none
    """

    key: tuple[str, ...]
    loop: bool
    rounds: int | None
    body: tuple[Item, ...]

    @property
    def rings(self) -> frozenset[str]:
        inside = (item.rings if isinstance(item, Block) else {item.ring} for item in self.body)
        return frozenset(ring for rings in inside for ring in rings)


Item: TypeAlias = "Deed | Block"
Items: TypeAlias = "tuple[Item, ...]"
# Role, ring, and what is counted; or whether the role has a slot to hand back, as 1 and 0.
Key: TypeAlias = tuple[str, str, str]
State: TypeAlias = "tuple[tuple[Key, int], ...]"  # sorted
HOLDS = "holds"


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is done between two heads of loops, in order: counts before it, deeds of roles, counts behind it."""

    before: State
    deeds: tuple[tuple[str, Deed], ...]
    after: State


@dataclass(frozen=True, slots=True)
class OrderProof:
    """The questions about the order of all that is done in some rings.

    rings      with their least numbers of stages; 0 of those without buffers
    takers     of rings without buffers, the roles in the order of their turns
    stretches  of the order, of which any may follow the one that ends as it begins
    """

    rings: tuple[tuple[str, int], ...]
    takers: tuple[tuple[str, tuple[str, ...]], ...]
    stretches: tuple[Stretch, ...]

    @property
    def ring(self) -> str:
        return " and ".join(name for name, _ in self.rings)

    def questions(self) -> Iterator[Question]:
        for number, stretch in enumerate(self.stretches):
            yield Question(STUCK, f"stretch {number} of the order", partial(self._fails, stretch))

    def _fails(self, stretch: Stretch, context: Any) -> list[Any]:
        """Something in a stretch waits for what comes later, or it does not end as the next ones begin."""
        uses, later = (
            {ring: z3.Int(f"uses of {ring}{when}", context) for ring, _ in self.rings} for when in ("", " later")
        )
        stages = {ring: z3.Int(f"stages of {ring}", context) for ring, least in self.rings if least}
        counts: dict[Key, Any] = {k: n if k[2] == HOLDS else z3.Int(" ".join(k), context) for k, n in stretch.before}
        known = [stages[ring] >= least for ring, least in self.rings if least]
        known += [counts[k] == uses[k[1]] + n for k, n in stretch.before if k[2] != HOLDS]
        wrong = []
        for role, deed in stretch.deeds:
            more = stages[deed.ring] if deed.verb == "acquire" else 0
            wrong += [done + more < least for done, least in _needed(role, deed, counts, dict(self.takers))]
            _done(role, deed, counts)
        known += [later[ring] == counts[key] - n for ring, (key, n) in _bases(stretch.after).items()]
        ends = [counts[k] == (n if k[2] == HOLDS else later[k[1]] + n) for k, n in stretch.after]
        wrong += [z3.Not(end) if z3.is_expr(end) else z3.BoolVal(not end, context) for end in ends]
        return [*known, z3.Or(*wrong)]


def _needed(
    role: str, deed: Deed, counts: Mapping[Key, Any], takers: Mapping[str, tuple[str, ...]]
) -> list[tuple[Any, Any]]:
    """(what others have done, what that must be at least) before a role can go on; of slots, stages come to it."""
    ring = deed.ring
    if deed.verb == "acquire":
        wanted = counts[role, ring, "acquired"] + 1
        return [(n, wanted) for (_, name, of), n in counts.items() if (name, of) == (ring, "released")]
    if deed.verb == "wait" and ring in takers:
        order = takers[ring]
        place = order.index(role)
        return [(counts[order[place - 1], ring, "released"], counts[role, ring, "waited"] + int(place > 0))]
    if deed.verb == "wait":
        wanted = counts[role, ring, "waited"] + 1
        return [(n, wanted) for (_, name, of), n in counts.items() if (name, of) == (ring, "filled")]
    return []


def _done(role: str, deed: Deed, counts: dict[Key, Any]) -> None:
    """Counts what a role has done."""
    holds = role, deed.ring, HOLDS
    if deed.verb in ("hold", "drop"):
        counts[holds] = int(deed.verb == "hold")
    else:
        counts[role, deed.ring, COUNTS[deed.verb]] += counts[holds] if deed.verb == "hand back" else 1


def _bases(state: State) -> dict[str, tuple[Key, int]]:
    """Of each ring a count from which the others are told."""
    return {key[1]: (key, n) for key, n in reversed(state) if key[2] != HOLDS}


# ---- what roles do --------------------------------------------------------------------------------------------------


def deeds(role: sync.RoleBody, rings: frozenset[str]) -> Items:
    """What a role does of a tile in some rings. Raises Irregular."""
    tiles = [step for step in role.body if isinstance(step, sync.Tiles)]
    if len(tiles) > 1 or (tiles and any(True for s in role.body if s not in tiles for _ in _items((s,), rings, {}))):
        raise Irregular(f"{role.role} waits outside of its tiles")
    pipes = {s.pipe.slot.name: s.pipe.name for s in role.body if isinstance(s, sync.Start)}
    held = {s.pipe.held.name: s.pipe.name for s in role.body if isinstance(s, sync.Start)}
    return tuple(_items(tiles[0].body if tiles else role.body, rings, pipes | held))


def _items(steps: tuple[sync.Step, ...], rings: frozenset[str], pipes: Mapping[str, str]) -> Iterator[Item]:
    for step in steps:
        match step:
            case sync.Wait(barrier) if barrier.pipeline in rings:
                yield Deed("acquire" if barrier.side == "empty" else "wait", barrier.pipeline)
            case sync.Arrive(barrier, held=held) if barrier.pipeline in rings:
                yield Deed("hand back" if held else "release", barrier.pipeline)
            case sync.Advance(slot) if pipes.get(slot.name) in rings:
                yield Deed("fill", pipes[slot.name])
            case sync.Set(register, value) if pipes.get(register.name) in rings:
                yield Deed("drop" if value == sync.NOBODY else "hold", pipes[register.name])
            case sync.Rounds(_, trips, body):
                number = trips.number if isinstance(trips.number, int) else None
                yield from _block(Block(("rounds", trips.text), True, number, tuple(_items(body, rings, pipes))))
            case sync.When("one thread", body):
                yield from _items(body, rings, pipes)
            case sync.When(condition, body):
                inside = tuple(_items(body, rings, pipes))
                if inside and not (isinstance(condition, sync.Before) and not condition.index):
                    raise Irregular("who waits for whom where a condition holds that others do not know is not proved")
                if inside and isinstance(condition, sync.Before):
                    key = "some", str(condition.offset), condition.trips.text
                    yield Block(key, False, None, inside)
            case sync.Ahead(body=body) | sync.Tiles(body):
                yield from _items(body, rings, pipes)
            case _:
                pass


def _block(block: Block) -> Iterator[Block]:
    if block.body:
        yield block


# ---- the order ------------------------------------------------------------------------------------------------------


class Blocked(Exception):
    """In the order that is tried, nobody can go on: who is at what."""


@dataclass(slots=True, eq=False)
class _Order:
    """The roles of a tile, carried out side by side.

    using  the roles that use each ring
    """

    stages: Mapping[str, int]
    takers: Mapping[str, tuple[str, ...]]
    using: Mapping[str, frozenset[str]]
    stretches: dict[Stretch, None] = field(default_factory=dict)

    def run(self, left: dict[str, Items], state: State) -> set[State]:
        """The states in which what is left of all roles may have been done."""
        left, after = self.stretch(left, state)
        blocks = {role: items[0] for role, items in left.items() if items}
        if not blocks:
            return {after}
        together = self.together(blocks)
        rest = {role: items[1:] if role in together else items for role, items in left.items()}
        return {end for begun in self.block(together, after) for end in self.run(rest, begun)}

    def stretch(self, left: dict[str, Items], state: State) -> tuple[dict[str, Items], State]:
        """All go on as far as they can; all that is left begins with a block."""
        left, counts, done = dict(left), dict(state), []
        again = True
        while again:
            again = False
            for role, items in left.items():
                while items and isinstance(items[0], Deed) and self.can(role, items[0], counts):
                    _done(role, items[0], counts)
                    done.append((role, items[0]))
                    left[role] = items = items[1:]
                    again = True
                if items and isinstance(items[0], Block) and items[0].loop and (items[0].rounds or 99) <= MOST_ROUNDS:
                    left[role] = items = items[0].body * (items[0].rounds or 0) + items[1:]
                    again = True
        after, at = _told(counts), {role: items[0] for role, items in left.items() if items}
        if at and not any(isinstance(item, Block) for item in at.values()):
            raise Blocked("; ".join(f"{role} to {d.verb} {d.ring}" for role, d in at.items() if isinstance(d, Deed)))
        if done:
            self.stretches[Stretch(state, tuple(done), after)] = None
        if len(self.stretches) > MOST_STATES:
            raise Irregular("roles come to the heads of their loops in more and more states")
        return left, after

    def can(self, role: str, deed: Deed, counts: Mapping[Key, int]) -> bool:
        more = self.stages[deed.ring] if deed.verb == "acquire" else 0
        return all(done + more >= least for done, least in _needed(role, deed, counts, self.takers))

    def together(self, blocks: Mapping[str, Item]) -> dict[str, Block]:
        """Blocks that roles go through together: with one key, and of each of their rings by all who use it."""
        found = {role: block for role, block in blocks.items() if isinstance(block, Block)}
        for first in found.values():
            group = {role: block for role, block in found.items() if block.key == first.key}
            while odd := [role for role, block in group.items() if not self.joined(block, group)]:
                group = {role: block for role, block in group.items() if role not in odd}
            if group:
                return group
        raise Blocked(f"{' and '.join(sorted(found))} come to loops that they do not go through together")

    def joined(self, block: Block, group: Mapping[str, Block]) -> bool:
        return all(role in group and ring in group[role].rings for ring in block.rings for role in self.using[ring])

    def block(self, blocks: Mapping[str, Block], state: State) -> set[State]:
        """The states in which a loop, or what a condition guards, may end."""
        bodies = {role: block.body for role, block in blocks.items()}
        first = next(iter(blocks.values()))
        if not first.loop:
            return {state} | self.run(bodies, state)
        ends, heads, waiting = set[State](), {state}, [state]
        while waiting:
            for end in self.run(bodies, waiting.pop()):
                ends.add(end)
                if end not in heads:
                    heads.add(end)
                    waiting.append(end)
        return ends


def _told(counts: Mapping[Key, int]) -> State:
    """Counts of each ring, told from one of them."""
    bases = {ring: n for ring, (_, n) in _bases(tuple(sorted(counts.items()))).items()}
    return tuple(sorted((key, n if key[2] == HOLDS else n - bases[key[1]]) for key, n in counts.items()))


def order(
    rings: tuple[sync.Ring, ...], automata: tuple[Automaton, ...], protocol: sync.Protocol, stages: Mapping[str, int]
) -> OrderProof:
    """The order of all that roles do in these rings, with so many stages or more. Raises Blocked, Irregular."""
    names = frozenset(ring.name for ring in rings)
    using = [a for a in automata if any(a.of(name) for name in names)]
    takers = {
        ring.name: tuple(a.role.role for a in in_order(protocol, ring.name, tuple(a for a in using if a.of(ring.name))))
        for ring in rings
        if ring.completion == "turn"
    }
    items = {a.role.role: _own(a, deeds(a.role, names)) for a in using}
    turns = {(role, ring, of): 0 for ring, roles in takers.items() for role in roles for of in ("waited", "released")}
    stretches: dict[Stretch, None] = {}
    for tile in range(math.lcm(*(a.role.share[1] for a in using))):
        taking = {a.role.role: items[a.role.role] for a in using if tile % a.role.share[1] == a.role.share[0]}
        counts = turns | {key: 0 for role, own in taking.items() for key in _counted(role, own, takers)}
        among = {role: Block((), True, 1, own).rings for role, own in taking.items()}
        users = {ring: frozenset(role for role in taking if ring in among[role]) for ring in names}
        run = _Order(stages, takers, users, stretches)
        begun = _told(counts)
        ends = run.run(taking, begun)
        for end in ends:
            if any(n for key, n in end if key[1] not in takers):
                raise Irregular("a tile ends while slots of it are in use")
        if len(ends) > 1:
            raise Irregular("a tile ends in several states")
        turns = {key: n for key, n in ends.pop() if key[1] in takers}
    if any(turns.values()):
        raise Irregular("turns do not go around with the tiles")
    least = tuple((ring.name, stages.get(ring.name, 0)) for ring in rings)
    return OrderProof(least, tuple(takers.items()), tuple(stretches))


def _own(machine: Automaton, items: Items) -> Items:
    """Without the steps to the next slot of rings that a role does not fill."""
    fills = frozenset(m.ring for m in machine.moves if m.kind == "bring")
    out: list[Item] = []
    for item in items:
        if isinstance(item, Block):
            out.append(Block(item.key, item.loop, item.rounds, _own(machine, item.body)))
        elif item.verb != "fill" or item.ring in fills:
            out.append(item)
    return tuple(out)


def _counted(role: str, items: Items, takers: Mapping[str, tuple[str, ...]]) -> Iterator[Key]:
    """What is counted of a role."""
    for item in items:
        if isinstance(item, Block):
            yield from _counted(role, item.body, takers)
        elif item.ring not in takers:
            yield role, item.ring, COUNTS.get(item.verb, HOLDS)
            if item.verb == "hand back":
                yield role, item.ring, HOLDS
