"""The CTAs that are resident together: their registers, memories, clocks, and what their warps wait for."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.source.types import Array
from tinygpu.ptx.emulator.state.agents import Agents
from tinygpu.ptx.emulator.state.clocks import ACTOR_BITS, Clock, Clocks, Ticks, join
from tinygpu.ptx.emulator.state.cluster_barriers import ClusterBarriers
from tinygpu.ptx.emulator.state.cluster_reach import ClusterReach
from tinygpu.ptx.emulator.state.cohort import Cohort, RowSet
from tinygpu.ptx.emulator.state.cta_order import CtaOrder
from tinygpu.ptx.emulator.state.doubts import (
    ALL_LANES,
    FOR_EVER,
    NO_DOUBTS,
    UNFENCED,
    UNTIL_FENCE,
    UNTIL_WIDE_FENCE,
    Doubt,
    Doubts,
    actor_of,
    advise,
    handed_on,
    lane_bits,
    left_by_fence,
    relied_on,
)
from tinygpu.ptx.emulator.state.flags import Flags
from tinygpu.ptx.emulator.state.mbarriers import Mbarriers
from tinygpu.ptx.emulator.state.older_values import OlderValues
from tinygpu.ptx.emulator.state.private_bytes import PrivateBytes
from tinygpu.ptx.emulator.state.published import Published
from tinygpu.ptx.emulator.state.registers import ALL_BITS, LANES, RegisterFile, Slot
from tinygpu.ptx.emulator.state.registers_in_flight import RegistersInFlight
from tinygpu.ptx.emulator.state.scopes import Scope
from tinygpu.ptx.emulator.state.setbacks import make_setbacks
from tinygpu.ptx.emulator.state.shadows import SharedShadow

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.instructions.pending_copies import CopyQueue
    from tinygpu.ptx.emulator.source.syntax import Instruction
    from tinygpu.ptx.emulator.state.emulation import Emulation



class Residents:
    """All state of a batch of CTAs; row = warp * ctas + cta, so that one role's warps are a contiguous slice."""

    def __init__(self, emulation: Emulation, ctas: list[tuple[int, int, int]], first_number: int) -> None:
        launch = emulation.launch
        program = emulation.program
        self.emulation = emulation
        self.ctas = ctas
        self.first_number = first_number
        self.warps_per_cta = (launch.threads_per_cta + LANES - 1) // LANES
        count = len(ctas)
        self.warps = self.warps_per_cta * count
        self.registers = RegisterFile(program.register_counts, self.warps)
        # Registers with uninitialised bits: most of the time there are none.
        self.tainted = self.registers.taint
        self.cluster_size = launch.cluster_size
        self.clocks = Clocks(count, self.warps_per_cta, self.cluster_size, emulation.tick)
        self.shared = PrivateBytes(count, program.shared.extent_bytes)
        self.shadow = SharedShadow(
            count, self.warps_per_cta, max(program.shared.extent_bytes, 128), program.shared_granule_bytes
        )
        self.local = PrivateBytes(self.warps * LANES, program.local.extent_bytes)
        # Which bits of local memory were never initialised.
        self.local_unknown = PrivateBytes(self.warps * LANES, program.local.extent_bytes)
        self.local_unknown.data.fill(0xFF)
        self.copies: CopyQueue | None = None
        self.agents = Agents(emulation.order, emulation.random)
        self.setbacks = make_setbacks(emulation.order, emulation.random)
        self.mbarriers = Mbarriers(self)
        self.extensions: dict[str, Any] = {}
        self.in_flight = RegistersInFlight(emulation, self.warps)
        self.touched: dict[Slot, NDArray[np.bool_]] = {}
        # Line of the instruction whose wait is over (or came to its time limit) until it goes on, per warp.
        self.woken: NDArray[np.int64] = np.zeros(self.warps, np.int64)
        self.timed_out: NDArray[np.int64] = np.zeros(self.warps, np.int64)
        self._fenced: dict[int, Clock] = {}
        self._unfenced_clocks: dict[int, dict[Hashable, Clock]] = {}
        # The same of what only fences of cluster scope (or wider) release to other CTAs, or let learn of them.
        self._fenced_abroad: dict[int, Clock] = {}
        self._unfenced_abroad: dict[int, dict[Hashable, Clock]] = {}
        self.doubts: dict[int, dict[int, Doubt]] = {}
        self.older: OlderValues[Published] | None = OlderValues() if emulation.looks_back else None
        self.shared_flags, self.global_flags = Flags(self), Flags(self)
        self.cluster_barriers = ClusterBarriers(self)
        self.proxy_fenced: NDArray[np.int64] = np.zeros(self.warps, np.int64)
        self.reach = ClusterReach(self)
        self.order = CtaOrder(self)
        self.group_counts = np.zeros((self.warps, LANES), np.int64)
        linear = np.arange(self.warps_per_cta)[:, None] * LANES + np.arange(LANES)[None, :]
        exists = np.repeat(linear < launch.threads_per_cta, count, axis=0)
        self.alive: NDArray[np.bool_] = exists.copy()
        # Lanes with nothing but their exit before them: instructions for a whole warp do not wait for these.
        self.at_exit: NDArray[np.bool_] = np.zeros_like(exists)
        self.exists = exists
        self._rowsets: dict[tuple[int, int, int], RowSet] = {}
        self._fill_special(linear, count)
        for slot in program.maybe_uninitialised:
            self.registers.mark(slot, slice(0, self.warps), ALL_BITS[slot[0]])

    def _fill_special(self, linear: NDArray[np.int64], count: int) -> None:
        """Special registers that differ between threads or CTAs are registers like any other, filled in here."""
        launch = self.emulation.launch
        bx, by, _ = launch.block
        thread = np.repeat(linear, count, axis=0)
        ctas = np.array(self.ctas, np.int64)
        cta = np.tile(ctas, (self.warps_per_cta, 1))
        shape = np.array(launch.cluster, np.int64)
        inside, cluster = cta % shape, cta // shape
        rank = inside[:, 0:1] + shape[0] * (inside[:, 1:2] + shape[1] * inside[:, 2:3])
        lane = np.broadcast_to(np.arange(LANES, dtype=np.int64), thread.shape)
        one = np.uint64(1)
        bit = one << lane.astype(np.uint64)
        values: dict[str, Array] = {
            "%tid.x": thread % bx, "%tid.y": thread // bx % by, "%tid.z": thread // (bx * by),
            "%ctaid.x": cta[:, 0:1], "%ctaid.y": cta[:, 1:2], "%ctaid.z": cta[:, 2:3],
            "%cluster_ctaid.x": inside[:, 0:1], "%cluster_ctaid.y": inside[:, 1:2], "%cluster_ctaid.z": inside[:, 2:3],
            "%clusterid.x": cluster[:, 0:1], "%clusterid.y": cluster[:, 1:2], "%clusterid.z": cluster[:, 2:3],
            "%cluster_ctarank": rank,
            "%laneid": lane, "%warpid": thread // LANES,
            "%smid": np.repeat(np.arange(self.warps) % count, 1)[:, None] + self.first_number,
            "%lanemask_eq": bit, "%lanemask_lt": bit - one, "%lanemask_le": bit | (bit - one),
            "%lanemask_gt": ~(bit | (bit - one)), "%lanemask_ge": ~(bit - one),
        }  # fmt: skip
        for name, (group, index) in self.emulation.program.special_slots.items():
            target = self.registers.groups[group][index]
            value = np.broadcast_to(values[name], target.shape)
            target[...] = (value.astype(np.uint64) & np.uint64(0xFFFFFFFF)).astype(target.dtype)

    # ---- uninitialised registers ----------------------------------------------------------------------------------

    def set_taint(self, c: Cohort, slot: Slot, bits: Any) -> None:
        """Mark the uninitialised bits of a register in the active lanes: (n, 32), or 0 for none."""
        self.registers.mark(slot, c.set.rows, bits, c.mask)

    def taint_lanes(self, c: Cohort, slots: list[Slot], lanes: NDArray[np.bool_]) -> None:
        """Mark whole registers uninitialised in these lanes."""
        for slot in slots:
            self.registers.mark(slot, c.set.rows, ALL_BITS[slot[0]], lanes)

    def any_taint(self, c: Cohort, slots: tuple[Slot, ...]) -> NDArray[np.bool_] | None:
        """(n, 32) lanes in which any of these registers has an uninitialised bit; None for none."""
        result: NDArray[np.bool_] | None = None
        for slot in slots:
            bits = self.registers.taint.get(slot)
            if bits is not None:
                part = np.asarray(bits[c.set.rows] != 0)
                result = part if result is None else np.asarray(result | part)
        return None if result is None or not result.any() else result

    def any_taint_per_warp(self, c: Cohort, slots: list[Slot]) -> NDArray[np.bool_]:
        """(n,) warps in which any lane of these registers has an uninitialised bit."""
        bad = self.any_taint(c, tuple(slots))
        return np.zeros(c.n, np.bool_) if bad is None else np.asarray(bad.any(axis=1))

    def require_initialised(self, c: Cohort, slot: Slot, instruction: Instruction, use: str) -> None:
        """A fault where an active lane uses an uninitialised register for something that must be defined."""
        bits = self.registers.taint.get(slot)
        if bits is None:
            return
        bad = bits[c.set.rows] != 0
        if c.mask is not None:
            bad = bad & c.mask
        if not bad.any():
            return
        at, lane = divmod(int(np.argmax(bad.reshape(-1))), LANES)
        name = self.emulation.program.register_names.get(slot, "a register")
        self.emulation.fault(
            "uninitialised", instruction, self, int(c.set.index[at]), lane,
            f"{name} {use}, but it holds a value that was never initialised: give it a value on every path to here",
            count=int(np.count_nonzero(bad)),
        )  # fmt: skip
        self.registers.mark(slot, c.set.rows, 0, bad)

    def rowset(self, rows: slice | NDArray[np.int64]) -> RowSet:
        """The RowSet of a slice (cached) or of an array of rows."""
        if isinstance(rows, slice):
            key = (rows.start, rows.stop, rows.step)
            found = self._rowsets.get(key)
            if found is None:
                found = self._make_rowset(rows, np.arange(rows.start, rows.stop, rows.step))
                self._rowsets[key] = found
            return found
        return self._make_rowset(rows, rows)

    def _make_rowset(self, rows: slice | NDArray[np.int64], index: NDArray[np.int64]) -> RowSet:
        count = len(self.ctas)
        warp = (index // count)[:, None]
        cta = (index % count)[:, None]
        member = self.clocks.own_column[index][:, None]
        return RowSet(
            rows, index, index[:, None], warp, member, cta, cta * self.shared.stride_bytes,
            (cta + self.first_number) * self.warps_per_cta + warp,
            index[:, None] * LANES + np.arange(LANES)[None, :],
            (np.arange(LANES)[None, :] << ACTOR_BITS) + member,
        )  # fmt: skip

    # ---- what warps know ------------------------------------------------------------------------------------------

    def snapshot(self, row: int, lanes: int = ALL_LANES) -> Clock:
        """All that happened before now, as a warp knows, its own accesses among them: what it can release.

        lanes  those that release it, a bit each
        """
        clock = self.clocks.snapshot(row, self.emulation.tick)
        strict, lenient = self.order.known(row) or (None, None)
        doubts, far_doubts = self.doubts_of_release(row, lanes), dict(self.order.doubts.get(row, NO_DOUBTS))
        return Clock(clock.known, clock.proxied, strict, lenient, doubts, far_doubts=far_doubts)

    def learn(self, row: int, clock: Clock) -> None:
        """A warp learns what a clock knows."""
        if clock.doubts or row in self.doubts:
            self._doubt(row, clock)
        self.clocks.learn(row, clock)
        if clock.strict is not None and clock.lenient is not None:
            self.order.absorb(row, clock.strict, clock.lenient, clock.far_doubts)

    def learn_all(self, rows: list[int], clock: Clock) -> None:
        """Several warps learn what a clock knows."""
        if len(rows) == 1 or clock.doubts or self.doubts or clock.strict is not None:
            for row in rows:
                self.learn(row, clock)
        else:
            self.clocks.learn_all(np.array(rows), clock)

    def learn_until_fence(self, row: int, clock: Clock, within: Scope) -> None:
        """A row learns what a clock knows from a flag that it has read without .acquire: doubtful until a fence.

        within  the scope that the fence must have
        """
        unfenced = self.unfenced(row, clock.known, within)
        self.learn(row, replace(clock, strict=None, lenient=None))
        if unfenced:
            self.doubts.setdefault(row, {}).update(unfenced)
        if clock.strict is not None and clock.lenient is not None:
            self.order.doubt(row, clock.far_doubts)
            self.order.learn_unconfirmed(row, clock.strict, clock.lenient, within)

    def unfenced(self, row: int, known: Ticks, within: Scope) -> dict[int, Doubt]:
        """What is doubtful until a fence once a row has learned these ticks, of columns from 0 on, without .acquire."""
        base = UNTIL_WIDE_FENCE if within > Scope.CTA else UNTIL_FENCE
        own = int(self.clocks.own_column[row])
        before, mine = self.clocks.vector[row, : known.size], self.doubts.get(row, {})
        result = {key: doubt for key, doubt in mine.items() if key >= UNTIL_FENCE}
        for column in np.flatnonzero(known > before).tolist():
            if column != own:
                earlier = result.get(base + column)
                low = int(before[column]) if earlier is None else earlier.low
                result[base + column] = Doubt(low, int(known[column]), 0, UNFENCED)
        return result

    def confirm_doubts(self, row: int, known: Ticks) -> None:
        """A row has learned this of its cluster's warps for good."""
        if row not in self.doubts:
            return
        left = {}
        for key, doubt in self.doubts[row].items():
            actor = actor_of(key)
            settled = UNTIL_FENCE <= key < FOR_EVER and actor < known.size
            rest = doubt.beyond(int(known[actor])) if settled else doubt
            if rest is not None:
                left[key] = rest
        self.doubts[row] = left

    # ---- what is known from some lanes only (see doubts) ----------------------------------------------------------

    def active_bits(self, c: Cohort, row: int) -> int:
        """The lanes of a warp of the cohort that are active, a bit each; all where it has no others."""
        if c.mask is None:
            return ALL_LANES
        mask = c.mask[int(np.searchsorted(c.set.index, row))]
        return ALL_LANES if bool((mask | ~self.exists[row]).all()) else lane_bits(mask)

    def doubts_of_release(self, row: int, lanes: int) -> Doubts:
        """What is doubtful of all that a warp knows when these lanes release it."""
        known = handed_on(self.doubts.get(row, NO_DOUBTS))
        low, high = int(self.clocks.warp_synced[row]), int(self.clocks.accessed[row])
        if lanes == ALL_LANES or high <= low:
            return known
        return {**known, int(self.clocks.own_column[row]): Doubt(low, high, lanes)}

    def _doubt(self, row: int, clock: Clock) -> None:
        """What is doubtful of what a row knows, when it has learned what a clock knows."""
        mine = self.doubts.pop(row, {})
        own = int(self.clocks.own_column[row])
        left: dict[int, Doubt] = {}
        for column in mine.keys() | clock.doubts.keys():
            if actor_of(column) == own:
                continue
            old, new = mine.get(column), clock.doubts.get(column)
            if old is not None and new is not None:
                left[column] = old.both(new)
            elif old is not None:
                rest = old.beyond(clock.tick_of(actor_of(column)))
            elif new is not None:
                rest = new.beyond(int(self.clocks.vector[row, actor_of(column)]))
            if (old is None or new is None) and rest is not None:
                left[column] = rest
        if left:
            self.doubts[row] = left

    def settle_doubts(self, rows: NDArray[np.int64]) -> None:
        """All lanes of these warps have met: nothing that they did themselves is doubtful any more."""
        if not self.doubts:
            return
        own = set(self.clocks.own_column[rows].tolist())
        left: dict[int, Doubt] = {}
        for row in rows.tolist():
            for column, doubt in self.doubts.pop(row, {}).items():
                if actor_of(column) not in own:
                    left[column] = doubt.both(left[column]) if column in left else doubt
        if left:
            self.doubts.update((row, dict(left)) for row in rows.tolist())

    def advise_doubts(
        self, instruction: Instruction, rows: NDArray[np.int64], columns: NDArray[np.int64], ticks: NDArray[np.int32]
    ) -> None:
        """Tell who relies on accesses that were released by other lanes than those that made them.

        rows, columns, ticks  who relies on whose accesses, of shapes that go together
        """
        for row in [row for row in np.unique(rows).tolist() if row in self.doubts]:
            cta = row % len(self.ctas)
            first = (cta - cta % self.cluster_size + self.first_number) * self.warps_per_cta
            mine, whose, when = np.broadcast_arrays(rows == row, columns, ticks)
            column = relied_on(self.doubts[row], whose[mine], when[mine], self.emulation.lanes, first)
            if column is not None:
                doubt = self.doubts[row].pop(column)
                advise(self.emulation, instruction, doubt, self.clocks.name(self.cluster_of(cta), actor_of(column)))

    # ---- fences ---------------------------------------------------------------------------------------------------

    def fence(self, row: int, lanes: int = ALL_LANES, near: bool = False) -> None:
        """A warp passes a fence of release and acquire semantics: relaxed arrivals and waits get theirs from it.

        lanes  those that pass it, a bit each
        near   it is of CTA scope
        """
        for waiting in (self._unfenced_clocks,) if near else (self._unfenced_clocks, self._unfenced_abroad):
            learned = waiting.pop(row, None)
            if learned is not None:
                self.learn(row, join(list(learned.values())))
        if row in self.doubts:
            self.doubts[row] = dict(left_by_fence(self.doubts[row], near))
        self._fenced[row] = self.snapshot(row, lanes)
        if not near:
            self._fenced_abroad[row] = self._fenced[row]

    def any_fenced(self, abroad: bool) -> bool:
        """Whether any warp has passed a fence (that reaches other CTAs)."""
        return bool(self._fenced_abroad if abroad else self._fenced)

    def fenced(self, row: int, lanes: int, abroad: bool = False) -> Clock | None:
        """What these lanes release by a relaxed access: what the last fence of the warp released; None without one.

        abroad  to other CTAs, so that a fence of CTA scope does not count
        """
        clock = (self._fenced_abroad if abroad else self._fenced).get(row)
        own = int(self.clocks.own_column[row])
        mine = self.doubts_of_release(row, lanes).get(own)
        if clock is None or mine is None:
            return clock
        return replace(clock, doubts={**clock.doubts, own: mine.by_fence(clock.doubts.get(own))})

    def learn_after_fence(self, row: int, clock: Clock | None, source: Hashable, abroad: bool = False) -> None:
        """A wait found a phase completed, but learns this of memory from the warp's next fence on only.

        source  what was waited for: what it releases later is known to whoever has seen what it released before
        abroad  only from the next fence of cluster scope on
        """
        if clock is not None:
            waiting = self._unfenced_abroad if abroad else self._unfenced_clocks
            waiting.setdefault(row, {})[source] = clock

    # ---- clusters -------------------------------------------------------------------------------------------------

    def cluster_of(self, cta: int) -> int:
        """The resident cluster of a resident CTA."""
        return cta // self.cluster_size

    def warp_name(self, row: int) -> str:
        """How faults call the warp of a row: in clusters with the rank of its CTA."""
        return self.clocks.name(self.cluster_of(row % len(self.ctas)), int(self.clocks.own_column[row]))

    def mates(self, cta: int) -> range:
        """The resident CTAs of a CTA's cluster, by rank."""
        first = cta // self.cluster_size * self.cluster_size
        return range(first, first + self.cluster_size)

    def rows_of(self, cta: int) -> NDArray[np.int64]:
        """The warps of a resident CTA."""
        return np.arange(cta, self.warps, len(self.ctas))

    def drop_overwritten_mbarriers(self, index: NDArray[np.int64], size: int, line: int) -> None:
        """Mbarriers whose bytes are written by something else are gone; `index` counts in all CTAs' shared memory."""
        stride = self.shared.stride_bytes
        offset = index % stride
        low, high = int(offset.min()), int(offset.max()) + size
        for cta in range(int(index.min()) // stride, int(index.max()) // stride + 1):
            for address in self.mbarriers.places_between(cta, low, high):
                place = cta * stride + address
                if bool(((index < place + 8) & (index + size > place)).any()):
                    self.mbarriers.overwritten(cta, address, address + 8, line)

    def mbarriers_between(self, low: int, high: int) -> list[tuple[int, int]]:
        """(CTA, address) of the live mbarriers of which one of these bytes is part, counted over all CTAs."""
        stride = self.shared.stride_bytes
        return [
            (cta, address)
            for cta in range(low // stride, (high - 1) // stride + 1)
            for address in self.mbarriers.places_between(cta, low - cta * stride, high - cta * stride)
        ]

    def who(self, row: int, lane: int) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
        """(CTA, thread) coordinates of a lane of a row."""
        count = len(self.ctas)
        bx, by, _ = self.emulation.launch.block
        linear = row // count * LANES + lane
        return self.ctas[row % count], (linear % bx, linear // bx % by, linear // (bx * by))
