"""Predicted against measured times."""

from __future__ import annotations

from collections import Counter
from html import escape

from tinygpu.report.chart import Scale, axes, dot, drawn, line, padded, path, seconds_text, text
from tinygpu.report.run import Run


def measured(run: Run) -> str:
    """Every candidate that was timed; or the sentence that nothing was."""
    timed = [t for t in run.timed if t.seconds is not None]
    failed = Counter(t.failure for t in run.timed if t.seconds is None)
    losses = ", ".join(f"{count} {kind}" for kind, count in failed.most_common())
    lost = f"<p>Failed: {escape(losses)}.</p>" if losses else ""
    if not timed:
        return (
            '<p class="empty"><b>Nothing was measured.</b> Every time on this page is predicted. '
            "<code>tinygpu tune --measure 50</code> on a machine with the GPU, or <code>tinygpu bundle</code> and "
            f"<code>tinygpu report --results</code>, put measured times beside them.</p>{lost}"
        )
    low, high = padded([v for t in timed for v in (t.predicted, t.seconds or t.predicted)])

    def draw(width: int) -> tuple[int, list[str]]:
        height = min(width, 440)
        x = Scale(low, high, 62, width - 16, log=True)
        y = Scale(low, high, height - 46, 14, log=True)
        ticks = [(value, seconds_text(value)) for value in x.ticks(5 if width > 500 else 3)]
        out = [*axes(x, y, ticks, ticks), path([(x(low), y(low)), (x(high), y(high))], "roof")]
        out.append(text((x.start + x.stop) / 2, height - 6, "predicted", "tick", "middle"))
        out.append(text(70, 24, "measured", "tick"))
        for t in sorted(timed, key=lambda t: -(t.seconds or 0)):
            seconds = t.seconds or t.predicted
            if t.low and t.high and low <= t.low <= t.high <= high:
                out.append(line(x(t.predicted), y(t.low), x(t.predicted), y(t.high), "spread"))
            words = " ".join(f"{k}={v}" for k, v in t.point.items())
            said = f"{t.machine}: predicted {seconds_text(t.predicted)}, measured {seconds_text(seconds)} · {words}"
            out.append(dot(x(t.predicted), y(seconds), 4, "knot s0", said))
        return height, out

    best = min(timed, key=lambda t: t.seconds or 0.0)
    where = escape(run.measured[:1].upper() + run.measured[1:])
    return (
        f"<p>{where}: {len(timed)} candidate{'s' * (len(timed) != 1)}. The best took "
        f"<b>{seconds_text(best.seconds or 0.0)}</b>, predicted {seconds_text(best.predicted)}. On the dashed line a "
        f"prediction is right; lines through dots are quartiles.</p>{lost}"
        + drawn("predicted against measured times", draw)
    )
