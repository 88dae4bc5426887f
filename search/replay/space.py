"""Replay: a space that somebody measured before, served point by point, so that searches are compared without a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.evaluation import Evaluation, Trial
from tinygpu.search.searchable import Columns, Point, Value


class ReplaySpace:
    """Every point that was measured, with what came of it; also the objective that serves these values.

    kernel, device  what was measured, and where
    problem         its sizes
    objective       what the values are ("time"), smaller is better
    unit            of the values ("ms")
    parameters      name -> the values on offer, in their order
    trials          one for each point, failures as failures; all points have all parameters

    Raises ValueError for a point that is there twice, or has other parameters or values than those on offer.
    """

    def __init__(
        self,
        trials: Iterable[Trial],
        *,
        parameters: Mapping[str, Sequence[Value]] | None = None,
        kernel: str = "",
        device: str = "",
        problem: Sequence[int] = (),
        objective: str = "time",
        unit: str = "ms",
    ) -> None:
        self.trials = tuple(trials)
        self.kernel = kernel
        self.device = device
        self.problem = tuple(problem)
        self.objective = objective
        self.unit = unit
        self.parameters = {n: tuple(v) for n, v in (parameters or _domains(self.trials)).items()}
        self._levels = {name: {value: i for i, value in enumerate(v)} for name, v in self.parameters.items()}
        self._rows: dict[tuple[int, ...], int] = {}
        for row, trial in enumerate(self.trials):
            key = self._key(trial.point)
            if key is None:
                raise ValueError(f"[{self.title}] {dict(trial.point)} is not made of the values on offer")
            if key in self._rows:
                raise ValueError(f"[{self.title}] {dict(trial.point)} was measured twice; keep one of the two")
            self._rows[key] = row

    @property
    def title(self) -> str:
        return " on ".join(part for part in (self.kernel, self.device) if part) or "replay"

    def __repr__(self) -> str:
        return f"<ReplaySpace {self.title}: {self.size:,} points, {self.failures:,} of them failures>"

    # -- the objective ------------------------------------------------------------------------------------------

    def __call__(self, points: Sequence[Point], /) -> list[Evaluation]:
        """What was measured at each of the points."""
        return [self.trials[self._row(point)].evaluation for point in points]

    @cached_property
    def optimum(self) -> float:
        """The least value. Raises ValueError where every point failed."""
        values = [trial.value for trial in self.trials if trial.value is not None]
        if not values:
            raise ValueError(f"[{self.title}] every point failed, so that there is no best one")
        return min(values)

    @property
    def failures(self) -> int:
        """How many points have no value."""
        return sum(trial.failure is not None for trial in self.trials)

    # -- the space ----------------------------------------------------------------------------------------------

    @property
    def size(self) -> int:
        return len(self.trials)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.parameters)

    def __contains__(self, point: object) -> bool:
        return isinstance(point, Mapping) and self._key(point) in self._rows

    def columns_by_part(self) -> Iterable[tuple[object, Columns]]:
        """One part: all points have the same parameters."""
        if self.trials:
            columns = {
                name: _column(values, self._levels_matrix[:, j])
                for j, (name, values) in enumerate(self.parameters.items())
            }
            yield self, columns

    def sample(self, count: int, rng: np.random.Generator) -> Sequence[Point]:
        return [self.trials[i].point for i in rng.integers(self.size, size=count)]

    def neighbours(self, point: Point) -> Sequence[Point]:
        """The measured points that differ from the point in exactly one parameter."""
        key = self.trials[self._row(point)].point
        levels = [self._levels[name][key[name]] for name in self.parameters]
        found = []
        for j, values in enumerate(self.parameters.values()):
            for level in range(len(values)):
                if level != levels[j]:
                    row = self._rows.get((*levels[:j], level, *levels[j + 1 :]))
                    if row is not None:
                        found.append(self.trials[row].point)
        return found

    def legal_values(self, partial: Point, name: str) -> tuple[Value, ...]:
        """The values of `name` that some measured point has together with those of `partial`, in the order on offer."""
        if name not in self.parameters:
            raise ValueError(f"[{self.title}] there is no parameter {name!r}; there are {', '.join(self.names)}")
        inside = np.ones(self.size, dtype=np.bool_)
        for j, other in enumerate(self.parameters):
            if other in partial and other != name:
                inside &= self._levels_matrix[:, j] == self._levels[other].get(partial[other], -1)
        if any(other not in self.parameters for other in partial):
            return ()
        levels = np.unique(self._levels_matrix[inside, self.names.index(name)])
        return tuple(self.parameters[name][level] for level in levels.tolist())

    # -- inside -------------------------------------------------------------------------------------------------

    @cached_property
    def _levels_matrix(self) -> NDArray[np.int64]:
        """(points, parameters) which value of each parameter a point has."""
        return np.array(list(self._rows), dtype=np.int64).reshape(self.size, len(self.parameters))

    def _key(self, point: Mapping[str, Value]) -> tuple[int, ...] | None:
        if len(point) != len(self._levels):
            return None
        try:
            return tuple(levels[point[name]] for name, levels in self._levels.items())
        except (KeyError, TypeError):
            return None

    def _row(self, point: Point) -> int:
        key = self._key(point)
        if key is None or key not in self._rows:
            raise ValueError(f"[{self.title}] {dict(point)} was not measured")
        return self._rows[key]


def _domains(trials: Sequence[Trial]) -> dict[str, list[Value]]:
    """Numbers in ascending order, then words."""
    found: dict[str, set[Value]] = {}
    for trial in trials:
        for name, value in trial.point.items():
            found.setdefault(name, set()).add(value)
    return {
        name: [*sorted(v for v in values if isinstance(v, int)), *sorted(v for v in values if isinstance(v, str))]
        for name, values in found.items()
    }


def _column(values: Sequence[Value], levels: NDArray[np.int64]) -> NDArray[np.object_] | NDArray[np.int64]:
    if all(isinstance(value, int) for value in values):
        return np.array(values, dtype=np.int64)[levels]
    words = np.empty(len(values), dtype=object)
    words[:] = values
    return words[levels]
