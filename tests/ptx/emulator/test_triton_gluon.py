"""Kernels in Gluon (Triton's language of layouts, buffers and barriers), compared with NumPy; no fault on any."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from triton_fixture import Fixture, Order, Values, cases, launch, orders

from tinygpu.ptx.emulator import TensorMap

BF16, F16, F32, I32 = ml_dtypes.bfloat16, np.float16, np.float32, np.int32


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(41)


def ints(rng: np.random.Generator, shape: Any, dtype: Any, most: int = 4) -> Values:
    return np.asarray(rng.integers(-most, most + 1, shape).astype(dtype))


def product(a: Values, b: Values) -> Values:
    """The exact product of small integers."""
    result: Values = a.astype(np.float64) @ b.astype(np.float64)
    return result


@pytest.mark.sampled(4)
@orders
@cases("tile_sum")
def test_tiles_through_shared_memory_and_reductions_into_global(
    fixture: Fixture, rng: np.random.Generator, order: Order
) -> None:
    bm, bn = fixture.constants["BM"], fixture.constants["BN"]
    m, n = 3 * bm, 2 * bn
    x, y = ints(rng, (m, n), F32), np.zeros((m + bm, n), F32)
    launch(fixture, (3, 2), x, y, m, n, order=order)
    np.testing.assert_array_equal(y[:m], x + 1)
    np.testing.assert_array_equal(y[m:], x.reshape(3, bm, n).sum(axis=0))


@pytest.mark.sampled(2)
@orders
@cases("roles")
def test_a_product_in_roles(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bn, bk = (fixture.constants[name] for name in ("BM", "BN", "BK"))
    m, n, k = 2 * bm, bn, 7 * bk
    a, b, c = ints(rng, (m, k), F16), ints(rng, (k, n), F16), np.zeros((m, n), F16)
    launch(fixture, (m // bm, n // bn), a, b, c, m, n, k, order=order)
    np.testing.assert_array_equal(c, product(a, b).astype(F16))


@pytest.mark.sampled(2)
@orders
@cases("multicast")
def test_two_ctas_that_share_an_operand(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bn, bk = (fixture.constants[name] for name in ("BM", "BN", "BK"))
    m, n, k = 2 * bm, bn, 6 * bk
    a, b, c = ints(rng, (m, k), F16), ints(rng, (k, n), F16), np.zeros((m, n), F16)
    launch(fixture, (m // bm, n // bn), a, b, c, m, n, k, order=order)
    np.testing.assert_array_equal(c, product(a, b).astype(F16))


@pytest.mark.sampled(2)
@orders
@cases("exchange")
def test_stores_into_the_shared_memory_of_the_other_cta(
    fixture: Fixture, rng: np.random.Generator, order: Order
) -> None:
    n = fixture.constants["N"]
    x, y = ints(rng, (3, n), F32), np.zeros((3, n), F32)
    launch(fixture, 3, x, y, order=order)
    np.testing.assert_array_equal(y, 3 * x)


@pytest.mark.sampled(2)
@orders
@cases("ring_of_copies")
def test_a_ring_that_cp_async_fills(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bk, steps = fixture.constants["BM"], fixture.constants["BK"], 8
    a, y = ints(rng, (2 * bm, steps * bk), F16), np.zeros((2 * bm, bk), F32)
    launch(fixture, 2, a, y, steps, order=order)
    np.testing.assert_array_equal(y, a.reshape(2 * bm, steps, bk).astype(F32).sum(axis=1))


@pytest.mark.sampled(2)
@orders
@cases("tensor_memory_roles")
def test_a_product_in_roles_through_tensor_memory(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bn, bk = (fixture.constants[name] for name in ("BM", "BN", "BK"))
    m, n, k = 2 * bm, bn, 5 * bk - 16
    a, b, c = ints(rng, (m, k), BF16), ints(rng, (n, k), BF16), np.zeros((m, n), F32)
    launch(fixture, (m // bm, n // bn), a, b, c, m, n, k, order=order)
    np.testing.assert_array_equal(c, product(a, b.T))


@pytest.mark.sampled(2)
@orders
@cases("left_in_tensor_memory")
def test_a_left_operand_in_tensor_memory(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    m, n, k = (fixture.constants[name] for name in ("M", "N", "K"))
    a, b, c = ints(rng, (m, k), F16), ints(rng, (k, n), F16), np.zeros((m, n), F32)
    launch(fixture, 1, a, b, c, order=order)
    np.testing.assert_array_equal(c, 2 * product(a, b))


@pytest.mark.sampled(2)
@orders
@cases("pair")
def test_a_product_of_two_ctas(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bn, bk = (fixture.constants[name] for name in ("BM", "BN", "BK"))
    m, n, k = 2 * bm, bn, 3 * bk
    a, b, c = ints(rng, (m, k), F16), ints(rng, (k, n), F16), np.zeros((m, n), F32)
    launch(fixture, (m // bm, n // bn), a, b, c, m, n, k, order=order)
    np.testing.assert_array_equal(c, product(a, b))


@pytest.mark.sampled(2)
@orders
@cases("stolen_tiles")
def test_tiles_taken_over_from_ctas_that_have_not_begun(
    fixture: Fixture, rng: np.random.Generator, order: Order
) -> None:
    block = fixture.constants["BLOCK"]
    x, y = ints(rng, 6 * block - 16, F32), np.zeros(6 * block - 16, F32)
    launch(fixture, 6, x, y, x.size, order=order)
    np.testing.assert_array_equal(y, 3 * x)


@pytest.mark.sampled(2)
@orders
@cases("gathered")
def test_rows_gathered_and_scattered(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    rows, columns = fixture.constants["R"], fixture.constants["C"]
    m, n = 48, 2 * columns
    x, ids = ints(rng, (m, n), F16), rng.permutation(m)[:rows].astype(I32)
    y = np.zeros((2 * m, columns), F16)
    launch(fixture, 1, x, ids, y, m, n, order=order)
    want = np.zeros_like(y)
    want[:rows] = x[ids, :columns]
    want[m + ids] = x[ids, :columns]
    np.testing.assert_array_equal(y, want)


@pytest.mark.sampled(2)
@orders
@cases("block_scaled")
def test_a_product_with_scales_in_tensor_memory(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    m, n, k = (fixture.constants[name] for name in ("M", "N", "K"))
    a, b = (ints(rng, (rows, k), ml_dtypes.float8_e4m3fn) for rows in (m, n))
    sa, sb = (rng.integers(125, 130, (rows, k // 32)).astype(np.uint8) for rows in (m, n))
    c = np.zeros((m, n), F32)
    launch(fixture, 1, a, b, sa, sb, c, order=order)
    left, right = (
        v.astype(np.float64) * np.repeat(np.exp2(s.astype(np.float64) - 127), 32, axis=1) for v, s in ((a, sa), (b, sb))
    )
    np.testing.assert_array_equal(c, left @ right.T)


@pytest.mark.sampled(2)
@orders
@cases("copied_tile")
def test_a_tile_copied_into_tensor_memory(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    x = ints(rng, (fixture.constants["M"], fixture.constants["N"]), F32)
    y = np.zeros_like(x)
    launch(fixture, 1, x, y, order=order)
    np.testing.assert_array_equal(y, x + 1)


@pytest.mark.sampled(2)
@orders
@cases("tensor_map_convolution")
def test_a_convolution_through_an_im2col_map(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    channels, out, taps, pixels = (fixture.constants[name] for name in ("C", "CO", "R", "BM"))
    n, h, w = 2, 8, 16
    x = ints(rng, (n, h, w, channels), F16, 2)
    weights = ints(rng, (taps, taps, channels, out), F16, 2)
    y = np.zeros((n, h, w, out), F32)
    corner = (-(taps // 2), -(taps // 2))
    image = TensorMap(
        x, swizzle="64B", mode="im2col", pixel_box_lower=corner, pixel_box_upper=corner, channels_per_pixel=channels,
        pixels_per_column=pixels,
    )  # fmt: skip
    flat = weights.reshape(-1, out)
    args: list[Any] = [image, *x.shape, *(np.int64(s // 2) for s in x.strides)]
    args += [TensorMap(flat, (out, channels), swizzle="128B"), *flat.shape, np.int64(out), np.int64(1), y, h, w]
    launch(fixture, n * h * w // pixels, *args, order=order)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    want = sum(
        padded[:, i : i + h, j : j + w] @ weights[i, j].astype(np.float64) for i in range(taps) for j in range(taps)
    )
    np.testing.assert_array_equal(y, np.asarray(want))
