"""How many slots a role uses of a tile, and passes over, as polynomials in the trip counts of the program's loops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from tinygpu.ptx.lowering import sync

# Sorted trip counts whose product a term is: (text, tiles ahead), or -1 where all tiles have the same number of rounds.
Term: TypeAlias = tuple[tuple[str, int], ...]
Count: TypeAlias = "Counter[Term]"


def steps_of(steps: tuple[sync.Step, ...]) -> Iterator[sync.Step]:
    """All steps, those within others included."""
    for step in steps:
        yield step
        if isinstance(step, (sync.Tiles, sync.Rounds, sync.When, sync.Ahead)):
            yield from steps_of(step.body)


def used(role: sync.RoleBody, ring: str) -> Count:
    """Slots of a ring that a role uses of each tile that it takes."""
    slots = {s.pipe.slot.name for s in steps_of(role.body) if isinstance(s, sync.Start) and s.pipe.name == ring}
    return _used(_of_tile(role), slots)


def passed(role: sync.RoleBody, ring: str) -> tuple[Count, Count]:
    """Slots of a ring that a role passes over: before its first tile, and behind each."""
    first, behind = Counter[Term](), Counter[Term]()
    inside = _of_tile(role)
    within = {id(step) for step in steps_of(inside)}
    for step in steps_of(role.body):
        if isinstance(step, sync.Skip) and step.pipe.name == ring:
            (behind if id(step) in within and inside is not role.body else first).update(_polynomial(step.slots))
    return first, behind


def ahead(count: Count, tiles: int) -> Count:
    """The same count, of the tile that comes so many tiles later."""
    return Counter({tuple((text, at + tiles if at >= 0 else at) for text, at in t): n for t, n in count.items()})


def _of_tile(role: sync.RoleBody) -> tuple[sync.Step, ...]:
    return next((step.body for step in role.body if isinstance(step, sync.Tiles)), role.body)


def _used(steps: tuple[sync.Step, ...], slots: set[str]) -> Count:
    total: Count = Counter()
    for step in steps:
        if isinstance(step, sync.Advance) and step.slot.name in slots:
            total[()] += 1
        elif isinstance(step, sync.Rounds):
            total.update(_times(step.trips, _used(step.body, slots)))
        elif isinstance(step, (sync.Tiles, sync.When, sync.Ahead)):
            total.update(_used(step.body, slots))
    return total


def _times(trips: sync.Trips, count: Count) -> Count:
    factor = trips.base or trips.text, trips.ahead if trips.shared else -1
    total = Counter({tuple(sorted((*term, factor))): n for term, n in count.items()})
    for term, n in count.items():
        total[term] += n * trips.more
    return Counter({term: n for term, n in total.items() if n})


def _polynomial(slots: sync.Slots) -> Count:
    total: Count = Counter({(): slots.some} if slots.some else {})
    for trips, inside in slots.loops:
        total.update(_times(trips, _polynomial(inside)))
    return total
