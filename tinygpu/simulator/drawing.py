"""What the drawings share: a canvas of SVG elements, styles for light and dark pages, round numbers for axes."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

# Hues (degrees) of things that differ, far apart from one to the next.
HUES = (211, 28, 141, 283, 350, 55, 178, 320, 95, 240)
# Width of a character of the titles, on average.
CHARACTER = 8.0


@dataclass(slots=True)
class Canvas:
    """An SVG of fixed size, in user units."""

    width: int
    height: int
    title: str
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, kind: str = "") -> None:
        """kind  of the styles: title, note, left (anchored at its end), middle"""
        self.parts.append(f'<text{_class(kind)} x="{x:.1f}" y="{y:.1f}">{escape(words)}</text>')

    def paragraph(self, x: float, y: float, words: str, kind: str = "") -> float:
        """Text in lines that fit to the right of `x`; the place of what comes below."""
        for line in textwrap.wrap(words, max(20, int((self.width - x - 12) / CHARACTER))):
            self.text(x, y, line, kind)
            y += 17
        return y

    def box(self, x: float, y: float, width: float, height: float, kind: str, says: str = "") -> None:
        size = f'x="{x:.2f}" y="{y:.1f}" width="{max(width, 0.2):.2f}" height="{height:.1f}"'
        tip = f"<title>{escape(says)}</title>" if says else ""
        self.parts.append(f"<rect{_class(kind)} {size}>{tip}</rect>" if tip else f"<rect{_class(kind)} {size}/>")

    def line(self, x0: float, y0: float, x1: float, y1: float, kind: str = "axis") -> None:
        self.parts.append(f'<line{_class(kind)} x1="{x0:.2f}" y1="{y0:.2f}" x2="{x1:.2f}" y2="{y1:.2f}"/>')

    def dot(self, x: float, y: float, radius: float, kind: str, says: str = "") -> None:
        tip = f"<title>{escape(says)}</title>" if says else ""
        self.parts.append(f'<circle{_class(kind)} cx="{x:.2f}" cy="{y:.2f}" r="{radius}">{tip}</circle>')

    def specks(self, places: Iterable[tuple[float, float]], kind: str) -> None:
        """Many small dots as one element: strokes without length, whose ends are round."""
        drawn = "".join(f"M{x:.1f} {y:.1f}h0" for x, y in places)
        if drawn:
            self.parts.append(f'<path{_class(kind + " speck")} d="{drawn}"/>')

    def __str__(self) -> str:
        label = escape(self.title, {'"': "&quot;"})
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" role="img" aria-label="{label}">'
        )
        ground = f'<rect class="ground" width="{self.width}" height="{self.height}"/>'
        return "\n".join([head, f"<style>{_style()}</style>", ground, *self.parts, "</svg>"]) + "\n"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _style() -> str:
    light = "".join(f".h{i}{{fill:hsl({hue} 62% 56%)}}.s{i}{{stroke:hsl({hue} 62% 48%)}}" for i, hue in enumerate(HUES))
    dark = "".join(f".h{i}{{fill:hsl({hue} 52% 52%)}}" for i, hue in enumerate(HUES))
    return (
        "text{font:12px system-ui,sans-serif;fill:#1b1f24}.title{font-weight:600;font-size:14px}"
        ".note{fill:#57606a}.left{text-anchor:end}.middle{text-anchor:middle}"
        ".ground{fill:#fff}.axis{stroke:#8c959f;stroke-width:1}.grid{stroke:#d8dee4;stroke-width:1}"
        ".roof{stroke:#1b1f24;stroke-width:1.6}.soft{stroke:#8c959f;stroke-width:1.4;stroke-dasharray:5 4}"
        ".wait{fill:#d8dee4}.cloud{fill:hsl(211 62% 56%);fill-opacity:.45}.best{fill:hsl(350 70% 50%)}"
        ".thick{stroke-width:1.8}.speck{fill:none;stroke-width:4;stroke-linecap:round;stroke-opacity:.3}"
        f".other{{fill:hsl(28 80% 52%)}}{light}"
        "@media(prefers-color-scheme:dark){text{fill:#e6edf3}.note{fill:#9198a1}.ground{fill:#0d1117}"
        f".grid{{stroke:#30363d}}.roof{{stroke:#e6edf3}}.wait{{fill:#30363d}}{dark}}}"
    )


def round_step(span: float, count: int) -> float:
    """The least of 1, 2, 5, 10, ... (times a power of ten) that cuts `span` into at most `count` parts.

    >>> round_step(97.0, 10), round_step(0.7, 4)
    (10.0, 0.2)
    """
    if span <= 0:
        return 1.0
    power = math.floor(math.log10(span / count))
    for step in (1, 2, 5, 10):
        value = float(f"{step}e{power}")
        if span / value <= count * (1 + 1e-12):
            return value
    return float(f"1e{power + 1}")


def decades(least: float, most: float) -> Iterator[float]:
    """Powers of ten from `least` to `most`, both included.

    >>> list(decades(0.5, 120.0))
    [1.0, 10.0, 100.0]
    """
    for power in range(math.ceil(math.log10(least) - 1e-9), math.floor(math.log10(most) + 1e-9) + 1):
        yield float(f"1e{power}")


__all__ = ["HUES", "Canvas", "decades", "round_step"]
