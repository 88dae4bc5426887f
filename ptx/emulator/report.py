"""What an emulation found and counted, as a value that prints as a table and turns into JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tinygpu.ptx.emulator.faults import Advisory, Fault, FaultKind
from tinygpu.ptx.emulator.state.caches import Caches, LineTraffic, Traffic
from tinygpu.ptx.emulator.state.meter import Counters, LineCounters

_PTX_COLUMNS = 80
# What helps against each kind of fault; the sentence of a fault has the numbers, and often says more.
REMEDIES: Mapping[FaultKind, str] = {
    "out of bounds": "compare the index with the size before the access, or pass the size that the buffer really has",
    "outside backed windows": "back these bytes with an array, or leave out the CTAs that need them",
    "misaligned": "align the pointer and the pitch to the vector's size, or use a narrower access",
    "uninitialised": "write the value before it is used, on every path",
    "race": "order the two accesses by a barrier, a wait or an atomic, or keep them apart",
    "barrier": "let every thread that the barrier counts reach it, in whole warps",
    "deadlock": "let what is waited for happen on every path, in an order that does not depend on the waiting threads",
    "collective": "name exactly the lanes that execute the instruction in its mask",
    "read-only": "pass a writeable array, or do not store there",
    "address space": "convert the address with cvta, or use the instruction of its space",
    "trap": "see which assertion of the kernel failed, and which argument breaks it",
    "asynchronous copy": "make addresses and sizes of the copy fit each other and the instruction",
    "asynchronous registers": "wait for the instruction that works with the registers, or put wgmma.fence in between",
    "mbarrier": "initialise it once, let as many threads and bytes arrive as it expects, and wait for the right phase",
    "cluster": "launch the cluster that the kernel is written for, and pass a cluster barrier before a CTA exits",
    "tensor map": "make box, swizzle and alignment of the map and of the copy agree",
    "descriptor": "build the descriptor for this shape, type, layout and swizzle",
    "tensor memory": "allocate the columns, let each warp use its own lanes, and free them before the exit",
    "launch": "make grid, block and arguments fit the kernel",
}


# Name, the counters' prefix, and what is counted beside requests and bytes.
_MEMORY_ROWS = (
    ("global loads", "global_load", "sectors"), ("global stores", "global_store", "sectors"),
    ("global atomics", "global_atomic", "sectors"), ("local loads", "local_load", "sectors"),
    ("local stores", "local_store", "sectors"), ("bulk loads", "bulk_load", ""), ("bulk stores", "bulk_store", ""),
    ("bulk reductions", "bulk_reduce", ""), ("shared loads", "shared_load", "wavefronts"),
    ("shared stores", "shared_store", "wavefronts"), ("shared atomics", "shared_atomic", "wavefronts"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """One kind of memory access of a run, for tables.

    units, unit  what was counted of each request: sectors or wavefronts; None where only bytes are known
    """

    name: str
    requests: int
    bytes: int
    units: int | None
    unit: str

    @property
    def per_request(self) -> float | None:
        return None if self.units is None or not self.requests else self.units / self.requests


@dataclass(frozen=True, slots=True)
class Report:
    """The result of emulate(). Two reports are equal when they say the same.

    kernel      name of the entry
    faults      what the hardware would punish, in order of discovery (one per line and kind)
    advisories  what the manual forbids but hardware is known to run
    counters    totals
    lines       counts per line of the PTX text
    line_texts  those lines, stripped
    traffic     what moved between L1, L2 and DRAM; None unless emulate() was given caches
    unfinished  mbarriers that CTAs left in the middle of a phase: nobody is harmed, but counts of arrivals that match
                leave none
    """

    kernel: str
    faults: tuple[Fault, ...]
    advisories: tuple[Advisory, ...]
    counters: Counters
    lines: dict[int, LineCounters]
    line_texts: dict[int, str] = field(default_factory=dict)
    traffic: Traffic | None = None
    unfinished: tuple[str, ...] = ()

    def __hash__(self) -> int:
        # The counts are left out: they are dictionaries, and equal reports still have equal hashes.
        return hash((self.kernel, self.faults, self.advisories))

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    @property
    def executed(self) -> frozenset[int]:
        """The lines of the PTX that a warp came to, whether or not a guard let its threads do anything there."""
        return frozenset(line for line, counts in self.lines.items() if counts.executed)

    def memory_rows(self) -> tuple[MemoryRow, ...]:
        """Every kind of memory access that occurred, with its totals."""
        rows = []
        for name, prefix, unit in _MEMORY_ROWS:
            requests, moved = (getattr(self.counters, f"{prefix}_{what}") for what in ("requests", "bytes"))
            units = getattr(self.counters, f"{prefix}_{unit}") if unit else None
            rows.append(MemoryRow(name, requests, moved, units, unit))
        return tuple(row for row in rows if row.requests)

    def listed_lines(self, every: bool = False) -> tuple[tuple[int, LineCounters, str], ...]:
        """(line, counts, text) of the lines that accessed memory, or of every line that was reached, in order."""
        chosen = [(n, c) for n, c in sorted(self.lines.items()) if c.requests or (every and c.executed)]
        return tuple((n, c, self.line_texts.get(n, "")) for n, c in chosen)

    def summary(self) -> tuple[str, ...]:
        """The totals that are no memory accesses, as lines of text."""
        c = self.counters
        out = [
            f"CTAs {c.ctas:,}   warp instructions {c.instructions:,}   thread instructions {c.thread_instructions:,} "
            f"({c.lanes:.1f} of 32 lanes)",
            f"branches {c.branches:,} ({c.divergent_branches:,} divergent)   barriers {c.barriers:,} (warps)",
        ]
        if c.by_class:
            by_count = sorted(c.by_class.items(), key=lambda item: (-item[1], item[0]))
            out.append("by class: " + ", ".join(f"{name} {count:,}" for name, count in by_count))
        for unit, by_name, operations in (
            ("mma", c.mma, c.mma_operations), ("wgmma", c.wgmma, c.wgmma_operations),
            ("tcgen05", c.tcgen05, c.tcgen05_operations),
        ):  # fmt: skip
            if by_name:
                names = ", ".join(f"{name} {count:,}" for name, count in sorted(by_name.items()))
                out.append(f"{unit}: {names}   {operations:,} operations")
        if c.multicast_bytes:
            out.append(f"multicast: {c.multicast_bytes:,} bytes more than were loaded")
        return tuple(out)

    def traffic_summary(self) -> tuple[str, ...]:
        """What moved between L1, L2 and DRAM, as lines of text; empty without caches."""
        t = self.traffic
        if t is None:
            return ()
        out = []
        if t.l1_sectors:
            out.append(f"L1: {t.l1_sectors:,} sectors asked for, {100 * t.l1_hit_rate:.1f} % there")
        out.append(
            f"L2: {t.l2_load_sectors:,} sectors asked for, {100 * t.l2_load_hit_rate:.1f} % there; "
            f"{t.l2_store_sectors:,} stored, {t.l2_atomic_sectors:,} updated"
        )
        out.append(
            f"DRAM: {t.dram_read_bytes:,} bytes read, {t.dram_write_bytes:,} written "
            f"({t.left_in_l2_bytes:,} of them at the end)"
        )
        return tuple(out)

    def to_dict(self) -> dict[str, Any]:
        """The report as dictionaries, lists, numbers and texts; `json.dumps` takes it."""
        return {
            "kernel": self.kernel,
            "ok": self.ok,
            "faults": [asdict(fault) for fault in self.faults],
            "advisories": [asdict(advisory) for advisory in self.advisories],
            "counters": asdict(self.counters),
            "lines": {
                str(n): asdict(self.lines[n]) | {"text": self.line_texts.get(n, "")} for n in sorted(self.lines)
            },
            "traffic": None if self.traffic is None else _traffic_to_dict(self.traffic),
            "unfinished": list(self.unfinished),
        }

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Report:
        """The report that to_dict() was called on, also after a way through JSON."""
        lines = {int(n): {k: v for k, v in counts.items() if k != "text"} for n, counts in data["lines"].items()}
        traffic = data["traffic"]
        return Report(
            data["kernel"],
            tuple(
                Fault(**{**fault, "cta": tuple(fault["cta"]), "thread": fault["thread"] and tuple(fault["thread"])})
                for fault in data["faults"]
            ),
            tuple(Advisory(**advisory) for advisory in data["advisories"]),
            Counters(**data["counters"]),
            {n: LineCounters(**counts) for n, counts in lines.items()},
            {int(n): counts["text"] for n, counts in data["lines"].items()},
            None if traffic is None else _traffic_from_dict(traffic),
            tuple(data["unfinished"]),
        )

    def __str__(self) -> str:
        out = [f"{self.kernel}: {plural(len(self.faults), 'fault')}, {plural(len(self.advisories), 'advisory')}"]
        out += [f"  {line}" for line in self.summary()]
        memory = self.memory_rows()
        if memory:
            out.append("  memory             requests            bytes          counted  per request")
            for row in memory:
                counted = "" if row.units is None else f"{row.units:,} {row.unit}"
                each = "" if row.per_request is None else f"{row.per_request:.2f}"
                out.append(f"  {row.name:<15} {row.requests:>11,} {row.bytes:>16,} {counted:>22}  {each:>8}".rstrip())
        out += [f"  {line}" for line in self.traffic_summary()]
        rows = self.listed_lines()
        if rows:
            out.append("  line   executed  lanes   requests    sectors  wavefronts        bytes  PTX")
            for n, c, text in rows:
                out.append(
                    f"  {n:>4} {c.executed:>10,}  {c.lanes:>5.1f} {c.requests:>10,} {c.sectors:>10,} "
                    f"{c.wavefronts:>11,} {c.bytes:>12,}  {one_line(text)[:_PTX_COLUMNS]}"
                )
        for fault in self.faults:
            out.append(f"  FAULT ({fault.kind}, {plural(fault.count, 'thread')}) {fault}")
            if fault.kind in REMEDIES:
                out.append(f"    fix: {REMEDIES[fault.kind]}")
        out.extend(f"  advisory {advisory}" for advisory in self.advisories)
        return "\n".join(out)


def one_line(text: str) -> str:
    """A line of PTX without its tabs and runs of blanks."""
    return " ".join(text.split())


def plural(count: int, noun: str) -> str:
    """1 fault, 2 faults, 3 advisories."""
    if count == 1:
        return f"1 {noun}"
    return f"{count:,} {noun[:-1]}ies" if noun.endswith("y") else f"{count:,} {noun}s"


def _traffic_to_dict(traffic: Traffic) -> dict[str, Any]:
    data = asdict(traffic)
    data["lines"] = {str(n): counts for n, counts in data["lines"].items()}
    return data


def _traffic_from_dict(data: Mapping[str, Any]) -> Traffic:
    lines = {int(n): LineTraffic(**counts) for n, counts in data["lines"].items()}
    return Traffic(**{**data, "caches": Caches(**data["caches"]), "lines": lines})
