"""Synchronisation of the standard library: cooperative groups, barriers, pipelines, atomics, latches, semaphores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiled import run

F32, I32 = np.float32, np.int32
FILE = "groups_and_pipelines"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(31)


@pytest.fixture(params=["late", "random", pytest.param("early", marks=pytest.mark.slow)])
def order(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_pipeline_of_the_whole_block(rng: np.random.Generator, order: Any) -> None:
    tiles = 7
    x = rng.integers(0, 99, (2, tiles, 128)).astype(I32)
    y = np.zeros((2, 128), I32)
    run(FILE, "pipeline_block", 2, 128, x, y, tiles, order=order)
    weights = 3 ** np.arange(tiles)[::-1]
    np.testing.assert_array_equal(y, np.tensordot(x[:, :, ::-1], weights, (1, 0)))


def test_a_pipeline_with_producers_and_consumers(rng: np.random.Generator, order: Any) -> None:
    tiles = 8
    x = rng.standard_normal((tiles, 32, 4)).astype(F32)
    y = np.zeros_like(x)
    run(FILE, "pipeline_roles", 1, 64, x, y, tiles, order=order)
    want = x[:, ::-1].copy()
    want[..., 0] *= 2
    np.testing.assert_array_equal(y, want)


def test_a_pipeline_of_each_thread(rng: np.random.Generator, order: Any) -> None:
    steps = 9
    x = rng.integers(0, 99, (steps, 64, 4)).astype(I32)
    y = np.zeros_like(x)
    run(FILE, "pipeline_thread", 1, 64, x, y, steps, order=order)
    want = x.copy()
    want[..., 3] += np.arange(steps)[:, None]
    np.testing.assert_array_equal(y, want)


def test_barriers_with_tokens_copies_and_drops(rng: np.random.Generator, order: Any) -> None:
    rounds = 5
    x = rng.integers(0, 99, (rounds, 128)).astype(I32)
    y = np.zeros(128, I32)
    run(FILE, "barriers", 1, 128, x, y, rounds, order=order)
    want = np.roll(x, -37, axis=1).sum(axis=0) + 7 * 10
    want[:64] = want[63::-1]
    np.testing.assert_array_equal(y, want)


def test_collectives_of_groups_in_a_warp(rng: np.random.Generator) -> None:
    x = rng.integers(0, 30, 64).astype(I32)
    y = np.zeros((6, 64), I32)
    run(FILE, "group_collectives", 1, 64, x, y)
    for warp in range(2):
        v = x[warp * 32 : warp * 32 + 32].astype(np.int64)
        out = y[:, warp * 32 : warp * 32 + 32]
        quads = v.reshape(8, 4)
        np.testing.assert_array_equal(out[0], v.sum() + np.repeat(quads.max(axis=1), 4))
        folded = np.bitwise_xor.accumulate(np.pad(quads, ((0, 0), (1, 0)))[:, :4], axis=1).ravel()
        np.testing.assert_array_equal(out[1], np.cumsum(v) * 3 + folded)
        for lane in range(32):
            side = np.flatnonzero(v % 2 == v[lane] % 2)
            assert out[2, lane] == v[side].min() + side.size * 1000 + (side < lane).sum() * 100000
            same = np.flatnonzero(v % 3 == v[lane] % 3)
            assert out[3, lane] == v[same].sum() + len(set(v % 3)) * 100000
            if v[lane] % 4 == 1:
                active = np.flatnonzero(v % 4 == 1)
                assert out[4, lane] == v[active[0]] + active.size * 1000 + ((active <= lane).sum()) * 100000
            else:
                quad = range(lane // 4 * 4, lane // 4 * 4 + 4)
                ballot = sum(int(v[k] > 20) << k % 4 for k in quad)
                match = sum(int(v[k] % 2 == v[lane] % 2) << k % 4 for k in quad)
                assert out[4, lane] == ballot + any(v[k] < 3 for k in quad) * 100 + match * 1000
        assert (out[5] == v.sum() + np.bitwise_or.reduce(v)).all()


def test_copies_of_groups(rng: np.random.Generator, order: Any) -> None:
    n = 100
    x = rng.integers(0, 99, (2, n)).astype(F32)
    y = np.zeros_like(x)
    run(FILE, "group_copies", 2, 64, x, y, n, dynamic_smem=4 * n, order=order)
    want = x[:, ::-1].copy()
    want[:, :32] += x[0, 31::-1] + x[0, 63:31:-1]
    np.testing.assert_array_equal(y, want)


def test_blocks_pass_a_message_along() -> None:
    links, out = np.zeros((6, 2), I32), np.zeros(6, I32)
    run(FILE, "message_chain", 6, 32, links, out)
    assert out.tolist() == [2**b - 1 for b in range(6)]


def test_atomic_objects_of_every_order_and_scope() -> None:
    values, wide, real = np.arange(67, dtype=I32), np.array([10**12], np.uint64), np.array([0.25])
    want = np.arange(67) * 3 + 1
    want[0], want[1], want[2] = 64 * 63 // 2, 63, 2
    run(FILE, "atomic_objects", 1, 64, values, wide, real)
    np.testing.assert_array_equal(values, want)
    assert wide[0] == 10**12 - 64 * 65 // 2
    assert real[0] == 32.25


@pytest.mark.end_to_end
def test_a_latch_and_a_counting_semaphore() -> None:
    out = np.zeros(64, I32)
    run(FILE, "latch_and_semaphore", 1, 64, out)
    assert (out == 64).all()
