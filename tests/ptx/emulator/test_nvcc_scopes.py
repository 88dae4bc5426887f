"""Wide and vector atomics, barriers over grids and clusters, dependent launches: CUDA C++ for sm_90a."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import run

F32, I32, U64 = np.float32, np.int32, np.uint64
FILE = "sm_90a/scopes"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(97)


def test_atomics_of_128_bits() -> None:
    cell, slot, total = np.array([5, 7], U64), np.array([0, 0], U64), np.zeros(1, U64)
    run(FILE, "wide_atomics", 2, 64, cell, slot, total)
    assert cell.tolist() == [5 + 128, 7 + 2 * 2016]
    # What was exchanged into the slot came out again, but for the last.
    assert int(total[0]) + int(slot.sum()) == 2 * 2016 + 64 * (1 + 2)


def test_atomics_of_vectors(rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, 128).astype(F32)
    pair, quad = np.zeros(2, F32), np.zeros((2, 4), F32)
    run(FILE, "vector_atomics", 2, 64, pair, quad, x)
    assert pair.tolist() == [x.sum(), 128]
    for k in range(2):
        assert quad[k].tolist() == [x[k::2].sum(), -x[k::2].sum(), 128, 32]


def test_a_barrier_over_the_grid(rng: np.random.Generator) -> None:
    n, rounds = 300, 4
    a = rng.integers(-9, 9, n).astype(I32)
    want = a.copy()
    for _ in range(rounds):
        want = want + np.roll(want, -1) + np.roll(want, 1)
    run(FILE, "grid_rounds", 4, 64, a, np.zeros_like(a), n, rounds)
    np.testing.assert_array_equal(a, want)


def test_groups_of_clusters(rng: np.random.Generator) -> None:
    x = rng.integers(0, 9, (2, 4, 64)).astype(I32)
    y = np.zeros((2, 4), I32)
    run(FILE, "cluster_groups", (4, 2), (16, 4), x, y, cluster=(2, 2, 1))
    for row in range(2):
        for column in range(4):
            total = x[:, column // 2 * 2 : column // 2 * 2 + 2].sum()
            rank = row * 2 + column % 2
            assert y[row, column] == total * 10000 + rank * 1000 + 4 * 100 + 2 * 10 + row


def test_a_launch_that_others_depend_on(rng: np.random.Generator) -> None:
    x = rng.integers(0, 9, 100).astype(I32)
    y = np.zeros_like(x)
    run(FILE, "dependent", 2, 64, x, y, 100)
    np.testing.assert_array_equal(y, 2 * x)
