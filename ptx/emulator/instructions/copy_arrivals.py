"""cp.async.mbarrier.arrive: an mbarrier hears of copies when they have completed, and so do later waits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.access import shared_order
from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.mbarriers import places, shared_addresses
from tinygpu.ptx.emulator.instructions.pending_copies import CopyQueue, PendingCopy, land, queue_of, rest
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.mbarriers import Mbarrier
from tinygpu.ptx.emulator.state.residents import Residents

ALL = np.int64(2**62)


@dataclass(frozen=True, slots=True, eq=False)
class CopyArrival:
    """An arrival at an mbarrier that happens when the earlier copies of these lanes of a warp have completed."""

    origin: Origin
    barrier: Mbarrier
    lanes: NDArray[np.int64]
    issued: int

    @property
    def queue(self) -> tuple[str, int]:
        return ("cp.async", self.origin.row)

    def complete(self) -> None:
        residents = self.origin.residents
        residents.emulation.next_tick()
        self.land(np.full(32, ALL))
        clock = residents.clocks.nothing().with_entry(
            arriving_column(residents, self.origin.row), residents.emulation.tick
        )
        residents.mbarriers.arrive(self.origin, self.barrier, self.lanes.size, clock, clock)

    def land(self, limit: NDArray[np.int64]) -> None:
        """Finish the copies that it arrives for and whose group is below the limit of their lane, (32,)."""
        residents, row = self.origin.residents, self.origin.row
        queue, column = queue_of(residents), arriving_column(residents, row)
        threads = row * 32 + self.lanes
        kept: list[PendingCopy] = []
        last_group = -1
        for copy in queue.pending:
            done = np.zeros(1, np.bool_)
            if copy.issued <= self.issued:
                done = np.isin(copy.threads, threads) & (copy.group < limit[copy.threads % 32])
            if not done.any():
                kept.append(copy)
                continue
            last_group = max(last_group, int(copy.group[done].max()))
            if not copy.landed:
                land(residents, copy, done)
            if residents.emulation.checking:
                shared_order.mark_written_by(
                    residents, copy.site, copy.index[done], copy.size, np.full(1, column), residents.emulation.tick
                )
            if not done.all():
                kept.append(rest(copy, ~done))
        queue.pending = kept
        if last_group >= 0:
            queue.arrivals[row].append((last_group, residents.emulation.tick))


def arriving_column(residents: Residents, row: int) -> int:
    """The agent that stands for a warp's copies which arrive on mbarriers."""
    cta, warp = row % len(residents.ctas), row // len(residents.ctas)
    return residents.clocks.agent(
        residents.cluster_of(cta), ("cp.async", row), f"the cp.async copies of warp {warp}"
    )


def await_arrivals(c: Cohort, queue: CopyQueue, limit: NDArray[np.int64]) -> None:
    """Copies that arrive on an mbarrier are written by an agent, of which both learn: who waits there, and who here."""
    residents = c.residents
    until = dict(zip(c.set.index.tolist(), limit if c.mask is None else np.where(c.mask, limit, -1), strict=True))
    for operation in residents.agents.pending:
        if isinstance(operation, CopyArrival) and operation.origin.row in until:
            operation.land(until[operation.origin.row])
    for row, groups in until.items():
        ticks = [tick for group, tick in queue.arrivals.get(row, ()) if group < int(groups.max())]
        if ticks:
            column = arriving_column(residents, row)
            residents.clocks.learn(row, residents.clocks.nothing().with_entry(column, max(ticks)))


def arrive(b: Binder, i: Instruction) -> Run:
    """cp.async.mbarrier.arrive: without .noinc it takes one pending arrival more, which is its own."""
    get = shared_addresses(b, i, b.operands(i, 1)[0])
    increments = not i.has("noinc")

    def run(c: Cohort) -> None:
        tick = c.emulation.next_tick()
        for origin, _, place, lanes in places(c, i, get(c)):
            barrier = c.residents.mbarriers.find(origin, *place)
            if barrier is not None:
                if increments:
                    barrier.pending += lanes.size
                queue_of(c.residents).arrivals.setdefault(origin.row, [])
                c.residents.agents.start(CopyArrival(origin, barrier, lanes, tick))

    return run
