"""The last accesses to each granule of memory: who, when, and by which instruction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.state.clocks import PENDING, Ticks
from tinygpu.ptx.emulator.state.scopes import Scope

LINE_BYTES = 16
"""Of asynchronous work, the line is remembered per so many bytes: bulk copies and operands come in such chunks."""


class SharedReads:
    """The last reads of the shared memory of resident CTAs, per granule.

    read_lane  lane of the last reader that reads() knows of
    latest     by warp of a CTA: when the last of them that reads() knows of read, in any CTA and at any place
    foreign    by column of an agent, or of a warp of another CTA: when it last read each granule
    reach      by column: the first granule that it ever read, and the one behind the last
    offsets    by column: the same, counted from the first granule of the CTA in which it lies
    """

    def __init__(self, warps_per_cta: int, ctas: int, granules_per_cta: int) -> None:
        granules = ctas * granules_per_cta
        self.warps_per_cta = warps_per_cta
        self.latest: Ticks = np.zeros(warps_per_cta, np.int32)
        self.foreign: dict[int, Ticks] = {}
        self.reach: dict[int, tuple[int, int]] = {}
        self.offsets: dict[int, tuple[int, int]] = {}
        self._last_read: Ticks | None = None
        self._read_by: Ticks | None = None
        self.read_lane: NDArray[np.uint8] = np.zeros(granules, np.uint8)
        self._log: list[tuple[NDArray[np.int64], int, NDArray[np.int64], NDArray[np.int64], int]] = []
        self._granules, self._per_cta = granules, granules_per_cta

    def log_read(
        self, index: NDArray[np.int64], span: int, warp: NDArray[np.int64], lane: NDArray[np.int64], tick: int
    ) -> None:
        """Remember reads of vectors of `span` granules; `index` counts such vectors, `warp` is the reader's in its CTA.

        Only for readers in the CTA whose memory it is.
        """
        self._log.append((index, span, warp, lane, tick))
        if len(self._log) > 256:
            self._flush()

    def forget(self) -> None:
        """All reads so far happened before whatever comes: no write can conflict with them any more."""
        self._log.clear()

    def reads(self) -> tuple[Ticks, Ticks] | None:
        """(tick of the last read per granule, the same per warp: (warps per CTA, granules)); None when none."""
        if self._log:
            self._flush()
        if self._last_read is None or self._read_by is None:
            return None
        return self._last_read, self._read_by

    def mark_foreign(self, column: int, index: NDArray[np.int64], span: int, tick: int) -> None:
        """Remember reads by an agent or by a warp of another CTA; PENDING for one that may go on.

        index  counts vectors of `span` granules
        """
        ticks = self.foreign.get(column)
        if ticks is None:
            ticks = self.foreign[column] = np.zeros(self._granules, np.int32)
        ticks.reshape(-1, span)[index] = tick
        if index.size:
            low, high = int(index.min()) * span, (int(index.max()) + 1) * span
            first, behind = self.reach.get(column, (low, high))
            self.reach[column] = min(first, low), max(behind, high)
            low, high = self._within_cta(low, high)
            first, behind = self.offsets.get(column, (low, high))
            self.offsets[column] = min(first, low), max(behind, high)

    def _within_cta(self, low: int, high: int) -> tuple[int, int]:
        """Granules low to high, counted from the first one of their CTA; all of a CTA where they lie in several."""
        cta = low // self._per_cta
        if (high - 1) // self._per_cta != cta:
            return 0, self._per_cta
        return low - cta * self._per_cta, high - cta * self._per_cta

    def foreign_at(self, low: int, high: int) -> Iterator[tuple[int, Ticks]]:
        """(column, its ticks of all granules) of those who may have read granules low to high of any CTA."""
        for column, ticks in self.foreign.items():
            first, behind = self.offsets.get(column, (0, 0))
            if first < high and low < behind:
                yield column, ticks

    def reaches(self, column: int, low: int, high: int) -> bool:
        """Whether an agent, or a warp of another CTA, may have read one of the granules low to high."""
        first, behind = self.reach.get(column, (0, 0))
        return first < high and low < behind

    def foreign_between(self, low: int, high: int) -> Iterator[tuple[int, Ticks]]:
        """(column, its ticks of granules low to high) of those who may have read there."""
        for column, ticks in self.foreign.items():
            if self.reaches(column, low, high):
                yield column, ticks[low:high]

    def finish_foreign(self, column: int, index: NDArray[np.int64], span: int, tick: int) -> None:
        """Reads that were PENDING ended at `tick`."""
        ticks = self.foreign[column].reshape(-1, span)
        part = ticks[index]
        ticks[index] = np.where(part == PENDING, tick, part)

    def _flush(self) -> None:
        if self._last_read is None or self._read_by is None:
            self._last_read = np.zeros(self._granules, np.int32)
            self._read_by = np.zeros((self.warps_per_cta, self._granules), np.int32)
        for index, span, warp, lane, tick in self._log:
            self._last_read.reshape(-1, span)[index] = tick
            self.read_lane.reshape(-1, span)[index] = np.broadcast_to(lane, index.shape)[..., None]
            self._read_by.reshape(self.warps_per_cta, -1, span)[np.broadcast_to(warp, index.shape), index] = tick
            self.latest[warp] = tick
        self._log.clear()


class SharedShadow:
    """Last accesses to the shared memory of resident CTAs, per granule.

    granule_bytes  1, 2 or 4: the narrowest access in the kernel, so that neighbours never look like conflicts
    written        tick of the last write; 0 where nobody wrote
    writer         who: see access.shared_order
    reads          plain reads, and those of asynchronous work
    strong_reads   volatile, relaxed and acquire ones, which may race with atomics and strong writes; None without any
    """

    def __init__(self, ctas: int, warps_per_cta: int, bytes_per_cta: int, granule_bytes: int) -> None:
        self.granule_bytes = granule_bytes
        self.warps_per_cta = warps_per_cta
        self.granules_per_cta = max(1, bytes_per_cta // granule_bytes)
        granules = ctas * self.granules_per_cta
        self.written: Ticks = np.zeros(granules, np.int32)
        self.writer: NDArray[np.int32] = np.zeros(granules, np.int32)
        self.invalid: NDArray[np.bool_] | None = None
        self.atomic: NDArray[np.bool_] | None = None
        self.reads = SharedReads(warps_per_cta, ctas, self.granules_per_cta)
        self.strong_reads: SharedReads | None = None
        self._ctas = ctas
        self._agent_lines: dict[int, NDArray[np.int32]] = {}
        self._chunks = granules * granule_bytes // LINE_BYTES + 1

    def reads_of(self, strong: bool) -> SharedReads:
        """Where plain or strong reads are remembered."""
        if not strong:
            return self.reads
        if self.strong_reads is None:
            self.strong_reads = SharedReads(self.warps_per_cta, self._ctas, self.granules_per_cta)
        return self.strong_reads

    def every_read(self) -> tuple[SharedReads, ...]:
        """Plain and strong reads: what a plain write may conflict with."""
        return (self.reads,) if self.strong_reads is None else (self.reads, self.strong_reads)

    def forget_reads(self) -> None:
        """All reads so far happened before whatever comes: no write can conflict with them any more."""
        for reads in self.every_read():
            reads.forget()

    def note_lines(self, column: int, index: NDArray[np.int64], line: int) -> None:
        """Remember which instruction's asynchronous work reads these bytes, for races to name it."""
        lines = self._agent_lines.get(column)
        if lines is None:
            lines = self._agent_lines[column] = np.zeros(self._chunks, np.int32)
        lines[index // LINE_BYTES] = line

    def agent_line(self, column: int, place: int) -> int:
        """The line of the asynchronous work of an agent that last read the byte `place`; 0 where none is known."""
        lines = self._agent_lines.get(column)
        return 0 if lines is None else int(lines[place // LINE_BYTES])


class GlobalShadow:
    """Last accesses to one window of global memory, per granule; warps are numbered over the whole launch.

    Of readers, the last one and the last one of another CTA are kept; `strong` has those of strong reads (volatile,
    relaxed, acquire), which may race with atomics. `scope` says of which scope strong writes were; None
    where all were of the widest.
    """

    def __init__(self, size_bytes: int, granule_bytes: int) -> None:
        self._size_bytes = size_bytes
        self.granule_bytes = granule_bytes
        self.granules = (size_bytes + 15) // 16 * 16 // granule_bytes
        self.written: Ticks | None = None
        self.writer: NDArray[np.int32] | None = None
        self.atomic: NDArray[np.bool_] | None = None
        self.read: Ticks | None = None
        self.reader: NDArray[np.int32] | None = None
        self.other_read: Ticks | None = None
        self.other_reader: NDArray[np.int32] | None = None
        self.strong: GlobalShadow | None = None
        self.scope: NDArray[np.uint8] | None = None
        self._pending_lines: NDArray[np.int32] | None = None
        self._log: list[tuple[NDArray[np.int64], int, NDArray[np.int64], int]] = []
        self._logged = 0

    def open_writes(self) -> tuple[Ticks, NDArray[np.int32], NDArray[np.bool_]]:
        """(ticks, warps, whether atomic) of the last writes per granule; made on first use."""
        if self.written is None or self.writer is None or self.atomic is None:
            self.written = np.zeros(self.granules, np.int32)
            self.writer = np.zeros(self.granules, np.int32)
            self.atomic = np.zeros(self.granules, np.bool_)
        return self.written, self.writer, self.atomic

    def note_pending(self, at: NDArray[np.int64], line: int) -> None:
        """Remember which instruction's asynchronous work is writing these granules."""
        if self._pending_lines is None:
            self._pending_lines = np.zeros(self.granules * self.granule_bytes // LINE_BYTES + 1, np.int32)
        self._pending_lines[at * self.granule_bytes // LINE_BYTES] = line

    def pending_line(self, granule: int) -> int:
        """The line of the asynchronous work that is writing a granule."""
        lines = self._pending_lines
        return 0 if lines is None else int(lines[granule * self.granule_bytes // LINE_BYTES])

    def mark_scope(self, index: NDArray[np.int64], span: int, scope: Scope) -> None:
        """Remember the scope of strong writes."""
        if scope is not Scope.LAUNCH or self.scope is not None:
            scopes = self.scopes()
            target = scopes.reshape(-1, span) if span > 1 else scopes
            target[index] = scope

    def scopes(self) -> NDArray[np.uint8]:
        """The scope of the last strong write per granule; made on first use."""
        if self.scope is None:
            self.scope = np.full(self.granules, Scope.LAUNCH, np.uint8)
        return self.scope

    def strong_reads(self) -> GlobalShadow:
        """Where strong reads are remembered; made on first use."""
        if self.strong is None:
            self.strong = GlobalShadow(self._size_bytes, self.granule_bytes)
        return self.strong

    def log_read(self, index: NDArray[np.int64], span: int, warp: NDArray[np.int64], tick: int, wpc: int) -> None:
        """Remember reads; `wpc` is the number of warps per cluster: warps with equal warp // wpc share a cluster."""
        self._log.append((index, span, warp, tick))
        self._logged += index.size
        if self._logged > 1 << 20:
            self.flush(wpc)

    def flush(self, wpc: int) -> None:
        """Enter the remembered reads into the shadow."""
        if not self._log:
            return
        if self.read is None or self.reader is None or self.other_read is None or self.other_reader is None:
            self.read = np.zeros(self.granules, np.int32)
            self.reader = np.zeros(self.granules, np.int32)
            self.other_read = np.zeros(self.granules, np.int32)
            self.other_reader = np.zeros(self.granules, np.int32)
        for index, span, warp, tick in self._log:
            flat: Any = index.reshape(-1, 1) * span + np.arange(span) if span > 1 else index.reshape(-1, 1)
            who = np.broadcast_to(warp, index.shape).reshape(-1, 1).astype(np.int32)
            old_tick, old_who = self.read[flat], self.reader[flat]
            moved = (old_tick > 0) & (old_who // wpc != who // wpc)
            if moved.any():
                self.other_read[flat[moved]] = old_tick[moved]
                self.other_reader[flat[moved]] = old_who[moved]
            self.read[flat] = tick
            self.reader[flat] = who
            if index.size > 1:
                # Several CTAs may read one granule in the same instruction: keep a second one of them.
                kept = self.reader[flat]
                lost = kept // wpc != who // wpc
                if lost.any():
                    self.other_read[flat[lost]] = tick
                    self.other_reader[flat[lost]] = np.broadcast_to(who, flat.shape)[lost]
        self._log.clear()
        self._logged = 0
