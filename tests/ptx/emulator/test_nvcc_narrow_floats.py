"""Floats of 8, 6 and 4 bits: conversions of the toolkit's headers (sm_100a), and mma.sync of sm_120a."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compiled import ORDERS, run
from numpy.typing import NDArray

from tinygpu.ptx.emulator import TensorMap

F16, F32, F64, U8 = np.float16, np.float32, np.float64, np.uint8
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
E2M3, E3M2, E2M1 = ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn, ml_dtypes.float4_e2m1fn
E8M0 = ml_dtypes.float8_e8m0fnu
CONVERT, MULTIPLY = "sm_100a/narrow_floats", "sm_120a/matmuls"


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(83)


def clipped(x: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """Saturating conversion to the nearest value."""
    top = float(ml_dtypes.finfo(dtype).max)
    result: NDArray[Any] = np.clip(x, -top, top).astype(dtype)
    return result


def test_conversions_to_narrow_floats(rng: np.random.Generator) -> None:
    n = 300
    x = (rng.standard_normal((n, 2)) * 2.0 ** rng.integers(-12, 12, (n, 2))).astype(F32)
    x[0], x[1] = (0.0, -0.0), (1e9, -1e9)
    outs = [np.zeros((n, 2), U8) for _ in range(4)]
    e2m1, half8, scale = np.zeros(n, U8), np.zeros((n, 2), U8), np.zeros((n, 2), U8)
    run(CONVERT, "to_narrow", 3, 128, x, *outs, e2m1, half8, scale, n)
    for got, dtype in zip(outs, (E4M3, E5M2, E2M3, E3M2), strict=True):
        np.testing.assert_array_equal(got, clipped(x, dtype).view(U8), err_msg=str(dtype))
    nibbles = clipped(x, E2M1).view(U8)
    np.testing.assert_array_equal(e2m1, nibbles[:, 0] | nibbles[:, 1] << 4)
    np.testing.assert_array_equal(half8, clipped(np.clip(x.astype(F64), -65504, 65504).astype(F16), E4M3).view(U8))
    size = abs(x[2:].astype(F64))
    exponent = np.ceil(np.log2(size)).astype(int) + 127
    np.testing.assert_array_equal(scale[2:], np.clip(exponent, 0, 254))


def test_conversions_from_narrow_floats() -> None:
    codes = np.arange(256, dtype=U8).reshape(128, 2)
    six, four = codes & 0x3F, np.arange(128, dtype=U8)
    o = np.zeros((6, 128, 2), F32)
    run(CONVERT, "from_narrow", 1, 128, codes, codes, six, six, four, codes, o, 128)
    nibbles = np.stack([four & 15, four >> 4], 1)
    scales = codes.view(E8M0).astype(F32)
    want = [codes.view(E4M3), codes.view(E5M2), six.view(E2M3), six.view(E3M2), nibbles.view(E2M1), scales]
    for row, expected in enumerate(want):
        np.testing.assert_array_equal(o[row], expected.astype(F32), err_msg=f"row {row}")


def test_classes_of_the_headers(rng: np.random.Generator) -> None:
    n = 100
    x = (rng.standard_normal((n, 4)) * 100).astype(F32)
    y, back, one = np.zeros((n, 4), E4M3), np.zeros((n, 4), F32), np.zeros(n, E5M2)
    run(CONVERT, "classes", 1, 128, x, y, back, one, n)
    np.testing.assert_array_equal(y.view(U8), clipped(x, E4M3).view(U8))
    np.testing.assert_array_equal(back, y.astype(F32))
    np.testing.assert_array_equal(one.view(U8), clipped(x[:, 0], E5M2).view(U8))


def test_pairs_of_single_precision(rng: np.random.Generator) -> None:
    n = 100
    a, b = (rng.standard_normal((n, 2)).astype(F32) for _ in range(2))
    o = np.zeros((4, n, 2), F32)
    run(CONVERT, "pairs", 1, 128, a, b, o, n)
    np.testing.assert_array_equal(o[0], (a.astype(F64) * b + a).astype(F32))
    np.testing.assert_array_equal(o[1], a + b)
    np.testing.assert_array_equal(o[2], a * b)
    np.testing.assert_array_equal(o[3, :, 0], np.maximum(np.maximum(a[:, 0], b[:, 0]), a[:, 1]))
    np.testing.assert_array_equal(o[3, :, 1], [min(t // 32 * 32 + 31, n - 1) for t in range(n)])


def test_vectors_of_256_bits(rng: np.random.Generator) -> None:
    x = rng.standard_normal(512).astype(F32)
    y = np.zeros_like(x)
    run(CONVERT, "wide", 1, 64, x, y, 512)
    np.testing.assert_array_equal(y, x * 2 + np.tile(np.arange(8, dtype=F32), 64))


def test_mma_of_mixed_narrow_floats(rng: np.random.Generator) -> None:
    k = 96
    a, b, c = rng.integers(-4, 5, (16, k)).astype(E4M3), rng.integers(0, 16, (8, k)).astype(U8), np.zeros((16, 8), F32)
    run(MULTIPLY, "mixed_f8f6f4", 1, 32, a, b, c, k)
    np.testing.assert_array_equal(c, a.astype(F32) @ b.view(E2M1).astype(F32).T)


def test_mma_with_a_scale_for_32_values(rng: np.random.Generator) -> None:
    k = 128
    a, b = (rng.integers(0, 64, (rows, k)).astype(U8) for rows in (16, 8))
    sa, sb = (rng.integers(125, 130, (rows, k // 32)).astype(U8) for rows in (16, 8))
    c = np.zeros((16, 8), F32)
    run(MULTIPLY, "scaled_mxf6", 1, 32, a, b, sa, sb, c, k)
    wide = [
        v.view(dtype).astype(F64) * np.repeat(2.0 ** (s.astype(F64) - 127), 32, axis=1)
        for v, s, dtype in ((a, sa, E3M2), (b, sb, E2M3))
    ]
    np.testing.assert_allclose(c, wide[0] @ wide[1].T, rtol=1e-5, atol=1e-4)


def test_mma_with_a_scale_for_16_values(rng: np.random.Generator) -> None:
    k = 192
    a, b = (rng.integers(0, 256, (rows, k // 2)).astype(U8) for rows in (16, 8))
    sa, sb = (rng.choice([0.5, 1.0, 1.5, 3.0], (rows, k // 16)).astype(E4M3) for rows in (16, 8))
    c = np.zeros((16, 8), F32)
    run(MULTIPLY, "scaled_nvf4", 1, 32, a, b, sa, sb, c, k)
    wide = []
    for packed, scales in ((a, sa), (b, sb)):
        nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(packed.shape[0], k)
        wide.append(nibbles.view(E2M1).astype(F32) * np.repeat(scales.astype(F32), 16, axis=1))
    np.testing.assert_array_equal(c, wide[0] @ wide[1].T)


@pytest.mark.parametrize("order", ORDERS)
def test_tensor_copies_feed_mma(rng: np.random.Generator, order: Any) -> None:
    m, n, k = 32, 64, 64 * 5
    a, b = rng.integers(-4, 5, (m, k)).astype(F16), rng.integers(-4, 5, (n, k)).astype(F16)
    c = np.zeros((m, n), F32)
    maps = [TensorMap(v, (64, 32), swizzle="128B") for v in (a, b)]
    known = ("asynchronous write over generic accesses",)
    run(MULTIPLY, "tma_mma", (2, 1), 160, *maps, c, n, k, order=order, known=known)
    np.testing.assert_array_equal(c, a.astype(F32) @ b.astype(F32).T)
