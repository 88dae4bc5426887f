"""Which tiles of which problem are listed one by one, so that counts, which are means, may be compared with them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from tinygpu.expressions import Expr, evaluate
from tinygpu.language.instruction import BulkTransfer
from tinygpu.language.memories import GMEM
from tinygpu.language.problem import Problem
from tinygpu.layouts.leaf import filled
from tinygpu.program import nodes as n
from tinygpu.program.access import accesses, boxes, tensor_pitches
from tinygpu.program.program import Program
from tinygpu.program.tree import walk
from tinygpu.program.windows import counts_to, window
from tinygpu.testing.case import Case
from tinygpu.testing.whole_problems import SECTOR_BITS, whole_problem
from tinygpu.testing.workbench import Workbench

# Tiles at most that are listed where windows begin at several places of a sector, which one after another go through.
MOST_LISTED = 16
# Tiles along each axis of the grid of which those in the middle lie inside the tensors, though windows reach beyond.
MIDDLES = (4, 8, 16)

Tiles = list[dict[str, int]]


@dataclass(frozen=True, slots=True)
class Counter:
    """What moves windows from one place of a sector to another: an index, or a quotient or remainder of one.

    places  steps until they begin at the same place again
    there   how many it takes in a problem
    axis    whether it counts the tiles of an axis of the grid
    """

    places: int
    there: int
    axis: bool


def listed_problem(program: Program, case: Case, bench: Workbench) -> tuple[Problem, int] | None:
    """(a problem of whole tiles all of whose places of a sector show where there are few, the first tile inside along
    each axis); None where windows reach beyond the tensors of every problem.
    """
    axes = [a.index for a in program.grid.axes]
    for count in (2, *MIDDLES):
        first = count // 2 - 1
        middle = None if count == 2 else _product(program, dict.fromkeys(axes, range(first, first + 2)))
        inside = whole_problem(program, case, bench, tiles=dict.fromkeys(axes, count), within=middle)
        if inside is not None:
            break
    else:
        return None
    tiles, rounds = _lacking(program, inside, first)
    if tiles or rounds > 1:
        looped = _looped(program) if rounds > 1 else []
        for more in [*({dim: rounds} for dim in looped), dict.fromkeys(looped, rounds)]:
            longer = dict.fromkeys(axes, count) | tiles
            found = whole_problem(program, case, bench, tiles=longer, within=middle, rounds=more)
            if found is not None and listed_tiles(program, found, first) is not None:
                return found, first
    return inside, first


def listed_tiles(program: Program, problem: Problem, first: int) -> Tiles | None:
    """The tiles that show every place at which windows begin; None where they are not all there, or are many.

    first  tile along each axis
    """
    found = _counters(program, problem)
    begin = {a.index: min(first, _tiles_along(a, problem) - 1) for a in program.grid.axes}
    if any(not _shows(c, begin.get(name, 0)) for name, c in found.items()):
        return None
    numbers = {index: range(at, at + (found[index].places if index in found else 1)) for index, at in begin.items()}
    listed = _product(program, numbers)
    return listed if len(listed) <= MOST_LISTED else None


def has_idle_tiles(program: Program, problem: Problem, tiles: Tiles) -> bool:
    """Whether some of these tiles have no round of a loop whose rounds differ from tile to tile: counts take those of a
    typical tile, and one at least.
    """
    indices = {a.index for a in program.grid.axes}
    differing = [s.trips for s in walk(program.body) if isinstance(s, n.Repeated) and s.trips.symbols & indices]
    environments = [problem.environment() | tile for tile in tiles]
    return any(
        int(evaluate(trips, known)) < 1
        for trips in differing
        for known in environments
        if trips.symbols <= known.keys()
    )


def _shows(counter: Counter, begin: int) -> bool:
    if counter.axis:
        return counter.places <= max(counter.there - 2 * begin, 1)  # as far from the last tile as from the first
    return counter.there % counter.places == 0


def _lacking(program: Program, problem: Problem, first: int) -> tuple[dict[str, int], int]:
    """(tiles along axes that show too few places, by how much longer loops show all of theirs).

    Of more tiles whose rounds differ from their neighbours' counts take what is typical: there are as few as may be.
    """
    differ = frozenset[str]().union(*[s.trips.symbols for s in walk(program.body) if isinstance(s, n.Repeated)])
    tiles: dict[str, int] = {}
    rounds = 1
    for name, c in _counters(program, problem).items():
        if _shows(c, min(first, c.there - 1) if c.axis else 0) or c.places > MOST_LISTED:
            continue
        if c.axis and name not in differ:
            tiles[name] = 2 * first + c.places
        elif not c.axis:
            rounds = math.lcm(rounds, c.places)
    return tiles, rounds


def _counters(program: Program, problem: Problem) -> dict[str, Counter]:
    """What moves windows of tensors to other places of a sector."""
    known, axes = problem.environment(), {a.index: a for a in program.grid.axes}
    trips = {s.index: s.trips for s in walk(program.body) if isinstance(s, n.Repeated)}
    out: dict[str, Counter] = {}
    for s in walk(program.body):
        copies = [boxes(s, i) for i in s.instructions if isinstance(i, BulkTransfer) and isinstance(s, n.Copy)]
        for access in (*accesses(s), *copies):
            if access.tile.memory is not GMEM:  # a memory of the machine's own has no sectors
                continue
            found = window(access.tile, tensor_pitches(access.tile), program.indices)
            for (name, step), counter in zip(found.steps, found.counters, strict=True):
                places = SECTOR_BITS // math.gcd(filled(step, known), SECTOR_BITS)
                if places > 1:
                    places = max(places, out[name].places) if name in out else places
                    there = _tiles_along(axes[name], problem) if name in axes else _takes(counter, trips, known)
                    out[name] = Counter(places, there, name in axes)
    return out


def _takes(counter: Expr | None, trips: Mapping[str, Expr], known: Mapping[str, int]) -> int:
    """How many values a counter of rounds takes; 1 where nobody knows."""
    taken = None if counter is None else counts_to(counter, trips)
    return int(evaluate(taken, known)) if taken is not None and taken.symbols <= known.keys() else 1


def _looped(program: Program) -> list[str]:
    """The dims that loops go along."""
    loops = [s.trips.symbols for s in walk(program.body) if isinstance(s, n.Repeated)]
    return sorted(frozenset[str]().union(*loops) - {a.index for a in program.grid.axes})


def _tiles_along(axis: n.Axis, problem: Problem) -> int:
    return int(evaluate(axis.tiles, problem.dim))


def _product(program: Program, numbers: Mapping[str, range]) -> Tiles:
    names = [a.index for a in program.grid.axes]
    return [dict(zip(names, at, strict=True)) for at in itertools.product(*(numbers[index] for index in names))]
