"""The engine: one SM carries out the program of its CTAs, event by event.

It goes through the program's own tree; the times of a candidate stand beside it (`tinygpu.simulator.stop`). Every unit
of the SM serves who comes first; a role waits for its own work, for slots of its pipelines and for its turn. Global
memory is the SM's share of L2 and DRAM, which serve in order, and then a latency. Times are seconds.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

from tinygpu.program.groups import Wait
from tinygpu.program.statement import Statement
from tinygpu.schedulers.launch_control import ANSWERS as MOST_ANSWERS
from tinygpu.simulator.plan import SERVERS, Plan, RolePlan, Run, Span, Stretch
from tinygpu.simulator.stop import Stop


class Deadlock(ValueError):
    """The roles of the program wait for each other; the sentence says who waits for what."""


# The ring of the answers by which CTAs take each other over, which no program names.
ANSWERS = "answers of launch control"

# What a role's coroutine hands to the engine: when to go on, or which signal of a pipeline to wait for.
Pause: TypeAlias = "float | tuple[str, str, int]"


@dataclass(slots=True)
class _Slots:
    """A pipeline of one CTA: when its slots were filled and freed, and who waits to hear of it.

    left  slot -> how many of its consumers have yet to release it, where some have, and when the last of them did
    """

    filled: list[float] = field(default_factory=list)
    freed: list[float] = field(default_factory=list)
    landing: float = 0.0
    left: dict[int, tuple[int, float]] = field(default_factory=dict)
    listeners: dict[tuple[str, int], list[_Process]] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class _Process:
    """One role of one CTA.

    held       pipeline -> number of the slot that products under way still read
    under_way  when the groups of products end that were not waited for, in their order
    complete   when all products end that tell of it themselves: what is handed over behind them is, then
    """

    plan: RolePlan
    cta: int
    place: int
    pipelines: dict[str, _Slots]
    now: float
    tile: int = 0
    acquired: dict[str, int] = field(default_factory=dict)
    waited: dict[str, int] = field(default_factory=dict)
    turned: dict[str, int] = field(default_factory=dict)
    held: dict[str, int] = field(default_factory=dict)
    under_way: list[float] = field(default_factory=list)
    complete: float = 0.0
    work: Generator[Pause, None, None] | None = None

    @property
    def row(self) -> str:
        return f"slot {self.place} {self.plan.role}"


def run(plan: Plan, keep: int = 0) -> Run:
    """Carries out a plan; deterministic.

    keep  how many spans of the timeline to keep

    Raises Deadlock where roles wait for each other for good.
    """
    engine = _Engine(plan, keep)
    engine.start()
    while engine.heap:
        now, _, process = heapq.heappop(engine.heap)
        engine.resume(process, now)
    if engine.living:
        raise Deadlock(f"[simulator] the roles wait for each other for good: {engine.stuck()}")
    engine.out.seconds = max(engine.ended, engine.drained)
    engine.out.drawn_s = min(engine.out.drawn_s, engine.out.seconds)
    engine.out.spans.sort(key=lambda s: (s.start_s, s.row))
    return engine.out


class _Engine:
    def __init__(self, plan: Plan, keep: int) -> None:
        self.plan = plan
        self.keep = keep
        self.out = Run()
        self.consumers = _consumers(plan) | {ANSWERS: len(plan.roles)}
        self.takers = {name: _takers(plan, name) for name in plan.turns}
        self.free = dict.fromkeys(SERVERS, 0.0)
        self.heap: list[tuple[float, int, _Process]] = []
        self.counter = 0
        self.next_cta = 0
        self.living: dict[int, int] = {}
        self.waiting: dict[_Process, tuple[str, str, int]] = {}
        self.ended = self.drained = 0.0

    # -- CTAs ------------------------------------------------------------------------------------------------------
    def start(self) -> None:
        for place in range(min(self.plan.slots, len(self.plan.tiles))):
            self._launch(place, 0.0)

    def _launch(self, place: int, now: float) -> None:
        cta, self.next_cta = self.next_cta, self.next_cta + 1
        self.living[cta] = len(self.plan.roles)
        pipelines = {name: _Slots() for name in (*self.plan.stages, ANSWERS)}
        for role in self.plan.roles:
            process = _Process(role, cta, place, pipelines, now)
            process.work = self._life(process)
            self._schedule(process, now)

    def _finished(self, process: _Process) -> None:
        self.ended = max(self.ended, process.now)
        self.living[process.cta] -= 1
        if self.living[process.cta] == 0:
            del self.living[process.cta]
            if self.next_cta < len(self.plan.tiles):
                self._launch(process.place, process.now)

    def _schedule(self, process: _Process, when: float) -> None:
        self.counter += 1
        heapq.heappush(self.heap, (when, self.counter, process))

    def resume(self, process: _Process, now: float) -> None:
        """Runs a role until it has to wait."""
        self.out.events += 1
        self.waiting.pop(process, None)
        process.now = now
        try:
            pause = next(process.work) if process.work is not None else None
        except StopIteration:
            self._finished(process)
            return
        if isinstance(pause, float):
            self._schedule(process, pause)
        elif pause is not None:
            what, pipeline, number = pause
            self.waiting[process] = pause
            process.pipelines[pipeline].listeners.setdefault((what, number), []).append(process)

    def stuck(self) -> str:
        """Who waits for what, in words."""
        return ", ".join(
            dict.fromkeys(
                f"{p.plan.role} waits for slot {number} of {name} to be {what}"
                for p, (what, name, number) in self.waiting.items()
            )
        )

    # -- roles -----------------------------------------------------------------------------------------------------
    def _life(self, process: _Process) -> Generator[Pause, None, None]:
        remainder, among = process.plan.share
        for tile in range(remainder, self.plan.tiles[process.cta], among):
            process.tile = tile
            for name, slots in process.plan.strides.items():
                process.waited[name] = tile * slots
            if self.plan.answer_s and process.plan is self.plan.roles[0]:
                yield from self._until(process, "freed", ANSWERS, tile - MOST_ANSWERS)
                self._tell(process.pipelines[ANSWERS], "filled", process.now + self.plan.answer_s)
            yield from self._body(process, self.plan.body)
            for stretch in process.plan.last:
                yield self._serve(process, stretch)
                self._write(process, stretch)
            if self.plan.answer_s:
                yield from self._until(process, "filled", ANSWERS, tile)
                self._release(process, ANSWERS, tile)

    def _body(self, process: _Process, body: tuple[Statement, ...]) -> Generator[Pause, None, None]:
        stops = process.plan.stops
        for s in body:
            stop = stops.get(s)
            if stop is None:
                continue
            for stretch in stop.before:
                yield self._serve(process, stretch)
                self._write(process, stretch)
            if stop.is_ring:
                yield from self._ring(process, stop, self.plan.trips[s])
                continue
            yield from self._products(process, self.plan.groups.before.get(s))
            for copy in stop.copies:
                yield self._fetch(process, copy, stop.into)
                self._write(process, copy)
            if not stop.bodies:
                continue
            for _ in range(self.plan.trips.get(s, 1)):
                for inner, end in zip(stop.bodies, stop.ends, strict=True):
                    produced, consumed = inner.produces, inner.consumes
                    if produced or consumed:
                        yield from self._begin(process, produced, consumed)
                    yield from self._products(process, self.plan.groups.entered.get(s))
                    yield from self._body(process, inner.statements)
                    for stretch in end:
                        yield self._serve(process, stretch)
                        self._write(process, stretch)
                    if stop.told:
                        process.complete = max(process.complete, self._asked_for_all(process, stop))
                    if produced:
                        slots = process.pipelines[produced]
                        self._tell(slots, "filled", max(process.now, slots.landing, process.complete))
                        slots.landing = 0.0
                    elif consumed:
                        yield from self._drained(process, s, stop, consumed)
            yield from self._left(process, s)

    def _drained(
        self, process: _Process, s: Statement, stop: Stop[Stretch], name: str
    ) -> Generator[Pause, None, None]:
        """The end of a block that consumes a slot, which it gives back, or holds while its products go on."""
        if stop.begun and not stop.told:
            process.under_way.append(max([self._asked_for_all(process, stop), *process.under_way[-1:]]))
        own = process.waited.get(name, 0) - 1
        yield from self._products(process, self.plan.groups.behind.get(s))
        if s in self.plan.groups.late:
            process.held[name] = own
        else:
            self._release(process, name, own)

    def _asked_for_all(self, process: _Process, stop: Stop[Stretch]) -> float:
        """When the products of a block end, which are asked for now."""
        begin = process.now
        return max(self._asked_for(process, stretch, begin) for stretch in stop.begun)

    def _asked_for(self, process: _Process, stretch: Stretch, start: float) -> float:
        """When products end that are asked for now, behind what their unit has to do before."""
        end = start + stretch.alone_s
        for unit, seconds in stretch.units.items():
            end = max(end, self._use(process, unit, stretch.label, start, seconds))
        self._draw(process, f"{process.row} products", stretch.label, "copy", start, end + stretch.chain_s)
        return end + stretch.chain_s

    def _products(self, process: _Process, wait: Wait | None) -> Generator[Pause, None, None]:
        """Waits until at most so many groups are under way, and gives back what the others have read."""
        if wait is None:
            return
        older = len(process.under_way) - wait.pending
        end = max(process.under_way[: max(0, older)], default=process.now)
        del process.under_way[: max(0, older)]
        if end > process.now:
            self._note(process, "waits for products", "wait", process.now, end)
            yield end
        for name in wait.returned:
            if name in process.held:
                self._release(process, name, process.held.pop(name))

    def _left(self, process: _Process, s: Statement) -> Generator[Pause, None, None]:
        """What a loop has left under way is waited for where it ends."""
        left = self.plan.groups.left.get(s, ())
        if left:
            yield from self._products(process, Wait(0, left))

    def _begin(self, process: _Process, produced: str, consumed: str) -> Iterator[Pause]:
        """Waits for a free slot, for a filled one, or for the role's turn."""
        if produced:
            number = process.acquired.get(produced, 0)
            process.acquired[produced] = number + 1
            yield from self._until(process, "freed", produced, number - self.plan.stages[produced])
        elif consumed in self.plan.turns:
            yield from self._until(process, "freed", consumed, self._turn(process, consumed) - 1)
        else:
            number = process.waited.get(consumed, 0)
            process.waited[consumed] = number + 1
            yield from self._until(process, "filled", consumed, number)

    def _turn(self, process: _Process, name: str) -> int:
        """The number of the turn that a role takes next: they go around, role after role, from tile to tile."""
        takers = self.takers[name]
        taken = process.turned.get(name, 0)
        process.turned[name] = taken + 1
        return taken * len(takers) + takers.index(process.plan.role)

    def _fetch(self, process: _Process, copy: Stretch, into: str) -> float:
        """When the role goes on that has issued a copy; the slot is full when all of its copies have landed."""
        end, landing = self._copy(process, copy, process.now)
        slots = process.pipelines[into]
        slots.landing = max(slots.landing, landing)
        self._note(process, copy.label, "work", process.now, end)
        return end

    def _ring(self, process: _Process, stop: Stop[Stretch], trips: int) -> Iterator[Pause]:
        """The same warps fill and drain: copies are issued between the work on the slot that has come."""
        name, ahead = stop.into, self.plan.stages[stop.into] - 1
        landed: list[float] = []
        for _ in range(min(ahead, trips)):
            landing = 0.0
            for copy in stop.copies:
                end, came = self._copy(process, copy, process.now)
                landing = max(landing, came)
                self._note(process, copy.label, "work", process.now, end)
                if end > process.now:
                    yield end
            landed.append(landing)
        for number in range(trips):
            if ahead == 0:
                self._ask(process, stop.copies, landed)
            if landed[number] > process.now:
                self._note(process, f"waits for {name}", "wait", process.now, landed[number])
                yield landed[number]
            if ahead and number + ahead < trips:
                self._ask(process, stop.copies, landed)
            for inner, done in zip(stop.bodies, stop.ends, strict=True):
                yield from self._body(process, inner.statements)
                for stretch in done:
                    yield self._serve(process, stretch)
                    self._write(process, stretch)

    def _ask(self, process: _Process, copies: Sequence[Stretch], landed: list[float]) -> None:
        """Asks for one slot: the units issue it beside the work on another slot, and the role itself goes on."""
        came = [self._copy(process, copy, process.now)[1] for copy in copies]
        landed.append(max(came, default=process.now))

    def _until(self, process: _Process, what: str, name: str, number: int) -> Iterator[Pause]:
        if number < 0:
            return
        slots = process.pipelines[name]
        times = slots.filled if what == "filled" else slots.freed
        start = process.now
        if len(times) <= number:
            yield (what, name, number)
        if times[number] > process.now:
            yield times[number]
        if process.now > start:
            self._note(process, f"waits for {name}", "wait", start, process.now)

    def _release(self, process: _Process, name: str, number: int) -> None:
        """A slot is free when all roles that consume it have released it, and their products have read it."""
        slots = process.pipelines[name]
        when = max(process.now, process.complete)
        if (others := self.consumers.get(name, 1) - 1) > 0:
            left, before = slots.left.pop(number, (others, 0.0))
            when = max(when, before)
            if left:
                slots.left[number] = left - 1, when
                return
        self._tell(slots, "freed", when)

    def _tell(self, slots: _Slots, what: str, when: float) -> None:
        times = slots.filled if what == "filled" else slots.freed
        times.append(when)
        for listener in slots.listeners.pop((what, len(times) - 1), ()):
            self._schedule(listener, max(when, listener.now))

    # -- units -----------------------------------------------------------------------------------------------------
    def _serve(self, process: _Process, stretch: Stretch) -> float:
        """When work that is waited for is done: every unit serves it in its turn, side by side; then its latencies."""
        start = process.now
        end = start + stretch.alone_s
        for unit, seconds in stretch.units.items():
            end = max(end, self._use(process, unit, stretch.label, start, seconds))
        if any(stretch.read_s):
            arrived = self._memory(process, stretch.label, stretch.read_s, start) + self.plan.latency_s
            end = max(end, arrived - stretch.near_s)
        end += stretch.chain_s
        self._note(process, stretch.label, "work", start, end)
        return end

    def _write(self, process: _Process, stretch: Stretch) -> None:
        """What is written when the role goes on that carried out a stretch; nobody waits for it."""
        if any(stretch.write_s):
            self.drained = max(self.drained, self._memory(process, stretch.label, stretch.write_s, process.now))

    def _copy(self, process: _Process, stretch: Stretch, start: float) -> tuple[float, float]:
        """(when the role goes on, when the copy has landed)."""
        issued = start
        for unit, seconds in stretch.units.items():
            done = self._use(process, unit, stretch.label, start, seconds)
            if unit == "issue":
                issued = done
        landing = self._memory(process, stretch.label, stretch.read_s, start) + self.plan.latency_s
        self._draw(process, f"{process.row} copies", stretch.label, "copy", start, landing)
        return issued, landing

    def _memory(self, process: _Process, label: str, seconds: tuple[float, float], start: float) -> float:
        wave = process.tile if self.plan.persistent else process.cta // self.plan.slots
        scale = self.plan.last_dram if wave >= self.plan.last else 1.0
        l2 = self._use(process, "l2", label, start, seconds[0])
        return max(l2, self._use(process, "dram", label, start, seconds[1] * scale))

    def _use(self, process: _Process, unit: str, label: str, start: float, seconds: float) -> float:
        if seconds <= 0:
            return start
        begin = max(start, self.free[unit])
        end = begin + seconds
        self.free[unit] = end
        self.out.busy_s[unit] += seconds
        if self.keep:
            self._draw(process, unit, label, "work", begin, end)
        return end

    def _note(self, process: _Process, label: str, kind: str, start: float, end: float) -> None:
        if end <= start:
            return
        role = self.out.roles_s.setdefault(process.plan.role, {})
        role[label] = role.get(label, 0.0) + end - start
        if self.keep:
            self._draw(process, process.row, label, kind, start, end)

    def _draw(self, process: _Process, row: str, label: str, kind: str, start: float, end: float) -> None:
        if self.keep > len(self.out.spans):
            self.out.spans.append(Span(row, label, kind, start, end, process.cta, process.tile))
        elif self.keep:
            self.out.drawn_s = min(self.out.drawn_s, start)


def _takers(plan: Plan, name: str) -> tuple[str, ...]:
    """The roles that take turns, in their order."""
    return tuple(
        role.role
        for role in plan.roles
        if any(inner.consumes == name for stop in role.stops.values() for inner in stop.bodies)
    )


def _consumers(plan: Plan) -> dict[str, int]:
    """Pipeline -> how many roles consume each of its slots; of roles that take turns at tiles, one does."""
    found: dict[str, Fraction] = {}
    for role in plan.roles:
        for name in {inner.consumes for stop in role.stops.values() for inner in stop.bodies if not stop.is_ring}:
            found[name] = found.get(name, Fraction(0)) + Fraction(1, role.share[1])
    return {name: math.ceil(share) for name, share in found.items() if name and name not in plan.turns}
