"""Tables and sentences for people."""

from __future__ import annotations

import re
import sys
from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tinygpu.api.machines import machines_of

if TYPE_CHECKING:  # commands that need none of these start without them
    from tinygpu.api.choosing import Chosen
    from tinygpu.ptx.verification.verify import Verification
    from tinygpu.spaces.built import BuiltSpace

# Tags of ours; whatever else stands in brackets is text, such as the y[i, j] of a machine's summary.
_TEXT_IN_BRACKETS = re.compile(r"(?<!\\)\[(?!/?bold( red)?\])")


class _Plain(Console):
    """A console on which a user's brackets are what they are."""

    def render_str(self, text: str, **how: Any) -> Text:
        return super().render_str(_TEXT_IN_BRACKETS.sub(r"\\[", text), **how)


# On a pipe there is no width to fit into.
console = _Plain(highlight=False, emoji=False, soft_wrap=True, width=None if sys.stdout.isatty() else 160)


def table(*columns: str, title: str = "") -> Table:
    """A plain table; a column whose name ends in > is right-aligned."""
    out = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for c in columns:
        out.add_column(c.rstrip(">"), justify="right" if c.endswith(">") else "left", overflow="fold")
    return out


def space_report(space: BuiltSpace) -> None:
    """Raw size, what each constraint removed, survivors."""
    s = space.space
    console.print(f"\n[bold]{space.machine.__name__}[/bold]: {space.machine.summary()}")
    console.print(f"problem {space.problem}, {space.device.name}")
    console.print(f"{s.raw_size:,} points in {len(s.parts)} structures before any constraint")
    rows = table("constraint", "kind", "brought by", "points removed>")
    removed: Counter[tuple[str, str, str]] = Counter()
    for row in s.funnel:
        removed[(plain_name(row.name), row.kind, row.source)] += row.removed
    idle = 0
    for (name, kind, source), count in removed.items():
        if count:
            rows.add_row(name, kind, source, f"{count:,}")
        else:
            idle += 1
    console.print(rows)
    if idle:
        console.print(f"{idle} more constraints removed nothing that others had left")
    names = ", ".join(layout.name for m in machines_of(space.machine) for layout in m.layouts())
    if names:
        console.print(f"unknown layouts, solved per candidate and not counted: {names}")
    console.print(f"[bold]{s.size:,} candidates[/bold] are left")


def plain_name(name: str) -> str:
    """A constraint's name without what it is about."""
    return name.partition(" (")[0]


def short_point(f: Chosen) -> str:
    """The values that this candidate's structure uses."""
    part = next(p for p in f.space.space.parts if p.offers(f.point))
    used = {axis.name for axis in part.axes}
    return " ".join(f"{k}={v}" for k, v in f.point.items() if k in used or isinstance(v, str))


def verification_report(v: Verification) -> None:
    """The emulator's verdict and its exact counts."""
    from tinygpu.ptx.verification.plan import RUNS

    console.print(f"\n[bold]{v}[/bold]" if not v.passed else f"\n{v}")
    console.print(f"each line is a run: {RUNS}")
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


def layouts_report(f: Chosen) -> None:
    for stage, part in zip(f.kernels.stages, f.parts, strict=True):
        of = f"step {stage.name}, " if stage.name else ""
        for name, solution in part.refined.layouts.solutions.items():
            console.print(f"{of}layout of {name}: {solution}")
