"""The drawing on the page of a machine: rooflines of devices, the best candidates, and others drawn at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tinygpu.api.pages.account import Account, OnDevice
from tinygpu.api.roofline import predicted
from tinygpu.cost.demand import Demand
from tinygpu.devices import Device
from tinygpu.search.plan_time import PlanTime
from tinygpu.simulator.roofline import ceilings, computes, operations
from tinygpu.simulator.roofs import Counted, Places, Roof, roofs_svg
from tinygpu.spaces.plan_space import PlanSpace

# Candidates that are drawn behind the best of each device.
SHOWN = 100


def drawing(a: Account) -> str:
    """The SVG of a page. Of a plan all kernels together have one place: their operations, their bytes, their time."""
    there = [d for d in a.devices if d.point is not None]
    computed = all(any(map(computes, d.demands)) for d in there)
    counted: Counted = "operations" if computed else "bytes"
    return roofs_svg([_roof(d, counted) for d in there], counted, f"rooflines of {a.name}")


def _roof(on: OnDevice, counted: Counted) -> Roof:
    device = on.space.device
    best = _places(device, on.demands, on.roofline_s, on.seconds, counted)
    peak = _peak(device, on.demands) if counted == "operations" else math.inf
    return Roof(on.title, device.dram_bytes_per_s, peak, best, _others(on, counted))


def _peak(device: Device, demands: Sequence[Demand]) -> float:
    """Operations per second of the kernel that has most of them."""
    most = max(demands, key=lambda demand: float(np.max(operations(demand))))
    return max(roof.rate for roof in ceilings(device, most) if not roof.per_byte and not roof.soft)


def _others(on: OnDevice, counted: Counted) -> Places:
    points = on.space.sample(SHOWN)
    found: list[Places] = []
    if isinstance(on.space, PlanSpace):
        objective = PlanTime(on.space)
        for point in points:
            whole = objective.prediction(point)
            demands = tuple(objective.demands(point).values())
            found.append(_places(on.space.device, demands, whole.roofline_s, whole.seconds, counted))
    else:
        for demand, p in predicted(on.space, points):
            found.append(_places(on.space.device, (demand,), p.roofline_s, p.seconds, counted))
    return Places(*(np.concatenate([getattr(f, name) for f in found]) for name in ("useful", "dram_bytes", "seconds")))


def _places(device: Device, demands: Sequence[Demand], least_s: Any, seconds: Any, counted: Counted) -> Places:
    """Those of candidates that can be launched, and that have a place in the drawing.

    least_s  at the roofline: where nothing is computed, the time of the bytes that have to be moved
    """
    if counted == "operations":
        useful = sum(np.asarray(operations(d), dtype=np.float64) for d in demands)
    else:
        useful = np.asarray(least_s, dtype=np.float64) * device.dram_bytes_per_s
    dram = sum(np.add(d.dram_bytes_read, d.dram_bytes_written) for d in demands)
    columns = [np.ravel(c) for c in np.broadcast_arrays(useful, dram, np.asarray(seconds, dtype=np.float64))]
    there = np.isfinite(columns[2]) & (columns[0] > 0) & (columns[1] > 0)
    return Places(*(np.asarray(c[there], dtype=np.float64) for c in columns))
