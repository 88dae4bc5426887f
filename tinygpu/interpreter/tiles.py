"""What the statements without a body do to whole tiles: by the meanings of their instructions, in NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.expressions import Expr, compile_scalars, expr
from tinygpu.interpreter.elements import Array, as_elements, number
from tinygpu.interpreter.fault import NoMeaning, ProgramFault
from tinygpu.interpreter.merging import merging, parts, scanned, tupled
from tinygpu.interpreter.places import Valued, begins, extents, has_value, reader, sums_reader, updater, writer
from tinygpu.interpreter.worker import Moment, Worker
from tinygpu.language.instruction import Instruction, RowShift, Transfer, pairwise
from tinygpu.language.memories import RMEM, TMEM
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.users_code import UsersCodeError, at, place_of, users_code, written_at

Act: TypeAlias = Callable[[Worker], None]
Wait: TypeAlias = Callable[[Worker], Iterator[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Computing:
    """What preparing the statements without a body asks for.

    cluster  CTAs of a cluster along each axis of the grid
    """

    cluster: tuple[int, ...]

    def step(self, s: n.Statement) -> tuple[Any, bool]:
        """(the step, whether it may wait)."""
        match s:
            case n.Constant():
                return self.constant(s), False
            case n.Index():
                return self.index(s), False
            case n.Uniform():
                return self.uniform(s), False
            case n.Load():
                return self.load(s), False
            case n.Store():
                return self.store(s), False
            case n.Copy():
                return self.copy(s), False
            case n.Apply():
                return self.apply(s), False
            case n.Multiply() if s.instruction.ctas > 1:
                return self.multiply_together(s), True
            case n.Multiply():
                return self.multiply(s), False
            case n.Reduce() if int(s.ctas) > 1:
                return self.reduce_together(s), True
            case n.Reduce():
                return self.reduce(s), False
            case n.Scan():
                return self.scan(s), False
            case n.PrecedingInCluster():
                return self.preceding_in_cluster(s), True
            case n.Preceding():
                return self.preceding(s), False
            case n.Relayout():
                return self.relayout(s), False
            case _:
                raise ProgramFault(f"nothing says what the statement {s.headline(frozenset())!r} does")

    def constant(self, s: n.Constant) -> Act:
        shape, kind = extents(s.result), s.result.dtype
        put = begins(s.result) if s.result.memory is TMEM else self.result(s, s.result)
        value = self.operand(s.value, kind.name)
        return lambda w: put(w, np.full(shape, number(value(w), kind)))

    def index(self, s: n.Index) -> Act:
        put, coordinates = self.result(s, s.result), np.indices(extents(s.result), dtype=np.int32)[s.axis]
        return lambda w: put(w, coordinates)

    def uniform(self, s: n.Uniform) -> Act:
        get, name = reader(s.value), s.symbol

        def act(w: Worker) -> None:
            w.known[name] = max(int(get(w).astype(np.int32).item()), 0)

        return act

    def load(self, s: n.Load) -> Act:
        get, put = reader(s.source, s.fill), self.result(s, s.result, has_value(s.source))
        meaning = meaning_of(s.name, s.instruction)
        return lambda w: put(w, meaning(get(w)))

    def store(self, s: n.Store) -> Act:
        get, put = reader(s.value), self.result(s, s.target)
        meaning = meaning_of(s.name, s.instruction)
        if isinstance(s.instruction, Transfer) and s.instruction.combines:
            if (update := updater(s.target, s.instruction.combine)) is not None:
                return lambda w: update(w, meaning(get(w)))
            there, combine = reader(s.target), s.instruction.combine
            return lambda w: put(w, combine(there(w), meaning(get(w))))
        return lambda w: put(w, meaning(get(w)))

    def copy(self, s: n.Copy) -> Act:
        get, put = reader(s.source), self.result(s, s.target)
        if isinstance(s.instruction, RowShift):
            there, combine = reader(s.target), s.instruction.combine
            return lambda w: put(w, combine(there(w), get(w)))
        meanings = [meaning_of(s.name, hop) for hop in s.instructions]
        return lambda w: put(w, reduce(lambda values, meaning: meaning(values), meanings, get(w)))

    def apply(self, s: n.Apply) -> Act:
        takes, _ = s.instruction.elements()
        gets = [self.operand(o, kind) for o, kind in zip(s.operands, takes, strict=True)]
        put, meaning = self.result(s, s.result), meaning_of(s.name, s.instruction)

        def act(w: Worker) -> None:
            values = [get(w) for get in gets]
            put(w, meaning(*values), *values)

        return act

    def operand(self, operand: Tile | n.ScalarArgument | Expr | float, kind: str) -> Callable[[Worker], Any]:
        """The operand's values: a tile, or one number."""
        if isinstance(operand, Tile):
            return reader(operand)
        if isinstance(operand, n.ScalarArgument):
            name = operand.name
            return lambda w: w.launch.scalars[name]
        if isinstance(operand, Expr):
            compute, to = compile_scalars(operand), dtype(kind)
            return lambda w: number(compute(w.known)[0], to)
        value = number(operand, dtype(kind))
        return lambda w: value

    def multiply(self, s: n.Multiply) -> Act:
        a, b, old = reader(s.a), reader(s.b), sums_reader(s.accumulator)
        put, meaning = self.result(s, s.accumulator), meaning_of(s.name, s.instruction)
        operand, kinds, scaled = s.instruction.operand, (s.a.dtype, s.b.dtype), scaling(s)

        def act(w: Worker) -> None:
            factors = [scaled(w, operand(get(w), kinds[i]), i) for i, get in enumerate((a, b))]
            values = old(w).astype(np.float64), factors[0], factors[1]
            put(w, meaning(*values), *values)

        return act

    def multiply_together(self, s: n.Multiply) -> Wait:
        """Several CTAs of a cluster: each has rows of a and of the accumulator of its own, and some columns of b."""
        a, b, old = reader(s.a), reader(s.b), sums_reader(s.accumulator)
        put, meaning = self.result(s, s.accumulator), meaning_of(s.name, s.instruction)
        operand, kinds, scaled = s.instruction.operand, (s.a.dtype, s.b.dtype), scaling(s)

        def run(w: Worker) -> Iterator[str]:
            parts: list[Array] = []
            first = w.rank // s.instruction.ctas * s.instruction.ctas
            ranks = range(first, first + s.instruction.ctas)
            yield from w.exchange.meet(id(s), w.rank, ranks, operand(b(w), kinds[1]), parts)
            factors = scaled(w, operand(a(w), kinds[0]), 0), scaled(w, np.concatenate(parts, axis=1), 1)
            values = old(w).astype(np.float64), *factors
            put(w, meaning(*values), *values)

        return run

    def reduce(self, s: n.Reduce) -> Act:
        gets, puts = [reader(tile) for tile in s.sources], [self.result(s, tile) for tile in s.results]
        merge = merging(s.merge, self.operand, lambda step: meaning_of(step.name, step.instruction))
        meets = pairwise if s.by is None else meaning_of(s.name, s.by.shuffle)
        kinds = [tile.dtype for tile in s.sources]

        def act(w: Worker) -> None:
            values = [get(w) for get in gets]
            found = parts(meets(merge(w), tupled(values, kinds), s.axis), len(puts))
            for put, one in zip(puts, found, strict=True):
                put(w, one, *values)

        return act

    def reduce_together(self, s: n.Reduce) -> Wait:
        """The CTAs of a cluster along an axis each have a part, and all get the whole."""
        gets, puts = [reader(tile) for tile in s.sources], [self.result(s, tile) for tile in s.results]
        merge = merging(s.merge, self.operand, lambda step: meaning_of(step.name, step.instruction))
        meets = pairwise if s.by is None else meaning_of(s.name, s.by.shuffle)
        kinds = [tile.dtype for tile in s.sources]

        def run(w: Worker) -> Iterator[str]:
            values = [get(w) for get in gets]
            parts_of: list[Array] = []
            own = meets(merge(w), tupled(values, kinds), s.axis)
            yield from w.exchange.meet(id(s), w.rank, self.beside(w.rank, s.cluster or 0), own, parts_of)
            found = parts(reduce(merge(w), parts_of), len(puts))
            for put, one in zip(puts, found, strict=True):
                put(w, one, *values)

        return run

    def beside(self, rank: int, axis: int) -> list[int]:
        """The ranks of a cluster's CTAs that differ along an axis of the grid from one of them, and its own."""
        numbers = np.arange(math.prod(self.cluster)).reshape(self.cluster)
        place = list(np.unravel_index(rank, self.cluster))
        return [int(r) for r in np.moveaxis(numbers, axis, -1)[tuple(np.delete(place, axis))]]

    def preceding_in_cluster(self, s: n.PrecedingInCluster) -> Wait:
        """The CTAs of a cluster tell each other what they have."""
        gets, puts = [reader(tile) for tile in s.sources], [self.result(s, tile) for tile in s.results]
        old, new = [reader(tile) for tile in s.carries], [self.result(s, tile) for tile in s.carries]
        merge = merging(s.merge, self.operand, lambda step: meaning_of(step.name, step.instruction))
        kinds, shape = [tile.dtype for tile in s.sources], extents(s.results[0])
        firsts = [np.full(shape, number(v, k), k.numpy) for v, k in zip(s.merge.identity, kinds, strict=False)]

        def run(w: Worker) -> Iterator[str]:
            values = [get(w) for get in gets]
            found: list[Array] = []
            ranks = self.beside(w.rank, s.cluster)
            yield from w.exchange.meet(id(s), w.rank, ranks, tupled(values, kinds), found)
            first = [tupled([get(w) for get in old], kinds)] if old else []
            before = [*first, *found[: ranks.index(w.rank)]]
            mine = reduce(merge(w), before) if before else tupled(firsts, kinds)
            for put, one in zip(puts, parts(mine, len(puts)), strict=True):
                put(w, one, *values)
            for put, one in zip(new, parts(reduce(merge(w), [*first, *found]), len(puts)), strict=False):
                put(w, one, *values)

        return run

    def scan(self, s: n.Scan) -> Act:
        gets, puts = [reader(tile) for tile in s.sources], [self.result(s, tile) for tile in s.results]
        old, new = [reader(tile) for tile in s.carries], [self.result(s, tile) for tile in s.carries]
        merge = merging(s.merge, self.operand, lambda step: meaning_of(step.name, step.instruction))
        kinds = [tile.dtype for tile in s.sources]
        firsts = [number(value, kind) for value, kind in zip(s.merge.identity, kinds, strict=False)]

        def act(w: Worker) -> None:
            values = [get(w) for get in gets]
            carried = tupled([get(w) for get in old], kinds) if old else None
            first = tupled(firsts, kinds) if firsts else None
            made, total = scanned(merge(w), tupled(values, kinds), s.axis, s.exclusive, first, carried)
            for put, one in zip(puts, parts(made, len(puts)), strict=True):
                put(w, one, *values)
            for put, one in zip(new, parts(total, len(puts)), strict=False):
                put(w, one, *values)

        return act

    def preceding(self, s: n.Preceding) -> Act:
        """CTAs are carried out in the order of their tiles, so that what is before is known."""
        gets, puts = [reader(tile) for tile in s.sources], [self.result(s, tile) for tile in s.results]
        merge = merging(s.merge, self.operand, lambda step: meaning_of(step.name, step.instruction))
        kinds = [tile.dtype for tile in s.sources]
        shape = extents(s.results[0])
        firsts = [np.full(shape, number(v, k), k.numpy) for v, k in zip(s.merge.identity, kinds, strict=True)]

        def act(w: Worker) -> None:
            values = [get(w) for get in gets]
            row = tuple(np.delete(w.work.tile, s.grid).tolist())
            before = w.launch.preceding.get((id(s), row))
            together = tupled(firsts, kinds) if before is None else before
            own = tupled(values, kinds)
            w.launch.preceding[id(s), row] = own if before is None else merge(w)(before, own)
            for put, one in zip(puts, parts(together, len(puts)), strict=True):
                put(w, one, *values)

        return act

    def relayout(self, s: n.Relayout) -> Act:
        """The tile is the same, whoever holds it."""
        get, put = reader(s.source), self.result(s, s.result)
        return lambda w: put(w, get(w))

    def result(self, s: n.Statement, tile: Tile, valued: Valued | None = None) -> Callable[..., None]:
        """Stores what a statement makes of its tile, which has the tile's extents, and of which operands.

        valued  which of its elements have a value; None: all
        """
        put, shape, kept = writer(tile), extents(tile), tile.memory is RMEM

        def store(w: Worker, values: Any, *operands: Any) -> None:
            if np.asarray(values).dtype.kind not in "biufV":
                raise _wrong(s, f"makes {values!r:.60} of {tile.name}, which has numbers")
            if np.shape(values) != shape:
                try:
                    values = np.broadcast_to(values, shape)
                except ValueError:
                    have, want = " x ".join(map(str, np.shape(values))), " x ".join(map(str, shape))
                    raise _wrong(s, f"makes {have} values of {tile.name}, which has {want}") from None
            if kept and w.launch.watch is not None:
                which = None if valued is None else valued(w)
                moment = Moment(s, tile, w.known, as_elements(values, tile.dtype), which, operands)
                values = w.launch.watch(moment)
            put(w, values)

        return store


