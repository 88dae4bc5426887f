"""Prefixes along an axis, level by level: in each thread, between lanes, between warps, in the order of the elements.

What a thread holds along the axis, lanes and warps are digits of one number, the coordinate. From the digit that moves
by one element to the one that moves by the most, blocks of neighbours become larger blocks: what stands before a block
within the larger one is combined with what the block has. Lowering writes that and costs
count it: both go through `prefixes`, which asks whoever carries it out for each operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Literal, Protocol, TypeVar

from tinygpu.language.meeting import LANES
from tinygpu.language.partition import Partition
from tinygpu.layouts.errors import LayoutError

V = TypeVar("V")
P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class Level:
    """A digit of the coordinate along the axis.

    kind   who differs in it: the values of a thread, the lanes of a warp, or warps
    size   how many there are
    below  values of a thread, or threads, from one to the next
    """

    kind: Literal["values", "lanes", "warps"]
    size: int
    below: int


@dataclass(frozen=True, slots=True)
class ThreadPart:
    """A digit of the thread id, within a warp or of whole warps; `level` is that of the axis, None for another digit.

    copies  whether threads that differ in it hold the same
    """

    below: int
    size: int
    level: Level | None
    copies: bool


def thread_parts(held: Partition, axis: int) -> tuple[list[ThreadPart], dict[Level, int]]:
    """(the digits of the thread id, the fastest first; per level, elements from one to the next)."""
    parts: list[ThreadPart] = []
    steps: dict[Level, int] = {}
    below = 1
    for (size, step), (_, whole) in zip(held.threads.digits_along(axis), held.threads.steps, strict=True):
        inside = max(1, min(below * size, LANES) // min(below, LANES))
        for kind, first, count, elements in (
            ("lanes", below, inside, step),
            ("warps", below * inside, size // inside, step * inside),
        ):
            if count > 1:
                level = Level("lanes" if kind == "lanes" else "warps", count, first) if step else None
                parts.append(ThreadPart(first, count, level, not getattr(whole, "terms", ())))
                if level is not None:
                    steps[level] = elements
        below *= size
    return parts, steps


def levels(held: Partition, axis: int) -> tuple[Level, ...]:
    """The digits of the coordinate, from neighbours to the largest blocks. Raises LayoutError where they are none."""
    _, steps = thread_parts(held, axis)
    below = 1
    for size, step in held.values.digits_along(axis):
        if step and size > 1:
            steps[Level("values", size, below)] = step
        below *= size
    ordered = sorted(steps, key=lambda level: steps[level])
    reach = 1
    for level in ordered:
        if steps[level] != reach:
            raise LayoutError(f"{held} does not hold every element along axis {axis} once")
        reach *= level.size
    return tuple(ordered)


class CarriesOut(Protocol[V, P]):
    """What tuples are, and what is done with them; a condition may be True or False where it is known."""

    def merged(self, left: V, right: V) -> V:
        """What two become, the left one before the right one."""

    def chosen(self, where: P | bool, yes: V, no: V) -> V:
        """One or the other, by a condition."""

    def either(self, a: P | bool, b: P | bool) -> P | bool:
        """Whether one of two conditions holds."""

    def beyond(self, level: Level, least: int) -> P | bool:
        """Whether the thread's own digit is at least so large."""

    def below(self, level: Level, value: V, distance: int) -> V:
        """What the lane has whose digit is so much smaller."""

    def last(self, level: Level, value: V) -> V:
        """What the lane has whose digit is the largest."""

    def left(self, level: Level, totals: Sequence[V]) -> list[list[V]]:
        """Of each block what every warp has, in their order."""


@dataclass(slots=True, eq=False)
class Unit(Generic[V, P]):
    """Values of a thread that are neighbours.

    members  numbers of the values, in order
    before   what stands before them, where `has` holds
    """

    members: list[int]
    before: V | None
    has: P | bool

    def put_before(self, by: CarriesOut[V, P], what: V, where: P | bool) -> None:
        """Something stands before it where a condition holds."""
        if self.before is None:
            self.before, self.has = what, where
            return
        both = by.chosen(self.has, by.merged(what, self.before), what)
        self.before = by.chosen(where, both, self.before)
        self.has = by.either(where, self.has)


