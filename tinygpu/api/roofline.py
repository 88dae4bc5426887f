"""Roofline: where the best candidate lies below the ceilings of a device, among others drawn at random."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from tinygpu.api.machines import Family
from tinygpu.api.predict import AnyPredicted, predict_point
from tinygpu.api.predicted_plan import PlanPredicted
from tinygpu.api.problems import Asked
from tinygpu.api.timeline import short_point
from tinygpu.cost.demand import Demand
from tinygpu.cost.predictor import Prediction, predict
from tinygpu.devices import Device
from tinygpu.files.writing import write_file
from tinygpu.simulator.roofline import Ceiling, Marks, ceilings, computes, marks, roofline_svg
from tinygpu.spaces.build import MachineSpace

# Candidates that are drawn behind the best.
CLOUD = 400


def write_roofline(
    family: Family, asked: Asked, device: Device, point: Mapping[str, int | str], path: Path, *, seed: int = 0
) -> AnyPredicted:
    """Writes the roofline of the best candidate with these values as SVG; of a plan, with a place for each step.

    Raises ValueError for another ending than .svg, and for a program without arithmetic; and what `predict_point`
    raises.
    """
    if path.suffix != ".svg":
        raise ValueError(f"[roofline] a roofline is written as .svg, not to {path.name!r}")
    found = predict_point(family, asked, device, point)
    if isinstance(found, PlanPredicted):
        write_file(path, _of_steps(found, device), (b"<svg ",), "a drawing")
        return found
    demand = found.demand()
    best = marks(demand, found.simulation.prediction)
    says = f"{short_point(found)}: {found.simulation.prediction.sentence()}"
    cloud = _cloud(found.space, point, seed)
    drawn = roofline_svg(device, ceilings(device, demand), cloud, best, found.title, says)
    write_file(path, drawn, (b"<svg ",), "a drawing")
    return found


def _of_steps(found: PlanPredicted, device: Device) -> str:
    """Each step of a plan at its own traffic; those that compute nothing have no place, and are named."""
    places: dict[str, Marks] = {}
    roofs: dict[str, Ceiling] = {}
    idle = []
    for (name, prediction), demand in zip(found.prediction.steps.items(), found.demands(), strict=True):
        if computes(demand):
            places[name] = marks(demand, prediction)
            roofs |= {roof.name: roof for roof in ceilings(device, demand)}
        else:
            idle.append(name)
    if not places:
        raise ValueError("[roofline] no step of this plan computes anything: they have no operations per byte")
    left = f"; not shown, since nothing is computed: {', '.join(idle)}" if idle else ""
    best, none = _joined(list(places.values())), _joined([])
    says = found.prediction.sentence() + left
    return roofline_svg(device, tuple(roofs.values()), none, best, found.title, says, tuple(places))


def _joined(found: Sequence[Marks]) -> Marks:
    names = ("operations", "dram_bytes", "l2_bytes", "seconds")
    return Marks(*(np.concatenate([np.zeros(0), *(getattr(m, name) for m in found)]) for name in names))


def _cloud(space: MachineSpace, point: Mapping[str, int | str], seed: int) -> Marks:
    """Random candidates with these values, structure by structure as arrays."""
    points = space.space.restrict(point).sample(CLOUD, np.random.default_rng(seed))
    return _joined([marks(demand, prediction) for demand, prediction in predicted(space, points)])


def predicted(
    space: MachineSpace, points: Sequence[Mapping[str, int | str]]
) -> Iterator[tuple[Demand, Prediction]]:
    """What candidates ask for and what is predicted of them, as arrays, for each structure that some of them have."""
    for index in range(len(space.structures)):
        mine = [p for p in points if space.structure_index(p) == index]
        if mine:
            axes = {a: np.array([int(p[a]) for p in mine]) for a in space.traces[index].axes}
            demand = space.counts(index).demand({**space.environment, **axes}, space.device)
            yield demand, predict(space.device, demand)


__all__ = ["predicted", "write_roofline"]
