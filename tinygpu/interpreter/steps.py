"""What each statement does to whole tiles: a program is prepared once, role by role, and then run for every CTA.

A step is done at once, or may have to wait for other roles; then it is a generator of what it waits for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, TypeAlias

import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.expressions import Expr, compile_scalars
from tinygpu.interpreter.elements import Array, as_elements, number
from tinygpu.interpreter.fault import NoMeaning, ProgramFault
from tinygpu.interpreter.merging import merging, parts, scanned, tupled
from tinygpu.interpreter.places import extents, reader, updater, writer
from tinygpu.interpreter.worker import Moment, Worker
from tinygpu.language.instruction import Instruction, Transfer, pairwise
from tinygpu.language.memories import RMEM
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk
from tinygpu.users_code import UsersCodeError, at, place_of, users_code, written_at

Act: TypeAlias = Callable[[Worker], None]
Wait: TypeAlias = Callable[[Worker], Iterator[str]]


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """Steps in order; `waits` where one of them may wait.

    places  the user's line of the statement of each
    """

    steps: tuple[Act | Wait | Block, ...]
    waiting: tuple[bool, ...]
    places: tuple[str, ...]

    @property
    def waits(self) -> bool:
        return any(self.waiting)

    def act(self, worker: Worker) -> None:
        """Does a block in which nothing waits."""
        at_line = worker.at
        for step, at_line.place in zip(self.steps, self.places, strict=True):
            step(worker)  # type: ignore[operator]

    def run(self, worker: Worker) -> Iterator[str]:
        """Does the block; yields what it waits for."""
        at_line = worker.at
        for step, waits, at_line.place in zip(self.steps, self.waiting, self.places, strict=True):
            if waits:
                yield from step(worker)  # type: ignore[operator, misc]
            else:
                step(worker)  # type: ignore[operator]


@dataclass(frozen=True, slots=True, eq=False)
class Preparing:
    """What preparing the statements of a program asks for.

    areas    number of each fix-up among those of the roles that work on the same tile
    cluster  CTAs of a cluster along each axis of the grid
    """

    areas: dict[int, int]
    cluster: tuple[int, ...]

    def block(self, body: tuple[n.Statement, ...]) -> Block:
        steps = [self.statement(s) for s in body]
        return Block(tuple(step for step, _ in steps), tuple(waits for _, waits in steps), tuple(s.place for s in body))

    def statement(self, s: n.Statement) -> tuple[Any, bool]:
        """(the step, whether it may wait)."""
        match s:
            case n.Constant():
                return self.constant(s), False
            case n.Index():
                return self.index(s), False
            case n.Uniform():
                return self.uniform(s), False
            case n.When():
                return self.when(s)
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
            case n.Relayout():
                return self.relayout(s), False
            case n.Loop():
                return self.loop(s)
            case n.Pipelined():
                return self.pipelined(s), True
            case n.Produce():
                return self.produce(s), True
            case n.Consume():
                return self.consume(s), True
            case n.FixUp():
                return self.fix_up(s)
            case n.Scope():
                return self.through(s)
            case n.InRole():
                return self.through(s)
            case _:
                raise ProgramFault(f"nothing says what the statement {s.headline(frozenset())!r} does")

    def through(self, s: n.Block) -> tuple[Any, bool]:
        inner = self.block(s.body)
        return (inner.run, True) if inner.waits else (inner.act, False)

    # -- tiles ------------------------------------------------------------------------------------------------------
    def constant(self, s: n.Constant) -> Act:
        put, shape = self.result(s, s.result), extents(s.result)
        value = number(s.value, s.result.dtype)
        return lambda w: put(w, np.full(shape, value, dtype=value.dtype))

    def index(self, s: n.Index) -> Act:
        put, coordinates = self.result(s, s.result), np.indices(extents(s.result), dtype=np.int32)[s.axis]
        return lambda w: put(w, coordinates)

    def uniform(self, s: n.Uniform) -> Act:
        get, name = reader(s.value), s.symbol

        def act(w: Worker) -> None:
            w.known[name] = max(int(get(w).astype(np.int32).item()), 0)

        return act

    def when(self, s: n.When) -> tuple[Any, bool]:
        inner, compute = self.block(s.body), compile_scalars(s.given)

        def act(w: Worker) -> None:
            if compute(w.known)[0]:
                inner.act(w)

        def run(w: Worker) -> Iterator[str]:
            if compute(w.known)[0]:
                yield from inner.run(w)

        return (run, True) if inner.waits else (act, False)

    def load(self, s: n.Load) -> Act:
        get, put = reader(s.source, s.fill), self.result(s, s.result)
        meaning = _meaning(s.name, s.instruction)
        return lambda w: put(w, meaning(get(w)))

    def store(self, s: n.Store) -> Act:
        get, put = reader(s.value), self.result(s, s.target)
        meaning = _meaning(s.name, s.instruction)
        if isinstance(s.instruction, Transfer) and s.instruction.combines:
            if (update := updater(s.target, s.instruction.combine)) is not None:
                return lambda w: update(w, meaning(get(w)))
            there, combine = reader(s.target), s.instruction.combine
            return lambda w: put(w, combine(there(w), meaning(get(w))))
        return lambda w: put(w, meaning(get(w)))

    def copy(self, s: n.Copy) -> Act:
        get, put = reader(s.source), self.result(s, s.target)
        meanings = [_meaning(s.name, hop) for hop in s.instructions]
        return lambda w: put(w, reduce(lambda values, meaning: meaning(values), meanings, get(w)))

    def apply(self, s: n.Apply) -> Act:
        takes, _ = s.instruction.elements()
        gets = [self.operand(o, kind) for o, kind in zip(s.operands, takes, strict=True)]
        put, meaning = self.result(s, s.result), _meaning(s.name, s.instruction)

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
        a, b, old = (reader(t) for t in (s.a, s.b, s.accumulator))
        put, meaning = self.result(s, s.accumulator), _meaning(s.name, s.instruction)
        operand, kinds = s.instruction.operand, (s.a.dtype, s.b.dtype)

        def act(w: Worker) -> None:
            values = old(w).astype(np.float64), operand(a(w), kinds[0]), operand(b(w), kinds[1])
            put(w, meaning(*values), *values)

        return act

    def multiply_together(self, s: n.Multiply) -> Wait:
        """Several CTAs of a cluster: each has rows of a and of the accumulator of its own, and some columns of b."""
        a, b, old = (reader(t) for t in (s.a, s.b, s.accumulator))
        put, meaning = self.result(s, s.accumulator), _meaning(s.name, s.instruction)
        operand, kinds = s.instruction.operand, (s.a.dtype, s.b.dtype)

        def run(w: Worker) -> Iterator[str]:
            parts: list[Array] = []
            first = w.rank // s.instruction.ctas * s.instruction.ctas
            ranks = range(first, first + s.instruction.ctas)
            yield from w.exchange.meet(id(s), w.rank, ranks, operand(b(w), kinds[1]), parts)
            values = old(w).astype(np.float64), operand(a(w), kinds[0]), np.concatenate(parts, axis=1)
            put(w, meaning(*values), *values)

        return run

    def reduce(self, s: n.Reduce) -> Act:
        gets, puts = [reader(tile) for tile in s.sources], [self.result(s, tile) for tile in s.results]
        merge = merging(s.merge, self.operand, lambda step: _meaning(step.name, step.instruction))
        meets = pairwise if s.by is None else _meaning(s.name, s.by.shuffle)
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
        merge = merging(s.merge, self.operand, lambda step: _meaning(step.name, step.instruction))
        meets = pairwise if s.by is None else _meaning(s.name, s.by.shuffle)
        kinds, numbers = [tile.dtype for tile in s.sources], np.arange(math.prod(self.cluster)).reshape(self.cluster)

        def run(w: Worker) -> Iterator[str]:
            values = [get(w) for get in gets]
            place = list(np.unravel_index(w.rank, self.cluster))
            beside = np.moveaxis(numbers, s.cluster or 0, -1)[tuple(np.delete(place, s.cluster or 0))]
            parts_of: list[Array] = []
            own = meets(merge(w), tupled(values, kinds), s.axis)
            yield from w.exchange.meet(id(s), w.rank, beside.tolist(), own, parts_of)
            found = parts(reduce(merge(w), parts_of), len(puts))
            for put, one in zip(puts, found, strict=True):
                put(w, one, *values)

        return run

    def scan(self, s: n.Scan) -> Act:
        gets, puts = [reader(tile) for tile in s.sources], [self.result(s, tile) for tile in s.results]
        old, new = [reader(tile) for tile in s.carries], [self.result(s, tile) for tile in s.carries]
        merge = merging(s.merge, self.operand, lambda step: _meaning(step.name, step.instruction))
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

    def relayout(self, s: n.Relayout) -> Act:
        """The tile is the same, whoever holds it."""
        get, put = reader(s.source), self.result(s, s.result)
        return lambda w: put(w, get(w))

    def result(self, s: n.Statement, tile: Tile) -> Callable[..., None]:
        """Stores what a statement makes of its tile, which has the tile's extents, and of which operands."""
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
                moment = Moment(s, tile, w.known, as_elements(values, tile.dtype), None, operands)
                values = w.launch.watch(moment)
            put(w, values)

        return store

    def settled(self, s: n.Loop | n.Consume) -> Act:
        """Where a block ends, what asynchronous instructions have added up in it is there."""
        sums = {m.accumulator.name: m.accumulator for m in walk(s.body) if isinstance(m, n.Multiply) and m.token}
        tiles = [tile for tile in sums.values() if tile.memory is RMEM]
        ends = [(tile, reader(tile), writer(tile)) for tile in tiles]

        def act(w: Worker) -> None:
            watch = w.launch.watch
            if watch is not None:
                for tile, get, put in ends:
                    put(w, watch(Moment(s, tile, w.known, get(w))))

        return act

    def full(self, s: n.Statement, pipeline: str) -> Act:
        """Where a slot is consumed, what its producers have left in it is there."""

        def act(w: Worker) -> None:
            watch = w.launch.watch
            if watch is not None:
                for stages in w.rings[pipeline].buffers.values():
                    stored = stages[w.slots[pipeline]]
                    stored.array[...] = watch(Moment(s, stored.tile, w.known, stored.array, stored.written))

        return act

    # -- rounds -----------------------------------------------------------------------------------------------------
    def loop(self, s: n.Loop) -> tuple[Any, bool]:
        inner, rounds, index, settled = self.block(s.body), _rounds(s), s.index, self.settled(s)

        def act(w: Worker) -> None:
            for number_of in rounds(w):
                w.known[index] = number_of
                inner.act(w)
            settled(w)

        def run(w: Worker) -> Iterator[str]:
            for number_of in rounds(w):
                w.known[index] = number_of
                yield from inner.run(w)
            settled(w)

        return (run, True) if inner.waits else (act, False)

    def pipelined(self, s: n.Pipelined) -> Wait:
        """Producing runs as many rounds ahead as there are slots but one."""
        producing: Wait = self.block(s.produce).run
        consuming: Wait = self.ending(n.Consume(s.pipeline, s.consume))
        for along in reversed(s.pipelines):
            producing, consuming = self.filled(along, producing), self.used(along, consuming, self.full(s, along))
        rounds, index, name = _rounds(s), s.index, s.pipeline

        def run(w: Worker) -> Iterator[str]:
            todo = rounds(w)
            ahead = w.rings[name].stages - 1
            for step in range(-ahead, len(todo)):
                if step + ahead < len(todo):
                    w.known[index] = todo[step + ahead]
                    yield from producing(w)
                if step >= 0:
                    w.known[index] = todo[step]
                    yield from consuming(w)

        return run

    def produce(self, s: n.Produce) -> Wait:
        return self.filled(s.pipeline, self.block(s.body).run)

    def filled(self, name: str, inner: Wait) -> Wait:
        """What is done with the next empty slot."""

        def run(w: Worker) -> Iterator[str]:
            ring = w.rings[name]
            yield from ring.acquire(w.tile)
            w.slots[name] = ring.producing()
            yield from inner(w)
            del w.slots[name]
            ring.commit()

        return run

    def consume(self, s: n.Consume) -> Wait:
        name, inner, full = s.pipeline, self.ending(s), self.full(s, s.pipeline)
        used = self.used(name, inner, full)

        def run(w: Worker) -> Iterator[str]:
            if name in w.turns:
                yield from w.turns[name].wait(w.role)
                yield from inner(w)
                w.turns[name].pass_on(w.role)
            else:
                yield from used(w)

        return run

    def ending(self, s: n.Consume) -> Wait:
        """What is done with a slot, and at its end what was under way is over."""
        inner, settled = self.block(s.body), self.settled(s)

        def run(w: Worker) -> Iterator[str]:
            yield from inner.run(w)
            settled(w)

        return run

    def used(self, name: str, inner: Wait, full: Act) -> Wait:
        """What is done with the next full slot."""

        def run(w: Worker) -> Iterator[str]:
            ring = w.rings[name]
            yield from ring.wait(w.role)
            w.slots[name] = ring.consuming(w.role)
            full(w)
            yield from inner(w)
            del w.slots[name]
            ring.release(w.role)

        return run

    # -- tiles that CTAs share --------------------------------------------------------------------------------------
    def fix_up(self, s: n.FixUp) -> tuple[Any, bool]:
        """The CTA that comes last combines what all of them left, in the order of their parts, and goes on."""
        get, put = reader(s.value), self.result(s, s.result)
        combine, inner, area = _meaning(s.name, s.combine), self.block(s.body), self.areas[id(s)]
        leave, take = _meaning(s.name, s.store), _meaning(s.name, s.load)

        def last(w: Worker) -> bool:
            if w.work.owners == 1:
                put(w, get(w))
                return True
            left = w.launch.partials.setdefault((area, w.work.tile), [])
            left.append((w.work.rounds[0] if w.work.rounds else w.work.part, leave(get(w))))
            if len(left) < w.work.owners:
                return False
            left.sort(key=lambda one: one[0])
            put(w, reduce(combine, [take(values) for _, values in left]))
            return True

        def act(w: Worker) -> None:
            if last(w):
                inner.act(w)

        def run(w: Worker) -> Iterator[str]:
            if last(w):
                yield from inner.run(w)

        return (run, True) if inner.waits else (act, False)


def _rounds(s: n.Loop | n.Pipelined) -> Callable[[Worker], range]:
    """The values of a loop's index."""
    compute = compile_scalars(s.first, s.trips)

    def rounds(w: Worker) -> range:
        first, trips = compute(w.known) if not s.divided or w.work.rounds is None else w.work.rounds
        return range(first, first + trips)

    return rounds


def _wrong(s: n.Statement, what: str) -> ProgramFault:
    """What an instruction makes is not what its statement stores."""
    instructions = s.instructions
    place = next((at_line for i in instructions if (at_line := written_at(getattr(i, "meaning", None)))), s.place)
    named = f"{getattr(s, 'name', 'a constant')} ({getattr(s, 'instruction', '')})"
    return at(ProgramFault(f"the meaning of {named} {what}"), place)


def _meaning(name: str, instruction: Instruction) -> Callable[..., Any]:
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


__all__ = ["Array", "Block", "Preparing"]
