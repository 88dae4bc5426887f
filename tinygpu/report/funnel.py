"""The pruning funnel: how many points each constraint removed, and how many were left."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from tinygpu.report.chart import count_text
from tinygpu.report.run import Searched, Step


def funnel(part: Searched) -> str:
    """A machine's constraints in the order in which they are judged; bars are logarithmic."""
    structures = f"{part.structures:,} structure{'s' * (part.structures != 1)}"
    rows = [_row("all points", "raw", structures, part.raw, part.raw)]
    left, idle = part.raw, 0
    for step in merged(part.steps):
        left -= step.removed
        if step.removed:
            rows.append(_row(step.name, step.kind, step.source, left, part.raw, step.removed))
        else:
            idle += 1
    rows.append(_row("candidates", "left", "admitted by every constraint", part.size, part.raw))
    more = f"{idle} more constraint{'s' * (idle != 1)} removed nothing that others had left." if idle else ""
    return (
        '<div class="funnel" role="table" aria-label="points left after each constraint">'
        + "".join(rows)
        + f'</div><p class="note">Bars are logarithmic. {more}</p>'
    )


def merged(steps: Sequence[Step]) -> list[Step]:
    """Steps of one constraint in different structures, put together."""
    found: dict[tuple[str, str, str], int] = {}
    for step in steps:
        key = (step.name.partition(" (")[0], step.kind, step.source)
        found[key] = found.get(key, 0) + step.removed
    return [Step(*key, removed) for key, removed in found.items()]


def _row(name: str, kind: str, source: str, left: int, raw: int, removed: int = 0) -> str:
    share = math.log1p(left) / math.log1p(raw) if raw else 0.0
    minus = f'<span class="minus">−{escape(count_text(removed))}</span>' if removed else ""
    return (
        f'<div class="step {kind}" role="row"><div class="who"><b>{escape(name)}</b>'
        f"<small>{escape(kind + ' · ' if kind in ('legality', 'dominance') else '')}{escape(source)}</small></div>"
        f'<div class="bar"><i style="width:{100 * share:.2f}%"></i></div>'
        f'<div class="count">{escape(count_text(left))}{minus}</div></div>'
    )
