"""Runs resident CTAs: cohorts of warps at the same block, lowest rank first, with fairness for those that spin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.barriers import Barriers, Released
from tinygpu.ptx.emulator.control_flow import EXIT
from tinygpu.ptx.emulator.program import CompiledBlock
from tinygpu.ptx.emulator.registers import LANES
from tinygpu.ptx.emulator.residents import Cohort, Residents, RowSet, compact_rows

Bools = NDArray[np.bool_]
# After so many blocks in a row during which others could have run but did not, everyone gets turns for a while.
_PATIENCE = 4096
_FAIR_TURNS = 1024


class Scheduler:
    """What can run in one batch of CTAs, by block."""

    def __init__(self, residents: Residents, step_limit: int) -> None:
        self._residents = residents
        self._blocks = residents.emulation.program.blocks
        self._ready: dict[int, list[tuple[RowSet, Bools | None]]] = {}
        self._barriers = Barriers(residents)
        self._steps = 0
        self._step_limit = step_limit
        self._passed_over = 0
        self._fair = 0
        self._last_run: dict[int, int] = {}

    def run(self) -> None:
        """Run until every thread has exited. A deadlock is a fault."""
        residents = self._residents
        everyone = residents.rowset(slice(0, residents.warps, 1))
        self._push(0, everyone, None if residents.exists.all() else residents.exists.copy())
        while self._ready:
            rank = self._choose()
            rowset, mask = self._merge(self._ready.pop(rank))
            self._run_block(self._blocks[rank], rowset, mask)
        if self._barriers.open:
            instruction, row, sentence = self._barriers.describe()
            residents.emulation.fault("deadlock", instruction, residents, row, None, sentence)

    def _choose(self) -> int:
        self._steps += 1
        if self._steps > self._step_limit:
            rank = min(self._ready)
            rowset, _ = self._ready[rank][0]
            block = self._blocks[rank]
            at = block.operations[0].instruction if block.operations else block.terminator.instruction
            if at is not None:
                self._residents.emulation.fault(
                    "deadlock", at, self._residents, int(rowset.index[0]), None,
                    f"no end after {self._step_limit} blocks: a loop here waits for something that never happens, or "
                    "step_limit is too low",
                )  # fmt: skip
            self._step_limit *= 1 << 62
        if len(self._ready) == 1:
            self._passed_over = 0
            return next(iter(self._ready))
        if self._fair:
            self._fair -= 1
            rank = min(self._ready, key=lambda r: self._last_run.get(r, 0))
            self._last_run[rank] = self._steps
            return rank
        self._passed_over += 1
        if self._passed_over > _PATIENCE:
            self._passed_over = 0
            self._fair = _FAIR_TURNS
            self._last_run.clear()
        return min(self._ready)

    def _push(self, rank: int, rowset: RowSet, mask: Bools | None) -> None:
        self._ready.setdefault(rank, []).append((rowset, mask))

    def _merge(self, items: list[tuple[RowSet, Bools | None]]) -> tuple[RowSet, Bools | None]:
        if len(items) == 1:
            return items[0]
        residents = self._residents
        lanes = np.zeros((residents.warps, LANES), np.bool_)
        for rowset, mask in items:
            if mask is None:
                lanes[rowset.rows] = True
            else:
                lanes[rowset.rows] |= mask
        return self._subset(lanes, None)

    def _subset(self, lanes: Bools, within: RowSet | None) -> tuple[RowSet, Bools | None]:
        """The rows that have lanes, and those lanes; `lanes` is over all warps or over the rows of `within`."""
        rows = lanes.any(axis=1)
        if within is not None and rows.all():
            return within, None if lanes.all() else lanes
        at = np.flatnonzero(rows)
        index = at if within is None else within.index[at]
        rowset = self._residents.rowset(compact_rows(index))
        mask = lanes[at]
        return rowset, None if mask.all() else mask

    def _run_block(self, block: CompiledBlock, rowset: RowSet, mask: Bools | None) -> None:
        residents = self._residents
        registers = residents.registers
        rows = rowset.rows
        if isinstance(rows, slice):
            files = registers.view(rows)
        else:
            files, _ = registers.gather(rows, block.touched)
        c = Cohort(residents, rowset, files, mask)
        block.executed += c.n
        block.threads += c.n * LANES if mask is None else int(np.count_nonzero(mask))
        for operation in block.operations:
            if residents.tainted:
                operation.careful(c)
            else:
                operation.run(c)
        if not isinstance(rows, slice):
            registers.scatter(rows, block.written, files)
        self._end(block, c)

    def _end(self, block: CompiledBlock, c: Cohort) -> None:
        terminator = block.terminator
        kind = terminator.kind
        if kind == "next":
            self._go(block.targets[0], c.set, c.mask)
        elif kind == "branch":
            self._branch(block, c)
        elif kind == "exit":
            self._go(EXIT, c.set, c.mask)
        elif kind == "barrier":
            released = self._barriers.arrive(c, terminator, block.targets[0])
            if terminator.barrier is not None and terminator.barrier.action == "arrive":
                self._push_target(block.targets[0], c.set, c.mask)
            self._release(released)
        elif kind == "switch":
            self._switch(block, c)
        elif kind == "trap":
            self._trap(block, c)

    def _go(self, target: int, rowset: RowSet, mask: Bools | None) -> None:
        if target == EXIT:
            self._exit(rowset, mask)
        else:
            self._ready.setdefault(target, []).append((rowset, mask))

    def _push_target(self, target: int, rowset: RowSet, mask: Bools | None) -> None:
        self._go(target, rowset, mask)

    def _release(self, released: list[Released]) -> None:
        for resume, rows, lanes in released:
            rowset = self._residents.rowset(compact_rows(rows))
            self._go(resume, rowset, None if lanes.all() else lanes)

    def _exit(self, rowset: RowSet, mask: Bools | None) -> None:
        residents = self._residents
        if mask is None:
            residents.alive[rowset.rows] = False
        else:
            residents.alive[rowset.rows] &= ~mask
        if self._barriers.open:
            self._release(self._barriers.after_exit(np.unique(rowset.cta)))

    def _branch(self, block: CompiledBlock, c: Cohort) -> None:
        terminator = block.terminator
        if terminator.condition is None or terminator.instruction is None:
            raise ValueError("a branch has a condition")
        if self._residents.tainted:
            for slot in terminator.condition_slots:
                self._residents.require_initialised(c, slot, terminator.instruction, "decides a branch")
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
        if self._residents.tainted:
            for slot in terminator.condition_slots:
                self._residents.require_initialised(c, slot, terminator.instruction, "selects a branch target")
        values = np.broadcast_to(terminator.selector(c), (c.n, LANES)).astype(np.int64)
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
        c.emulation.fault(
            "trap", terminator.instruction, self._residents, int(c.set.index[at]), lane,
            "the kernel stopped itself (trap, or a failed assertion)", count=int(active.sum()),
        )  # fmt: skip
        self._exit(*self._subset(active, c.set))
