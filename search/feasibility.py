"""Feasibility: from points that failed and points that did not, how likely another point has a value.

Failures have no value, so the model of values cannot learn from them; taken as very bad values they would bend it just
where the best points often are, at the edge of what a device can hold.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from tinygpu.search.gaussian_process import Array, GaussianProcess

# The least deviation that a prediction may claim, so that no point is ruled out for good.
_LEAST_DEVIATION = 0.02
# Below this many deviations the normal distribution's tail is taken from its expansion.
_TAIL = -6.0


class Feasibility:
    """A Gaussian process of a figure that is 1 at failures and 0 elsewhere; above a half, a point is taken to fail.

    groups, parameters  as those of the Gaussian process
    """

    def __init__(self, groups: NDArray[np.int64], parameters: int | None = None) -> None:
        self._model = GaussianProcess(groups, parameters)
        self._mean = 0.0
        self._spread = 0.0

    def fit(self, vectors: Array, failed: NDArray[np.bool_]) -> None:
        """Learn from points of which some failed: (points, columns) and (points,)."""
        self._mean, self._spread = float(failed.mean()), float(failed.std())
        if self._spread:
            self._model.fit(vectors, np.asarray((failed - self._mean) / self._spread, dtype=np.float64))

    def log_likelihood(self, vectors: Array) -> Array:
        """(points,) logarithm of how likely each has a value; 0 for all where nothing, or everything, failed so far."""
        if not self._spread:
            return np.zeros(len(vectors))
        mean, deviation = self._model.predict(vectors)
        z = (0.5 - (mean * self._spread + self._mean)) / np.maximum(deviation * self._spread, _LEAST_DEVIATION)
        near = np.log([0.5 * math.erfc(-each / math.sqrt(2)) for each in np.maximum(z, _TAIL).tolist()])
        far = -z * z / 2 - np.log(np.maximum(-z, 1.0)) - 0.5 * math.log(2 * math.pi)
        return np.asarray(np.where(z < _TAIL, far, near), dtype=np.float64)
