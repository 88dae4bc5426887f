"""wgmma in CUDA C++ for sm_90a: operands, rings, warp roles, clusters, ping-pong, split-K, attention; three orders."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compiled import run
from numpy.typing import NDArray

from tinygpu.ptx.emulator import TensorMap

F16, F32, F64, I32 = np.float16, np.float32, np.float64, np.int32
BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
FILE = "sm_90a/matmuls"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(53)


@pytest.fixture(params=["late", "random", pytest.param("early", marks=pytest.mark.slow)])
def order(request: pytest.FixtureRequest) -> Any:
    return request.param


def small(rng: np.random.Generator, dtype: Any, *shape: int) -> NDArray[Any]:
    """Integers for which all sums are exact."""
    return rng.integers(-4, 5, shape).astype(dtype)


def tiles(values: NDArray[Any], rows: int = 64) -> TensorMap:
    """Boxes of 128 bytes x rows."""
    return TensorMap(values, (128 // values.itemsize, rows), swizzle="128B")


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("entry", "first", "second", "result", "k"),
    [
        ("wgmma_f16", F16, F16, F32, 192),
        ("wgmma_tf32", F32, F32, F32, 96),
        ("wgmma_fp8", E4M3, E5M2, F32, 256),
        ("wgmma_half_sums", F16, F16, F16, 128),
    ],
)
def test_one_tile_per_block(
    rng: np.random.Generator, order: Any, entry: str, first: Any, second: Any, result: Any, k: int
) -> None:
    m, n = 64, 128
    a, b, c = small(rng, first, m, k), small(rng, second, n, k), np.zeros((m, n), result)
    run(FILE, entry, (2, 1), 128, tiles(a), tiles(b), c, n, k, order=order)
    sign = -1 if entry == "wgmma_fp8" else 1
    np.testing.assert_array_equal(c.astype(F32), sign * (a.astype(F32) @ b.astype(F32).T))


def test_bytes_of_both_signs(rng: np.random.Generator, order: Any) -> None:
    m, n, k = 64, 64, 384
    a, b = rng.integers(-128, 128, (m, k)).astype(np.int8), rng.integers(0, 256, (n, k)).astype(np.uint8)
    c = np.zeros((m, n), I32)
    run(FILE, "wgmma_int8", (1, 1), 128, tiles(a), tiles(b), c, n, k, order=order)
    np.testing.assert_array_equal(c, a.astype(I32) @ b.astype(I32).T)


def test_both_operands_transposed(rng: np.random.Generator, order: Any) -> None:
    m, n, k = 128, 64, 128
    a, b, c = small(rng, F16, k, m), small(rng, F16, k, n), np.zeros((m, n), F32)
    run(FILE, "wgmma_transposed", (1, 2), 128, tiles(a), tiles(b), c, n, k, order=order)
    np.testing.assert_array_equal(c, a.astype(F32).T @ b.astype(F32))


def test_a_in_registers_and_b_by_ordinary_stores(rng: np.random.Generator, order: Any) -> None:
    m, n, k = 64, 64, 192
    a, b, c = rng.integers(-99, 99, (m, k)).astype(np.int8), small(rng, F16, n, k), np.zeros((m, n), F32)
    run(FILE, "wgmma_registers", (1, 1), 128, a, b, c, n, k, order=order)
    np.testing.assert_array_equal(c, a.astype(F32) @ b.astype(F32).T)


def test_a_ring_filled_by_a_consumer(rng: np.random.Generator, order: Any) -> None:
    m, n, k = 64, 64, 64 * 9
    a, b, c = small(rng, F16, m, k), small(rng, F16, n, k), np.zeros((m, n), F32)
    run(FILE, "wgmma_pipelined", (1, 1), 128, tiles(a), tiles(b), c, n, k, dynamic_smem=65536, order=order)
    np.testing.assert_array_equal(c, a.astype(F32) @ b.astype(F32).T)


@pytest.mark.end_to_end
def test_persistent_with_warp_roles_and_tensor_stores(rng: np.random.Generator, order: Any) -> None:
    m, n, k = 256, 384, 64 * 5
    a, b, c = small(rng, BF16, m, k), small(rng, BF16, n, k), np.zeros((m, n), BF16)
    maps = [tiles(a, 128), tiles(b, 128), tiles(c)]
    run(FILE, "persistent", 2, 384, *maps, m // 128, n // 128, k, dynamic_smem=131072, order=order)
    np.testing.assert_array_equal(c, (a.astype(F32) @ b.astype(F32).T).astype(BF16))


def test_a_cluster_shares_an_operand(rng: np.random.Generator, order: Any) -> None:
    m, n, k = 128, 128, 64 * 7
    a, b, c = small(rng, F16, m, k), small(rng, F16, n, k), np.zeros((m, n), F32)
    args = (tiles(a), tiles(b, 32), c, n, k)
    run(FILE, "clustered", (2, 2), 160, *args, cluster=(1, 2, 1), dynamic_smem=49152, order=order)
    np.testing.assert_array_equal(c, a.astype(F32) @ b.astype(F32).T)


@pytest.mark.parametrize("grid", [1, 2])
def test_consumers_take_turns(rng: np.random.Generator, order: Any, grid: int) -> None:
    m, n, k = 128, 192, 64 * 3
    a, b, c = small(rng, F16, m, k), small(rng, F16, n, k), np.zeros((m, n), F32)
    run(FILE, "ping_pong", grid, 384, tiles(a), tiles(b), c, 2, 3, k, dynamic_smem=65536, order=order)
    np.testing.assert_array_equal(c, a.astype(F32) @ b.astype(F32).T)


def test_slices_of_k_add_up_by_tensor_reductions(rng: np.random.Generator, order: Any) -> None:
    m, n, k = 64, 128, 64 * 8
    a, b, c = small(rng, F16, m, k), small(rng, F16, n, k), np.zeros((m, n), F32)
    run(FILE, "split_k", (2, 1, 4), 128, tiles(a), tiles(b), TensorMap(c, (64, 64)), k, order=order)
    np.testing.assert_array_equal(c, a.astype(F32) @ b.astype(F32).T)


def test_attention_forward(rng: np.random.Generator, order: Any) -> None:
    queries, keys = 64, 64 * 5
    q, k, v = (rng.standard_normal((rows, 64)).astype(BF16) for rows in (queries, keys, keys))
    o = np.zeros((queries, 64), F32)
    args = (tiles(q), tiles(k), tiles(v), o, keys, F32(0.125))
    run(FILE, "attention", 1, 160, *args, dynamic_smem=5 * 8192, order=order)
    scores = q.astype(F64) @ k.astype(F64).T / 8
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    # The probabilities are rounded to bfloat16: eight bits, averaged over the keys.
    np.testing.assert_allclose(o, p @ v.astype(F64) / p.sum(axis=1, keepdims=True), atol=0.01)