@dataclass(slots=True, eq=False)
class Block(Generic[V, P]):
    """Neighbours, of which the thread has some: its units, and what all of the block have together."""

    units: list[Unit[V, P]]
    total: V


def prefixes(
    ordered: Sequence[Level],
    values: Sequence[V],
    by: CarriesOut[V, P],
    first: V | None,
    carry: Sequence[V] | None,
) -> tuple[list[V], list[V]]:
    """(prefix of every value of a thread, totals of what it holds along the axis).

    first   what the first prefix is of an exclusive scan; None: prefixes have the value itself
    carry   what stands before everything, for each total; None: nothing
    """
    local = list(values)
    blocks: dict[int, Block[V, P]] = {v: Block([Unit([v], None, False)], one) for v, one in enumerate(local)}
    for level in ordered:
        if level.kind == "values":
            blocks = _in_thread(level, blocks, local, by)
        elif level.kind == "lanes":
            for block in blocks.values():
                _between_lanes(level, block, by)
        else:
            _between_warps(level, list(blocks.values()), by)
    totals = []
    for place, block in enumerate(blocks.values()):
        total = block.total
        if carry is not None:
            for unit in block.units:
                unit.put_before(by, carry[place], True)
            total = by.merged(carry[place], total)
        totals.append(total)
    out = list(local)
    for block in blocks.values():
        for unit in block.units:
            own = [local[v] for v in unit.members]
            shown = own if unit.before is None else [_behind(unit, one, by) for one in own]
            if first is not None:
                start = first if unit.before is None else by.chosen(unit.has, unit.before, first)
                shown = [start, *shown[:-1]]
            for v, one in zip(unit.members, shown, strict=True):
                out[v] = one
    return out, totals


def _behind(unit: Unit[V, P], value: V, by: CarriesOut[V, P]) -> V:
    if unit.before is None:
        return value
    return by.chosen(unit.has, by.merged(unit.before, value), value)


def _in_thread(
    level: Level, blocks: dict[int, Block[V, P]], local: list[V], by: CarriesOut[V, P]
) -> dict[int, Block[V, P]]:
    out: dict[int, Block[V, P]] = {}
    for key, begin in blocks.items():
        if key // level.below % level.size:
            continue
        some = [blocks[key + place * level.below] for place in range(level.size)]
        if all(len(block.units) == 1 and block.units[0].before is None for block in some):
            members = list(begin.units[0].members)
            total = begin.total
            for block in some[1:]:  # nobody else has values between them
                for v in block.units[0].members:
                    local[v] = by.merged(total, local[v])
                members += block.units[0].members
                total = local[members[-1]]
            out[key] = Block([Unit(members, None, False)], total)
            continue
        units, total = list(begin.units), begin.total
        for block in some[1:]:
            for unit in block.units:
                unit.put_before(by, total, True)
            units += block.units
            total = by.merged(total, block.total)
        out[key] = Block(units, total)
    return out


def _between_lanes(level: Level, block: Block[V, P], by: CarriesOut[V, P]) -> None:
    so_far, distance = block.total, 1
    while distance < level.size:
        before = by.below(level, so_far, distance)
        so_far = by.chosen(by.beyond(level, distance), by.merged(before, so_far), so_far)
        distance *= 2
    before = by.below(level, so_far, 1)
    for unit in block.units:
        unit.put_before(by, before, by.beyond(level, 1))
    block.total = by.last(level, so_far)


def _between_warps(level: Level, blocks: list[Block[V, P]], by: CarriesOut[V, P]) -> None:
    for block, left in zip(blocks, by.left(level, [block.total for block in blocks]), strict=True):
        so_far = before = left[0]
        for place, total in enumerate(left[1:], 1):
            if place > 1:
                before = by.chosen(by.beyond(level, place), so_far, before)
            so_far = by.merged(so_far, total)
        for unit in block.units:
            unit.put_before(by, before, by.beyond(level, 1))
        block.total = so_far
