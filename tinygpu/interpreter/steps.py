"""What each block does: a program is prepared once, role by role, and then run for every CTA.

A step is done at once, or may have to wait for other roles; then it is a generator of what it waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

from tinygpu.expressions import compile_scalars
from tinygpu.interpreter.places import reader, writer
from tinygpu.interpreter.tiles import Act, Computing, Wait, meaning_of
from tinygpu.interpreter.worker import Moment, Worker
from tinygpu.language.memories import RMEM
from tinygpu.program import nodes as n
from tinygpu.program.tree import walk


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
class Preparing(Computing):
    """What preparing the statements of a program asks for.

    areas  number of each fix-up among those of the roles that work on the same tile
    """

    areas: dict[int, int]

    def block(self, body: tuple[n.Statement, ...]) -> Block:
        steps = [self.statement(s) for s in body]
        return Block(tuple(step for step, _ in steps), tuple(waits for _, waits in steps), tuple(s.place for s in body))

    def statement(self, s: n.Statement) -> tuple[Any, bool]:
        """(the step, whether it may wait)."""
        match s:
            case n.When():
                return self.when(s)
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
                return self.step(s)

    def through(self, s: n.Block) -> tuple[Any, bool]:
        inner = self.block(s.body)
        return (inner.run, True) if inner.waits else (inner.act, False)

    def when(self, s: n.When) -> tuple[Any, bool]:
        inner, compute = self.block(s.body), compile_scalars(s.given)

        def act(w: Worker) -> None:
            if compute(w.known)[0]:
                inner.act(w)

        def run(w: Worker) -> Iterator[str]:
            if compute(w.known)[0]:
                yield from inner.run(w)

        return (run, True) if inner.waits else (act, False)

    def settled(self, s: n.Loop | n.Consume) -> Act:
        """Where a block ends, what asynchronous instructions have added up in it is there."""
        sums = {m.accumulator.name: m.accumulator for m in walk(s.body) if isinstance(m, n.Multiply) and m.token}
        tiles = [tile for tile in sums.values() if tile.memory is RMEM]
        ends = [(tile, reader(tile), writer(tile)) for tile in tiles]

        def act(w: Worker) -> None:
            watch = w.launch.watch
            if watch is not None:
                for tile, get, put in ends:
                    if tile.name not in w.registers:
                        continue  # a loop without rounds has made none
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
        combine, inner, area = meaning_of(s.name, s.combine), self.block(s.body), self.areas[id(s)]
        leave, take = meaning_of(s.name, s.store), meaning_of(s.name, s.load)

        def last(w: Worker) -> bool:
            if w.work.owners == 1:
                put(w, get(w))
                return True
            piece = w.known[s.piece] if s.piece else 0
            left = w.launch.partials.setdefault((area, piece, w.work.tile), [])
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


__all__ = ["Block", "Preparing"]
