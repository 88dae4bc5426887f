"""The objective of a search without a GPU: predicted seconds of a machine's candidates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.predictor import Prediction, predict
from tinygpu.search.bounded import Region
from tinygpu.search.evaluation import Evaluation, Failure
from tinygpu.search.predicted_bound import PredictedBound
from tinygpu.search.searchable import Columns, Point
from tinygpu.spaces.build import MachineSpace

# Among candidates that take the same time, the one that keeps its units less busy is preferred, and among those the
# one whose data would come sooner: these shares of such seconds are added to a score, too little to order different
# times.
TIE_SHARE = 1e-7
READS_TIE_SHARE = 1e-8


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
        for index, mask in self._by_structure(columns, rows):
            chosen = {a: np.asarray(columns[a])[mask].astype(np.int64) for a in self.space.traces[index].axes}
            out[mask] = score(self.predict(index, chosen))
        return out

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        out = []
        for point in points:
            seconds = float(score(self.prediction(point)))
            if math.isfinite(seconds):
                out.append(Evaluation(value=seconds))
            else:
                out.append(Evaluation(failure=Failure("launch", "no CTA of this candidate fits on an SM")))
        return out

    def prediction(self, point: Point, *, extra_wavefronts: float = 0.0, registers: int | None = None) -> Prediction:
        """The prediction of one candidate, with what is known of it beyond the counts.

        extra_wavefronts  per main-loop round, from bank conflicts that the best layout leaves
        registers         per thread, as the assembler reports them
        """
        index = self.space.structure_index(point)
        chosen = {a: int(point[a]) for a in self.space.traces[index].axes}
        return self.predict(index, chosen, extra_wavefronts, registers)

    def predict(
        self, index: int, chosen: dict[str, Any], extra_wavefronts: float = 0.0, registers: int | None = None
    ) -> Prediction:
        from dataclasses import replace

        values = {**self.space.environment, **chosen}
        demand = self.space.counts(index).demand(values, self.space.device, extra_wavefronts)
        if registers is not None:
            demand = replace(demand, registers_per_thread=registers)
        return predict(self.space.device, demand)

    def _by_structure(self, columns: Columns, rows: int) -> list[tuple[int, NDArray[np.bool_]]]:
        names = [c.name for c in self.space.machine.choices()]
        if not names:
            return [(0, np.ones(rows, dtype=np.bool_))]
        masks = []
        for index, structure in enumerate(self.space.structures):
            mask = np.ones(rows, dtype=np.bool_)
            for name, label in structure:
                mask &= np.asarray(columns[name]) == label
            if mask.any():
                masks.append((index, mask))
        return masks


def score(prediction: Prediction) -> NDArray[np.float64]:
    """Predicted seconds, ties broken."""
    busy = sum(np.asarray(b) for b in prediction.busy_s.values())
    return np.asarray(prediction.seconds + TIE_SHARE * busy + READS_TIE_SHARE * prediction.reads_s, dtype=np.float64)
