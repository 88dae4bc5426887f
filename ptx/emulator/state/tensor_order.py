"""Which accesses to tensor memory are ordered (PTX ISA, "Memory Consistency Model for 5th generation of TensorCore").

tcgen05.ld and .st of a warp go on until its tcgen05.wait. tcgen05.mma, .cp and .shift (here: tensor core work) go on
until an mbarrier that a tcgen05.commit of the same thread names has been waited for; some pairs of them are carried out
in the order in which one thread issues them. Between threads, tcgen05.fence is asked for on both sides; a missing one
is an advisory where something else orders the two, because production kernels leave it out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Literal

from tinygpu.ptx.emulator.state.agents import Operation, Origin
from tinygpu.ptx.emulator.state.clocks import PENDING, Clock
from tinygpu.ptx.emulator.state.residents import Residents

AccessKind = Literal["ld", "st", "mma", "cp", "cp.4x256b", "shift", "dealloc"]
TENSOR_CORE: tuple[AccessKind, ...] = ("mma", "cp", "cp.4x256b", "shift")
# Pairs that one thread's tensor core work keeps in order; mma after mma only with equal accumulator and shape.
IN_ORDER: frozenset[tuple[AccessKind, AccessKind]] = frozenset(
    {
        ("mma", "mma"), ("cp", "mma"), ("cp.4x256b", "mma"), ("shift", "mma"), ("shift", "cp.4x256b"),
        ("mma", "shift"),
    }
)  # fmt: skip
# Pairs that the manual does not order, though kernels that are known to be right rely on it: scales are copied over
# those of earlier products. Nobody copies over the sums of a product.
_TRUSTED: frozenset[tuple[AccessKind, AccessKind]] = frozenset(
    (first, second) for first in ("mma", "cp", "cp.4x256b") for second in ("cp", "cp.4x256b")
)


@dataclass(frozen=True, slots=True)
class Region:
    """Some lanes (bit l: lane l) of columns [first, end)."""

    lanes: int
    first: int
    end: int

    def overlap(self, other: Region) -> Region | None:
        """The cells of both, or None."""
        lanes, first, end = self.lanes & other.lanes, max(self.first, other.first), min(self.end, other.end)
        return Region(lanes, first, end) if lanes and first < end else None

    def within(self, other: Region) -> bool:
        return not self.lanes & ~other.lanes and other.first <= self.first and self.end <= other.end

    def __str__(self) -> str:
        low = (self.lanes & -self.lanes).bit_length() - 1
        high = self.lanes.bit_length() - 1
        count = self.lanes.bit_count()
        gaps = "" if count == high - low + 1 else f" ({count} of them)"
        columns = f"column {self.first}" if self.end == self.first + 1 else f"columns {self.first} to {self.end - 1}"
        return f"lanes {low} to {high}{gaps}, {columns} of tensor memory"


def _left_of(regions: tuple[Region, ...], others: tuple[Region, ...]) -> tuple[Region, ...]:
    """The regions that do not lie within another."""
    if not regions or not others:
        return regions
    return tuple([r for r in regions if not _within_one(r, others)])


def _within_one(region: Region, others: tuple[Region, ...]) -> bool:
    for other in others:  # noqa: SIM110  of one or two: a generator takes longer
        if region.within(other):
            return True
    return False


def lane_run(first: int, count: int) -> int:
    """`count` lanes from `first` on, as bits."""
    return ((1 << count) - 1) << first


@dataclass(slots=True, eq=False)
class Access:
    """What one instruction reads and writes in the tensor memory of one CTA.

    origin         who issued it
    kind           which instruction
    column         the actor whose clock entry orders it: the warp for ld and st, else the thread's tensor core work
    issued         tick of the issue
    tick           when it was complete; PENDING until then
    shape          for mma: accumulator and shape, what two must share to be carried out in order
    operation      what carries it out, while that is pending
    extent         lanes and columns from which no region reaches out
    """

    origin: Origin
    kind: AccessKind
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    column: int
    issued: int
    tick: int = int(PENDING)
    shape: Hashable = None
    operation: Operation | None = None
    follows: list[Operation] = field(default_factory=list)
    extent: Region = field(init=False)

    def __post_init__(self) -> None:
        self._measure()

    def _measure(self) -> None:
        lanes, first, end = 0, 1 << 30, 0
        for region in (*self.reads, *self.writes):
            lanes, first, end = lanes | region.lanes, min(first, region.first), max(end, region.end)
        self.extent = Region(lanes, first, end)

    @property
    def pending(self) -> bool:
        return self.tick == PENDING

    @property
    def on_tensor_core(self) -> bool:
        return self.kind in TENSOR_CORE

    @property
    def thread(self) -> tuple[int, int | None]:
        return self.origin.row, self.origin.lane

    def leave_to(self, later: Access) -> bool:
        """Forget the cells for which it is enough to be ordered after a later access; whether others are left.

        Those that it writes, and those that the same actor reads again: it is known to come after this one.
        """
        again = later.reads if self.reads and later.follows_reads_of(self) else ()
        reads = _left_of(self.reads, (*later.writes, *again))
        writes = _left_of(self.writes, later.writes)
        if len(reads) + len(writes) < len(self.reads) + len(self.writes):
            self.reads, self.writes = reads, writes
            self._measure()
        return bool(reads or writes)

    def follows_reads_of(self, old: Access) -> bool:
        """Whether whoever is ordered after what this reads is ordered after what an earlier access reads."""
        if old.column != self.column or old.kind != self.kind:
            return False
        return not self.on_tensor_core or (old.thread == self.thread and old.shape == self.shape)

    def conflict(self, other: Access) -> tuple[Region, bool] | None:
        """(the cells that both touch and one writes, whether the other writes them); None for no conflict."""
        for mine in (*self.writes, *self.reads):
            for theirs in other.writes:
                common = mine.overlap(theirs)
                if common is not None:
                    return common, True
        for mine in self.writes:
            for theirs in other.reads:
                common = mine.overlap(theirs)
                if common is not None:
                    return common, False
        return None


class TensorOrder:
    """Happens-before between accesses to tensor memory, and what each warp has not waited for."""

    def __init__(self, residents: Residents) -> None:
        self._residents = residents
        self._after: dict[int, Clock] = {}
        self._before: dict[int, list[int]] = {}
        self._waiting: dict[tuple[int, str], list[Access]] = {}

    @property
    def tick(self) -> int:
        return self._residents.emulation.tick

    def own_column(self, row: int) -> int:
        """The column of a warp in the clocks."""
        return int(self._residents.clocks.own_column[row])

    def work_column(self, origin: Origin) -> int:
        """The column of a thread's tensor core work in the clocks."""
        residents = self._residents
        name = f"tensor core work of warp {origin.warp}"
        if residents.cluster_size > 1:
            name += f" of the cluster's CTA {origin.cta % residents.cluster_size}"
        key = ("tcgen05", origin.row, origin.lane)
        return residents.clocks.agent(residents.cluster_of(origin.cta), key, name)

    # ---- fences and waits -----------------------------------------------------------------------------------------

    def fence_before(self, row: int) -> None:
        """tcgen05.fence::before_thread_sync."""
        self._before.setdefault(row, []).append(self.tick)

    def fence_after(self, row: int) -> None:
        """tcgen05.fence::after_thread_sync."""
        self._after[row] = self._residents.clocks.issue(row)

    def add_waiting(self, access: Access) -> None:
        """A tcgen05.ld or .st of a warp has been issued."""
        self._waiting.setdefault((access.origin.row, access.kind), []).append(access)

    def wait(self, row: int, kind: AccessKind) -> None:
        """tcgen05.wait of a warp: all its loads (or stores) so far are complete."""
        for access in self._waiting.pop((row, kind), ()):
            if access.operation is not None:
                self._residents.agents.finish(access.operation)
            access.tick = self.tick

    # ---- conflicts ------------------------------------------------------------------------------------------------

    def enter(self, new: Access, accesses: list[Access]) -> list[Access]:
        """The accesses that later ones must be ordered with, `new` among them; faults where it conflicts with one."""
        kept = []
        reported = False
        lanes, first, end = new.extent.lanes, new.extent.first, new.extent.end
        for old in accesses:
            extent = old.extent
            if extent.lanes and not (extent.lanes & lanes and extent.first < end and first < extent.end):
                kept.append(old)  # most are of other columns
                continue
            conflict = new.conflict(old)
            if conflict is not None and not reported:
                reported = self._judge(new, old, *conflict)
            if old.leave_to(new):
                kept.append(old)
        kept.append(new)
        return kept

    def _judge(self, new: Access, old: Access, common: Region, wrote: bool) -> bool:
        """Report a conflict that nothing orders; True when it did."""
        if self._in_order(new, old):
            return False
        known = self._residents.clocks.executed_tick_of(new.origin.row, old.column)
        if not old.pending and (old.column == self.own_column(new.origin.row) or old.tick <= known):
            self._advise_fences(new, old)
            return False
        sums = wrote and old.kind == "mma"
        if old.thread == new.thread and (old.kind, new.kind) in _TRUSTED and not sums:
            new.origin.advise(
                "tcgen05.cp over earlier tensor core work",
                "overwrites what earlier tcgen05 work of this thread uses, without waiting for its tcgen05.commit",
            )
            return False
        self._report(new, old, common, wrote)
        return True

    def _in_order(self, new: Access, old: Access) -> bool:
        """Both are tensor core work that is carried out in order of issue."""
        if not (new.on_tensor_core and old.on_tensor_core):
            return False
        pair = (old.kind, new.kind)
        ordered = pair in IN_ORDER and (pair != ("mma", "mma") or old.shape == new.shape)
        if old.thread == new.thread:
            return ordered
        if not ordered:
            return False
        # Work of another thread: it must have passed fence::before, and this one fence::after since they met.
        column = self.own_column(old.origin.row)
        after = self._after.get(new.origin.row)
        limit = -1 if after is None else after.executed_tick_of(column)
        fences = self._before.get(old.origin.row, [])
        at = bisect_left(fences, old.issued)
        if at < len(fences) and fences[at] <= limit:
            if old.operation is not None:
                new.follows.append(old.operation)
            return True
        return False

    def _advise_fences(self, new: Access, old: Access) -> None:
        """Ordered by waiting, but the manual wants tcgen05.fence on both sides as well."""
        row = new.origin.row
        if old.column == self.own_column(row) or new.kind == "dealloc":
            return
        after = self._after.get(row)
        limit = 0 if after is None else after.executed_tick_of(old.column)
        line = old.origin.instruction.line
        if limit < old.tick:
            new.origin.advise(
                "no tcgen05.fence::after_thread_sync",
                f"follows `{_short(old.origin.instruction.name)}` on line {line}, which another thread or the tensor "
                "core carried out: tcgen05.fence::after_thread_sync is missing after the wait",
            )
        if old.on_tensor_core:
            return
        fences = self._before.get(old.origin.row, [])
        at = bisect_left(fences, old.tick)
        known = self._residents.clocks.executed_tick_of(row, old.column)
        if at == len(fences) or fences[at] > known:
            new.origin.advise(
                "no tcgen05.fence::before_thread_sync",
                f"follows `{_short(old.origin.instruction.name)}` on line {line} of another thread: "
                "tcgen05.fence::before_thread_sync is missing there, before that thread signals",
            )

    def _report(self, new: Access, old: Access, common: Region, wrote: bool) -> None:
        residents = self._residents
        instruction = old.origin.instruction
        writes = any(common.overlap(region) for region in new.writes)
        verb = {"dealloc": "deallocates"}.get(new.kind, "writes" if writes else "reads")
        who = residents.clocks.name(residents.cluster_of(old.origin.cta), self.own_column(old.origin.row))
        if _other_lane(new, old):
            who = f"lane {old.origin.lane} of this warp"
        action = "writing" if wrote else "reading"
        state = f"may still be {action}" if old.pending or old.on_tensor_core else "wrote" if wrote else "read"
        new.origin.fault(
            "race",
            f"{verb} {common}, which `{_short(instruction.name)}` on line {instruction.line} ({who}) {state}: "
            f"{self._remedy(new, old)}",
            "tensor", common.first,
        )  # fmt: skip

    def _remedy(self, new: Access, old: Access) -> str:
        if old.kind in ("ld", "st"):
            wait = f"tcgen05.wait::{old.kind}"
            if not old.pending:
                return "nothing orders the two; put a barrier or an mbarrier between them"
            if old.origin.row == new.origin.row:
                return f"{wait} must come between them"
            return f"that warp must execute {wait}, and signal this thread after it"
        if new.on_tensor_core and old.thread == new.thread:
            return (
                "these two are not carried out in order of issue; commit the first to an mbarrier (tcgen05.commit) and "
                "wait for that"
            )
        if _other_lane(new, old):
            return "the work of different threads is not ordered; let one thread issue all of it (elect.sync)"
        return "its thread must commit it to an mbarrier (tcgen05.commit), and this one must wait for that"


def _other_lane(new: Access, old: Access) -> bool:
    """Both are tensor core work of one warp, issued by different lanes."""
    return (
        new.on_tensor_core
        and old.on_tensor_core
        and new.origin.row == old.origin.row
        and new.origin.lane != old.origin.lane
    )


def _short(name: str) -> str:
    """The instruction without the qualifiers that say nothing here."""
    return ".".join(name.split(".")[:2])
