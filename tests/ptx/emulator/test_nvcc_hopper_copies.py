"""Bulk and tensor copies, multicast, distributed shared memory, remote arrivals: CUDA C++ for sm_90a, three orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import ptx_of, run

from tinygpu.ptx.emulator import TensorMap, emulate

F32, I32, U32 = np.float32, np.int32, np.uint32
FILE = "sm_90a/copies"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(29)


@pytest.fixture(params=["late", "random", pytest.param("early", marks=pytest.mark.slow)])
def order(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_bulk_copies_through_two_buffers(rng: np.random.Generator, order: Any) -> None:
    tiles = 7
    x = rng.integers(-99, 99, (tiles, 256)).astype(F32)
    y = np.zeros_like(x)
    run(FILE, "bulk_1d", 1, 64, x, y, tiles, order=order)
    np.testing.assert_array_equal(y, 2 * x + 1)


def test_transposing_tiles_with_edges(rng: np.random.Generator, order: Any) -> None:
    x = rng.standard_normal((44, 72)).astype(F32)
    y = np.zeros((72, 44), F32)
    maps = [TensorMap(v, (32, 32), swizzle="128B") for v in (x, y)]
    run(FILE, "tma_transpose", (3, 2), 128, *maps, order=order)
    np.testing.assert_array_equal(y, x.T)


def test_halos_that_begin_outside_the_tensor(rng: np.random.Generator, order: Any) -> None:
    x = rng.integers(-9, 9, (2, 13, 28)).astype(F32)
    y = np.zeros_like(x)
    known = ("tensor box at an unaligned start",)
    run(FILE, "tma_halo", (2, 2, 2), 128, TensorMap(x, (20, 10, 1)), y, 28, 13, order=order, known=known)
    p = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    np.testing.assert_array_equal(y, sum(p[:, b : b + 13, a : a + 28] for b in range(3) for a in range(3)))


def test_each_cta_sends_a_quarter_to_all(rng: np.random.Generator, order: Any) -> None:
    x = rng.standard_normal((64, 32)).astype(F32)
    y = np.zeros((8, 32, 32), F32)
    run(FILE, "multicast", 8, 64, TensorMap(x, (32, 8)), y, cluster=4, order=order)
    np.testing.assert_array_equal(y, np.repeat(x.reshape(2, 32, 32), 4, axis=0))


def test_sums_over_the_shared_memory_of_a_cluster(rng: np.random.Generator) -> None:
    n = 1000
    x = rng.integers(-9, 9, (3, n)).astype(F32)
    y = np.zeros((3, 4), F32)
    run(FILE, "dsmem_sum", (4, 3), 128, x, y, n, cluster=4)
    np.testing.assert_array_equal(y, np.repeat(x.sum(axis=1)[:, None], 4, axis=1))


def test_a_histogram_spread_over_a_cluster(rng: np.random.Generator) -> None:
    x = rng.integers(0, 256, 3000).astype(np.uint8)
    counts = np.zeros(256, U32)
    run(FILE, "dsmem_histogram", 4, 128, x, counts, 3000, cluster=2)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=256))


def test_a_ring_of_remote_stores(rng: np.random.Generator, order: Any) -> None:
    rounds = 7
    x = rng.integers(0, 99, (4, 64)).astype(U32)
    y = np.zeros_like(x)
    run(FILE, "ring", 4, 64, x, y, rounds, cluster=4, order=order)
    v = x.copy()
    for r in range(rounds):
        v = np.roll((v * 3 + r)[:, ::-1], 1, axis=0)
    np.testing.assert_array_equal(y, v)


def test_remote_sums_and_copies_between_ctas(rng: np.random.Generator, order: Any) -> None:
    x = rng.integers(0, 1 << 20, (2, 128)).astype(U32)
    y = np.zeros((2, 2, 32), U32)
    run(FILE, "red_async", 2, 128, x, y, cluster=2, order=order)
    np.testing.assert_array_equal(y[:, 0], x[::-1].reshape(2, 4, 32).sum(axis=1))
    np.testing.assert_array_equal(y[:, 1], x[::-1, :32])


def test_bulk_reductions_into_global_memory(rng: np.random.Generator, order: Any) -> None:
    x = rng.integers(-99, 99, (5, 128)).astype(F32)
    total, top = np.zeros(128, F32), np.full(128, -1000, I32)
    run(FILE, "bulk_reduce", 5, 128, x, total, top, order=order)
    np.testing.assert_array_equal(total, x.sum(axis=0))
    np.testing.assert_array_equal(top, x.max(axis=0))


def test_the_libraries_barriers_and_wrappers(rng: np.random.Generator, order: Any) -> None:
    x = rng.integers(-99, 99, (3, 256)).astype(I32)
    y = np.zeros_like(x)
    run(FILE, "library_way", 3, 96, x, y, order=order)
    np.testing.assert_array_equal(y, x + 7 * np.arange(256))


def test_the_libraries_cluster_barriers(rng: np.random.Generator) -> None:
    x = rng.integers(-99, 99, (4, 32)).astype(I32)
    y = np.zeros(4, I32)
    run(FILE, "library_cluster", 4, 32, x, y, cluster=2)
    np.testing.assert_array_equal(y, x.sum(axis=1)[[1, 0, 3, 2]])


def test_a_tensor_map_made_by_the_kernel(rng: np.random.Generator, order: Any) -> None:
    blocks, rows = 3, 8
    x = rng.standard_normal((blocks, rows, 32)).astype(F32)
    y = np.ones((blocks, 8, 32), F32)
    maps = np.zeros((blocks, 128), np.uint8)
    pattern = TensorMap(x.reshape(-1, 32), (32, 8))
    run(FILE, "modified_map", blocks, 64, pattern, maps, x, y, rows, order=order)
    want = x.copy()
    for block in range(blocks):
        want[block, rows - block :] = 0
    np.testing.assert_array_equal(y, want)


@pytest.mark.parametrize("seed", range(8))
def test_lanes_meet_at_an_aligned_instruction_however_warps_are_delayed(seed: int) -> None:
    """One lane changes the map before all of them copy it; no bar.warp.sync brings them together."""
    blocks, rows = 3, 8
    x, y = np.ones((blocks, rows, 32), F32), np.zeros((blocks, 8, 32), F32)
    args = [TensorMap(x.reshape(-1, 32), (32, 8)), np.zeros((blocks, 128), np.uint8), x, y, rows]
    text = ptx_of(FILE)
    begin = text.index(".entry modified_map")
    alone = text[:begin] + text[begin:].replace("bar.warp.sync \t-1;", "", 1)
    assert alone != text
    emulate(alone, entry="modified_map", grid=blocks, block=64, args=args, order="random", seed=seed)
    assert [int(block.sum()) for block in y] == [32 * (rows - block) for block in range(blocks)]
