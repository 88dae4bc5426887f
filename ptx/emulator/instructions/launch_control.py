"""clusterlaunchcontrol: taking over a cluster of the grid that has not started (PTX ISA, "clusterlaunchcontrol").

The 16-byte response is opaque in the manual; here its 32-bit words are the coordinates (x, y, z) of the first CTA of
the cluster that was taken over, and 1 where there was one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tinygpu.ptx.emulator.access.async_shared import Agent, begin_write, check_shared_range, land_write
from tinygpu.ptx.emulator.instructions.binder import Binder, Run
from tinygpu.ptx.emulator.instructions.bulk_parts import touch
from tinygpu.ptx.emulator.instructions.integer import Compile
from tinygpu.ptx.emulator.instructions.mbarriers import places, shared_addresses
from tinygpu.ptx.emulator.source.syntax import Instruction, PairOperand, SinkOperand, VectorOperand
from tinygpu.ptx.emulator.state.agents import Origin
from tinygpu.ptx.emulator.state.cohort import Cohort
from tinygpu.ptx.emulator.state.mbarriers import Mbarrier
from tinygpu.ptx.emulator.state.meter import Site
from tinygpu.ptx.emulator.state.residents import Residents

RESPONSE_BYTES = 16
# Where attempts may fail, one request of so many does.
_ONE_REQUEST_OF = 2


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A request to take over a cluster, on its way: one slot and mbarrier per CTA that is told."""

    agents: tuple[Agent, ...]
    slots: tuple[int, ...]
    barriers: tuple[Mbarrier, ...]

    @property
    def origin(self) -> Origin:
        return self.agents[0].origin

    @property
    def queue(self) -> tuple[str, int]:
        return ("clusterlaunchcontrol", self.origin.residents.cluster_of(self.origin.cta))

    def complete(self) -> None:
        residents = self.origin.residents
        emulation = residents.emulation
        emulation.next_tick()
        taken = None if self._refused() else emulation.take_cluster()
        words = np.array((0, 0, 0, 0) if taken is None else (*taken, 1), np.uint32)
        for agent, slot, barrier in zip(self.agents, self.slots, self.barriers, strict=True):
            land_write(agent, np.array([slot]), RESPONSE_BYTES, words.view(np.uint8)[None, :])
            residents.mbarriers.complete_tx(self.origin, barrier, RESPONSE_BYTES)

    def _refused(self) -> bool:
        """A request may fail while clusters are left, which then start by themselves; so do all after it."""
        residents = self.origin.residents
        setbacks, who = residents.setbacks, self.queue
        if setbacks is None:
            return False
        refused = residents.extensions.setdefault("clusterlaunchcontrol", set())
        if who in refused or bool(residents.emulation.random.integers(_ONE_REQUEST_OF)):
            return who in refused
        refused.add(who)
        return True


def _try_cancel(b: Binder, i: Instruction) -> Run:
    where, signal = b.operands(i, 2)
    get, get_barrier = shared_addresses(b, i, where), shared_addresses(b, i, signal)
    everyone = any(m.startswith("multicast::cluster") for m in i.modifiers)
    b.note_shared_width(4)
    site = b.site(i)

    def run(c: Cohort) -> None:
        c.emulation.next_tick()
        residents = c.residents
        responses = c.spread(get(c)).astype(np.int64)
        for origin, at, place, lanes in places(c, i, get_barrier(c)):
            if origin.cta in _told(residents):
                origin.fault(
                    "cluster",
                    "asks for another cluster after a thread of the CTA has seen that there was none left: behind a no "
                    "a CTA must not ask again; let it end, or go on only where query_cancel.is_canceled is true",
                )
                continue
            for lane in lanes.tolist():
                own = residents.reach.shared_place(origin, int(responses[at, lane]), False)
                if own is None:
                    continue
                _request(origin, site, own[1], place[1], list(residents.mates(origin.cta)) if everyone else [place[0]])

    return run


def _told(residents: Residents) -> set[int]:
    """The resident CTAs in which a thread has seen an answer that says no."""
    found: set[int] = residents.extensions.setdefault("clusterlaunchcontrol, no", set())
    return found


def _request(origin: Origin, site: Site, slot: int, barrier_address: int, ctas: list[int]) -> None:
    residents = origin.residents
    agents: list[Agent] = []
    slots: list[int] = []
    barriers: list[Mbarrier] = []
    for cta in ctas:
        barrier = residents.mbarriers.find(origin, cta, barrier_address)
        if barrier is None:
            return
        touch(origin, cta, barrier)
        agent = Agent(origin, site, barrier.column, residents.clocks.issue(origin.row))
        if not check_shared_range(agent, slot, RESPONSE_BYTES, RESPONSE_BYTES, "clusterlaunchcontrol.try_cancel"):
            return
        index = cta * residents.shared.stride_bytes + slot
        begin_write(agent, np.array([index]), RESPONSE_BYTES)
        agents.append(agent)
        slots.append(index)
        barriers.append(barrier)
    residents.agents.start(Request(tuple(agents), tuple(slots), tuple(barriers)))


def _query(b: Binder, i: Instruction) -> Run:
    """clusterlaunchcontrol.query_cancel: whether a cluster was taken over, and its first CTA's coordinates."""
    target, response = b.operands(i, 2)
    low, high = (b.source(half, "u64") for half in b.vector(response, 2, "a 128-bit response"))
    if i.has("is_canceled"):
        if isinstance(target, PairOperand):
            raise b.fail(f"`{i.name}` gives one predicate")
        write = b.destination(target, "pred")

        def canceled(c: Cohort) -> None:
            yes = c.spread(np.asarray(high(c)) >> np.uint64(32) != 0)
            np.copyto(write(c), yes, where=c.where)
            if c.emulation.checking and not yes.all():
                saw = (~yes & np.broadcast_to(c.where, yes.shape)).any(axis=1)
                _told(c.residents).update(c.set.cta[saw, 0].tolist())

        return canceled
    axes = [m[-1] for m in i.modifiers if m.startswith("get_first_ctaid::")]
    if axes:
        targets = {"xyz".index(axes[0]): target}
    else:
        if not isinstance(target, VectorOperand) or len(target.elements) != 4:
            raise b.fail(f"`{i.name}` gives four registers")
        targets = {k: e for k, e in enumerate(target.elements[:3]) if not isinstance(e, SinkOperand)}
    writers = {axis: b.destination(element, "u32") for axis, element in targets.items()}

    def first_cta(c: Cohort) -> None:
        words = (low(c), np.asarray(low(c)) >> np.uint64(32), high(c))
        values = [(np.asarray(word) & np.uint64(0xFFFFFFFF)).astype(np.uint32) for word in words]
        for axis, writer in writers.items():
            np.copyto(writer(c), values[axis], where=c.where)

    return first_cta


def _launch_control(b: Binder, i: Instruction) -> Run:
    if i.has("try_cancel"):
        return _try_cancel(b, i)
    if i.has("query_cancel"):
        return _query(b, i)
    raise b.unsupported()


LAUNCH_CONTROL: dict[str, Compile] = {"clusterlaunchcontrol": _launch_control}
