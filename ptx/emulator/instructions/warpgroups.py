"""Warpgroups: four warps that execute wgmma together, their accumulators and their commit groups.

A warpgroup is named by the row of its first warp, its leader. All four warps must execute the same wgmma instruction;
those that come first are set aside until the others are there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.instructions.warp_collectives import require_whole_warp
from tinygpu.ptx.emulator.source.syntax import Instruction
from tinygpu.ptx.emulator.state.cohort import Cohort, MustWait
from tinygpu.ptx.emulator.state.registers import Slot
from tinygpu.ptx.emulator.state.residents import Residents

if TYPE_CHECKING:
    from tinygpu.ptx.emulator.instructions.wgmma_products import Product

WARPS = 4
Index = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class WarpgroupSet:
    """The warpgroups of a cohort.

    rows  (groups, 4) row numbers, warp by warp
    at    (groups, 4) where these rows are in the cohort
    """

    rows: Index
    at: Index

    @property
    def leaders(self) -> Index:
        return self.rows[:, 0]


@dataclass(frozen=True, slots=True)
class Use:
    """Registers that one wgmma instruction works with.

    role   "D" (accumulators) or "A"
    shape  of the instruction: instructions of one shape may share accumulators without a fence
    """

    slots: frozenset[Slot]
    role: str
    shape: str

    def conflicts(self, later: Use) -> bool:
        """Whether a later use needs an order: both touch a register, one writes it, and they are no such pair."""
        if "D" not in (self.role, later.role) or self.slots.isdisjoint(later.slots):
            return False
        return not (self.role == later.role == "D" and self.shape == later.shape and self.slots == later.slots)


@dataclass(slots=True, eq=False)
class Warpgroups:
    """What the warpgroups of resident CTAs have under way; arrays have one entry per row, used at leaders.

    commits   commit groups closed so far
    fenced    whether a wgmma.fence was ever executed
    columns   the warpgroup's agent in the clocks of its cluster, -1 before its first wgmma
    pending   products that nobody has waited for, in order of issue
    uses      registers that wgmma worked with since the last wgmma.fence: which leaders
    busy      registers that pending products work with: which leaders
    arrived   for warpgroups that are not complete: row -> instruction at which it waits
    """

    commits: Index
    fenced: Bools
    columns: Index
    pending: list[Product] = field(default_factory=list)
    uses: dict[Use, Bools] = field(default_factory=dict)
    busy: dict[Use, Bools] = field(default_factory=dict)
    arrived: dict[int, dict[int, Instruction]] = field(default_factory=dict)
    _sets: dict[tuple[int, int, int], WarpgroupSet] = field(default_factory=dict)

    def remember(self, key: tuple[int, int, int], found: WarpgroupSet) -> None:
        self._sets[key] = found

    def recall(self, key: tuple[int, int, int]) -> WarpgroupSet | None:
        return self._sets.get(key)


def warpgroups_of(residents: Residents) -> Warpgroups:
    """The state of all warpgroups; made on first use."""
    found = residents.extensions.get("wgmma")
    if not isinstance(found, Warpgroups):
        rows = residents.warps
        found = Warpgroups(np.zeros(rows, np.int64), np.zeros(rows, np.bool_), np.full(rows, -1, np.int64))
        residents.extensions["wgmma"] = found
    return found


def gather_warpgroups(c: Cohort, i: Instruction) -> WarpgroupSet | None:
    """The whole warpgroups of a cohort. Raises MustWait while some of their warps are missing; None after a fault."""
    state = warpgroups_of(c.residents)
    rows = c.set.rows
    key = (rows.start, rows.stop, rows.step) if c.mask is None and isinstance(rows, slice) else None
    found = None if key is None else state.recall(key)
    if found is None:
        if not require_whole_warp(c, i):
            return None
        active = np.ones(c.n, np.bool_) if c.mask is None else np.asarray(c.mask.any(axis=1))
        found = _group(c, i, state, active)
        if found is None:
            return None
        if key is not None:
            state.remember(key, found)
    if state.arrived:
        for leader in found.leaders.tolist():
            state.arrived.pop(leader, None)
    return found


def _group(c: Cohort, i: Instruction, state: Warpgroups, active: Bools) -> WarpgroupSet | None:
    count = len(c.residents.ctas)
    positions = np.flatnonzero(active)
    index = c.set.index[positions]
    leader_of = index // count // WARPS * WARPS * count + index % count
    leaders, present = np.unique(leader_of, return_counts=True)
    missing = leaders[present < WARPS]
    if missing.size:
        partial = np.isin(leader_of, missing)
        if not _may_complete(c, i, missing.tolist(), index[partial]):
            return None
        _arrive(c, i, state, leader_of[partial].tolist(), index[partial].tolist())
        ready = np.ones(c.n, np.bool_)
        ready[positions[partial]] = False
        line = i.line

        def ask(row: int) -> bool:
            there = state.arrived.get(_leader(c.residents, row), {})
            return len(there) < WARPS or any(other.line != line for other in there.values())

        raise MustWait(ready, ask, lambda row: _reason(c.residents, state, i, row))
    rows = leaders[:, None] + count * np.arange(WARPS)[None, :]
    return WarpgroupSet(rows, positions[np.searchsorted(index, rows)])


def _leader(residents: Residents, row: int) -> int:
    count = len(residents.ctas)
    return row // count // WARPS * WARPS * count + row % count


def _may_complete(c: Cohort, i: Instruction, leaders: list[int], rows: Index) -> bool:
    """Report warpgroups that can never be complete: too few warps in the CTA, or warps that have exited."""
    residents = c.residents
    count = len(residents.ctas)
    for leader in leaders:
        mates = leader + count * np.arange(WARPS)
        first = leader // count
        row = int(rows[0])
        if first + WARPS > residents.warps_per_cta:
            c.emulation.fault(
                "collective", i, residents, row, None,
                f"`{i.name}` needs a warpgroup of 4 warps, but warp {first} is followed by "
                f"{residents.warps_per_cta - first - 1} only: a CTA that uses wgmma has a multiple of 128 threads",
            )  # fmt: skip
            return False
        gone = [int(mate) // count for mate in mates if not residents.alive[mate].all()]
        if gone:
            c.emulation.fault(
                "collective", i, residents, row, None,
                f"`{i.name}` is executed by a warpgroup whose warp {gone[0]} has exited: warps {first} to {first + 3} "
                "must execute it together",
            )  # fmt: skip
            return False
    return True


def _arrive(c: Cohort, i: Instruction, state: Warpgroups, leaders: list[int], rows: list[int]) -> None:
    count = len(c.residents.ctas)
    for leader, row in zip(leaders, rows, strict=True):
        there = state.arrived.setdefault(leader, {})
        there[row] = i
        if len(there) < WARPS:
            continue
        c.emulation.signals += 1
        elsewhere = {other // count: instruction for other, instruction in there.items() if instruction.line != i.line}
        if elsewhere:
            warp, instruction = next(iter(elsewhere.items()))
            c.emulation.fault(
                "collective", i, c.residents, row, None,
                f"`{i.name}` is executed by warp {row // count}, while warp {warp} of its warpgroup executes "
                f"`{instruction.name}` on line {instruction.line}: all four warps must execute the same instruction",
            )  # fmt: skip


def _reason(residents: Residents, state: Warpgroups, i: Instruction, row: int) -> str:
    count = len(residents.ctas)
    leader = _leader(residents, row)
    there = state.arrived.get(leader, {})
    away = [str(leader // count + k) for k in range(WARPS) if leader + count * k not in there]
    return f"at line {i.line} for warp {', '.join(away)} of its warpgroup to execute `{i.name}` too"
