"""A timeline as a drawing: the units of the SM, and the roles of the CTAs that it holds, over time."""

from __future__ import annotations

from collections.abc import Sequence

from tinygpu.simulator.drawing import HUES, Canvas, round_step
from tinygpu.simulator.plan import SERVERS, Span
from tinygpu.simulator.simulate import Simulation

LEFT, WIDTH, ROW, GAP = 190, 1180, 20, 8
# Copies of one role that are drawn below each other; more than these share rows.
LANES = 8


def timeline_svg(found: Simulation, title: str) -> str:
    """The beginning of a simulation as one self-contained SVG.

    Raises ValueError where the launch is refused or no spans were kept.
    """
    if not found.spans:
        raise ValueError(f"[timeline] there is nothing to draw: {found.sentence()}")
    until = found.drawn_s or max(s.stop_s for s in found.spans)
    spans = [s for s in found.spans if s.start_s < until]
    labels = {label: i % len(HUES) for i, label in enumerate(dict.fromkeys(s.label for s in spans if s.kind != "wait"))}
    rows = _rows(spans)
    canvas = Canvas(WIDTH, 0, f"timeline of {title}")
    y = canvas.paragraph(12, 22, title, "title")
    share = f"; drawn are the first {until * 1e6:,.2f} us" if until < found.sm_s * (1 - 1e-9) else ""
    about = f"one SM of {found.device}: {found.sm_s * 1e6:,.2f} us, simulated, not measured{share}"
    y = canvas.paragraph(12, y, about, "note")
    y = canvas.paragraph(12, y, found.sentence(), "note") + 5
    for i, (label, hue) in enumerate(labels.items()):
        x, below = 12 + 290 * (i % 4), y + 18 * (i // 4)
        canvas.box(x, below - 10, 12, 12, f"h{hue}")
        canvas.text(x + 18, below, label[:44])
    scale = (WIDTH - LEFT - 20) / until
    y += 18 * -(-len(labels) // 4)
    bottom = y + sum(GAP if name is None else ROW for name, _ in rows) + 6
    canvas.height = int(bottom + 24)
    _axis(canvas, y, bottom, until, scale)
    for name, members in rows:
        if name is None:
            y += GAP
            continue
        canvas.text(LEFT - 8, y + 14, name, "left")
        for s in members:
            stop = min(s.stop_s, until)
            kind = "wait" if s.kind == "wait" else f"h{labels[s.label]}"
            says = f"{s.label}: {s.start_s * 1e6:.3f} to {s.stop_s * 1e6:.3f} us, CTA {s.cta}, tile {s.tile}"
            inset = 6 if s.kind == "copy" else 2
            box = (LEFT + s.start_s * scale, y + inset, (stop - s.start_s) * scale, ROW - 2 * inset)
            canvas.box(*box, kind, says)
        y += ROW
    return str(canvas)


def _axis(canvas: Canvas, top: float, bottom: float, until: float, scale: float) -> None:
    step = round_step(until * 1e6, 10)
    number = 0
    while number * step <= until * 1e6 * (1 + 1e-9):
        x = LEFT + number * step * 1e-6 * scale
        canvas.line(x, top, x, bottom, "grid")
        canvas.text(x, bottom + 16, f"{number * step:g} us", "middle")
        number += 1


def _rows(spans: Sequence[Span]) -> list[tuple[str | None, list[Span]]]:
    """Rows from top to bottom with what lies in them; None is a gap."""
    found: dict[str, list[Span]] = {}
    for s in spans:
        found.setdefault(s.row, []).append(s)
    out: list[tuple[str | None, list[Span]]] = [(unit, found[unit]) for unit in SERVERS if unit in found]
    places: dict[str, list[str]] = {}
    for row in sorted(set(found) - set(SERVERS), key=lambda r: (int(r.split()[1]), r)):
        places.setdefault(row.split()[1], []).append(row)
    for rows in places.values():
        out.append((None, []))
        for row in rows:
            if row.endswith(" copies"):
                out += [(f"{row}" if i == 0 else "", lane) for i, lane in enumerate(_lanes(found[row]))]
            else:
                out.append((row, found[row]))
    return out


def _lanes(spans: Sequence[Span]) -> list[list[Span]]:
    """Spans that overlap, spread over rows such that those of a row do not, as far as LANES rows go."""
    lanes: list[list[Span]] = []
    for s in sorted(spans, key=lambda s: s.start_s):
        free = next((lane for lane in lanes if lane[-1].stop_s <= s.start_s), None)
        if free is None and len(lanes) < LANES:
            lanes.append([s])
        elif free is None:
            min(lanes, key=lambda lane: lane[-1].stop_s).append(s)
        else:
            free.append(s)
    return lanes


__all__ = ["timeline_svg"]
