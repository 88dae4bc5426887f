"""Tables and sentences for people."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tinygpu.api.tune import Finalist, Searched, Tuned
from tinygpu.ptx.driver import DriverStatus
from tinygpu.ptx.verification import Verification
from tinygpu.spaces.build import MachineSpace

# On a pipe there is no width to fit into.
console = Console(highlight=False, soft_wrap=True, width=None if sys.stdout.isatty() else 160)


def table(*columns: str, title: str = "") -> Table:
    """A plain table; a column whose name ends in > is right-aligned."""
    out = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for c in columns:
        out.add_column(c.rstrip(">"), justify="right" if c.endswith(">") else "left", overflow="fold")
    return out


def space_report(space: MachineSpace) -> None:
    """Raw size, what each constraint removed, survivors."""
    s = space.space
    console.print(f"\n[bold]{space.machine.__name__}[/bold]: {space.machine.summary()}")
    console.print(f"problem {space.problem}, {space.device.name}")
    console.print(f"{s.raw_size:,} points in {len(space.structures)} structures before any constraint")
    rows = table("constraint", "kind", "brought by", "points removed>")
    removed: Counter[tuple[str, str, str]] = Counter()
    for row in s.funnel:
        removed[(_plain(row.name), row.kind, row.source)] += row.removed
    idle = 0
    for (name, kind, source), count in removed.items():
        if count:
            rows.add_row(name, kind, source, f"{count:,}")
        else:
            idle += 1
    console.print(rows)
    if idle:
        console.print(f"{idle} more constraints removed nothing that others had left")
    if space.machine.layouts():
        names = ", ".join(layout.name for layout in space.machine.layouts())
        console.print(f"unknown layouts, solved per candidate and not counted: {names}")
    console.print(f"[bold]{s.size:,} candidates[/bold] are left")


def _plain(name: str) -> str:
    return name.partition(" (")[0]


def finalist_table(finalists: Sequence[Finalist], title: str) -> None:
    """The best candidates with what the predictor and the assembler say."""
    columns = ("#>", "predicted us>", "roofline>", "regs (estimate)>", "spill B>", "CTAs/SM>", "bottleneck")
    rows = table(*columns, title=title)
    for i, f in enumerate(finalists, 1):
        p = f.prediction
        spilled = f.assembly.spill_store_bytes + f.assembly.spill_load_bytes
        rows.add_row(
            str(i),
            f"{float(p.seconds) * 1e6:,.1f}",
            f"{100 * float(p.share_of_roofline):.0f} %",
            f"{f.assembly.registers} ({f.refined.registers})",
            str(spilled) + (" SPILLS" if spilled else ""),
            str(int(p.occupancy.ctas_per_sm)),
            p.sentence(),
        )
    console.print(rows)
    for i, f in enumerate(finalists, 1):
        console.print(f"{i}: {short_point(f)}")


def short_point(f: Finalist) -> str:
    """The values that this candidate's structure uses."""
    used = set(f.space.traces[f.space.structure_index(f.refined.point)].axes)
    return " ".join(f"{k}={v}" for k, v in f.refined.point.items() if k in used or isinstance(v, str))


def searched_report(s: Searched) -> None:
    if s.result is None:
        console.print(f"[bold]{s.space.machine.__name__}[/bold] has no candidate: {s.sentence}")
        nearest = s.space.space.nearest()
        console.print(str(nearest))
        return
    console.print(str(s.result).split("; best")[0])
    kept = [f for f in s.finalists if not f.spills]
    finalist_table(kept, f"\nbest of {s.space.machine.__name__} (predicted, not measured)")
    spilled = [f for f in s.finalists if f.spills]
    if spilled:
        worst = max(f.assembly.spill_store_bytes + f.assembly.spill_load_bytes for f in spilled)
        console.print(
            f"{len(spilled)} more were assembled and left out, because they SPILL up to {worst} B of registers"
        )
    errors = [f.assembly.registers - f.refined.registers for f in s.finalists if f.assembly.registers < 255]
    if errors:
        console.print(
            f"register estimate: off by {min(errors):+d} to {max(errors):+d} on those that the assembler gives"
        )


def verification_report(v: Verification) -> None:
    """The emulator's verdict and its exact counts."""
    console.print(f"\n[bold]{v}[/bold]" if not v.passed else f"\n{v}")
    c = v.counters
    if c is None:
        return
    rows = table("memory", "requests>", "bytes>", "counted", "per request>", title="counted by the emulator, exact")

    def row(name: str, requests: int, size: int, what: str, amount: int) -> None:
        if requests:
            rows.add_row(name, f"{requests:,}", f"{size:,}", f"{amount:,} {what}", f"{amount / requests:.2f}")

    row("global loads", c.global_load_requests, c.global_load_bytes, "sectors", c.global_load_sectors)
    row("global stores", c.global_store_requests, c.global_store_bytes, "sectors", c.global_store_sectors)
    row("shared loads", c.shared_load_requests, c.shared_load_bytes, "wavefronts", c.shared_load_wavefronts)
    row("shared stores", c.shared_store_requests, c.shared_store_bytes, "wavefronts", c.shared_store_wavefronts)
    console.print(rows)
    least = -(-c.shared_load_bytes // 128) + -(-c.shared_store_bytes // 128)
    took = c.shared_load_wavefronts + c.shared_store_wavefronts
    if took:
        console.print(f"shared memory: {took:,} wavefronts for {least:,} rows of 128 bytes")


def layouts_report(f: Finalist) -> None:
    for name, solution in f.refined.layouts.solutions.items():
        console.print(f"layout of {name}: {solution}")


def tuned_report(t: Tuned, files: Sequence[Path], driver: DriverStatus) -> None:
    for refusal in t.refused:
        console.print(f"[bold]{refusal.machine}[/bold] does not take this problem: {refusal.sentence}")
    for s in t.searched:
        searched_report(s)
    w = t.winner
    console.print(
        f"\n[bold]winner: {w.space.machine.__name__}[/bold], predicted {float(w.prediction.seconds) * 1e6:,.1f} us "
        f"({100 * float(w.prediction.share_of_roofline):.0f} % of the roofline) on {t.device.name}"
    )
    layouts_report(w)
    verification_report(t.verification)
    console.print(
        f"\nnot measured: {driver.reason}" if not driver.present else "\nnot measured yet: give --measure 50"
    )
    for f in files:
        console.print(f"wrote {f}")
