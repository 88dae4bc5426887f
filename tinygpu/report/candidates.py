"""The best candidates: what each takes, why, and which values it has."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

from tinygpu.report.chart import seconds_text, tip
from tinygpu.report.run import Candidate, Run

# Causes of time in the order of their colours, and what they are called.
CAUSES = {
    "tensor": "tensor cores",
    "fma": "FMA lanes",
    "alu": "integer lanes",
    "sfu": "special functions",
    "issue": "instruction issue",
    "smem": "shared memory",
    "l2": "L2",
    "dram": "DRAM",
    "latency": "latency",
    "tail": "last wave",
    "power": "power limit",
    "launch": "launch",
}
_UNITS = ("tensor", "fma", "alu", "sfu", "issue", "smem", "l2", "dram")


def candidates(run: Run) -> str:
    """A card for every assembled candidate, by machine, the best first."""
    out = []
    for machine, part in enumerate(run.searched):
        if part.candidates:
            out.append(f'<h3 class="s{machine % 4}">{escape(part.machine)}</h3>')
            slowest = max(c.seconds for c in part.candidates)
            first = part.candidates[0].point
            for number, c in enumerate(part.candidates):
                won = run.winner == (machine, number)
                out.append(_card(number, c, slowest, won, first if number else {}))
    return "".join(out)


def _card(number: int, c: Candidate, slowest: float, won: bool, first: Mapping[str, object]) -> str:
    spilled = f'<span class="bad">spills {c.spill_bytes} B</span>' if c.spill_bytes else ""
    # of all but the first only what is different from the first
    shown = {name: value for name, value in c.point.items() if not first or first.get(name) != value}
    values = "".join(f"<li>{escape(name)}<b>{escape(str(value))}</b></li>" for name, value in shown.items())
    if first:
        values = f'<li class="as">{"as the first, with" if shown else "as the first"}</li>{values}'
    return (
        f'<article class="candidate{" won" if won else ""}"><div class="head"><span class="rank">{number + 1}</span>'
        f"<strong>{seconds_text(c.seconds)}</strong>{'<em>winner</em>' if won else ''}"
        f"<span>{100 * c.roofline:.0f} % of the roofline</span><span>{c.registers} registers</span>"
        f"<span>{c.ctas_per_sm} CTA{'s' * (c.ctas_per_sm != 1)} per SM</span>{spilled}</div>"
        f'{_split(c, slowest)}<p>{escape(c.sentence)}</p><ul class="values">{values}</ul></article>'
    )


def _split(c: Candidate, slowest: float) -> str:
    """The time as one bar: the busiest unit, then what is lost."""
    unit = max(_UNITS, key=lambda u: c.breakdown.get(u, 0.0))
    pieces = [(unit, c.breakdown.get(unit, 0.0)), *((k, c.breakdown.get(k, 0.0)) for k in list(CAUSES)[8:])]
    bars = []
    for key, value in pieces:
        if value > 0:
            said = tip(f"{CAUSES[key]}: {seconds_text(value)}")
            bars.append(f'<i class="c-{key}" style="width:{100 * value / slowest:.2f}%"{said}></i>')
    return f'<div class="split">{"".join(bars)}</div>'


def legend(run: Run) -> str:
    """The colours of the bars that are shown."""
    shown: dict[str, None] = {}
    for part in run.searched:
        for c in part.candidates:
            shown[max(_UNITS, key=lambda u: c.breakdown.get(u, 0.0))] = None
            shown.update(dict.fromkeys(k for k in list(CAUSES)[8:] if c.breakdown.get(k, 0.0) > 0))
    items = "".join(f'<li class="c-{key}">{CAUSES[key]}</li>' for key in CAUSES if key in shown)
    return f'<ul class="legend squares">{items}</ul>'


def units(c: Candidate) -> str:
    """How long each unit of the device is busy under one candidate, beside the whole time."""
    rows = []
    for key in sorted(_UNITS, key=lambda u: -c.breakdown.get(u, 0.0)):
        share = c.breakdown.get(key, 0.0) / c.seconds
        if share >= 0.0005:
            rows.append(
                f'<div class="unit"><span>{CAUSES[key]}</span><div class="bar"><i class="c-{key}" '
                f'style="width:{100 * min(share, 1):.2f}%"></i></div><b>{100 * share:.1f} %</b></div>'
            )
    lost = [
        f"{CAUSES[key]} {100 * c.breakdown[key] / c.seconds:.1f} %"
        for key in ("latency", "tail", "power", "launch")
        if c.breakdown.get(key, 0.0) / c.seconds >= 0.0005
    ]
    note = f'<p class="note">Lost beside the busiest unit: {", ".join(lost)} of the time.</p>' if lost else ""
    return f'<div class="units">{"".join(rows)}</div>{note}'
