"""Lessons from machines: a space with the predicted time of every point that the policy sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tinygpu.devices import Device, Figure
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.rl.forest import Lesson
from tinygpu.search.rl.situation import points_of, situate
from tinygpu.search.searchable import Columns, Point
from tinygpu.spaces.build import MachineSpace

# A space of up to this many points is scored as a whole, to know the optimum.
SCORED_POINTS = 2_000_000
# No candidate is worse than this: e^-2, more than seven times the best time. What cannot be launched gets the same.
WORST_REWARD = -2.0


class NothingToLearn(ValueError):
    """No candidate of a space can be launched."""


def lesson_of(
    space: MachineSpace,
    rng: np.random.Generator,
    most: int,
    scored: int = SCORED_POINTS,
    points: Sequence[Point] | None = None,
) -> Lesson:
    """The lesson of a space under the predictor; of more than `most` points a uniform sample is seen, or `points`.

    A reward is the logarithm of the best known time over the candidate's, from 0 down to WORST_REWARD. The best known
    is the optimum of the whole space where that has up to `scored` points, else the best point that is seen.

    Raises NothingToLearn where no point can be launched.
    """
    situation = situate(space.space, points_of(space.space, rng, most) if points is None else points)
    tree = situation.tree
    objective = PredictedTime(space)
    seconds = objective.score_columns(columns_of([tree.point(leaf) for leaf in range(tree.leaves)]))
    best = float(seconds.min())
    if scored and tree.leaves < space.space.size <= scored:
        best = min(best, optimum(space, objective))
    if not np.isfinite(best):
        raise NothingToLearn(f"[{space.space.name}] no candidate can be launched, so there is nothing to learn")
    rewards = np.maximum(np.log(best) - np.log(seconds), WORST_REWARD)
    return Lesson(space.space.name, situation, np.minimum(rewards, 0).astype(np.float32))


def lessons_of(space: MachineSpace, rng: np.random.Generator, most: int, imagined: int) -> list[Lesson]:
    """The lesson of a space and, over the same points, those of `imagined` devices with other rates.

    The optimum of the whole space is not asked for: the best point that is seen stands in.
    """
    points = points_of(space.space, rng, most)
    lessons = [lesson_of(space, rng, most, 0, points)]
    for number in range(imagined):
        other = space.on(imagine(space.device, f"{space.device.name} imagined {number}", rng))
        taught = lesson_of(other, rng, most, 0, points)
        lessons.append(replace(taught, name=f"{taught.name}, as {other.device.name}"))
    return lessons


# Figures of a device that move together, and how far: factors from 1 / span to span. What is derived from measured
# figures moves by them.
_SPANS: tuple[tuple[float, tuple[str, ...]], ...] = (
    (1.3, ("boost_clock_mhz", "tensor_clock_implied_mhz")),
    (1.2, ("tflops_f16_sustained",)),
    (2.0, ("dram_bw_gbs_sustained",)),
    (1.6, ("l2_bw_gbs_sustained",)),
    (1.5, ("lat_dram", "lat_l2_hit_near", "lat_l2_hit_far")),
    (1.5, ("lat_fma_dependent", "lat_sfu", "lat_ldmatrix", "lat_mma_m16n8k16", "lat_barrier_cta")),
    (1.5, ("launch_overhead_graph_us",)),
)
_MEASURED = {
    "tflops_f16_sustained": "gemm_f16_bf16_tflops_measured",
    "dram_bw_gbs_sustained": "dram_bw_gbs_measured",
    "l2_bw_gbs_sustained": "l2_bw_gbs_measured",
}


def imagine(device: Device, name: str, rng: np.random.Generator) -> Device:
    """A device with the limits of a real one and other rates and latencies, to learn more from one space."""
    figures: dict[str, Figure] = {}
    for span, fields in _SPANS:
        factor = float(span ** rng.uniform(-1, 1))
        for field in fields:
            value = device.figure(field).value
            if isinstance(value, int | float):
                target = _MEASURED.get(field, field)
                unit = device.figure(target).unit
                figures[target] = Figure(value * factor, unit, "drawn at random, for training", "derived")
    return device.with_figures(figures, name)


def optimum(space: MachineSpace, objective: PredictedTime) -> float:
    """The least predicted seconds over the whole space, by scoring every point; infinity where none can be launched."""
    parts = (columns for _, columns in space.space.columns_by_part() if columns)
    return min((float(objective.score_columns(c).min()) for c in parts if len(next(iter(c.values())))), default=np.inf)


def columns_of(points: list[dict[str, int | str]] | list[Point]) -> Columns:
    """Points with the same parameters as arrays."""

    def column(name: str) -> NDArray[np.int64] | NDArray[np.object_]:
        values = [point[name] for point in points]
        if all(isinstance(value, int) for value in values):
            return np.array(values, dtype=np.int64)
        words = np.empty(len(values), dtype=object)
        words[:] = values
        return words

    return {name: column(name) for name in points[0]}
