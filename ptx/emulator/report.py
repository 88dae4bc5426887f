"""What an emulation found and counted, as a value that prints as a table."""

from __future__ import annotations

from dataclasses import dataclass, field

from tinygpu.ptx.emulator.faults import Advisory, Fault
from tinygpu.ptx.emulator.state.meter import Counters, LineCounters


@dataclass(frozen=True, slots=True)
class Report:
    """The result of emulate().

    kernel      name of the entry
    faults      what the hardware would punish, in order of discovery (one per line and kind)
    advisories  what the manual forbids but hardware is known to run
    counters    totals
    lines       counts per line of the PTX text
    line_texts  those lines, stripped
    """

    kernel: str
    faults: tuple[Fault, ...]
    advisories: tuple[Advisory, ...]
    counters: Counters
    lines: dict[int, LineCounters]
    line_texts: dict[int, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether no fault was found."""
        return not self.faults

    def __str__(self) -> str:
        c = self.counters
        out = [
            f"{self.kernel}: {len(self.faults)} faults, {len(self.advisories)} advisories",
            f"  CTAs {c.ctas:,}   warp instructions {c.instructions:,}   thread instructions {c.thread_instructions:,}",
            f"  branches {c.branches:,} ({c.divergent_branches:,} divergent)   barriers {c.barriers:,} (warps)",
            "  by class: " + ", ".join(f"{k} {v:,}" for k, v in sorted(c.by_class.items(), key=lambda kv: -kv[1])),
            _memory("global load", c.global_load_requests, c.global_load_sectors, "sectors", c.global_load_bytes),
            _memory("global store", c.global_store_requests, c.global_store_sectors, "sectors", c.global_store_bytes),
            _memory("shared load", c.shared_load_requests, c.shared_load_wavefronts, "wavefronts", c.shared_load_bytes),
            _memory(
                "shared store", c.shared_store_requests, c.shared_store_wavefronts, "wavefronts", c.shared_store_bytes
            ),
        ]
        for name, count in sorted(c.mma.items()):
            out.append(f"  mma {name}: {count:,} warp instructions")
        rows = [(line, counts) for line, counts in sorted(self.lines.items()) if counts.requests]
        if rows:
            out.append("  line  requests   sectors  wavefronts      bytes  PTX")
            for line, counts in rows:
                text = self.line_texts.get(line, "")
                out.append(
                    f"  {line:>4} {counts.requests:>9,} {counts.sectors:>9,} {counts.wavefronts:>11,} "
                    f"{counts.bytes:>10,}  {text[:80]}"
                )
        out.extend(f"  FAULT ({fault.kind}, {fault.count} threads) {fault}" for fault in self.faults)
        out.extend(f"  advisory {advisory}" for advisory in self.advisories)
        return "\n".join(line for line in out if line)


def _memory(name: str, requests: int, units: int, unit: str, moved: int) -> str:
    if not requests:
        return ""
    return f"  {name}: {requests:,} requests, {units:,} {unit} ({units / requests:.2f} per request), {moved:,} bytes"