def _wrong(s: n.Statement, what: str) -> ProgramFault:
    """What an instruction makes is not what its statement stores."""
    instructions = s.instructions
    place = next((at_line for i in instructions if (at_line := written_at(getattr(i, "meaning", None)))), s.place)
    named = f"{getattr(s, 'name', 'a constant')} ({getattr(s, 'instruction', '')})"
    return at(ProgramFault(f"the meaning of {named} {what}"), place)


def meaning_of(name: str, instruction: Instruction) -> Callable[..., Any]:
    """An instruction's meaning; what it raises names the instruction and the line of its author's."""
    found = getattr(instruction, "meaning", None)
    if found is None:
        raise NoMeaning(f"{name} ({instruction}) does not say what it means: give its class a `meaning` in NumPy")
    meaning: Callable[..., Any] = found

    def meant(*values: Any) -> Any:
        try:
            return meaning(*values)
        except NotImplementedError:
            sentence = f"{name} ({instruction}) does not say what it means: give its class a `meaning` in NumPy"
            raise NoMeaning(sentence) from None
        except Exception as error:
            try:
                with users_code(f"the meaning of {name} ({instruction})", ProgramFault):
                    raise error
            except UsersCodeError as told:
                raise at(told, "" if place_of(told) else written_at(meaning)) from error

    return meant


__all__ = ["Act", "Computing", "Wait", "meaning_of"]


def scaling(s: n.Multiply) -> Callable[[Worker, Array, int], Array]:
    """What makes numbers of a factor's elements: scales of blocks, if any, of a's rows (axis 0) or b's columns (1)."""
    taken, scale = s.instruction.scales(s.a.dtype, s.b.dtype), s.instruction.scale
    scales, blocks = [reader(t) for t in s.scales], compile_scalars(*s.blocks(), s.column)

    def scaled(w: Worker, values: Array, axis: int) -> Array:
        if taken is None:
            return values
        first, count, column = map(int, blocks(w.known))
        held = scales[axis](w)
        if taken.fragments is None:
            rows, begin = values.shape[axis], column if axis else 0
            held = s.instruction.scales_of(held, int(s.instruction.scale_rows(expr(rows))))[begin : begin + rows]
            held = held.T if axis else held
        numbers = scale(held).take(range(first, first + count), axis=1 - axis)
        return np.asarray(values * np.repeat(numbers, taken.block, axis=1 - axis))

    return scaled
