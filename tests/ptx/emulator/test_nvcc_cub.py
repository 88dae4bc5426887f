"""Block and warp primitives of CUB, whose PTX is full of predicated shuffles, prmt and shared-memory tricks."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import run

F32, I32, U32 = np.float32, np.int32, np.uint32
FILE = "block_primitives"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(23)


def test_block_reductions_full_and_partial(rng: np.random.Generator) -> None:
    n = 300
    x = rng.integers(-50, 50, n).astype(I32)
    sums, largest = np.zeros((3, 2), I32), np.zeros((3, 2), I32)
    run(FILE, "block_reduce", 3, 128, x, sums, largest, n)
    padded = np.pad(x, (0, 84)).reshape(3, 128)
    np.testing.assert_array_equal(sums, np.stack([padded.sum(1), 2 * padded.sum(1)], 1))
    np.testing.assert_array_equal(largest[:, 0], padded.max(axis=1))
    np.testing.assert_array_equal(np.pad(x, (0, 84))[largest[:, 1]], largest[:, 0])


def test_block_scans_with_transposing_loads(rng: np.random.Generator) -> None:
    x = rng.integers(-50, 50, (2, 256)).astype(I32)
    y, z = np.zeros_like(x), np.zeros((2, 256), F32)
    run(FILE, "block_scan", 2, 64, x, y, z)
    np.testing.assert_array_equal(y, np.cumsum(x, axis=1))
    before = np.concatenate([np.zeros((2, 1)), np.maximum.accumulate(np.maximum(x, 0), axis=1)[:, :-1]], axis=1)
    np.testing.assert_array_equal(z, before)


def test_block_radix_sort_of_pairs_and_of_doubles(rng: np.random.Generator) -> None:
    keys = rng.permutation(np.arange(256) * 16777259 % (1 << 32)).astype(U32)
    values, reals = rng.standard_normal(256).astype(F32), rng.standard_normal(128)
    order = np.argsort(keys)
    want = keys[order], values[order], np.sort(reals)[::-1]
    run(FILE, "block_radix_sort", 1, 64, keys, values, reals)
    for got, expected in zip((keys, values, reals), want, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_block_merge_sort(rng: np.random.Generator) -> None:
    keys = rng.integers(-3000, 3000, 192).astype(np.int16)
    want = np.sort(keys)
    run(FILE, "block_merge_sort", 1, 64, keys)
    np.testing.assert_array_equal(keys, want)


def test_block_histograms_by_sorting_and_by_atomics(rng: np.random.Generator) -> None:
    x = rng.integers(0, 32, (2, 256)).astype(np.uint8)
    counts = np.zeros((2, 2, 32), U32)
    run(FILE, "block_histogram", 2, 64, x, counts)
    for row, both in zip(x, counts, strict=True):
        np.testing.assert_array_equal(both, np.tile(np.bincount(row, minlength=32), (2, 1)))


def test_neighbours_of_a_block(rng: np.random.Generator) -> None:
    x = rng.integers(0, 3, 128).astype(I32)
    heads, tails, diffs, offset = (np.zeros(n, I32) for n in (128, 128, 128, 64))
    run(FILE, "block_neighbours", 1, 64, x, heads, tails, diffs, offset)
    change = (x[1:] != x[:-1]).astype(I32)
    np.testing.assert_array_equal(heads, [1, *change])
    np.testing.assert_array_equal(tails, [*change, 1])
    np.testing.assert_array_equal(diffs, np.diff(x, prepend=0))
    np.testing.assert_array_equal(offset, [*x[::2][3:], -1, -1, -1])


def test_run_length_decoding(rng: np.random.Generator) -> None:
    values, lengths = rng.integers(0, 99, 64).astype(I32), rng.integers(1, 8, 64).astype(U32)
    out, total = np.zeros(600, I32), np.zeros(1, U32)
    run(FILE, "run_length_decode", 1, 32, values, lengths, out, total)
    want = np.repeat(values, lengths)
    assert total[0] == want.size
    np.testing.assert_array_equal(out[: want.size], want)


def test_warp_scans_segmented_sums_and_merge_sort(rng: np.random.Generator) -> None:
    x = rng.integers(0, 50, 64).astype(I32)
    y, z, b = np.zeros(64, I32), np.zeros(66, F32), np.zeros(128, np.uint8)
    run(FILE, "warp_primitives", 1, 64, x, y, z, b)
    top = np.maximum.accumulate(x.reshape(8, 8), axis=1)
    before = np.concatenate([np.zeros((8, 1), I32), top[:, :-1]], axis=1)
    np.testing.assert_array_equal(y, (top * 1000 + before).ravel())
    for warp, v in enumerate(x.reshape(2, 32)):
        for at in range(0, 32, 5):
            assert z[warp * 32 + at] == v[at : at + 5].sum()
        assert z[64 + warp] == v[:12].sum()
        np.testing.assert_array_equal(b[warp * 64 : warp * 64 + 64], np.sort(np.concatenate([v, -v])).astype(np.uint8))
