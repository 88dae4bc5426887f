"""Roofline: where the best candidate lies below the ceilings of a device, among others drawn at random."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tinygpu.api.machines import Family
from tinygpu.api.predict import Predicted, predict_point
from tinygpu.api.problems import Asked
from tinygpu.api.timeline import one_kernel, short_point
from tinygpu.cost.predictor import predict
from tinygpu.devices import Device
from tinygpu.files.writing import write_file
from tinygpu.simulator.roofline import Marks, ceilings, marks, roofline_svg
from tinygpu.spaces.build import MachineSpace

# Candidates that are drawn behind the best.
CLOUD = 400


def write_roofline(
    family: Family, asked: Asked, device: Device, point: Mapping[str, int | str], path: Path, *, seed: int = 0
) -> Predicted:
    """Writes the roofline of the best candidate with these values as SVG.

    Raises ValueError for another ending than .svg, and for a program without arithmetic; and what `predict_point`
    raises.
    """
    if path.suffix != ".svg":
        raise ValueError(f"[roofline] a roofline is written as .svg, not to {path.name!r}")
    found = one_kernel(predict_point(family, asked, device, point), "a roofline")
    demand = found.demand()
    best = marks(demand, found.simulation.prediction)
    says = f"{short_point(found)}: {found.simulation.prediction.sentence()}"
    cloud = _cloud(found.space, point, seed)
    drawn = roofline_svg(device, ceilings(device, demand), cloud, best, found.title, says)
    write_file(path, drawn, (b"<svg ",), "a drawing")
    return found


def _cloud(space: MachineSpace, point: Mapping[str, int | str], seed: int) -> Marks:
    """Random candidates with these values, structure by structure as arrays."""
    points = space.space.restrict(point).sample(CLOUD, np.random.default_rng(seed))
    found: list[Marks] = []
    for index in range(len(space.structures)):
        mine = [p for p in points if space.structure_index(p) == index]
        if mine:
            axes = {a: np.array([int(p[a]) for p in mine]) for a in space.traces[index].axes}
            demand = space.counts(index).demand({**space.environment, **axes}, space.device)
            found.append(marks(demand, predict(space.device, demand)))
    columns = [
        np.concatenate([getattr(m, name) for m in found])
        for name in ("operations", "dram_bytes", "l2_bytes", "seconds")
    ]
    return Marks(*columns)


__all__ = ["write_roofline"]
