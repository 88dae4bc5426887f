"""Two logarithmic axes with a grid at powers of ten: where a value lies on a canvas."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tinygpu.simulator.drawing import Canvas, decades

LEFT, RIGHT, BOTTOM = 84, 24, 60


@dataclass(frozen=True, slots=True)
class LogAxes:
    """Axes over x_range and y_range, of positive values, below what is written in the first `top` units of a canvas."""

    canvas: Canvas
    x_range: tuple[float, float]
    y_range: tuple[float, float]
    top: int

    @property
    def right(self) -> float:
        return self.canvas.width - RIGHT

    @property
    def bottom(self) -> float:
        return self.canvas.height - BOTTOM

    def x(self, value: float) -> float:
        low, high = (math.log10(v) for v in self.x_range)
        return LEFT + (math.log10(value) - low) / (high - low) * (self.right - LEFT)

    def y(self, value: float) -> float:
        low, high = (math.log10(v) for v in self.y_range)
        return self.bottom - (math.log10(value) - low) / (high - low) * (self.bottom - self.top)

    def line(self, start: tuple[float, float], stop: tuple[float, float], kind: str) -> None:
        """A line between two points, each (x, y) in values."""
        self.canvas.line(self.x(start[0]), self.y(start[1]), self.x(stop[0]), self.y(stop[1]), kind)

    def grid(self, across: str, up: str, unit: str) -> None:
        """The grid, its figures and what the axes show.

        unit  behind the figures of the upper axis, such as "/s"
        """
        c = self.canvas
        for value in decades(*self.x_range):
            c.line(self.x(value), self.top, self.x(value), self.bottom, "grid")
            c.text(self.x(value), self.bottom + 16, f"{value:g}", "middle")
        for value in decades(*self.y_range):
            c.line(LEFT, self.y(value), self.right, self.y(value), "grid")
            c.text(LEFT - 6, self.y(value) + 4, _rate(value, unit), "left")
        c.text((LEFT + self.right) / 2, c.height - 24, across, "middle")
        c.text(LEFT + 6, self.top + 14, up, "note")


def _rate(value: float, unit: str) -> str:
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= size:
            return f"{value / size:g} {prefix}{unit}"
    return f"{value:g} {unit}"


__all__ = ["LEFT", "LogAxes"]
