"""The roofline: what the device allows at an arithmetic intensity, and where the best candidates lie under it."""

from __future__ import annotations

from tinygpu.report.chart import Scale, axes, dot, drawn, padded, path, plain, rate_text, seconds_text, text
from tinygpu.report.run import Run


def roofline(run: Run) -> str:
    """All assembled candidates; "" where the operation has no FLOP or moves nothing."""
    shown = [
        (number, part, c)
        for number, part in enumerate(run.searched)
        for c in part.candidates
        if c.flops > 0 and c.dram_bytes > 0
    ]
    roofs = [roof for roof in run.roofs if roof.flops_per_s > 0]
    if not shown or not roofs:
        return ""
    ridges = [roof.flops_per_s / run.dram_bytes_s for roof in roofs]
    places = [c.flops / c.dram_bytes for _, _, c in shown]
    # a decade before the first place of interest, so that the slope is seen
    x_low, x_high = min(*places, *ridges) / 12, max(*places, *ridges) * 4
    top = max(roof.flops_per_s for roof in roofs)
    y_low, y_high = padded([top, *(c.flops / c.seconds for _, _, c in shown)], 0.15)
    y_low = min(y_low, min(run.dram_bytes_s * x_low * 2, top / 30))

    def draw(width: int) -> tuple[int, list[str]]:
        height = 340 if width > 500 else 300
        x = Scale(x_low, x_high, 78, width - 16, log=True)
        y = Scale(y_low, y_high, height - 46, 14, log=True)
        out = axes(
            x,
            y,
            [(value, plain(value)) for value in x.ticks(6 if width > 500 else 4)],
            [(value, rate_text(value, "FLOP/s")) for value in y.ticks(5)],
        )
        first = y_low / run.dram_bytes_s
        for roof, ridge in zip(roofs, ridges, strict=True):
            begin = max(x_low, first)
            track = [(x(max(begin, min(ridge, x_high))), y(min(roof.flops_per_s, y_high)))]
            if ridge > begin:
                track.insert(0, (x(begin), y(max(run.dram_bytes_s * begin, y_low))))
            track.append((x(x_high), y(roof.flops_per_s)))
            if roof.flops_per_s >= y_low:
                out.append(path(track, "roof"))
                label = f"{roof.name}, {rate_text(roof.flops_per_s, 'FLOP/s')}"
                out.append(text(x.stop - 4, y(roof.flops_per_s) - 7, label, "label roofline", "end"))
        for number, part, c in reversed(shown):
            said = (
                f"{part.machine}: {seconds_text(c.seconds)}, {rate_text(c.flops / c.seconds, 'FLOP/s')}, "
                f"{100 * c.roofline:.0f} % of the roofline, {plain(round(c.flops / c.dram_bytes))} FLOP per byte"
            )
            out.append(dot(x(c.flops / c.dram_bytes), y(c.flops / c.seconds), 5, f"knot s{number % 4}", said))
        out.append(text((x.start + x.stop) / 2, height - 6, "useful FLOP per byte of DRAM traffic", "tick", "middle"))
        return height, out

    return drawn("roofline of the device with the best candidates", draw)
