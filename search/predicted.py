"""The objective of a search without a GPU: predicted seconds of a machine's candidates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.counts import Counted
from tinygpu.cost.predictor import Prediction, predict
from tinygpu.search.bounded import Region
from tinygpu.search.evaluation import Evaluation, Failure
from tinygpu.search.predicted_bound import PredictedBound
from tinygpu.search.searchable import Columns, Point
from tinygpu.spaces.build import MachineSpace


class PredictedTime:
    """Predicted seconds, without bank conflicts: a lower bound of what the predictor says once layouts are solved."""

    def __init__(self, space: MachineSpace) -> None:
        self.space = space
        self._bound = PredictedBound(space, self.score_columns)

    def bound(self, region: Region, /) -> float:
        """Seconds that no admitted candidate of a region is predicted below (`predicted_bound` says how)."""
        return self._bound(region)

    def score_columns(self, columns: Columns, /) -> NDArray[np.float64]:
        """(rows,) seconds; infinity where the launch would be refused."""
        rows = len(next(iter(columns.values())))
        out = np.full(rows, math.inf)
        for index, mask, chosen in self.by_structure(columns, rows):
            out[mask] = self.predict(counted(self.space, index, chosen)).seconds
        return out

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        out = []
        for seconds in self.seconds(points):
            if math.isfinite(seconds):
                out.append(Evaluation(value=seconds))
            else:
                out.append(Evaluation(failure=Failure("launch", "no CTA of this candidate fits on an SM")))
        return out

    def rooflines(self, points: Sequence[Point]) -> NDArray[np.float64]:
        """(points,) least seconds of the problem, as each of these candidates counts its work."""
        out = np.zeros(len(points))
        for index, mask, chosen in self.by_structure(columns_of(points), len(points)):
            out[mask] = self.predict(counted(self.space, index, chosen)).roofline_s
        return out

    def seconds(self, points: Sequence[Point]) -> list[float]:
        """Of each point, infinity where the launch would be refused; of many with the same parameters at once."""
        if len(points) > 1 and len({tuple(point) for point in points}) == 1 and points[0]:
            return [float(seconds) for seconds in self.score_columns(columns_of(points))]
        return [float(self.prediction(point).seconds) for point in points]

    def prediction(self, point: Point, *, extra_wavefronts: float = 0.0, registers: int | None = None) -> Prediction:
        """The prediction of one candidate, with what is known of it beyond the counts.

        extra_wavefronts  per main-loop round, from bank conflicts that the best layout leaves
        registers         per thread, as the assembler reports them
        """
        return self.predict(counted_at(self.space, point), extra_wavefronts, registers)

    def predict(self, found: Counted, extra_wavefronts: float = 0.0, registers: int | None = None) -> Prediction:
        """The prediction of candidates of one structure from what was counted of them."""
        demand = found.demand(self.space.device, extra_wavefronts)
        if registers is not None:
            demand = replace(demand, registers_per_thread=registers)
        return predict(self.space.device, demand)

    def by_structure(self, columns: Columns, rows: int) -> Iterator[tuple[int, NDArray[np.bool_], dict[str, Any]]]:
        """For each structure that some of the rows have: its number, which rows, and the values of its parameters."""
        for index, structure in enumerate(self.space.structures):
            mask = np.ones(rows, dtype=np.bool_)
            for name, label in structure:
                mask &= np.asarray(columns[name]) == label
            if mask.any():
                axes = self.space.traces[index].axes
                yield index, mask, {a: np.asarray(columns[a])[mask].astype(np.int64) for a in axes}


def columns_of(points: Sequence[Point]) -> Columns:
    """Points that have the same parameters, as an array for each of these."""
    return {name: np.array([point[name] for point in points]) for name in points[0]}


def counted(space: MachineSpace, index: int, chosen: Mapping[str, Any]) -> Counted:
    """What is counted of candidates of one structure, given the values of its parameters."""
    return space.counts(index).counted({**space.environment, **chosen})


def counted_at(space: MachineSpace, point: Point) -> Counted:
    """What is counted of one candidate."""
    index = space.structure_index(point)
    return counted(space, index, {a: int(point[a]) for a in space.traces[index].axes})
