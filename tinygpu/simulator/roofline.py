"""A roofline: operations per second over operations per byte, with the ceilings of a device, as a drawing.

Each candidate is drawn at its own DRAM traffic, as predicted; the best also at what it asks of L2. How far it is below
the ceilings is what tiles, waves and latencies lose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.demand import SECTOR_BYTES, Demand
from tinygpu.cost.predictor import Prediction
from tinygpu.cost.rates import Rates
from tinygpu.devices import Device
from tinygpu.simulator.drawing import Canvas
from tinygpu.simulator.log_axes import LogAxes

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """What a device can do at most.

    rate   operations per second, or bytes per second where `per_byte`
    soft   not a limit of every kernel: what power sustains, or L2
    """

    name: str
    rate: float
    per_byte: bool = False
    soft: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Marks:
    """Candidates in a roofline; arrays of one length.

    operations   useful ones of the launch
    dram_bytes   read and written
    l2_bytes     asked of L2
    seconds      predicted time of the launch
    """

    operations: Floats
    dram_bytes: Floats
    l2_bytes: Floats
    seconds: Floats


Kind = Literal["tensor", "lanes"]


def kind_of(demand: Demand) -> Kind:
    """Whether the operations are those of tensor cores, or of the lanes of the SM."""
    return "tensor" if np.asarray(demand.total.tensor_flops).any() else "lanes"


def ceilings(device: Device, demand: Demand) -> tuple[Ceiling, ...]:
    """The ceilings for what a demand computes with; raises ValueError where the device has no such tensor path."""
    out = [
        Ceiling("DRAM", device.dram_bytes_per_s, per_byte=True),
        Ceiling("L2", device.l2_bytes_per_s, per_byte=True, soft=True),
    ]
    lanes = 2 * device.number("fp32_fma_per_clk_sm") * device.sm_count * device.boost_clock_hz
    if kind_of(demand) == "tensor":
        rates = Rates.of(device, demand)
        peak = rates.peak_flops_per_clk * device.sm_count * device.tensor_clock_hz
        out.append(Ceiling(f"tensor cores, {demand.operand}", peak))
        if device.sustained_tensor_share < 1:
            out.append(Ceiling("sustained", peak * device.sustained_tensor_share, soft=True))
    out.append(Ceiling("FMA lanes", lanes, soft=kind_of(demand) == "tensor"))
    return tuple(out)


def marks(demand: Demand, prediction: Prediction) -> Marks:
    """Where candidates lie; those that cannot be launched are left out.

    Raises ValueError where nothing is computed, since operations per byte then say nothing.
    """
    ctas, total = np.asarray(demand.ctas, dtype=np.float64), demand.total
    counted = operations(demand)
    if not counted.any():
        raise ValueError("[roofline] this program computes nothing: it has no operations per byte")
    sectors = ctas * np.add(total.sectors_read, total.sectors_written)
    dram = np.add(demand.dram_bytes_read, demand.dram_bytes_written)
    shape = demand.shape
    columns = [
        np.broadcast_to(np.asarray(values, dtype=np.float64), shape).ravel()
        for values in (counted, dram, sectors * SECTOR_BYTES, prediction.seconds)
    ]
    there = np.isfinite(columns[3]) & (columns[1] > 0) & (columns[0] > 0)
    return Marks(*(np.asarray(c[there]) for c in columns))


def computes(demand: Demand) -> bool:
    """Whether there are operations."""
    return bool(operations(demand).any())


def operations(demand: Demand) -> NDArray[Any]:
    """Useful ones of the launch."""
    ctas, total = np.asarray(demand.ctas, dtype=np.float64), demand.total
    if kind_of(demand) == "tensor":
        useful = demand.useful_tensor_flops
        return np.asarray(ctas * total.tensor_flops if useful is None else useful)
    return np.asarray(ctas * (np.asarray(total.fma_flops) + total.alu_ops + total.sfu_ops))


WIDTH, HEIGHT, TOP = 860, 600, 120


def roofline_svg(
    device: Device, roofs: Sequence[Ceiling], cloud: Marks, best: Marks, title: str, says: str,
    names: Sequence[str] = ("best",),
) -> str:
    """The roofline as one self-contained SVG.

    cloud  candidates to show behind the best
    best   one candidate, or one of each kernel
    says   a sentence about the best
    names  of what is shown of the best
    """
    if not len(best.seconds):
        raise ValueError(f"[roofline] {device.name} refuses to launch the candidate: there is no time to draw")
    at = (best.operations / best.dram_bytes, best.operations / np.maximum(best.l2_bytes, 1))
    behind = cloud.operations / cloud.dram_bytes
    memory = [c for c in roofs if c.per_byte]
    compute = [c for c in roofs if not c.per_byte]
    ridges = [c.rate / m.rate for c in compute for m in memory]
    xs = np.concatenate([*at, behind, np.array(ridges)])
    x_range = (10 ** math.floor(math.log10(xs.min() / 1.5)), 10 ** math.ceil(math.log10(xs.max() * 1.5)))
    rates = np.concatenate([best.operations / best.seconds, cloud.operations / cloud.seconds])
    highest = max(c.rate for c in compute)
    y_range = (10 ** math.floor(math.log10(min(rates.min(), highest / 100) / 1.2)), highest * 2.5)
    plot = _Plot(LogAxes(Canvas(WIDTH, HEIGHT, f"roofline of {title}"), x_range, y_range, TOP))
    plot.head(title, f"{device.name}; predicted, not measured", says)
    for ceiling in roofs:
        plot.ceiling(ceiling, highest, max(m.rate for m in memory))
    for x, ops, seconds in zip(behind, cloud.operations, cloud.seconds, strict=True):
        plot.mark(float(x), float(ops / seconds), 2.5, "cloud", f"{seconds * 1e6:,.2f} us")
    for number, name in enumerate(names):
        rate, seconds = float(best.operations[number] / best.seconds[number]), float(best.seconds[number])
        by_dram, by_l2 = (float(places[number]) for places in at)
        plot.mark(by_l2, rate, 5, "other", f"{name}, by bytes asked of L2: {by_l2:,.1f} operations per byte")
        plot.mark(by_dram, rate, 6, "best", f"{name}, by DRAM traffic: {seconds * 1e6:,.2f} us")
        if len(names) > 1:
            plot.name(by_dram, rate, name)
    plot.legend(len(cloud.seconds), "the best candidate" if len(names) == 1 else "each step")
    return str(plot.axes.canvas)


@dataclass(frozen=True, slots=True)
class _Plot:
    axes: LogAxes

    def head(self, title: str, about: str, says: str) -> None:
        c = self.axes.canvas
        below = c.paragraph(12, 20, title, "title")
        below = c.paragraph(12, below, about, "note")
        c.paragraph(12, below, says, "note")
        self.axes.grid("operations per byte", "operations per second", "/s")

    def ceiling(self, ceiling: Ceiling, highest: float, fastest: float) -> None:
        a = self.axes
        low, high = a.x_range
        kind = "soft" if ceiling.soft else "roof"
        if ceiling.per_byte:
            start = max(low, a.y_range[0] / ceiling.rate)
            stop = min(high, highest / ceiling.rate)
            a.line((start, start * ceiling.rate), (stop, stop * ceiling.rate), kind)
            middle = math.sqrt(start * stop)
            words = f"{ceiling.name} {ceiling.rate / 1e9:,.0f} GB/s"
            a.canvas.text(a.x(middle) - 8, a.y(middle * ceiling.rate) - 4, words, "left")
        else:
            a.line((max(low, ceiling.rate / fastest), ceiling.rate), (high, ceiling.rate), kind)
            words = f"{ceiling.name} {ceiling.rate / 1e12:,.1f} T/s"
            below = 15 if ceiling.soft else -5
            a.canvas.text(a.right - 4, a.y(ceiling.rate) + below, words, "left")

    def mark(self, x: float, y: float, radius: float, kind: str, says: str) -> None:
        self.axes.canvas.dot(self.axes.x(x), self.axes.y(y), radius, kind, says)

    def name(self, x: float, y: float, words: str) -> None:
        self.axes.canvas.text(self.axes.x(x) + 10, self.axes.y(y) + 4, words)

    def legend(self, candidates: int, best: str) -> None:
        rows = [("best", f"{best}, by its DRAM traffic"), ("other", "the same, by bytes asked of L2")]
        if candidates:
            rows.append(("cloud", f"{candidates:,} candidates, drawn at random"))
        canvas, right, y = self.axes.canvas, self.axes.right, self.axes.bottom - 18 * len(rows)
        for number, (kind, words) in enumerate(rows):
            canvas.dot(right - 262, y + 18 * number, 5, kind)
            canvas.text(right - 250, y + 18 * number + 4, words)


__all__ = ["Ceiling", "Marks", "ceilings", "computes", "kind_of", "marks", "operations", "roofline_svg"]
