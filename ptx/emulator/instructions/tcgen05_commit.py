"""tcgen05.commit, which tells mbarriers when tensor core work is complete, and tcgen05.fence."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.mbarriers import places, shared_addresses
from tinygpu.ptx.emulator.instructions.tcgen05_work import active_warps, cta_group, lane_values, work_queue
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.clocks import Clock
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.tensor_memory import tensor_memory


@dataclass(slots=True, eq=False)
class CommitWork:
    """An arrival that comes when all earlier tensor core work of the thread is complete.

    clock    what the thread knew when it committed
    column   its tensor core work in the clocks
    targets  (resident CTA, address) of each mbarrier
    """

    origin: Origin
    queue: Hashable
    clock: Clock | None
    column: int
    targets: tuple[tuple[int, int], ...]

    def complete(self) -> None:
        """Arrive."""
        residents = self.origin.residents
        tick = residents.emulation.next_tick()
        for cta, address in self.targets:
            barrier = residents.mbarriers.find(self.origin, cta, address)
            if barrier is None:
                continue
            clock = near = None if self.clock is None else self.clock.with_entry(self.column, tick)
            if self.clock is not None and cta != self.origin.cta:
                near = self.clock.from_abroad(None, residents.clocks.members).with_entry(self.column, tick)
            residents.mbarriers.arrive(self.origin, barrier, 1, clock, near)


def commit(b: Binder, i: Instruction) -> Run:
    """tcgen05.commit."""
    group = cta_group(b, i)
    if not i.has("mbarrier::arrive::one"):
        raise b.fail(f"`{i.name}` needs .mbarrier::arrive::one")
    multicast = i.has("multicast::cluster")
    operands = b.operands(i, 2 if multicast else 1)
    get = shared_addresses(b, i, operands[0])
    masks = b.source(operands[1], "u16") if multicast else None

    def run(c: Cohort) -> None:
        tick = c.emulation.next_tick()
        residents = c.residents
        memory = tensor_memory(residents)
        chosen = None if masks is None else lane_values(c, masks)
        for first, at, (cta, address), lanes in places(c, i, get(c), remote=True):
            for lane in lanes.tolist():
                origin = Origin(residents, i, first.row, lane)
                memory.use_group(origin, group)
                column = memory.order.work_column(origin)
                targets: tuple[tuple[int, int], ...] = ((cta, address),)
                if chosen is not None:
                    targets = _multicast(origin, int(chosen[at, lane]) & 0xFFFF, address)
                targets = tuple(t for t in targets if residents.mbarriers.find(origin, *t) is not None)
                for target, _ in targets:
                    if target != origin.cta and c.emulation.checking:
                        residents.reach.touch(i, origin.row, target, column)
                clock = _released(origin, tick) if c.emulation.checking else None
                residents.agents.start(CommitWork(origin, work_queue(origin), clock, column, targets))

    return run


def _multicast(origin: Origin, mask: int, address: int) -> tuple[tuple[int, int], ...]:
    residents = origin.residents
    size = residents.cluster_size
    if mask >> size:
        origin.fault(
            "cluster",
            f"tcgen05.commit signals CTAs {mask:#06x} of the cluster, which has {size}: bits from {size} on must be 0",
        )
    mates = residents.mates(origin.cta)
    return tuple((mates[rank], address) for rank in range(size) if mask >> rank & 1)


def _released(origin: Origin, tick: int) -> Clock:
    """What the arrival releases: what happened before the commit, as its thread knows.

    The manual does not say that a commit releases the thread's own accesses of shared memory; warp-specialised kernels
    known to be right give back what they have read by a commit alone.
    """
    return origin.residents.snapshot(origin.row)


def fence(b: Binder, i: Instruction) -> Run:
    """tcgen05.fence::before_thread_sync and ::after_thread_sync.

    They order tensor memory by execution, so also through relaxed arrivals and waits, as in the manual's patterns.
    They order tcgen05 work, and nothing else: relaxed arrivals and waits pass on what was executed (Clock.executed).
    """
    b.operands(i, 0)
    before = i.has("fence::before_thread_sync")
    if not before and not i.has("fence::after_thread_sync"):
        raise b.unsupported()

    def run(c: Cohort) -> None:
        if not c.emulation.checking:
            return
        c.emulation.next_tick()
        order = tensor_memory(c.residents).order
        for _, row in active_warps(c):
            if before:
                order.fence_before(row)
            else:
                order.fence_after(row)

    return run
