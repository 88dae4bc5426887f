"""Runs resident CTAs: cohorts of warps at the same place, lowest rank first, with turns for all where some poll.

Lowest rank first makes lanes meet again where their paths join. A loop that polls memory (a spin lock, a flag) would
run forever that way while the lanes it waits for stand behind it; after some rounds of polling everyone gets turns.
From then on lanes may arrive one by one where an instruction needs them together: they are held there until the rest
comes.

Warps that wait (for an mbarrier, for tensor memory) are set aside until what they ask for has happened. When nobody can
run, asynchronous work is completed; when there is none, waits that have a time limit end without success; when even
that changes nothing, the kernel is deadlocked.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.faults import EmulationFault
from tinygpu.ptx.emulator.run.barriers import Barriers, Released
from tinygpu.ptx.emulator.run.delays import Delays
from tinygpu.ptx.emulator.run.groups import Bools, Group, Place, lanes_of, merge, subset
from tinygpu.ptx.emulator.run.program import CompiledBlock
from tinygpu.ptx.emulator.run.sleepers import NEVER, Sleepers, key
from tinygpu.ptx.emulator.run.standstill import FIRST_SNAPSHOT, Standstill
from tinygpu.ptx.emulator.source.control_flow import EXIT
from tinygpu.ptx.emulator.source.syntax import Instruction, TextOperand
from tinygpu.ptx.emulator.state.cohort import Cohort, Incomplete, MustWait, RowSet, compact_rows
from tinygpu.ptx.emulator.state.registers import LANES
from tinygpu.ptx.emulator.state.residents import Residents

_STOPPED = {
    "trap": "the kernel stopped itself (trap, or a failed assertion)",
    "brkpt": "the kernel came to a breakpoint (brkpt), and no debugger is attached",
}
# What an uninitialised register does at the end of a block, by how the block ends.
_ENDS = {
    "branch": "decides a branch", "switch": "selects a branch target",
    "barrier": "says what is done at a barrier", "trap": "decides whether this instruction executes",
}  # fmt: skip
# After so many polling blocks during which others could have run but did not, everyone gets turns for a while.
_PATIENCE = 128
_FAIR_TURNS = 512
# Polling so often without any thread changing any memory counts as waiting for something that never comes.
_FRUITLESS_POLLS = 50_000
# Polling so often without any change lets asynchronous work go on; what is awaited may be the last of many copies.
_POLLS_OF_LATE_WORK = 100
_POLLS_OF_MORE_LATE_WORK = 10


class Scheduler:
    """What can run in one batch of CTAs, by place; and what is held until other lanes come."""

    def __init__(self, residents: Residents, step_limit: int) -> None:
        self._residents = residents
        self._blocks = residents.emulation.program.blocks
        self._ready: dict[Place, list[Group]] = {}
        self._held: dict[Place, list[Group]] = {}
        self._barriers = Barriers(residents)
        self._steps = 0
        self._step_limit = step_limit
        self._passed_over = 0
        self._fair = 0
        self._last_run: dict[Place, int] = {}
        self._preempted = False
        self._ended = False
        self._last: Instruction | None = None
        self._polls = 0
        self._standstill = Standstill(residents)
        self._seen_changes = -1
        self._sleepers = Sleepers(residents, self._blocks, self._add)
        random = residents.emulation.random if residents.emulation.order == "random" else None
        self._delays = None if random is None else Delays(random, len(residents.ctas))
        self._delayed: list[tuple[int, Place, Group]] = []

    def run(self) -> None:
        """Run until every thread has exited. A deadlock is a fault."""
        residents = self._residents
        everyone = residents.rowset(slice(0, residents.warps, 1))
        self._go(0, everyone, None if residents.exists.all() else residents.exists.copy())
        while self._step():
            pass
        residents.agents.finish_all()
        if self._sleepers or self._barriers.open:
            self._report_deadlock()

    def _step(self) -> bool:
        """Let somebody go on; False when nobody can."""
        residents = self._residents
        self._sleepers.wake()
        if self._delays is not None:
            self._delay(self._delays)
        if self._ready:
            if residents.emulation.order == "random" and len(residents.agents) and self._chance():
                residents.agents.run_one()
            elif self._run_ready():
                return not self._ended
        if residents.agents.run_one():
            return True
        if self._ready:
            # Lanes that ran ahead of waiting ones of their warp: those may be waiting for them.
            self._preempted = True
            self._run_place(min(self._ready), False)
            return not self._ended
        if self._sleepers and self._sleepers.end_by_time_limit():
            return True
        causes = sorted(place for place in self._held if not self._waits_for_sleepers(place))
        if causes:
            self._run_block(causes[0], *merge(self._residents, self._held.pop(causes[0])), False)
            return True
        return False

    def _waits_for_sleepers(self, place: Place) -> bool:
        """Whether lanes are held only because other lanes of their warps wait: what those wait for is the cause."""
        rows, lanes = merge(self._residents, self._held[place])
        missing = self._residents.alive[rows.index] & ~lanes_of((rows, lanes))
        asleep = self._sleepers.until[rows.index] != NEVER
        return bool(missing.any()) and bool(asleep[missing.any(axis=1)].all())

    def _delay(self, delays: Delays) -> None:
        """Let warps go on whose delay is over, or all where nobody else can run; delay others by chance."""
        delayed, self._delayed = self._delayed, []
        nobody_else = not self._ready
        for until, place, item in delayed:
            if self._steps < until and not nobody_else:
                self._delayed.append((until, place, item))
            else:
                self._ready.setdefault(place, []).append(item)
        rows = delays.choose(self._free_rows(), self._steps)
        if not rows.size or self._polls >= FIRST_SNAPSHOT:
            return
        self._preempted = True
        until = self._steps + delays.length()
        late = np.zeros(self._residents.warps, np.bool_)
        late[rows] = True
        for place in list(self._ready):
            rowset, mask = merge(self._residents, self._ready.pop(place))
            lanes = lanes_of((rowset, mask))
            going = late[rowset.index]
            if not going.all():
                self._ready[place] = [self._subset(lanes & ~going[:, None], rowset)]
            if going.any():
                self._delayed.append((until, place, self._subset(lanes & going[:, None], rowset)))

    def _free_rows(self) -> NDArray[np.int64]:
        """Warps that are ready and have no lanes that wait, are held or are delayed."""
        busy = self._sleepers.until != NEVER
        for item in (*(i for items in self._held.values() for i in items), *(i for _, _, i in self._delayed)):
            busy[item[0].index] = True
        ready = np.zeros(busy.size, np.bool_)
        for items in self._ready.values():
            for rowset, _ in items:
                ready[rowset.index] = True
        return np.flatnonzero(ready & ~busy)

    def _chance(self) -> bool:
        return bool(self._residents.emulation.random.integers(4) == 0)

    def _run_ready(self) -> bool:
        """Run the next place that need not stay behind waiting lanes of its warps; False where all must."""
        place = self._choose()
        if not self._sleepers:
            return self._run_place(place, False)
        if self._run_place(place, True):
            return True
        return any(self._run_place(other, True) for other in sorted(self._ready) if other != place)

    def _run_place(self, place: Place, converge: bool) -> bool:
        """Run what is ready at a place; with `converge` only warps none of whose lanes waits at an earlier place."""
        if converge:
            items = self._ready[place]
            behind = [self._sleepers.until[rowset.index] < key(place) for rowset, _ in items]
            if all(bool(rows.all()) for rows in behind):
                return False
            if any(bool(rows.any()) for rows in behind):
                rowset, mask = merge(self._residents, items)
                held_back = self._sleepers.until[rowset.index] < key(place)
                lanes = lanes_of((rowset, mask))
                self._ready[place] = [self._subset(lanes & held_back[:, None], rowset)]
                self._run_block(place, *self._subset(lanes & ~held_back[:, None], rowset), True)
                return True
        if self._gave_up(place):
            self._ended = True
            return True
        items = self._ready.pop(place)
        self._run_block(place, *merge(self._residents, items), self._preempted or bool(self._sleepers))
        return True

    def _report_deadlock(self) -> None:
        instruction, row, sentence = (self._sleepers if self._sleepers else self._barriers).describe()
        if self._sleepers and self._barriers.open:
            arrival, _, waiting = self._barriers.describe()
            sentence += f"; on line {arrival.line}, {waiting.removeprefix('deadlock: ')}"
        for place in sorted(self._held) if self._sleepers else ():
            rows = np.unique(np.concatenate([rowset.index for rowset, _ in self._held[place]]))
            at = self._instruction(place)
            warps = ", ".join(self._residents.warp_name(row).removeprefix("warp ") for row in rows[:4].tolist())
            line = 0 if at is None else at.line
            sentence += f"; lanes of warp {warps} wait on line {line} for the rest of their warp"
        self._residents.emulation.fault("deadlock", instruction, self._residents, row, None, sentence)

    def _choose(self) -> Place:
        if len(self._ready) == 1:
            self._passed_over = 0
            return next(iter(self._ready))
        if self._fair:
            self._fair -= 1
            place = min(self._ready, key=lambda p: self._last_run.get(p, 0))
            self._last_run[place] = self._steps
            return place
        place = min(self._ready)
        if self._blocks[place[0]].polls:
            self._passed_over += 1
            if self._passed_over > _PATIENCE:
                self._passed_over = 0
                self._fair = _FAIR_TURNS
                self._preempted = True
                self._last_run.clear()
        return place

    def _gave_up(self, place: Place) -> bool:
        """Whether the run cannot end; that is a fault, and (where faults are collected) the end of this batch."""
        self._steps += 1
        if self._blocks[place[0]].polls:
            changes = self._residents.emulation.changes
            self._polls = 0 if changes != self._seen_changes else self._polls + 1
            self._seen_changes = changes
            if self._polls % _POLLS_OF_LATE_WORK == _POLLS_OF_LATE_WORK - 1 and self._residents.agents.run_one():
                self._polls -= _POLLS_OF_MORE_LATE_WORK
                self._seen_changes = self._residents.emulation.changes
        if self._stands_still(place):
            sentence = (
                f"deadlock: {self._polls} polls ({self._where()}) changed no memory, and every thread is back where it "
                "was: what they wait for never comes"
            )
        elif self._polls > _FRUITLESS_POLLS:
            sentence = (
                f"deadlock: in {_FRUITLESS_POLLS} polls ({self._where()}) no thread changed any memory, so what they "
                "wait for never comes"
            )
        elif self._steps > self._step_limit:
            sentence = (
                f"no end after {self._step_limit} blocks ({self._where()}): a loop waits for something that never "
                "happens, or step_limit is too low"
            )
        else:
            return False
        instruction = self._instruction(place)
        if instruction is not None:
            row = int(self._ready[place][0][0].index[0])
            self._residents.emulation.fault("deadlock", instruction, self._residents, row, None, sentence)
        return True

    def _stands_still(self, place: Place) -> bool:
        if not self._blocks[place[0]].polls or self._sleepers or self._delayed or len(self._residents.agents):
            return False
        return self._standstill.came_back(self._polls, self._ready, self._held)

    def _instruction(self, place: Place) -> Instruction | None:
        block = self._blocks[place[0]]
        return block.operations[0].instruction if block.operations else block.terminator.instruction

    def _where(self) -> str:
        """Which lines threads are at."""
        lines = {i.line for i in (self._instruction(place) for place in (*self._ready, *self._held)) if i is not None}
        return "line " + ", ".join(str(line) for line in sorted(lines)[:6])

    def _add(self, place: Place, group: Group) -> None:
        self._ready.setdefault(place, []).append(group)

    def _subset(self, lanes: Bools, within: RowSet | None) -> Group:
        return subset(self._residents, lanes, within)

    def _run_block(self, place: Place, rowset: RowSet, mask: Bools | None, patient: bool) -> None:
        block = self._blocks[place[0]]
        residents = self._residents
        registers = residents.registers
        in_flight = residents.in_flight
        rows = rowset.rows
        if self._standstill.watching:
            self._standstill.moved(rows)
        if isinstance(rows, slice):
            files = registers.view(rows, block.touched)
        else:
            files, _ = registers.gather(rows, block.touched)
        c = Cohort(residents, rowset, files, mask, patient)
        position = place[1]
        if position == 0:
            block.executed += c.n
            block.threads += c.n * LANES if mask is None else int(np.count_nonzero(mask))
        try:
            for step in block.steps[position:] if position else block.steps:
                residents.emulation.line = step.instruction.line
                if residents.tainted or in_flight.busy or in_flight.awaited:
                    step.careful(c)
                else:
                    step.run(c)
                position += 1
            if not isinstance(rows, slice):
                registers.scatter(rows, block.written, files)
                rows = slice(0, 0)
            self._end(block, c)
        except EmulationFault:
            if not isinstance(rows, slice):
                registers.scatter(rows, block.written, files)
            raise
        except Incomplete as incomplete:
            if not isinstance(rows, slice):
                registers.scatter(rows, block.written, files)
            self._hold((place[0], position), rowset, mask, incomplete.lanes)
        except MustWait as wait:
            if not isinstance(rows, slice):
                registers.scatter(rows, block.written, files)
            self._sleepers.add((place[0], position), (rowset, mask), wait)

    def _hold(self, place: Place, rowset: RowSet, mask: Bools | None, held: Bools | None) -> None:
        """Keep the held lanes until others join them (with others already there, all try again); the rest goes on."""
        lanes = lanes_of((rowset, mask))
        stays = lanes if held is None else lanes & held
        if not np.array_equal(stays, lanes):
            self._ready.setdefault(place, []).append(self._subset(lanes & ~stays, rowset))
        kept = self._subset(stays, rowset)
        waiting = self._held.pop(place, None)
        if waiting is None:
            self._held[place] = [kept]
        else:
            self._ready.setdefault(place, []).extend([*waiting, kept])

    def _end(self, block: CompiledBlock, c: Cohort) -> None:
        terminator = block.terminator
        kind = terminator.kind
        if terminator.instruction is not None:
            self._last = terminator.instruction
        elif block.operations:
            self._last = block.operations[-1].instruction
        if self._residents.tainted and terminator.instruction is not None:
            for slot in terminator.condition_slots:
                self._residents.require_initialised(c, slot, terminator.instruction, _ENDS[kind])
        if kind == "next":
            self._go(block.targets[0], c.set, c.mask)
        elif kind == "branch":
            self._branch(block, c)
        elif kind == "exit":
            self._go(EXIT, c.set, c.mask)
        elif kind == "barrier":
            self._standstill.forget()
            released = self._barriers.arrive(c, terminator, block.targets[0])
            if terminator.barrier is not None and terminator.barrier.action == "arrive":
                self._go(block.targets[0], c.set, c.mask)
            self._release(released)
        elif kind == "switch":
            self._switch(block, c)
        elif kind == "trap":
            self._trap(block, c)

    def _go(self, target: int, rowset: RowSet, mask: Bools | None) -> None:
        if target == EXIT:
            self._exit(rowset, mask)
        else:
            block = self._blocks[target]
            if block.terminator.kind == "exit" and not block.operations:
                self._residents.at_exit[rowset.rows] |= True if mask is None else mask
            self._ready.setdefault((target, 0), []).append((rowset, mask))

    def _release(self, released: list[Released]) -> None:
        for resume, rows, lanes in released:
            rowset = self._residents.rowset(compact_rows(rows))
            self._go(resume, rowset, None if lanes.all() else lanes)

    def _exit(self, rowset: RowSet, mask: Bools | None) -> None:
        residents = self._residents
        residents.emulation.changes += 1
        if mask is None:
            residents.alive[rowset.rows] = False
        else:
            residents.alive[rowset.rows] &= ~mask
        ctas = np.unique(rowset.cta)
        if self._barriers.open:
            self._release(self._barriers.after_exit(ctas))
        for cta in ctas:
            if residents.cluster_size > 1:
                residents.cluster_barriers.after_exit(int(cta))
            if self._last is not None and not residents.alive[residents.rows_of(int(cta))].any():
                residents.reach.check_leaving(int(cta), self._last)

    def _branch(self, block: CompiledBlock, c: Cohort) -> None:
        terminator = block.terminator
        if terminator.condition is None or terminator.instruction is None:
            raise ValueError("a branch has a condition")
        holds = terminator.condition(c)
        counters = c.emulation.counters
        if c.mask is None:
            if holds.all():
                counters.branches += c.n
                self._go(block.targets[0], c.set, None)
                return
            if not holds.any():
                counters.branches += c.n
                self._go(block.targets[1], c.set, None)
                return
            taken, other = holds.copy(), ~holds
        else:
            taken, other = holds & c.mask, ~holds & c.mask
        taken_rows, other_rows = taken.any(axis=1), other.any(axis=1)
        counters.branches += int(np.count_nonzero(taken_rows | other_rows))
        counters.divergent_branches += int(np.count_nonzero(taken_rows & other_rows))
        if taken_rows.any():
            self._go(block.targets[0], *self._subset(taken, c.set))
        if other_rows.any():
            self._go(block.targets[1], *self._subset(other, c.set))

    def _switch(self, block: CompiledBlock, c: Cohort) -> None:
        terminator = block.terminator
        if terminator.selector is None or terminator.instruction is None:
            raise ValueError("a switch has a selector")
        values = c.spread(terminator.selector(c)).astype(np.int64)
        active = np.ones((c.n, LANES), np.bool_) if c.mask is None else c.mask
        counters = c.emulation.counters
        counters.branches += int(np.count_nonzero(active.any(axis=1)))
        first = values[np.arange(c.n), active.argmax(axis=1)][:, None]
        counters.divergent_branches += int(np.count_nonzero(((values != first) & active).any(axis=1)))
        beyond = active & (values >= len(block.targets))
        if beyond.any():
            at, lane = divmod(int(np.argmax(beyond.reshape(-1))), LANES)
            c.emulation.fault(
                "launch", terminator.instruction, self._residents, int(c.set.index[at]), lane,
                f"brx.idx has {len(block.targets)} targets, but its index is {int(values[at, lane])}",
            )  # fmt: skip
            self._exit(*self._subset(beyond, c.set))
        for position in np.unique(values[active & ~beyond]):
            lanes = active & (values == position)
            self._go(block.targets[int(position)], *self._subset(lanes, c.set))

    def _trap(self, block: CompiledBlock, c: Cohort) -> None:
        terminator = block.terminator
        if terminator.instruction is None:
            raise ValueError("a trap has an instruction")
        active = np.ones((c.n, LANES), np.bool_) if c.mask is None else c.mask
        if terminator.condition is not None:
            rest = active & ~np.asarray(terminator.condition(c))
            active = active & terminator.condition(c)
            if rest.any():
                self._go(block.targets[-1], *self._subset(rest, c.set))
        if not active.any():
            return
        at, lane = divmod(int(np.argmax(active.reshape(-1))), LANES)
        said = [operand.text for operand in terminator.instruction.operands if isinstance(operand, TextOperand)]
        c.emulation.fault(
            "trap", terminator.instruction, self._residents, int(c.set.index[at]), lane,
            said[0] if said else _STOPPED[terminator.instruction.opcode], count=int(active.sum()),
        )  # fmt: skip
        self._exit(*self._subset(active, c.set))
