"""tcgen05 and tensor memory in CUDA C++ for sm_100a: kinds, roles, pairs of CTAs, block scales, launch control."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compiled import run
from numpy.typing import NDArray

from tinygpu.ptx.emulator import TensorMap

F16, F32, I32, U8 = np.float16, np.float32, np.int32, np.uint8
BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
FILE = "sm_100a/matmuls"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(67)


@pytest.fixture(params=["late", "random", pytest.param("early", marks=pytest.mark.slow)])
def order(request: pytest.FixtureRequest) -> Any:
    return request.param


def small(rng: np.random.Generator, dtype: Any, *shape: int) -> NDArray[Any]:
    """Integers for which all sums are exact."""
    return rng.integers(-4, 5, shape).astype(dtype)


def tiles(values: NDArray[Any], rows: int = 128) -> TensorMap:
    """Boxes of 128 bytes x rows."""
    return TensorMap(values, (128 // values.itemsize, rows), swizzle="128B")


def scale_blocks(scales: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """(rows, groups) scales as the kernels want them: per 128 rows and 4 groups, byte 16 (r % 32) + 4 (r / 32) + j."""
    rows, groups = scales.shape
    blocks = scales.reshape(rows // 128, 4, 32, groups // 4, 4).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(blocks).reshape(-1)


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("entry", "m", "first", "second", "result", "k"),
    [
        ("simple_f16", 128, F16, F16, F32, 192),
        ("simple_tf32", 128, F32, F32, F32, 96),
        ("simple_fp8", 128, E4M3, E5M2, F32, 256),
        ("simple_half_sums", 128, F16, F16, F16, 128),
        ("simple_m64", 64, F16, F16, F32, 128),
        ("simple_ws", 64, F16, F16, F32, 128),
    ],
)
def test_one_tile_per_block(
    rng: np.random.Generator, order: Any, entry: str, m: int, first: Any, second: Any, result: Any, k: int
) -> None:
    n = 128
    a, b, c = small(rng, first, m, k), small(rng, second, n, k), np.zeros((m, n), result)
    run(FILE, entry, (2, 1), 128, tiles(a, m), tiles(b, 64), c, n, k, order=order)
    np.testing.assert_array_equal(c.astype(F32), a.astype(F32) @ b.astype(F32).T)


def test_bytes_of_both_signs(rng: np.random.Generator, order: Any) -> None:
    m, n, k = 128, 64, 384
    a, b = rng.integers(-128, 128, (m, k)).astype(np.int8), rng.integers(0, 256, (n, k)).astype(U8)
    c = np.zeros((m, n), I32)
    run(FILE, "simple_int8", (1, 1), 128, tiles(a), tiles(b, 64), c, n, k, order=order)
    np.testing.assert_array_equal(c, a.astype(I32) @ b.astype(I32).T)


@pytest.mark.parametrize("grid", [1, 2])
def test_persistent_with_warp_roles_and_two_accumulators(rng: np.random.Generator, order: Any, grid: int) -> None:
    m, n, k = 256, 384, 64 * 4
    a, b, c = small(rng, BF16, m, k), small(rng, BF16, n, k), np.zeros((m, n), BF16)
    maps = [tiles(a), tiles(b), tiles(c)]
    run(FILE, "persistent", grid, 192, *maps, m // 128, n // 128, k, dynamic_smem=131072, order=order)
    np.testing.assert_array_equal(c, (a.astype(F32) @ b.astype(F32).T).astype(BF16))


def test_pairs_of_ctas(rng: np.random.Generator, order: Any) -> None:
    m, n, k = 512, 128, 64 * 7
    a, b, c = small(rng, F16, m, k), small(rng, F16, n, k), np.zeros((m, n), F32)
    run(FILE, "pair", (4, 1), 192, tiles(a), tiles(b, 64), c, n, k, cluster=2, dynamic_smem=73728, order=order)
    np.testing.assert_array_equal(c, a.astype(F32) @ b.astype(F32).T)


def test_block_scales_of_32_values(rng: np.random.Generator, order: Any) -> None:
    m, n, k = 128, 256, 128 * 3
    a, b, c = small(rng, E4M3, m, k), small(rng, E4M3, n, k), np.zeros((m, n), F32)
    sa, sb = (rng.integers(124, 131, (rows, k // 32)).astype(U8) for rows in (m, n))
    args = (tiles(a), tiles(b), scale_blocks(sa), scale_blocks(sb), c, n, k)
    run(FILE, "scaled_mxf8", (2, 1), 128, *args, order=order)
    wide = [v.astype(F32) * np.repeat(2.0 ** (s.astype(F32) - 127), 32, axis=1) for v, s in ((a, sa), (b, sb))]
    np.testing.assert_allclose(c, wide[0] @ wide[1].T, rtol=1e-6)


def test_block_scales_of_16_values(rng: np.random.Generator, order: Any) -> None:
    m, n, k = 128, 128, 256 * 2
    a, b = (rng.integers(0, 256, (rows, k // 2)).astype(U8) for rows in (m, n))
    c = np.zeros((m, n), F32)
    sa, sb = (rng.choice([0.5, 1.0, 1.5, 2.0], (rows, k // 16)).astype(E4M3) for rows in (m, n))
    args = (tiles(a), tiles(b), scale_blocks(sa.view(U8)), scale_blocks(sb.view(U8)), c, n, k)
    run(FILE, "scaled_nvf4", (1, 1), 128, *args, order=order)
    wide = []
    for packed, scales in ((a, sa), (b, sb)):
        nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], k)
        wide.append(nibbles.view(ml_dtypes.float4_e2m1fn).astype(F32) * np.repeat(scales.astype(F32), 16, axis=1))
    np.testing.assert_array_equal(c, wide[0] @ wide[1].T)


def test_a_product_that_reads_its_operand_from_tensor_memory(rng: np.random.Generator, order: Any) -> None:
    keys = 64 * 3
    q, k, v = rng.integers(-2, 3, (128, 64)), rng.integers(-2, 3, (keys, 64)), rng.integers(-2, 3, (keys, 64))
    c = np.zeros((128, 64), F32)
    maps = [tiles(q.astype(F16)), tiles(k.astype(F16), 64), tiles(v.astype(F16), 64)]
    run(FILE, "chained", 1, 128, *maps, c, keys, order=order)
    np.testing.assert_array_equal(c, np.maximum(q @ k.T, 0) @ v)


def test_running_blocks_take_over_the_work_of_others(rng: np.random.Generator, order: Any) -> None:
    blocks = 20
    x = rng.integers(-99, 99, (blocks, 128)).astype(I32)
    y, work = np.zeros_like(x), np.zeros(blocks, I32)
    run("sm_100a/launch_control", "steal", blocks, 128, x, y, work, order=order)
    np.testing.assert_array_equal(y, 3 * x + np.arange(blocks)[:, None])
    assert work.sum() == blocks
