"""The timeline: what roles and units of one SM do from the launch on, as the simulator has it."""

from __future__ import annotations

from html import escape

from tinygpu.report.candidates import CAUSES
from tinygpu.report.chart import Scale, box, drawn, line, seconds_text, text
from tinygpu.report.run import Timeline

# Rows of roles that are shown: a reader learns no more from the twentieth CTA of an SM.
_MOST_ROLES = 8


def timeline(shown: Timeline) -> str:
    """Rows of work, waits and copies under way."""
    found = list(dict.fromkeys(s.row for s in shown.stretches))
    # who works, then what is used
    roles = sorted((row for row in found if row not in CAUSES), key=_natural)
    rows = roles[:_MOST_ROLES] + [unit for unit in CAUSES if unit in found]
    more = f" {len(roles) - _MOST_ROLES} more rows of roles are left out." if len(roles) > _MOST_ROLES else ""
    until = max(s.stop for s in shown.stretches)

    def draw(width: int) -> tuple[int, list[str]]:
        wide = width > 500
        tall, bar = (26, 18) if wide else (42, 18)
        left = 8 + max(7 * len(CAUSES.get(row, row)) for row in rows) if wide else 4
        height = 14 + tall * len(rows) + 26
        x = Scale(0, until, left, width - 10)
        out = []
        for tick in x.ticks(7 if wide else 4):
            out.append(line(x(tick), 8, x(tick), height - 24, "grid faint"))
            out.append(text(x(tick), height - 8, seconds_text(tick) if tick else "0", "tick", "middle"))
        for number, row in enumerate(rows):
            top = 10 + number * tall + (0 if wide else tall - bar - 2)
            name = CAUSES.get(row, row)
            out.append(text(left - 8, top + 13, name, "tick", "end") if wide else text(4, top - 4, name, "tick"))
            for s in shown.stretches:
                if s.row == row:
                    long = max(0.7, round(x(s.stop) - x(s.start), 1))
                    said = f"{name}: {s.label}, from {seconds_text(s.start)} on for {seconds_text(s.stop - s.start)}"
                    out.append(box(x(s.start), top, long, bar, f"c-{row}" if row in CAUSES else f"t-{s.kind}", said))
        return height, out

    return (
        f"<p>{escape(shown.sentence)}. Simulated: {seconds_text(shown.seconds)}; shown are the first "
        f"{seconds_text(until)} of one SM.{more}</p>"
        + drawn("timeline of one SM", draw)
        + '<ul class="legend squares"><li class="t-work">a role at work</li><li class="t-wait">waits</li>'
        '<li class="t-copy">copies under way</li></ul>'
    )


def _natural(row: str) -> list[tuple[int, str]]:
    """An order in which slot 2 comes before slot 10."""
    return [(int(word), "") if word.isdigit() else (-1, word) for word in row.split()]
