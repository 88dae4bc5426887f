"""Symmetric positive definite matrices of a stated condition number, drawn from a seed. Needs nothing but NumPy.

The eigenvalues are the diagonal of a matrix that is reflected at a random plane, and turned by the discrete Hartley
transform, which is symmetric and orthogonal for every size. So a matrix is dense, and drawing n x n elements takes
n^2 log n steps.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Matrices = NDArray[np.float64]

# Condition number of the blocks ((1, 1), (1, 2)), whose factor is whole.
_OF_BLOCKS = (3 + math.sqrt(5)) / (3 - math.sqrt(5))


def definite(rng: np.random.Generator, shape: tuple[int, ...], condition: float) -> Matrices:
    """(..., r, c) matrices with eigenvalues from 1 / sqrt(condition) to its inverse, both among them, where r = c > 1.

    The logarithms of the others are uniform. Of windows that are not square there are the first rows and columns.
    Raises ValueError for less than two axes.
    """
    sizes = _sizes(shape)
    found = np.empty((*sizes[:-2], sizes[-1], sizes[-1]))
    for matrix in found.reshape(-1, *found.shape[-2:]):
        matrix[...] = _one(rng, len(matrix), condition)
    return found[..., : shape[-2], : shape[-1]]


def whole_definite(rng: np.random.Generator, shape: tuple[int, ...], condition: float) -> Matrices:
    """The same of whole numbers, with a condition number of 7 at most, whose Cholesky factors are whole as well.

    Random pairs of rows are coupled, (1, s) and (s, 2) with s = 1 or -1; below 7 there is no such pair.
    """
    sizes = _sizes(shape)
    found = np.zeros((*sizes[:-2], sizes[-1], sizes[-1]))
    for matrix in found.reshape(-1, *found.shape[-2:]):
        np.fill_diagonal(matrix, 1)
        if condition >= _OF_BLOCKS:
            pairs = rng.permutation(len(matrix))[: len(matrix) // 2 * 2].reshape(-1, 2)
            first, second = pairs.min(axis=1), pairs.max(axis=1)
            matrix[first, second] = matrix[second, first] = rng.choice((-1, 1), len(pairs))
            matrix[second, second] = 2
    return found[..., : shape[-2], : shape[-1]]


def _one(rng: np.random.Generator, size: int, condition: float) -> Matrices:
    reach = math.log(condition) / 2
    logarithms = rng.uniform(-reach, reach, size)
    if size > 1:
        logarithms[rng.permutation(size)[:2]] = -reach, reach
    normal, values = rng.normal(size=size), np.exp(logarithms)
    normal /= np.linalg.norm(normal)
    crossed = np.outer(normal, values * normal)
    reflected = np.diag(values) - 2 * (crossed + crossed.T) + 4 * (values @ normal**2) * np.outer(normal, normal)
    turned = _hartley(_hartley(reflected).T)
    return np.asarray((turned + turned.T) / 2)


def _hartley(rows: Matrices) -> Matrices:
    """Sums of each row with cos + sin in place of the Fourier transform's cos - i sin, scaled so that lengths stay."""
    found = np.fft.fft(rows, axis=-1)
    return np.asarray((found.real - found.imag) / math.sqrt(rows.shape[-1]))


def _sizes(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape with both last extents as the longer one."""
    if len(shape) < 2:
        raise ValueError(f"positive definite matrices have two axes at least, not {len(shape)}")
    longer = max(shape[-2:])
    return (*shape[:-2], longer, longer)
