"""Orders of all that roles do in rings: each of them after what it waits for, whatever the dims are.

What a role waits for stays so until the role has gone on, and a role does its things one after another. So if all that
roles ever do can be put in one order in which every wait comes behind what it waits for, then they lock up in no order
in which they really go on: of what is not done yet, the first in that order has nothing to wait for.

The order is found by carrying out the roles side by side, tile by tile. Loops that go through the same rings are gone
through together, round by round; between two heads of loops each role goes on as far as it can. Where one waits for
what another does in the first round of a loop, that round is done before the others; where one is within a round,
rounds may go from there to there; where one loop has some rounds more than another, these are done behind the others.
How far each is in a ring is counted from a use of that ring, so that one round is like another: where the heads of
loops meet in a state that was there before, all rounds are known.

A role that does one thing over and over in a single ring follows the others: it takes what is filled at once, and fills
what is waited for. Every role uses as many slots of a ring as the others, so that its own loops need not be looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, TypeGuard

# States in which roles may come to the heads of loops; rounds of a known number that are written out; rounds that are
# done before the others of their loops.
MOST_STATES, MOST_ROUNDS, MOST_FIRST = 200, 16, 32
Verb: TypeAlias = Literal["acquire", "fill", "wait", "release", "hand back", "hold", "drop"]
Counter: TypeAlias = Literal["acquired", "filled", "waited", "released"]
# What each deed counts; "hand back" releases what is held, where something is.
COUNTS: Mapping[str, Counter] = {
    "acquire": "acquired", "fill": "filled", "wait": "waited", "release": "released", "hand back": "released",
}  # fmt: skip
HOLDS = "holds"


class Blocked(Exception):
    """Nobody can go on: who is at what."""


class Unordered(Exception):
    """No order is found in which every wait comes behind what it waits for: why."""


@dataclass(frozen=True, slots=True)
class Deed:
    """What a role does in a ring; of turns, it waits for one and releases it."""

    verb: Verb
    ring: str


@dataclass(frozen=True, slots=True)
class Block:
    """A loop, or what is done where a condition holds: all roles go alike through those with the same key.

    rounds  where their number is known
    loop    else it has one round or none
    more    rounds beside those that the key stands for
    least   rounds that a loop has at least
    """

    key: tuple[str, ...]
    loop: bool
    rounds: int | None
    body: tuple[Item, ...]
    more: int = 0
    least: int = 1

    @property
    def rings(self) -> frozenset[str]:
        return rings_of(self.body)


Item: TypeAlias = "Deed | Block"
Items: TypeAlias = "tuple[Item, ...]"
# Role, ring, and what is counted; or whether the role has a slot to hand back, as 1 and 0.
Key: TypeAlias = tuple[str, str, str]
State: TypeAlias = "tuple[tuple[Key, int], ...]"  # sorted
Takers: TypeAlias = "Mapping[str, tuple[str, ...]]"


def rings_of(items: Items) -> frozenset[str]:
    """The rings that some items are about."""
    inside = (item.rings if isinstance(item, Block) else {item.ring} for item in items)
    return frozenset(ring for rings in inside for ring in rings)


@dataclass(frozen=True, slots=True)
class Stretch:
    """What is done between two heads of loops, in order: counts before it, deeds of roles, counts behind it."""

    before: State
    deeds: tuple[tuple[str, Deed], ...]
    after: State


def needed(role: str, deed: Deed, counts: Mapping[Key, Any], takers: Takers) -> list[tuple[Any, Any]]:
    """(what others have done, what that must be at least) before a role can go on; of slots, stages come to it."""
    return [(counts[key], least) for key, least in _waits_for(role, deed, counts, takers)]


def _waits_for(
    role: str, deed: Deed, counts: Mapping[Key, Any], takers: Takers
) -> Iterator[tuple[Key, Any]]:
    ring = deed.ring
    if deed.verb == "acquire":
        for key in counts:
            if key[1:] == (ring, "released"):
                yield key, counts[role, ring, "acquired"] + 1
    elif deed.verb == "wait" and ring in takers:
        order = takers[ring]
        place = order.index(role)
        yield (order[place - 1], ring, "released"), counts[role, ring, "waited"] + int(place > 0)
    elif deed.verb == "wait":
        for key in counts:
            if key[1:] == (ring, "filled"):
                yield key, counts[role, ring, "waited"] + 1


def do(role: str, deed: Deed, counts: dict[Key, Any]) -> None:
    """Counts what a role has done."""
    holds = role, deed.ring, HOLDS
    if deed.verb in ("hold", "drop"):
        counts[holds] = int(deed.verb == "hold")
    else:
        counts[role, deed.ring, COUNTS[deed.verb]] += counts[holds] if deed.verb == "hand back" else 1


def bases(state: State) -> dict[str, tuple[Key, int]]:
    """Of each ring a count from which the others are told."""
    return {key[1]: (key, n) for key, n in reversed(state) if key[2] != HOLDS}


def order(
    roles: Mapping[str, Items],
    shares: Mapping[str, tuple[int, int]],
    takers: Takers,
    stages: Mapping[str, int],
) -> tuple[Stretch, ...]:
    """The stretches of an order of all that roles do; any may follow the one that ends as it begins.

    roles   what each does of a tile that it takes
    shares  (r, n): of the tiles, each takes those whose number leaves r when divided by n
    takers  of rings without buffers, the roles in the order of their turns
    stages  slots of the rings that have buffers

    Raises Blocked, Unordered.
    """
    turns = {(role, ring, of): 0 for ring, names in takers.items() for role in names for of in ("waited", "released")}
    found: dict[Stretch, None] = {}
    for tile in range(_period(shares.values())):
        taking = {role: items for role, items in roles.items() if tile % shares[role][1] == shares[role][0]}
        follow = {role: unit for role, own in taking.items() if (unit := _follows(own, takers))}
        counts = turns | {key: 0 for role, own in taking.items() for key in _counted(role, own, takers)}
        among = {role: rings_of(own) for role, own in taking.items()}
        rings = frozenset[str]().union(*among.values())
        users = {ring: frozenset(r for r in taking if ring in among[r] and r not in follow) for ring in rings}
        others = {role: own for role, own in taking.items() if role not in follow}
        ends = _Order(stages, takers, users, follow, found).run(others, _told(counts))
        for end in ends:
            if any(n for key, n in end if key[1] not in takers):
                raise Unordered("a tile ends while slots of it are in use")
        if len(ends) > 1:
            raise Unordered("a tile ends in several states")
        turns = {key: n for key, n in ends.pop() if key[1] in takers}
    if any(turns.values()):
        raise Unordered("turns do not go around with the tiles")
    return tuple(found)


def _period(shares: Iterable[tuple[int, int]]) -> int:
    return math.lcm(*(every for _, every in shares))


@dataclass(slots=True, eq=False)
class _Order:
    """The roles of a tile, carried out side by side.

    using   the roles that use each ring and do not follow others
    follow  what those do over and over that follow
    first   rounds that were done before the others of their loops
    """

    stages: Mapping[str, int]
    takers: Takers
    using: Mapping[str, frozenset[str]]
    follow: Mapping[str, tuple[Deed, ...]]
    stretches: dict[Stretch, None]
    first: int = field(default=0)

    def run(self, left: Mapping[str, Items], state: State) -> set[State]:
        """The states in which what is left of all roles may have been done."""
        left, after = self.stretch(left, state)
        if not any(left.values()):
            return {after}
        together = self.together(left)
        if not together and (turned := _turned(left)) != left and self.together(turned):
            known, first = len(self.stretches), self.first
            try:
                return self.run(turned, after)
            except (Blocked, Unordered):
                for stretch in tuple(self.stretches)[known:]:
                    del self.stretches[stretch]
                self.first = first
        if not together:
            return {end for case in self.first_rounds(left, dict(after)) for end in self.run(case, after)}
        least = min(block.more for block in together.values())
        rest = dict(left)
        for role, block in together.items():  # those with more rounds have them behind the others
            rest[role] = block.body * (block.more - least) + left[role][1:]
        shared = {role: replace(b, more=least, least=b.least - b.more + least) for role, b in together.items()}
        return {end for begun in self.block(shared, after) for end in self.run(rest, begun)}

    def stretch(self, before: Mapping[str, Items], state: State) -> tuple[dict[str, Items], State]:
        """All go on as far as they can; all that is left begins with a block, or waits."""
        left, counts, done = dict(before), dict(state), list[tuple[str, Deed]]()
        again = True
        while again:
            again = self.followers(left, counts, done)
            for role, items in left.items():
                while items and isinstance(items[0], Deed) and self.can(role, items[0], counts):
                    do(role, items[0], counts)
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
            raise Unordered("roles come to the heads of their loops in more and more states")
        return left, after

    def followers(
        self, left: Mapping[str, Items], counts: dict[Key, int], done: list[tuple[str, Deed]]
    ) -> bool:
        """Those who follow take what is filled, and fill what somebody waits for; whether any of them did."""
        some = False
        for role, use in self.follow.items():
            first = use[0]
            waits = Deed("wait", first.ring)
            while self.can(role, first, counts) and (
                first == waits
                or any(
                    items and items[0] == waits and not self.can(other, waits, counts) for other, items in left.items()
                )
            ):
                for deed in use:
                    do(role, deed, counts)
                    done.append((role, deed))
                some = True
        return some

    def can(self, role: str, deed: Deed, counts: Mapping[Key, int]) -> bool:
        more = self.stages[deed.ring] if deed.verb == "acquire" else 0
        return all(done + more >= least for done, least in needed(role, deed, counts, self.takers))

    def together(self, left: Mapping[str, Items]) -> dict[str, Block]:
        """Blocks that roles go through together: with one key, and of each of their rings by all who use it."""
        found = {role: items[0] for role, items in left.items() if items and isinstance(items[0], Block)}
        for first in found.values():
            group = {role: block for role, block in found.items() if block.key == first.key}
            while odd := [role for role, block in group.items() if not self.joined(block, group)]:
                group = {role: block for role, block in group.items() if role not in odd}
            if group:
                return group
        return {}

    def joined(self, block: Block, group: Mapping[str, Block]) -> bool:
        return all(role in group and ring in group[role].rings for ring in block.rings for role in self.using[ring])

    def first_rounds(self, left: Mapping[str, Items], counts: Mapping[Key, int]) -> list[dict[str, Items]]:
        """With a round written out of each loop in which somebody is awaited that stands before another item.

        Where such a loop may have none, there are two cases: all loops that go by its number of rounds have so many
        that it has none, or one more.
        """
        self.first += 1
        awaited = {} if self.first > MOST_FIRST else {r: b for r, b in self.awaited(left, counts) if b.least >= 0}
        if not awaited:
            heads = sorted(role for role, items in left.items() if items and isinstance(items[0], Block))
            raise Unordered(f"{' and '.join(heads)} come to loops that roles do not go through together")
        for block in awaited.values():
            if not block.least:
                return [{role: some(items, block) for role, items in left.items()} for some in (_none, _one_more)]
        out = dict(left)
        for role, block in awaited.items():
            out[role] = (*block.body, replace(block, more=block.more - 1, least=block.least - 1), *left[role][1:])
        return [out]

    def awaited(self, left: Mapping[str, Items], counts: Mapping[Key, int]) -> Iterator[tuple[str, Block]]:
        """The loops that roles come to in which what others wait for may be done."""
        for role, items in left.items():
            if items and isinstance(deed := items[0], Deed):
                more = self.stages[deed.ring] if deed.verb == "acquire" else 0
                for key, least in _waits_for(role, deed, counts, self.takers):
                    block = next(iter(left.get(key[0], ())), None)
                    late = counts[key] + more < least
                    if late and isinstance(block, Block) and block.loop and deed.ring in block.rings:
                        yield key[0], block

    def block(self, blocks: Mapping[str, Block], state: State) -> set[State]:
        """The states in which a loop, or what a condition guards, may end."""
        bodies = {role: block.body for role, block in blocks.items()}
        first = next(iter(blocks.values()))
        if not first.loop:
            return {state} | self.run(bodies, state)
        ends, heads, waiting = set[State](), {state}, [state]
        if any(block.least < 1 for block in blocks.values()):
            ends.add(state)
        while waiting:
            try:
                found = self.run(bodies, waiting.pop())
            except Blocked as stuck:
                raise Unordered(f"in one round of a loop nobody can go on: {stuck}") from None
            for end in found:
                ends.add(end)
                if end not in heads:
                    heads.add(end)
                    waiting.append(end)
        return ends


def _turned(left: Mapping[str, Items]) -> dict[str, Items]:
    """With loops of other rounds for roles that are within one: the end of a round, and the beginning of the next."""
    out = dict(left)
    for role, items in left.items():
        at = next((i for i, item in enumerate(items) if isinstance(item, Block)), 0)
        block, end = items[at] if items else None, items[:at]
        if end and isinstance(block, Block) and block.loop and block.body[-at:] == end:
            out[role] = (replace(block, body=end + block.body[:-at]), *end, *items[at + 1 :])
    return out


def _none(items: Items, empty: Block) -> Items:
    """Items where a loop has no round: others with its key have a known number."""
    return tuple(
        replace(item, rounds=item.more - empty.more) if _alike(item, empty) else _inside(item, empty, _none)
        for item in items
    )


def _one_more(items: Items, empty: Block) -> Items:
    """Items where a loop that may be empty has a round, and others with its key as many more."""
    return tuple(
        replace(item, least=item.least + 1) if _alike(item, empty) else _inside(item, empty, _one_more)
        for item in items
    )


def _alike(item: Item, other: Block) -> TypeGuard[Block]:
    return isinstance(item, Block) and item.loop and item.key == other.key


def _inside(item: Item, other: Block, some: Callable[[Items, Block], Items]) -> Item:
    return replace(item, body=some(item.body, other)) if isinstance(item, Block) else item


# What may be done over and over: a slot is filled, or taken.
USES = (("acquire", "fill"), ("wait", "release"))


def _follows(items: Items, takers: Takers) -> tuple[Deed, ...]:
    """The use of a slot that a role repeats, where that is all it does, in one ring; else nothing."""
    found = set(_uses(items))
    use = found.pop() if len(found) == 1 else ()
    return use if tuple(deed.verb for deed in use) in USES and not {deed.ring for deed in use} & takers.keys() else ()


def _uses(items: Items) -> Iterator[tuple[Deed, ...]]:
    """Deeds by twos, as they stand between loops; those of a loop once."""
    left: tuple[Deed, ...] = ()
    for item in items:
        if isinstance(item, Deed) and len(left) < 2:
            left = (*left, item)
        elif isinstance(item, Deed):
            yield left
            left = (item,)
        else:
            if left:
                yield left
            left = ()
            yield from _uses(item.body)
    if left:
        yield left


def _told(counts: Mapping[Key, int]) -> State:
    """Counts of each ring, told from one of them."""
    origins = {ring: n for ring, (_, n) in bases(tuple(sorted(counts.items()))).items()}
    return tuple(sorted((key, n if key[2] == HOLDS else n - origins[key[1]]) for key, n in counts.items()))


def _counted(role: str, items: Items, takers: Takers) -> Iterator[Key]:
    """What is counted of a role."""
    for item in items:
        if isinstance(item, Block):
            yield from _counted(role, item.body, takers)
        elif item.ring not in takers:
            yield role, item.ring, COUNTS.get(item.verb, HOLDS)
            if item.verb == "hand back":
                yield role, item.ring, HOLDS
