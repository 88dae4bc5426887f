"""Convergence: the best value so far, over the evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tinygpu.report.chart import Scale, axes, dot, drawn, line, padded, path, plain, seconds_text, text
from tinygpu.report.run import Searched


def convergence(parts: Sequence[Searched], floor: float | None) -> str:
    """One line per machine; the roofline below, where it is known."""
    shown = [part for part in parts if part.improvements]
    values = [seconds for part in shown for _, seconds in part.improvements]
    low, high = padded([*values, *([floor] if floor else [])])
    most = max(part.tried for part in shown)

    def draw(width: int) -> tuple[int, list[str]]:
        height = 300 if width > 500 else 260
        x = Scale(1, max(most, 2), 62, width - 14, log=most > 30)
        y = Scale(low, high, height - 34, 16, log=True)
        x_ticks = [(value, plain(value)) for value in x.ticks(7 if width > 500 else 4) if value == int(value)]
        out = axes(x, y, x_ticks, [(value, seconds_text(value)) for value in y.ticks(6)])
        if floor:
            out.append(line(x.start, y(floor), x.stop, y(floor), "roof"))
            out.append(text(x.stop, y(floor) - 6, f"roofline {seconds_text(floor)}", "label roofline", "end"))
        for number, part in enumerate(shown):
            kind = f"s{number % 4}"
            track: list[tuple[float, float]] = []
            for count, seconds in part.improvements:
                if track:
                    track.append((x(count), track[-1][1]))
                track.append((x(count), y(seconds)))
            track.append((x(max(part.tried, 1)), track[-1][1]))
            out.append(path(track, f"curve {kind}"))
            for count, seconds in part.improvements[:-1][-200:]:
                said = f"{part.machine}: {seconds_text(seconds)} after {count:,} evaluations"
                out.append(dot(x(count), y(seconds), 3, f"knot {kind}", said))
            end = f"{part.machine}: {seconds_text(part.improvements[-1][1])} after {part.tried:,} evaluations"
            out.append(dot(*track[-1], 5, f"knot {kind}", end))
        return height, out

    ends = [f"{part.machine}: {part.tried:,} tried, best {seconds_text(part.improvements[-1][1])}" for part in shown]
    legend = "".join(f'<li class="s{number % 4}">{escape(end)}</li>' for number, end in enumerate(ends))
    return drawn("best time so far over evaluations", draw) + f'<ul class="legend">{legend}</ul>'
