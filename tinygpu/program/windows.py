"""Windows: where the parts of tensors and buffers that a statement touches begin, round after round."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import sympy

from tinygpu.expressions import Expr, FloorDiv, Remainder, ceil_div, expr, minimum
from tinygpu.language.tile import Tile
from tinygpu.layouts.leaf import Leaf, leaf
from tinygpu.program import nodes as n
from tinygpu.program.tree import places

# Stands for what counts when windows move by no fixed step.
ANYWHERE = "*"


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """Where the windows of one tile begin: at `begin`, and from there by a step for each count of an index.

    steps     (what counts, its step): an index, or a quotient or remainder of one
    counters  the same as expressions; None where windows move by no fixed step
    """

    begin: Leaf
    steps: tuple[tuple[str, Leaf], ...] = ()
    counters: tuple[Expr | None, ...] = ()


def window(tile: Tile, pitches: Mapping[int, Leaf], indices: Iterable[str]) -> Window:
    """Where the windows of a tile of a tensor begin, in the unit of the pitches.

    pitches   along each axis of the tensor, from one element to the next
    indices   names of what counts tiles and rounds; everything else in an offset is a number at launch

    Counters that are multiplied with each other move the window by any number of elements.
    """
    tile = tile.finest
    moved = [(axis, offset) for axis, offset in zip(tile.axes, tile.offset, strict=True) if axis is not None]
    total = expr(0)
    for axis, offset in (*moved, *tile.fixed):
        total = total + offset * expr(pitches[axis])
    whole = total.sympy.expand()
    begin = expr(0)
    steps: dict[str, Expr] = {}
    known: dict[str, Expr] = {}
    counted = frozenset(indices)
    for term in whole.as_ordered_terms():
        # what counts: an index, or a quotient or remainder of one
        counters = [f for f in sympy.Mul.make_args(term) if counted & {s.name for s in f.free_symbols}]
        if not counters:
            begin = begin + Expr(term)
            continue
        step = term
        for counter in counters:
            step = step / counter
        if len(counters) > 1 or not (counters[0].is_Symbol or isinstance(counters[0], FloorDiv | Remainder)):
            steps[ANYWHERE] = expr(min(pitch for pitch in pitches.values() if isinstance(pitch, int)))
            continue
        (counter,) = counters
        known[str(counter)] = Expr(counter)
        steps[str(counter)] = steps.get(str(counter), expr(0)) + Expr(step)
    moves = tuple((index, leaf(step, "a step of windows")) for index, step in steps.items())
    return Window(leaf(begin, "where a window begins"), moves, tuple(known.get(index) for index in steps))


def counts_to(counter: Expr, trips: Mapping[str, Expr]) -> Expr:
    """How many values a counter has at most, an index or a quotient or remainder of one that goes through so many
    rounds, also in steps: (i * bn) // page. What else stands in it has one value.
    """
    node = counter.sympy
    if not isinstance(node, FloorDiv | Remainder):
        total = expr(1)
        for name in sorted(counter.symbols & trips.keys()):
            total = total * trips[name]
        return total
    inner, by = (Expr(a) for a in node.args)
    most = counts_to(inner, trips)
    if isinstance(node, Remainder):
        return minimum(most, by)
    reached = _reaches(inner, trips)
    if reached is None:
        return most
    furthest, from_zero = reached
    # from anywhere within a quotient, it changes once more than from where one begins
    return minimum(most, furthest // by + 1 if from_zero else ceil_div(furthest, by) + 1)


def _reaches(moving: Expr, trips: Mapping[str, Expr]) -> tuple[Expr, bool] | None:
    """(how far a sum of indices, quotients and remainders in steps gets from where it begins, whether that is 0); None
    where they do not stand in a sum of their own.
    """
    furthest, from_zero = expr(0), True
    for term in moving.sympy.expand().as_ordered_terms():
        counters = [f for f in sympy.Mul.make_args(term) if trips.keys() & {s.name for s in f.free_symbols}]
        if not counters:
            from_zero = from_zero and term == 0
            continue
        if len(counters) > 1 or not (counters[0].is_Symbol or isinstance(counters[0], FloorDiv | Remainder)):
            return None
        furthest = furthest + Expr(term / counters[0]) * (counts_to(Expr(counters[0]), trips) - 1)
    return furthest, from_zero


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """A statement and one combination of the unrolled indices around it."""

    statement: n.Statement
    indices: tuple[tuple[str, int], ...]


def unrolled_statements(body: tuple[n.Statement, ...]) -> Iterator[Placed]:
    """Every statement that contains no others, once for each round of the unrolled loops around it."""
    for place in places(body):
        if not place.statement.children:
            around = [loop for loop in place.loops if loop.written_out]
            for rounds in itertools.product(*[range(int(loop.trips)) for loop in around]):
                yield Placed(place.statement, tuple((loop.index, r) for loop, r in zip(around, rounds, strict=True)))


def offsets(tile: Tile, indices: tuple[tuple[str, int], ...]) -> tuple[int, ...]:
    """Where a window of a buffer begins, for these rounds of the unrolled loops; run-time indices count as 0."""
    known = dict(indices)
    out = []
    for offset in tile.offset:
        total = 0
        for node, coefficient in offset.sympy.as_coefficients_dict().items():
            if node.is_Symbol:
                total += int(coefficient) * known.get(node.name, 0)
            else:
                total += int(coefficient) * int(node)
        out.append(total)
    return tuple(out)
