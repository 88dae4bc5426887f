"""Bulk copies that somebody has to wait for: bulk async-groups per thread, and copies into shared memory.

A copy of a bulk async-group counts as reading its source and writing its destination until its thread waits for the
group, whatever the moment at which the emulator moves the bytes (PTX ISA, "cp.async.bulk.wait_group").
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.state.agents import Operation, Origin

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.source.syntax import Instruction
    from tinygpu.ptx.emulator.state.residents import Residents


class GroupedCopy(Operation, Protocol):
    """A copy out of shared memory that belongs to a bulk async-group."""

    reading: bool

    def end_reads(self) -> None: ...

    def end_writes(self) -> None: ...


@dataclass(slots=True, eq=False)
class Arrival:
    """A copy into shared memory, as far as the CTA that owns the memory must know of it.

    column  agent of the mbarrier on which it completes
    landed  tick of its completion; None while it may still write
    """

    origin: Origin
    column: int
    landed: int | None = None


class BulkGroups:
    """The bulk copies of resident CTAs."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._counts: NDArray[np.int64] = np.zeros((residents.warps, 32), np.int64)
        self._open: dict[tuple[int, int], list[tuple[int, GroupedCopy]]] = {}
        self._arrivals: dict[int, list[Arrival]] = {}
        residents.reach.leaving.append(self._check_leaving)

    @staticmethod
    def of(residents: Residents) -> BulkGroups:
        """Those of these CTAs."""
        found = residents.extensions.get("bulk")
        if not isinstance(found, BulkGroups):
            found = BulkGroups(residents)
            residents.extensions["bulk"] = found
        return found

    @property
    def anything_open(self) -> bool:
        """Whether any thread has issued a copy that it may have to wait for."""
        return bool(self._open)

    def holders(self) -> dict[int, list[int]]:
        """By warp the lanes, from the first on, that have issued a copy which they may have to wait for."""
        found: dict[int, list[int]] = {}
        for row, lane in sorted(place for place, copies in self._open.items() if copies):
            found.setdefault(row, []).append(lane)
        return found

    def column(self, origin: Origin) -> int:
        """The agent that copies out of shared memory for a warp."""
        residents = self._residents
        return residents.clocks.agent(
            residents.cluster_of(origin.cta), ("bulk", origin.row), f"a bulk copy that warp {origin.warp} issued"
        )

    def add(self, origin: Origin, lane: int, copy: GroupedCopy) -> None:
        """A copy of the thread's group that is open now."""
        group = int(self._counts[origin.row, lane])
        self._open.setdefault((origin.row, lane), []).append((group, copy))

    def commit(self, rows: slice | NDArray[np.int64], mask: NDArray[np.bool_] | None) -> None:
        """Close the open groups of these threads."""
        self._counts[rows] += 1 if mask is None else mask

    def wait(self, origin: Origin, lane: int, remaining: int, read: bool) -> None:
        """A thread waits until at most so many of its groups are pending; with `read` only for their reads."""
        residents = self._residents
        copies = self._open.get((origin.row, lane))
        if not copies:
            return
        limit = int(self._counts[origin.row, lane]) - remaining
        kept: list[tuple[int, GroupedCopy]] = []
        for group, copy in copies:
            if group >= limit:
                kept.append((group, copy))
                continue
            if copy.reading:
                copy.end_reads()
            if read:
                kept.append((group, copy))
            else:
                residents.agents.finish(copy)
                copy.end_writes()
        self._open[origin.row, lane] = kept
        learned = residents.clocks.nothing().with_entry(self.column(origin), residents.emulation.tick)
        residents.clocks.learn(origin.row, learned)

    # ---- copies into shared memory --------------------------------------------------------------------------------

    def expect(self, cta: int, arrival: Arrival) -> None:
        """A copy that writes into the shared memory of this resident CTA was issued."""
        self._arrivals.setdefault(cta, []).append(arrival)

    def _check_leaving(self, cta: int, instruction: Instruction) -> None:
        """A CTA exits: no copy may still use its shared memory."""
        residents = self._residents
        if not residents.emulation.checking:
            return
        for (row, _), copies in self._open.items():
            for _, copy in copies:
                if row % len(residents.ctas) == cta and copy.reading:
                    # The manual wants the wait; hardware keeps the memory until it has been read.
                    residents.emulation.advise(
                        "exit while a bulk store reads", instruction,
                        f"this CTA exits, but the copy of line {copy.origin.instruction.line} may still read its "
                        "shared memory: the issuing thread should execute cp.async.bulk.wait_group.read 0 (after "
                        "commit_group) before it exits",
                    )  # fmt: skip
                    break
        rows = residents.rows_of(cta)
        # That it was executed before is enough, as of what reaches into other CTAs: a pair's left CTA waits for both.
        known = residents.clocks.vector[rows].max(axis=0)
        if residents.clocks.executed is not None:
            known = np.maximum(known, residents.clocks.executed[rows].max(axis=0))
        for arrival in self._arrivals.pop(cta, []):
            if arrival.landed is None or int(known[arrival.column]) < arrival.landed:
                residents.emulation.fault(
                    "asynchronous copy", instruction, residents, int(rows[0]), None,
                    f"this CTA exits, but the copy of line {arrival.origin.instruction.line} may still write into its "
                    "shared memory: some thread of the CTA must wait for its mbarrier before the exit",
                )  # fmt: skip
                return
