"""A Gaussian process: from a few values, a guess with an error bar for every other point.

The usual regression (Rasmussen and Williams, Gaussian Processes for Machine Learning, chapters 2 and 5) with a Matern
5/2 kernel that has one length per parameter. The lengths and the noise are fitted by maximising the evidence, the
amplitude follows in closed form. Values are expected with mean 0 and spread 1.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

# Priors, as normal distributions of logarithms. Of one parameter alone, points a third of its range apart are alike.
# Two points of a space differ in most parameters, so that their distance grows with the root of how many there are; the
# lengths grow with it. Otherwise a value would tell nothing of other points of a space of many parameters.
_LENGTH, _LENGTH_SPREAD = math.log(0.29), 1.0
# Measured times repeat to about a percent of the spread of a space.
_NOISE, _NOISE_SPREAD = math.log(1e-2), 1.5
_LENGTH_RANGE = (-3.0, 3.0)
_NOISE_RANGE = (math.log(1e-5), math.log(0.5))
_JITTER = 1e-8
# Steps of the fit: the first one in full, then, as points come one by one, from where the last one ended.
_FIRST_STEPS, _STEPS = 25, 2
_SMALLEST_STEP, _GREATEST_STEP = 1e-3, 0.5


class GaussianProcess:
    """Fitted anew for each set of values, from the lengths of the one before.

    groups      (columns,) which coordinate each column of the vectors belongs to; it shares one length
    parameters  how many parameters the coordinates stand for: several may be aspects of one; by default one for each
    """

    def __init__(self, groups: NDArray[np.int64], parameters: int | None = None) -> None:
        self._groups = groups
        self._count = int(groups[-1]) + 1 if len(groups) else 0
        self._length = _LENGTH + math.log(max(self._count if parameters is None else parameters, 1)) / 2
        # logarithms of the lengths, then of the noise; a step for each, and the sign of its last slope
        self._theta = np.append(np.full(self._count, self._length), _NOISE)
        self._step = np.full(self._count + 1, 0.1)
        self._slope = np.zeros(self._count + 1)
        self._fitted = False
        self._vectors = np.zeros((0, len(groups)))
        self._inverse = np.zeros((0, 0))
        self._weights = np.zeros(0)
        self._variance = 1.0

    @property
    def lengths(self) -> Array:
        """(coordinates,) how far one moves along each until values are unlike: a long one hardly matters."""
        out: Array = np.exp(self._theta[:-1])
        return out

    def fit(self, vectors: Array, values: Array) -> None:
        """Learn from `values` at `vectors`: (points,) and (points, columns)."""
        squares = self._squares(vectors)
        for _ in range(_STEPS if self._fitted else _FIRST_STEPS):
            self._improve(squares, values)
        self._fitted = True
        self.condition(vectors, values)

    def condition(self, vectors: Array, values: Array) -> None:
        """Take in values without changing the lengths."""
        self._vectors = vectors
        _, self._inverse = self._kernel(self._squares(vectors))
        self._weights = self._inverse @ values
        self._variance = max(float(values @ self._weights) / len(values), 1e-12)

    def predict(self, vectors: Array) -> tuple[Array, Array]:
        """Mean and standard deviation at each of `vectors`: (points,) and (points,)."""
        scale = np.exp(-self._theta[:-1])[self._groups]
        a, b = vectors * scale, self._vectors * scale
        squared = np.sum(a * a, axis=1)[:, None] + np.sum(b * b, axis=1) - 2 * (a @ b.T)
        across, _ = _matern(np.sqrt(np.maximum(squared, 0)))
        explained = np.einsum("ij,ij->i", across @ self._inverse, across)
        return across @ self._weights, np.sqrt(np.maximum(1 - explained, 1e-9) * self._variance)

    def _squares(self, vectors: Array) -> Array:
        """(coordinates, points, points) squared distances along each coordinate."""
        out = np.zeros((self._count, len(vectors), len(vectors)))
        for column, group in enumerate(self._groups.tolist()):
            along = vectors[:, column]
            out[group] += (along[:, None] - along) ** 2
        return out

    def _kernel(self, squares: Array) -> tuple[Array, Array]:
        """The factor of the kernel's slope, and the kernel's inverse."""
        n = squares.shape[1]
        weights = np.exp(-2 * self._theta[:-1])
        kernel, slope = _matern(np.sqrt(np.tensordot(weights, squares, axes=1)))
        noise = math.exp(self._theta[-1]) + _JITTER
        while True:
            try:
                np.linalg.cholesky(kernel + noise * np.eye(n))
            except np.linalg.LinAlgError:  # rounding, for points that lie very close together
                noise *= 10
                continue
            return slope, np.asarray(np.linalg.inv(kernel + noise * np.eye(n)), dtype=np.float64)

    def _improve(self, squares: Array, values: Array) -> None:
        """One step of resilient propagation: each parameter by a step of its own, by the sign of its slope alone."""
        slope, inverse = self._kernel(squares)
        weights = inverse @ values
        variance = max(float(values @ weights) / len(values), 1e-12)
        residual = inverse - np.outer(weights, weights) / variance
        gradient = np.empty(self._count + 1)
        gradient[:-1] = 0.5 * np.exp(-2 * self._theta[:-1]) * np.tensordot(squares, slope * residual, axes=2)
        gradient[:-1] += (self._theta[:-1] - self._length) / _LENGTH_SPREAD**2
        gradient[-1] = 0.5 * math.exp(self._theta[-1]) * np.trace(residual)
        gradient[-1] += (self._theta[-1] - _NOISE) / _NOISE_SPREAD**2
        agreement = gradient * self._slope
        self._step *= np.where(agreement > 0, 1.2, np.where(agreement < 0, 0.5, 1.0))
        self._step = np.clip(self._step, _SMALLEST_STEP, _GREATEST_STEP)
        self._slope = gradient
        self._theta -= np.sign(gradient) * self._step
        self._theta[:-1] = np.clip(self._theta[:-1], *_LENGTH_RANGE)
        self._theta[-1] = np.clip(self._theta[-1], *_NOISE_RANGE)


def _matern(distance: Array) -> tuple[Array, Array]:
    """The Matern 5/2 kernel, and minus its derivative by half the squared distance."""
    a = math.sqrt(5) * distance
    decay = np.exp(-a)
    return (1 + a + a * a / 3) * decay, (5 / 3) * (1 + a) * decay


def log_expected_improvement(mean: Array, deviation: Array, best: float) -> Array:
    """How much below `best` a value is expected to fall, as a logarithm, so that hopeless points still differ.

    mean, deviation  (points,) of normal distributions
    """
    z = (best - mean) / deviation
    # E[max(0, z + N)] = pdf(z) + z cdf(z), which cancels far below zero, where it tends to pdf(z) / (z^2 + 3)
    near = np.maximum(z, -5.0)
    below = 0.5 * np.asarray(_erfc(-near / math.sqrt(2)), dtype=np.float64)
    expected = np.log(np.exp(-near * near / 2) / _ROOT + near * below)
    far = -z * z / 2 - math.log(_ROOT) - np.log(np.maximum(z * z, 25.0) + 3)
    out: Array = np.log(deviation) + np.where(z < -5, far, expected)
    return out


_ROOT = math.sqrt(2 * math.pi)
_erfc = np.frompyfunc(math.erfc, 1, 1)
