"""Whole algorithms in CUDA C++, compiled by nvcc: numbers of NumPy, and no fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import run
from numpy.typing import NDArray

F32, F64, I32, U32, U64 = np.float32, np.float64, np.int32, np.uint32, np.uint64
Values = NDArray[Any]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(11)


def test_scan_in_one_pass_with_look_back(rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, 5000).astype(I32)
    y = np.zeros_like(x)
    state, ticket = np.zeros(20, U64), np.zeros(1, U32)
    run("algorithms", "lookback_scan", 20, 256, x, y, state, ticket, 5000)
    np.testing.assert_array_equal(y, np.cumsum(x))
    assert ticket[0] == 20


def test_a_barrier_over_the_grid_made_of_atomics(rng: np.random.Generator) -> None:
    n, steps = 500, 6
    a = rng.integers(0, 1 << 12, n).astype(F32) * 4096
    b = a.copy()
    want = a.copy()
    for _ in range(steps):
        want[1:-1] = F32(0.25) * want[:-2] + F32(0.5) * want[1:-1] + F32(0.25) * want[2:]
    run("algorithms", "jacobi", 4, 128, a, b, np.zeros(1, U32), n, steps)
    np.testing.assert_allclose(a, want, rtol=1e-6)


def test_radix_sort_of_a_block(rng: np.random.Generator) -> None:
    keys = rng.integers(0, 1 << 16, (3, 128)).astype(U32)
    want = np.sort(keys, axis=1)
    run("algorithms", "radix_sort_block", 3, 128, keys, 4)
    np.testing.assert_array_equal(keys, want)


def test_breadth_first_search_level_by_level(rng: np.random.Generator) -> None:
    n = 200
    edges = rng.integers(0, n, (500, 2))
    order = np.argsort(edges[:, 0], kind="stable")
    col = edges[order, 1].astype(I32)
    row = np.searchsorted(edges[order, 0], np.arange(n + 1)).astype(I32)
    dist = np.full(n, -1, I32)
    dist[3] = 0
    frontier, level = np.array([3], I32), 0
    while frontier.size:
        level += 1
        found, count = np.zeros(n, I32), np.zeros(1, I32)
        run("algorithms", "bfs_level", 2, 64, row, col, dist, frontier, frontier.size, found, count, level)
        frontier = found[: count[0]].copy()
    want = np.full(n, -1)
    want[3], queue = 0, [3]
    for v in queue:
        for w in col[row[v] : row[v + 1]]:
            if want[w] < 0:
                want[w] = want[v] + 1
                queue.append(int(w))
    np.testing.assert_array_equal(dist, want)


def test_sparse_matrix_times_vector(rng: np.random.Generator) -> None:
    m, n = 37, 50
    dense = rng.standard_normal((m, n)) * (rng.random((m, n)) < 0.3)
    row = np.concatenate([[0], np.cumsum((dense != 0).sum(axis=1))]).astype(I32)
    col = np.nonzero(dense)[1].astype(I32)
    x, y = rng.standard_normal(n), np.zeros(m)
    run("algorithms", "spmv", 10, 128, row, col, dense[dense != 0], x, y, m)
    np.testing.assert_allclose(y, dense @ x, rtol=1e-12, atol=1e-13)


def test_stencil_in_three_dimensions(rng: np.random.Generator) -> None:
    nx, ny, nz = 21, 13, 5
    x = rng.standard_normal((nz, ny, nx)).astype(F32)
    y = np.zeros_like(x)
    run("algorithms", "stencil3d", (2, 2), (16, 8), x, y, nx, ny, nz, F32(0.4), F32(0.1))
    p = np.pad(x, 1)
    near = p[:-2, 1:-1, 1:-1] + p[2:, 1:-1, 1:-1] + p[1:-1, :-2, 1:-1] + p[1:-1, 2:, 1:-1] + p[1:-1, 1:-1, :-2]
    np.testing.assert_allclose(y, 0.4 * x + 0.1 * (near + p[1:-1, 1:-1, 2:]), rtol=1e-5, atol=1e-6)


def test_convolution_with_weights_in_constant_memory(rng: np.random.Generator) -> None:
    w, h = 50, 19
    x = rng.standard_normal((h, w)).astype(F32)
    y = np.zeros_like(x)
    run("algorithms", "convolve5x5", (2, 3), (32, 8), x, y, w, h)
    weights = np.array([1, 4, 6, 4, 1]) / 16
    p = np.pad(x.astype(F64), 2, mode="edge")
    want = sum(weights[r] * weights[c] * p[r : r + h, c : c + w] for r in range(5) for c in range(5))
    np.testing.assert_allclose(y, want, rtol=1e-5, atol=1e-6)


def test_monte_carlo_with_a_generator_per_thread() -> None:
    threads, samples, seed = 256, 5, 12345
    hits, total = np.zeros(1, U64), np.zeros(1, F32)
    run("algorithms", "monte_carlo", 2, 128, hits, total, samples, seed)
    mask = (1 << 64) - 1
    inside, acc = 0, 0.0
    for t in range(threads):
        state = seed + t

        def draw() -> int:
            nonlocal state
            old, state = state, (state * 6364136223846793005 + 1442695040888963407) & mask
            mixed = ((old >> 18 ^ old) >> 27) & 0xFFFFFFFF
            turn = old >> 59
            return (mixed >> turn | mixed << (-turn & 31)) & 0xFFFFFFFF

        draw()
        for _ in range(samples):
            u, v = (F32(F32(draw()) * F32(2.0**-32)) for _ in range(2))
            inside += bool(np.float64(u) * u + np.float64(v) * v < 1)
            acc += float(u)
    assert abs(int(hits[0]) - inside) <= 1
    np.testing.assert_allclose(total[0], acc, rtol=1e-5)


def test_bodies_attract_each_other(rng: np.random.Generator) -> None:
    n = 100
    p = rng.standard_normal((n, 4)).astype(F32)
    a = np.zeros((n, 3), F32)
    run("algorithms", "nbody", 2, 64, p, a, n, F32(0.01))
    q = p.astype(F64)
    d = q[None, :, :3] - q[:, None, :3]
    r = 1 / np.sqrt((d**2).sum(axis=2) + 0.01)
    np.testing.assert_allclose(a, (d * (q[:, 3] * r**3)[..., None]).sum(axis=1), rtol=1e-4, atol=1e-3)


def test_energy_of_bodies_in_double_precision(rng: np.random.Generator) -> None:
    n = 40
    p, energy = rng.standard_normal((n, 3)), np.zeros(1)
    run("algorithms", "nbody_double", 1, 64, p, energy, n)
    d = np.sqrt(((p[None] - p[:, None]) ** 2).sum(axis=2))[~np.eye(n, dtype=bool)]
    np.testing.assert_allclose(energy[0], -0.5 * (1 / d).sum(), rtol=1e-12)


def test_fourier_transform_of_256_points(rng: np.random.Generator) -> None:
    x = (rng.standard_normal((2, 256)) + 1j * rng.standard_normal((2, 256))).astype(np.complex64)
    y = np.zeros_like(x)
    run("algorithms", "fft256", 2, 128, x, y)
    np.testing.assert_allclose(y, np.fft.fft(x, axis=1), rtol=1e-4, atol=1e-4)


def test_transpose_through_swizzled_shared_memory(rng: np.random.Generator) -> None:
    x = rng.standard_normal((32, 64))
    y = np.zeros((64, 32))
    report = run("algorithms", "transpose_swizzled", (2, 1), (32, 8), x, y, 32, 64)
    np.testing.assert_array_equal(y, x.T)
    # 8-byte words: two wavefronts a request are the least.
    assert report.counters.shared_load_wavefronts == 2 * report.counters.shared_load_requests


def test_bitonic_sort_of_wide_keys(rng: np.random.Generator) -> None:
    keys = rng.integers(-(1 << 62), 1 << 62, 512)
    want = np.sort(keys)
    run("algorithms", "bitonic", 1, 256, keys)
    np.testing.assert_array_equal(keys, want)


def test_blocks_share_a_queue_of_work(rng: np.random.Generator) -> None:
    items = rng.integers(0, 1000, 40).astype(I32)
    out = np.zeros(40, U64)
    run("algorithms", "work_queue", 5, 64, items, 40, np.zeros(1, I32), out)
    for item, got in zip(items.tolist(), out.tolist(), strict=True):
        want = 0
        for t in range(64):
            v = item
            for _ in range(item & 7):
                v = v * 31 + t
            want += v
        assert got == want % (1 << 64)


def test_a_free_list_gives_every_node_once() -> None:
    order = np.random.default_rng(3).permutation(256)
    following = np.zeros(256, U32)
    following[order[:-1]] = order[1:]
    owners = np.zeros(256, I32)
    run("algorithms", "free_list", 2, 128, np.array([order[0]], U64), following, owners)
    assert (owners == 1).all()


def test_largest_value_by_compare_and_swap_and_counts_by_warps(rng: np.random.Generator) -> None:
    n = 1000
    x = rng.standard_normal(n).astype(F32)
    top, total, flag = np.full(1, -1e30, F32), np.zeros(1, I32), np.zeros(1, I32)
    run("algorithms", "largest_and_count", 8, 128, x, top, total, flag, n)
    assert (top[0], total[0], flag[0]) == (x.max(), (x > 0).sum(), 1)
