"""Matrix products and attention for sm_80 in CUDA C++: WMMA, mma.sync, SIMT; rings of groups and of mbarriers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compiled import ORDERS, run
from numpy.typing import NDArray

F16, F32, F64, I32 = np.float16, np.float32, np.float64, np.int32
BF16 = ml_dtypes.bfloat16
FILE = "matmuls_sm80"



@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(17)


def small(rng: np.random.Generator, dtype: Any, *shape: int) -> NDArray[Any]:
    """Integers for which all sums are exact."""
    return rng.integers(-4, 5, shape).astype(dtype)


def test_wmma_with_an_epilogue(rng: np.random.Generator) -> None:
    m, n, k = 64, 32, 48
    a, b, c = small(rng, F16, m, k), small(rng, F16, n, k), small(rng, F32, m, n)
    want = np.maximum(2 * (a.astype(F32) @ b.T.astype(F32)) + c, 0)
    run(FILE, "wmma_half", (1, 2), 128, a, b, c, m, n, k, F32(2))
    np.testing.assert_array_equal(c, want)


def test_wmma_of_bfloats_from_shared_memory(rng: np.random.Generator) -> None:
    k = 48
    a, b, c = small(rng, BF16, k, 32), small(rng, BF16, k, 8), np.zeros((8, 40), F32)
    run(FILE, "wmma_bfloat", 1, 32, a, b, c, k)
    np.testing.assert_array_equal(c[:, :32].T, a.astype(F32).T @ b.astype(F32) + 1)
    assert not c[:, 32:].any()


def test_wmma_of_bytes(rng: np.random.Generator) -> None:
    k = 64
    a, b = (rng.integers(-128, 128, (rows, k)).astype(np.int8) for rows in (8, 32))
    c = np.zeros((8, 32), I32)
    run(FILE, "wmma_int8", 1, 32, a, b, c, k)
    np.testing.assert_array_equal(c, a.astype(I32) @ b.T.astype(I32))


def test_wmma_of_tf32(rng: np.random.Generator) -> None:
    k = 24
    a, b = rng.standard_normal((16, k)).astype(F32), rng.standard_normal((k, 16)).astype(F32)
    c = np.zeros((16, 16), F32)
    run(FILE, "wmma_tf32", 1, 32, a, b, c, k)
    rounded = [((v.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(F32) for v in (a, b)]
    np.testing.assert_allclose(c, rounded[0].astype(F64) @ rounded[1], rtol=1e-5, atol=1e-5)


def test_wmma_of_doubles(rng: np.random.Generator) -> None:
    k = 20
    a, b, c = rng.standard_normal((8, k)), rng.standard_normal((8, k)), np.zeros((8, 8))
    run(FILE, "wmma_double", 1, 32, a, b, c, k)
    np.testing.assert_allclose(c.T, a @ b.T, rtol=1e-12, atol=1e-13)


def test_wmma_with_half_sums(rng: np.random.Generator) -> None:
    k = 32
    a, b, c = small(rng, F16, k, 16), small(rng, F16, k, 16), small(rng, F16, 16, 16)
    want = a.astype(F32).T @ b.astype(F32) + c.T
    run(FILE, "wmma_half_sums", 1, 32, a, b, c, k)
    np.testing.assert_array_equal(c.T.astype(F32), want)


def test_two_buffers_and_one_barrier_a_step(rng: np.random.Generator) -> None:
    m, n, k = 128, 64, 56
    a, b, c = (rng.standard_normal(s).astype(F32) for s in ((m, k), (k, n), (m, n)))
    run(FILE, "simt_double_buffered", (1, 2), 256, a, b, c, n, k)
    np.testing.assert_allclose(c, a.astype(F64) @ b, rtol=1e-5, atol=1e-5)


def test_mma_of_bytes_of_both_signs(rng: np.random.Generator) -> None:
    m, n, k = 32, 24, 96
    a, b = rng.integers(-128, 128, (m, k)).astype(np.int8), rng.integers(0, 256, (n, k)).astype(np.uint8)
    c = np.zeros((m, n), I32)
    run(FILE, "mma_int8", (3, 2), 32, a, b, c, n, k)
    np.testing.assert_array_equal(c, a.astype(I32) @ b.T.astype(I32))


@pytest.mark.parametrize("order", ORDERS)
def test_a_ring_of_mbarriers_fed_by_copies_of_a_warp(rng: np.random.Generator, order: Any) -> None:
    m, n, k = 64, 64, 16 * 8
    a, b, c = small(rng, F32, m, k), small(rng, F32, n, k), np.zeros((m, n), F32)
    run(FILE, "mma_tf32_mbarrier", (2, 1), 160, a, b, c, n, k, order=order)
    np.testing.assert_array_equal(c, a @ b.T)


def test_slices_of_k_add_up_in_turn(rng: np.random.Generator) -> None:
    m, n, k = 32, 16, 128
    a, b, c = small(rng, F16, m, k), small(rng, F16, n, k), np.full((m, n), np.nan, F32)
    locks = np.zeros((2, 2), I32)
    run(FILE, "splitk_semaphore", (2, 2, 4), 32, a, b, c, locks, n, k)
    np.testing.assert_array_equal(c, a.astype(F32) @ b.T.astype(F32))
    assert (locks == 4).all()


@pytest.mark.parametrize("order", ORDERS)
def test_flash_attention(rng: np.random.Generator, order: Any) -> None:
    queries, keys = 64, 192
    q, k, v = (rng.standard_normal((rows, 64)).astype(BF16) for rows in (queries, keys, keys))
    o = np.zeros((queries, 64), F32)
    run(FILE, "flash_attention", 1, 128, q, k, v, o, keys, F32(0.125), order=order)
    scores = q.astype(F64) @ k.astype(F64).T / 8
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    # The probabilities are rounded to bfloat16: eight bits, averaged over the keys.
    np.testing.assert_allclose(o, p @ v.astype(F64) / p.sum(axis=1, keepdims=True), atol=0.01)
