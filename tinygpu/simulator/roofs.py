"""The rooflines of several devices in one drawing, with the candidates of one machine below each of them.

Where nothing is computed, a byte that has to be moved stands for an operation: the roof is the bandwidth of DRAM, and
one useful byte per byte says that nothing is moved twice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.simulator.drawing import Canvas
from tinygpu.simulator.log_axes import LEFT, LogAxes

Floats = NDArray[np.float64]
Counted = Literal["operations", "bytes"]

WIDTH, ABOVE, ROW, PLOT = 860, 36, 18, 400
# Steps of ten that the axis of rates has at the least below the highest roof.
DECADES = 2


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where candidates lie; arrays of one length.

    useful      operations of all launches; where nothing is computed, bytes that have to be moved
    dram_bytes  read and written, as predicted
    seconds     predicted
    """

    useful: Floats
    dram_bytes: Floats
    seconds: Floats

    @property
    def intensity(self) -> Floats:
        return self.useful / self.dram_bytes

    @property
    def rate(self) -> Floats:
        return self.useful / self.seconds


@dataclass(frozen=True, slots=True, eq=False)
class Roof:
    """One device.

    bytes_per_s       of DRAM, as attained
    operations_per_s  at the peak; infinite where nothing is computed
    best              the best candidate, alone
    others            candidates to show behind it
    """

    device: str
    bytes_per_s: float
    operations_per_s: float
    best: Places
    others: Places


def roofs_svg(roofs: Sequence[Roof], counted: Counted, title: str) -> str:
    """The rooflines as one self-contained SVG.

    counted  what rates are of: operations, or, of machines that compute nothing, useful bytes
    title    what is drawn, in words
    """
    shown = [places for roof in roofs for places in (roof.best, roof.others)]
    along, rates = np.concatenate([p.intensity for p in shown]), np.concatenate([p.rate for p in shown])
    ridges = [r.operations_per_s / r.bytes_per_s for r in roofs if math.isfinite(r.operations_per_s)]
    first = 10 ** math.floor(math.log10(min([along.min(), *ridges]) / 1.5))
    last = 10 ** math.ceil(math.log10(max([along.max(), *ridges]) * 1.5))
    tops = [min(roof.operations_per_s, roof.bytes_per_s * last) for roof in roofs]
    lowest = min(rates.min() / 1.2, max(tops) / 10**DECADES)
    canvas = Canvas(WIDTH, ABOVE + ROW * len(roofs) + PLOT, title)
    y_range = (10 ** math.floor(math.log10(lowest)), max(tops) * 1.6)
    axes = LogAxes(canvas, (first, last), y_range, ABOVE + ROW * len(roofs))
    canvas.text(12, 20, f"{title}: predicted, not measured", "title")
    if counted == "operations":
        axes.grid("operations per byte of DRAM traffic", "operations per second", "/s")
    else:
        axes.grid("useful bytes per byte of DRAM traffic", "useful bytes per second", "B/s")
    for number, roof in enumerate(roofs):
        _draw(axes, number, roof)
        canvas.dot(LEFT + 6, ABOVE + 4 + ROW * number, 5, f"h{number}")
        canvas.text(LEFT + 18, ABOVE + 8 + ROW * number, _told(roof))
    return str(canvas)


def _draw(axes: LogAxes, number: int, roof: Roof) -> None:
    low, high = axes.x_range
    ridge = min(roof.operations_per_s / roof.bytes_per_s, high)
    start = max(low, axes.y_range[0] / roof.bytes_per_s)
    kind = f"s{number} thick"
    axes.line((start, start * roof.bytes_per_s), (ridge, ridge * roof.bytes_per_s), kind)
    if ridge < high:
        axes.line((ridge, roof.operations_per_s), (high, roof.operations_per_s), kind)
    places = zip(roof.others.intensity, roof.others.rate, strict=True)
    axes.canvas.specks(((axes.x(float(x)), axes.y(float(y))) for x, y in places), f"s{number}")
    x, y = float(roof.best.intensity[0]), float(roof.best.rate[0])
    axes.canvas.dot(axes.x(x), axes.y(y), 6, f"h{number}", _told(roof))


def _told(roof: Roof) -> str:
    """A device with its roof and its best candidate."""
    peak = f", {roof.operations_per_s / 1e12:,.1f} T/s" if math.isfinite(roof.operations_per_s) else ""
    return f"{roof.device}, {roof.bytes_per_s / 1e9:,.0f} GB/s{peak}: {float(roof.best.seconds[0]) * 1e6:,.1f} us"


__all__ = ["Counted", "Places", "Roof", "roofs_svg"]
