"""Matrix products by Triton, compared with NumPy under every order in which copies may land; no fault on any.

Small integers are used, so that every sum is exact whatever the order of the additions.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from triton_fixture import Fixture, Order, Values, cases, launch, orders

from tinygpu.ptx.emulator import DeviceBuffer, TensorMap

F16, F32, I32 = np.float16, np.float32, np.int32


def ints(rng: np.random.Generator, shape: Any, dtype: Any, most: int = 4) -> Values:
    return np.asarray(rng.integers(-most, most + 1, shape).astype(dtype))


def product(a: Values, b: Values) -> Values:
    """The exact product of small integers."""
    result: Values = a.astype(np.float64) @ b.astype(np.float64)
    return result


def tiles(fixture: Fixture) -> tuple[int, int, int]:
    return tuple(fixture.constants[name] for name in ("BM", "BN", "BK"))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(31)


@pytest.mark.sampled(16)
@orders
@cases("matmul")
def test_matmul_with_edges(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bn, bk = tiles(fixture)
    m, n, k = (bm + bm // 2 + 3, bn + 5, 3 * bk + 7) if "odd" in fixture.name else (bm + 16, 2 * bn - 16, 4 * bk - 16)
    a, b, c = (ints(rng, shape, fixture.dtype("a")) for shape in ((m, k), (k, n), (m, n)))
    launch(fixture, (-(-m // bm), -(-n // bn)), a, b, c, m, n, k, order=order)
    np.testing.assert_array_equal(c, product(a, b).astype(c.dtype))


@pytest.mark.sampled(16)
@orders
@cases("whole_matmul")
def test_matmul_of_any_type_and_order_of_elements(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bn, bk = tiles(fixture)
    m, n, k = 2 * bm if bm < 100 else bm, bn, 5 * bk
    most = 1 if fixture.constants["KIND"] == "fp16" else 100 if fixture.dtype("a") is np.int8 else 4
    a, b = ints(rng, (m, k), fixture.dtype("a"), most), ints(rng, (k, n), fixture.dtype("b"), most)
    c = np.zeros((m, n), fixture.dtype("c"))
    left, right = (v if by == "n" else v.T.copy() for v, by in zip((a, b), fixture.constants["ROWS"], strict=True))
    launch(fixture, (m // bm) * (n // bn), left, right, c, m, n, k, order=order)
    np.testing.assert_array_equal(c, product(a, b).astype(c.dtype))


@pytest.mark.sampled(4)
@orders
@cases("mixed_matmul")
def test_matmul_of_two_types(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bn, bk = tiles(fixture)
    a, b = ints(rng, (bm, 4 * bk), fixture.dtype("a")), ints(rng, (4 * bk, bn), fixture.dtype("b"))
    c = np.zeros((bm, bn), F32)
    launch(fixture, (1, 1), a, b, c, bn, 4 * bk, order=order)
    np.testing.assert_array_equal(c, product(a, b))


@pytest.mark.sampled(4)
@orders
@cases("split_k")
def test_split_k_with_atomics(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bn, bk = tiles(fixture)
    a, b = ints(rng, (bm, 8 * bk), F16, 2), ints(rng, (8 * bk, bn), F16, 2)
    c = np.zeros((bm, bn), fixture.dtype("c"))
    launch(fixture, (1, 1, fixture.constants["SPLIT"]), a, b, c, bn, 8 * bk, order=order)
    np.testing.assert_array_equal(c, product(a, b).astype(c.dtype))


@pytest.mark.sampled(8)
@orders
@cases("persistent")
def test_persistent_ctas(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bn, bk = tiles(fixture)
    m, n, k = 3 * bm - 16, 2 * bn - 32, 3 * bk - 16
    a, b, c = ints(rng, (m, k), F16), ints(rng, (k, n), F16), np.zeros((m, n), F16)
    launch(fixture, 2, a, b, c, m, n, k, 2, order=order)
    np.testing.assert_array_equal(c, product(a, b).astype(F16))


@pytest.mark.sampled(4)
@orders
@cases("stream_k")
def test_stream_k(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bn, bk = tiles(fixture)
    m, n, k, ctas = 2 * bm, bn, 6 * bk, 3
    a, b, c = ints(rng, (m, k), F16), ints(rng, (k, n), F16), np.zeros((m, n), F32)
    parts, flags = np.zeros((ctas, bm, bn), F32), np.zeros(ctas, I32)
    launch(fixture, ctas, a, b, c, parts, flags, n, k, 4, order=order)
    np.testing.assert_array_equal(c, product(a, b))


@pytest.mark.sampled(2)
@orders
@cases("grouped")
def test_products_of_several_sizes_in_one_launch(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    sizes = np.array([(80, 96, 64), (48, 144, 32), (128, 64, 96)], I32)
    base = 0x70_0000_0000
    tables = np.zeros((3, len(sizes)), np.int64)
    buffers: list[DeviceBuffer] = []
    wanted: list[tuple[Values, Values]] = []
    for g, (m, n, k) in enumerate(sizes):
        a, b, c = ints(rng, (m, k), F16), ints(rng, (k, n), F16), np.zeros((m, n), F16)
        wanted.append((c, product(a, b)))
        for row, array in enumerate((a, b, c)):
            buffers.append(DeviceBuffer(array, base=base))
            tables[row, g] = base
            base += 1 << 20
    launch(fixture, 3, *tables, sizes, len(sizes), order=order, buffers=buffers)
    for c, want in wanted:
        np.testing.assert_array_equal(c, want.astype(F16))


@pytest.mark.sampled(2)
@orders
@cases("batched")
def test_batched_matmul(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bn, bk = tiles(fixture)
    batch = fixture.constants["BB"]
    a, b = ints(rng, (batch, bm, 2 * bk), F16), ints(rng, (batch, 2 * bk, bn), F16)
    c = np.zeros((batch, bm, bn), F32)
    launch(fixture, (1, 1, 1), a, b, c, bm, bn, 2 * bk, order=order)
    np.testing.assert_array_equal(c, product(a, b))


@pytest.mark.sampled(4)
@orders
@cases("convolution")
def test_convolution(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    ci, co, r, s = (fixture.constants[name] for name in ("CI", "CO", "R", "S"))
    h, w = 16, 16
    x, weights = ints(rng, (1, h, w, ci), F16, 2), ints(rng, (r, s, ci, co), F16, 2)
    y = np.zeros((1, h, w, co), F16)
    launch(fixture, (-(-h * w // fixture.constants["BM"]), 1), x, weights, y, h, w, order=order)
    padded = np.pad(x.astype(np.float64), ((0, 0), (r // 2, r // 2), (s // 2, s // 2), (0, 0)))
    want = sum(padded[:, i : i + h, j : j + w] @ weights[i, j].astype(np.float64) for i in range(r) for j in range(s))
    np.testing.assert_array_equal(y, np.asarray(want).astype(F16))


NIBBLES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def scaled_operand(rng: np.random.Generator, rows: int, k: int, kind: str) -> tuple[Values, Values, Values]:
    """(stored elements, stored scales, values) of rows x k elements with a scale per 32."""
    scales = rng.integers(126, 130, (rows, k // 32)).astype(np.uint8)
    factor = np.repeat(np.exp2(scales.astype(np.float64) - 127), 32, axis=1)
    if kind == "e2m1":
        codes = rng.integers(0, 16, (rows, k)).astype(np.uint8)
        return codes[:, ::2] | codes[:, 1::2] << 4, scales, NIBBLES[codes] * factor
    dtype = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}[kind]
    stored = ints(rng, (rows, k), dtype)
    return stored, scales, stored.astype(np.float64) * factor


@pytest.mark.sampled(8)
@orders
@cases("scaled_matmul")
def test_matmul_with_a_scale_per_block(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bn, bk = tiles(fixture)
    k = 3 * bk
    a, sa, left = scaled_operand(rng, bm, k, fixture.constants["A"])
    b, sb, right = scaled_operand(rng, bn, k, fixture.constants["B"])
    c = np.zeros((bm, bn), F32)
    launch(fixture, (1, 1), a, sa, b, sb, c, bm, bn, k, order=order)
    np.testing.assert_array_equal(c, left @ right.T)


@pytest.mark.sampled(28)
@orders
@cases("descriptor_matmul")
def test_matmul_through_tensor_maps_of_the_device(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bn, bk = tiles(fixture)
    m, n, k, ctas = 2 * bm - 16, 2 * bn - 16, 4 * bk - 16, 2
    a, b = ints(rng, (m, k), fixture.dtype("a")), ints(rng, (n, k), fixture.dtype("b"))
    c = np.zeros((m, n), fixture.dtype("c"))
    launch(fixture, ctas, a, b, c, m, n, k, ctas, order=order)
    np.testing.assert_array_equal(c, product(a, b.T).astype(c.dtype))


SWIZZLES = ("none", "32B", "64B", "128B")


def tensor_map(fixture: Fixture, position: int, array: Values) -> list[Any]:
    """What Triton's launcher passes for a tensor descriptor: the map, the shape, the strides in elements."""
    facts = fixture.descriptors[position]
    strides = [int(s) // array.itemsize for s in array.strides]
    made = TensorMap(array, tuple(reversed(facts["block_size"])), swizzle=SWIZZLES[facts["swizzle"]])
    return [made, *array.shape, *(np.int64(s) for s in strides)]


@pytest.mark.sampled(4)
@orders
@cases("host_descriptor_matmul")
def test_matmul_through_tensor_maps_of_the_host(fixture: Fixture, rng: np.random.Generator, order: Order) -> None:
    bm, bn, bk = tiles(fixture)
    m, n, k = 2 * bm - 16, bn + 16, 3 * bk - 16
    a, b, c = ints(rng, (m, k), F16), ints(rng, (k, n), F16), np.zeros((m, n), F16)
    maps = [item for p, array in enumerate((a, b, c)) for item in tensor_map(fixture, p, array)]
    launch(fixture, (-(-m // bm), -(-n // bn)), *maps, k, order=order)
    np.testing.assert_array_equal(c, product(a, b).astype(F16))
