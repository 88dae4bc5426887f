"""What every chart of a report is made of: scales, ticks, numbers in words, and a frame that is drawn twice.

A chart is drawn once for a wide page and once for a phone, each at its true size, so that its text is never scaled; the
style sheet shows one of them. Colours are classes, which the style sheet gives for light and for dark.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

WIDE, NARROW = 760, 326
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Scale:
    """Values from `low` to `high` onto pixels from `start` to `stop`."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.high == self.low:
            share = 0.5
        elif self.log:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return round(self.start + share * (self.stop - self.start), 1)

    def ticks(self, most: int) -> list[float]:
        """Round values on the scale, up to `most` or a few more."""
        if self.log:
            return _log_ticks(self.low, self.high, most)
        step = _round_step((self.high - self.low) / most)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def padded(values: Iterable[float], share: float = 0.06) -> tuple[float, float]:
    """The range of positive values with room on both ends, for a logarithmic scale."""
    found = [value for value in values if value > 0]
    low, high = min(found), max(found)
    room = max((high / low) ** share, 1.06)
    return low / room, high * room


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    for factors in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        found = [
            f * 10.0**e
            for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            for f in factors
            if low * (1 - 1e-9) <= f * 10.0**e <= high * (1 + 1e-9)
        ]
        if len(found) <= most:
            return found if len(found) > 1 else Scale(low, high, 0, 1).ticks(most)
    return found[:: math.ceil(len(found) / most)]


def _round_step(step: float) -> float:
    size = 10.0 ** math.floor(math.log10(step))
    return next(f * size for f in (1, 2, 2.5, 5, 10) if f * size >= step * (1 - 1e-9))


def drawn(label: str, draw: Callable[[int], tuple[int, Sequence[str]]]) -> str:
    """A chart for wide pages and one for narrow ones.

    draw  from a width in pixels, the height and the parts of the picture
    """
    out = []
    for kind, width in (("wide", WIDE), ("narrow", NARROW)):
        height, parts = draw(width)
        inside = "\n".join(parts)
        out.append(
            f'<svg class="chart {kind}" viewBox="0 0 {width} {height}" role="img" '
            f'aria-label="{escape(label, quote=True)}">\n{inside}\n</svg>'
        )
    return "\n".join(out)


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    """Words at a place; anchor is "", "middle" or "end"."""
    anchored = f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:g}" y="{y:g}"{_class(kind)}{anchored}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}"{_class(kind)}/>'


def path(points: Iterable[tuple[float, float]], kind: str, more: str = "") -> str:
    """A line through points."""
    track = "L".join(f"{x:g},{y:g}" for x, y in points)
    return f'<path d="M{track}"{_class(kind)}{more}/>'


def dot(x: float, y: float, radius: float, kind: str, said: str = "") -> str:
    return f'<circle cx="{x:g}" cy="{y:g}" r="{radius:g}"{_class(kind)}{tip(said)}/>'


def box(x: float, y: float, width: float, height: float, kind: str, said: str = "", round_by: float = 0) -> str:
    corner = f' rx="{round_by:g}"' if round_by else ""
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"{corner}{_class(kind)}{tip(said)}/>'


def tip(said: str) -> str:
    """What a reader sees who points at a part."""
    return f' data-tip="{escape(said, quote=True)}"' if said else ""


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def axes(x: Scale, y: Scale, x_ticks: Sequence[tuple[float, str]], y_ticks: Sequence[tuple[float, str]]) -> list[str]:
    """Grid lines and labels of both axes; ticks are (value, label)."""
    bottom, top = max(y.start, y.stop), min(y.start, y.stop)
    left, right = min(x.start, x.stop), max(x.start, x.stop)
    out = [line(left, y(value), right, y(value), "grid") for value, _ in y_ticks]
    out += [text(left - 8, y(value) + 4, label, "tick", "end") for value, label in y_ticks]
    out += [line(x(value), top, x(value), bottom, "grid faint") for value, _ in x_ticks]
    out += [text(x(value), bottom + 18, label, "tick", "middle") for value, label in x_ticks]
    out.append(line(left, bottom, right, bottom, "axis"))
    return out


def seconds_text(seconds: float) -> str:
    """12.3 us, 1.23 ms, with three digits.

    >>> seconds_text(1.2345e-5)
    '12.3 µs'
    """
    return engineering(seconds, (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)))


def rate_text(per_second: float, unit: str) -> str:
    """312 TFLOP/s."""
    steps = ((f"P{unit}", 1e15), (f"T{unit}", 1e12), (f"G{unit}", 1e9), (f"M{unit}", 1e6), (unit, 1.0))
    return engineering(per_second, steps)


def engineering(value: float, steps: Sequence[tuple[str, float]]) -> str:
    """Three digits and the first unit that the value reaches."""
    unit, size = next(((u, s) for u, s in steps if value >= s * 0.9995), steps[-1])
    return f"{digits(value / size)} {unit}"


def digits(value: float) -> str:
    """Three digits: 1.23, 12.3, 123, 1,234."""
    if value == 0:
        return "0"
    places = max(0, 2 - math.floor(math.log10(abs(value) * 1.0005)))
    return f"{value:,.{min(places, 4)}f}"


def count_text(count: float) -> str:
    """1,234; from ten million on, 1.2 × 10⁷."""
    if count < 1e7:
        return f"{count:,.0f}"
    power = math.floor(math.log10(count))
    return f"{count / 10.0**power:.1f} × 10{str(power).translate(_SUPERSCRIPTS)}"


def plain(value: float) -> str:
    """A round value of a tick: 0.5, 20, 1,000; powers from ten thousand on as 10⁴."""
    if value >= 1e4:
        power = math.floor(math.log10(value) + 1e-9)
        lead = value / 10.0**power
        head = "" if abs(lead - 1) < 1e-9 else f"{lead:g}×"
        return f"{head}10{str(power).translate(_SUPERSCRIPTS)}"
    return f"{value:,.10g}"
