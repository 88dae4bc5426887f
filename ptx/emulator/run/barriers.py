"""CTA barriers: who arrived, who waits, and what is wrong with a barrier that cannot complete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.run.program import BarrierSpec, Terminator
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.clocks import Clock
from tinygpu.ptx.emulator.state.cohort import Cohort, Incomplete, RowSet, compact_rows
from tinygpu.ptx.emulator.state.registers import LANES
from tinygpu.ptx.emulator.state.residents import Residents

Bools = NDArray[np.bool_]
Released = tuple[int, NDArray[np.int64], Bools]
"""(rank of the block to go on with, rows, lanes)."""


@dataclass(slots=True, eq=False)
class Arrival:
    """Rows of one CTA that came to a barrier together, and whether they wait there."""

    rows: NDArray[np.int64]
    lanes: Bools
    waits: bool
    resume: int
    spec: BarrierSpec
    instruction: Instruction
    predicate: Bools | None
    clocks: tuple[Clock, ...] = ()


@dataclass(slots=True, eq=False)
class OpenBarrier:
    """A barrier of one CTA that some threads have reached."""

    expected: int | None
    arrivals: list[Arrival] = field(default_factory=list)
    arrived: int = 0


class Barriers:
    """All open barriers of the resident CTAs."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self.open: dict[tuple[int, int], OpenBarrier] = {}

    def arrive(self, c: Cohort, terminator: Terminator, resume: int) -> list[Released]:
        """A cohort reaches a barrier; returns who goes on now (perhaps nobody)."""
        spec, instruction = terminator.barrier, terminator.instruction
        if spec is None or instruction is None:
            raise ValueError("this block does not end in a barrier")
        residents = self._residents
        emulation = residents.emulation
        active = np.ones((c.n, LANES), np.bool_) if c.mask is None else c.mask
        number = spec.number(c)
        count = None if spec.count is None else spec.count(c)
        predicate = None
        if spec.predicate is not None:
            predicate = np.array(c.spread(spec.predicate(c)))
        if spec.aligned:
            self._check_whole(c, active, instruction)
        emulation.counters.barriers += int(np.count_nonzero(active.any(axis=1)))
        if (
            np.ndim(number) == 0 and count is None and not self.open and c.n == residents.warps
            and predicate is None and bool((active == residents.alive).all())
            and spec.action == "sync"
        ):  # fmt: skip
            self._note_exited(instruction)
            _settle(residents, range(len(residents.ctas)))
            residents.clocks.join_cta(slice(None), emulation.tick)
            if residents.cluster_size == 1:
                residents.shadow.forget_reads()
            if residents.order.follows:
                for cta in range(len(residents.ctas)):
                    members = np.arange(cta, residents.warps, len(residents.ctas))
                    residents.order.join(members, members)
            return [(resume, c.set.index, active)]
        released: list[Released] = []
        comes: Bools = np.asarray(active.any(axis=1))
        met = self._complete_at_once(c, active, comes, number, count, instruction) if spec.action == "sync" else None
        if met is not None:
            released.append((resume, c.set.index[met], active[met]))
            comes &= ~met
            if not comes.any():
                return released
        numbers = c.spread(number)
        counts = None if count is None else c.spread(count)
        cta_of = c.set.index % len(residents.ctas)
        first_lane = active.argmax(axis=1)
        for cta in np.unique(cta_of[comes]):
            mine = np.flatnonzero((cta_of == cta) & comes)
            if not mine.size:
                continue
            ids = numbers[mine, first_lane[mine]]
            for one in np.unique(ids):
                chosen = mine[ids == one]
                expected = None if counts is None else int(counts[chosen[0], first_lane[chosen[0]]])
                arrival = Arrival(
                    c.set.index[chosen], active[chosen], spec.action != "arrive", resume, spec, instruction,
                    None if predicate is None else predicate[chosen],
                    # Those that do not wait go on at once: the barrier orders what they did before it only.
                    () if spec.action != "arrive" else tuple(
                        residents.clocks.snapshot(int(row), emulation.tick) for row in c.set.index[chosen]
                    ),
                )  # fmt: skip
                released.extend(self._add(int(cta), int(one), expected, arrival))
        return released

    def _complete_at_once(
        self, c: Cohort, active: Bools, comes: Bools, number: Any, count: Any, instruction: Instruction
    ) -> Bools | None:
        """Complete the barriers of all CTAs every thread of which comes now; which rows those are, None for none."""
        residents = self._residents
        ctas, per_cta = len(residents.ctas), residents.warps_per_cta
        if np.ndim(number) or not 0 <= int(number) <= 15:
            return None
        if count is not None and (np.ndim(count) or int(count) != per_cta * LANES):
            return None
        cta_of = c.set.index % ctas
        here = np.bincount(cta_of, weights=active.sum(axis=1), minlength=ctas)
        live = residents.alive.reshape(per_cta, ctas, LANES).sum(axis=(0, 2))
        whole = (here == live) & (live > 0)
        if count is not None:
            whole &= np.bincount(cta_of, weights=comes, minlength=ctas) == per_cta
        whole[[cta for cta, other in self.open if other == number]] = False
        met = np.flatnonzero(whole)
        if not met.size:
            return None
        if count is None:
            self._note_exited(instruction, met)
        _settle(residents, met.tolist())
        residents.clocks.join_cta(met, residents.emulation.tick)
        if residents.order.follows:
            for cta in met.tolist():
                everyone = np.arange(cta, residents.warps, ctas)
                residents.order.join(everyone, everyone)
        return np.asarray(whole[cta_of] & comes)

    def _check_whole(self, c: Cohort, active: Bools, instruction: Instruction) -> None:
        rows = c.set.rows  # who is about to exit is as good as gone, in whatever order lanes are run
        alive = self._residents.alive[rows] & ~(self._residents.at_exit[rows] & ~active)
        partial = (active != alive).any(axis=1) & active.any(axis=1)
        if not partial.any():
            return
        if c.patient:
            raise Incomplete(partial[:, None] & active)
        at = int(np.argmax(partial))
        lane = int(np.argmax(active[at]))
        self._residents.emulation.fault(
            "barrier", instruction, self._residents, int(c.set.index[at]), lane,
            f"`{instruction.name}` is executed by {int(active[at].sum())} of the warp's {int(alive[at].sum())} live "
            "lanes: all lanes of a warp must reach it together, so take it out of the branch that parted them",
        )  # fmt: skip

    def _note_exited(self, instruction: Instruction, ctas: NDArray[np.int64] | None = None) -> None:
        residents = self._residents
        exited = residents.alive != residents.exists
        if ctas is not None:
            exited = exited.reshape(residents.warps_per_cta, len(residents.ctas), LANES)[:, ctas]
        if not exited.any():
            return
        residents.emulation.advise(
            "barrier after exit", instruction,
            "some threads of the CTA have exited before this barrier; hardware counts them as arrived",
        )  # fmt: skip

    def _add(self, cta: int, number: int, expected: int | None, arrival: Arrival) -> list[Released]:
        residents = self._residents
        emulation = residents.emulation
        row = int(arrival.rows[0])
        if not 0 <= number <= 15:
            emulation.fault(
                "barrier", arrival.instruction, residents, row, None,
                f"barrier {number} does not exist: a CTA has barriers 0 to 15",
            )  # fmt: skip
        if expected is not None and (expected <= 0 or expected % LANES):
            emulation.fault(
                "barrier", arrival.instruction, residents, row, None,
                f"the thread count of barrier {number} is {expected}: it must be a positive multiple of 32",
            )  # fmt: skip
            expected = max(LANES, (expected + LANES - 1) // LANES * LANES)
        barrier = self.open.setdefault((cta, number), OpenBarrier(expected))
        if barrier.expected != expected:
            emulation.fault(
                "barrier", arrival.instruction, residents, row, None,
                f"barrier {number} is used with {_threads(expected)} here, but with {_threads(barrier.expected)} by "
                f"the threads that reached it on line {barrier.arrivals[0].instruction.line}: all must give the same "
                "count",
            )  # fmt: skip
        barrier.arrivals.append(arrival)
        barrier.arrived += self._weight(arrival, expected)
        needed = self._needed(cta, barrier)
        if barrier.arrived > needed:
            emulation.fault(
                "barrier", arrival.instruction, residents, row, None,
                f"{barrier.arrived} threads have reached barrier {number}, which completes at {needed}: give every "
                "group of threads its own barrier, or the right count",
            )  # fmt: skip
        if barrier.arrived < needed:
            return []
        return self._complete(cta, number, barrier)

    def _weight(self, arrival: Arrival, expected: int | None) -> int:
        """Threads that an arrival counts for: with an explicit count a whole warp counts 32, whatever lanes exist."""
        if expected is None:
            return int(arrival.lanes.sum())
        whole = (arrival.lanes == self._residents.alive[arrival.rows]).all(axis=1)
        return int(np.where(whole, LANES, arrival.lanes.sum(axis=1)).sum())

    def _needed(self, cta: int, barrier: OpenBarrier) -> int:
        if barrier.expected is not None:
            return barrier.expected
        # Hardware counts exited threads as arrived at a barrier of the whole CTA (CUDA C++ Programming Guide,
        # "Independent Thread Scheduling": all non-exited threads).
        count = len(self._residents.ctas)
        return int(self._residents.alive[cta::count].sum())

    def _complete(self, cta: int, number: int, barrier: OpenBarrier) -> list[Released]:
        residents = self._residents
        del self.open[cta, number]
        rows = np.unique(np.concatenate([a.rows for a in barrier.arrivals]))
        waiting = np.unique(
            np.concatenate([a.rows for a in barrier.arrivals if a.waits] or [np.zeros(0, np.int64)])
        )
        tick = residents.emulation.tick
        everyone = np.arange(cta, residents.warps, len(residents.ctas))
        if barrier.expected is None and waiting.size == rows.size:
            self._note_exited(barrier.arrivals[-1].instruction, np.array([cta]))
            _settle(residents, [cta])
            residents.clocks.join_cta(np.array([cta]), tick)
            residents.order.join(everyone, everyone)
        elif rows.size == everyone.size and waiting.size == everyone.size:
            _settle(residents, [cta])
            residents.clocks.join_cta(np.array([cta]), tick)
            residents.order.join(everyone, everyone)
        elif waiting.size:
            early = [clock for a in barrier.arrivals for clock in a.clocks]
            residents.settle_doubts(waiting)
            residents.clocks.join(waiting, waiting, tick, early)
            residents.order.join(rows, waiting)
        self._reduce(barrier)
        return [(a.resume, a.rows, a.lanes) for a in barrier.arrivals if a.waits]

    def _reduce(self, barrier: OpenBarrier) -> None:
        with_result = [a for a in barrier.arrivals if a.predicate is not None and a.spec.result is not None]
        if not with_result:
            return
        held = sum(int((a.predicate & a.lanes).sum()) for a in with_result if a.predicate is not None)
        total = sum(int(a.lanes.sum()) for a in with_result)
        for arrival in with_result:
            action = arrival.spec.action
            holds = held == total if action == "and" else held > 0
            value: Any = np.uint32(held) if action == "popc" else np.bool_(holds)
            self._write(arrival, value)

    def _write(self, arrival: Arrival, value: Any) -> None:
        residents = self._residents
        if arrival.spec.result is None:
            return
        for at, row in enumerate(arrival.rows):
            rowset: RowSet = residents.rowset(compact_rows(np.array([row])))
            if not isinstance(rowset.rows, slice):
                raise ValueError("one row is always a slice")
            files = residents.registers.view(rowset.rows, arrival.spec.written)
            c = Cohort(residents, rowset, files, arrival.lanes[at : at + 1])
            np.copyto(arrival.spec.result(c), value, where=c.where)

    def after_exit(self, ctas: NDArray[np.int64]) -> list[Released]:
        """Threads of these CTAs exited: barriers of the whole CTA may be complete now."""
        released: list[Released] = []
        for cta, number in [key for key in self.open if key[0] in set(ctas.tolist())]:
            barrier = self.open[cta, number]
            if barrier.expected is None and barrier.arrived >= self._needed(cta, barrier) > 0:
                released.extend(self._complete(cta, number, barrier))
        return released

    def describe(self) -> tuple[Instruction, int, str]:
        """(instruction, row, sentence) that says who waits for what, for a deadlock."""
        residents = self._residents
        count = len(residents.ctas)
        (cta, number), barrier = next(iter(self.open.items()))
        first = barrier.arrivals[0]
        waiting: dict[int, str] = {}
        for (other_cta, other_number), other in self.open.items():
            if other_cta != cta:
                continue
            for arrival in other.arrivals:
                if arrival.waits:
                    line = arrival.instruction.line
                    for row in arrival.rows:
                        waiting[int(row) // count] = f"waits at barrier {other_number} on line {line}"
        arrived = sorted({int(r) // count for a in barrier.arrivals for r in a.rows})
        missing = []
        for warp in range(residents.warps_per_cta):
            if warp in arrived:
                continue
            alive = bool(residents.alive[warp * count + cta].any())
            missing.append(f"warp {warp} {waiting.get(warp, 'has exited' if not alive else 'never comes')}")
        sentence = (
            f"deadlock: barrier {number} has {barrier.arrived} of {self._needed(cta, barrier)} threads (warps "
            f"{', '.join(map(str, arrived))}), and no other thread can run"
        )
        if missing:
            sentence += ": " + "; ".join(missing[:8])
        sentence += ". Every thread that the barrier counts must reach it"
        return first.instruction, int(first.rows[0]), sentence


def _settle(residents: Residents, ctas: Iterable[int]) -> None:
    """All warps of these CTAs meet."""
    if residents.doubts:
        for cta in ctas:
            residents.settle_doubts(np.arange(cta, residents.warps, len(residents.ctas)))


def _threads(count: int | None) -> str:
    return "all threads of the CTA" if count is None else f"{count} threads"
