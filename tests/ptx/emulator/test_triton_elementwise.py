"""Element-wise Triton kernels, compared with NumPy; no fault on any."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from triton_fixture import Fixture, Values, cases, launch

F32, I32 = np.float32, np.int32


def numbers(rng: np.random.Generator, shape: Any, dtype: Any) -> Values:
    """Random values of any type, of both signs where it has them."""
    if np.dtype(dtype).kind == "b":
        return np.asarray(rng.integers(0, 2, shape).astype(np.bool_))
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return np.asarray(rng.integers(max(info.min, -120), min(info.max, 120), shape).astype(dtype))
    return np.asarray((3 * rng.standard_normal(shape)).astype(dtype))


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(23)


@pytest.mark.sampled(2)
@cases("fused")
def test_a_fused_chain_with_an_edge(fixture: Fixture, rng: np.random.Generator) -> None:
    kind, block = fixture.dtype("x"), fixture.constants["BLOCK"]
    rows, columns = 16, 79 if "odd" in fixture.name else 80
    x, bias = numbers(rng, (rows, columns), kind), numbers(rng, columns, F32)
    y = np.zeros_like(x)
    launch(fixture, -(-x.size // block), x, bias, y, rows, columns)
    v = x.astype(np.float64)
    z = v + bias
    want = 0.5 * z * (1 + np.tanh(0.7978845608028654 * (z + 0.044715 * z**3))) + v
    tolerance = {2: 1e-2, 4: 2e-5}[x.itemsize]
    np.testing.assert_allclose(y.astype(np.float64), want, rtol=tolerance, atol=tolerance)


@cases("cast")
def test_casts(fixture: Fixture, rng: np.random.Generator) -> None:
    source, target = fixture.dtype("x"), fixture.dtype("y")
    x = numbers(rng, 300, source)
    if np.dtype(source).kind not in "iub" and np.dtype(target).kind in "u":
        x = np.abs(x.astype(F32)).astype(source)
    if np.dtype(target).kind == "b" or (np.dtype(source).kind, np.dtype(target).itemsize) == ("i", 1):
        x[::3] = 0
    y = np.zeros(300, target)
    launch(fixture, 2, x, y, 300)
    if np.dtype(source).kind in "iub" and np.dtype(target).kind not in "iub":
        want = x.astype(np.float64).astype(F32).astype(target) if np.dtype(target).itemsize < 4 else x.astype(target)
    elif np.dtype(target).kind == "b":
        want = x.astype(F32) != 0
    elif np.dtype(target).kind in "iu" and np.dtype(source).kind not in "iub":
        want = np.trunc(x.astype(np.float64)).astype(np.int64).astype(target)
    elif source is np.float64 and np.dtype(target).itemsize == 1:
        want = x.astype(F32).astype(target)
    else:
        want = x.astype(target)
    np.testing.assert_array_equal(y.astype(np.float64), want.astype(np.float64))


@cases("functions")
def test_functions(fixture: Fixture, rng: np.random.Generator) -> None:
    n = 300
    x = (np.abs(rng.standard_normal(n)) * 3 + 0.01).astype(F32)
    y = np.zeros((11, n), F32)
    launch(fixture, 2, x, y, n)
    v = x.astype(np.float64)
    want = [
        np.exp(v), np.log(v), np.sin(v), np.cos(v), np.sqrt(v), 1 / np.sqrt(v), np.array([math.erf(t) for t in v]),
        1 / (1 + np.exp(-v)), np.floor(x * F32(7)) + np.ceil(x * F32(5)), np.exp2(v) + np.log2(v),
        v / (v + 3) + np.sqrt(v) + v * v + 0.5,
    ]  # fmt: skip
    np.testing.assert_allclose(y, want, rtol=2e-5, atol=2e-6)


@cases("library")
def test_functions_of_a_device_library(fixture: Fixture, rng: np.random.Generator) -> None:
    n = 300
    x = (np.abs(rng.standard_normal(n)) * 2 + 0.02).astype(F32)
    y = np.zeros((8, n), F32)
    launch(fixture, 2, x, y, n)
    v = x.astype(np.float64)
    want = [
        np.tanh(v), v ** (v * 0.5), np.log1p(v) + np.expm1(v * 0.1), np.arctan2(v, v * v - 2),
        np.array([math.lgamma(t) for t in v]), np.sin((x * F32(1e6)).astype(np.float64)),
        np.fmod(x * F32(9), F32(0.7)), np.cbrt(v) + np.rint(x * F32(3)),
    ]  # fmt: skip
    np.testing.assert_allclose(y, want, rtol=2e-5, atol=2e-6)


@pytest.mark.sampled(2)
@cases("integers")
def test_integer_arithmetic(fixture: Fixture, rng: np.random.Generator) -> None:
    kind, n = fixture.dtype("x"), 300
    x, y = numbers(rng, n, kind), numbers(rng, n, kind)
    y[y == 0] = 3
    z = np.zeros((9, n), kind)
    launch(fixture, 2, x, y, z, n)
    quotient = np.trunc(x.astype(np.float64) / y).astype(kind)
    want = [
        x + y * kind(3), quotient, x - quotient * y, (x & y) | (x ^ kind(21)), x << (y & kind(7)), x >> (y & kind(7)),
        np.minimum(np.maximum(x, y), kind(100)), np.where(x < y, ~x, -y), np.abs(x),
    ]  # fmt: skip
    np.testing.assert_array_equal(z, np.array(want, kind))


@cases("wide_product")
def test_the_high_half_of_a_product(fixture: Fixture, rng: np.random.Generator) -> None:
    kind, n = fixture.dtype("x"), 200
    unsigned = np.dtype(kind).str.replace("i", "u")
    x, y = (rng.integers(0, 2**63, n, np.uint64).astype(unsigned).astype(kind) for _ in range(2))
    high = np.zeros(n, kind)
    launch(fixture, 1, x, y, high, n)
    bits = 8 * x.itemsize
    want = [(int(p) * int(q) >> bits) & (2**bits - 1) for p, q in zip(x.view(unsigned), y.view(unsigned), strict=True)]
    np.testing.assert_array_equal(high.view(unsigned), np.array(want, unsigned))


@cases("booleans")
def test_booleans(fixture: Fixture, rng: np.random.Generator) -> None:
    x, y = rng.integers(0, 2, (2, 300)).astype(np.bool_)
    out = np.zeros(300, np.bool_)
    launch(fixture, 2, x, y, out, 300)
    np.testing.assert_array_equal(out, (x & ~y) | (x == y))


@cases("strided")
def test_windows_with_pitches(fixture: Fixture, rng: np.random.Generator) -> None:
    kind = fixture.dtype("x")
    rows, columns, pitch_x, pitch_y = (16, 96, 112, 128) if kind is np.int8 else (19, 75, 83, 97)
    x, y = numbers(rng, (rows, pitch_x), kind), np.zeros((rows + 1, pitch_y), kind)
    x[:, :] = x // kind(4) if np.dtype(kind).kind == "i" else x
    launch(fixture, (-(-(rows + 1) // 16), 2), x, y, rows, columns, pitch_x, pitch_y)
    want = np.zeros_like(y)
    want[: rows + 1, : columns + 1] = -2
    want[:rows, :columns] = 2 * x[:, :columns]
    np.testing.assert_array_equal(y, want)


def philox(seed: int, offsets: Values) -> Values:
    """Ten rounds of Philox 4x32 (Salmon et al., 2011) of the counters (offset, 0, 0, 0): (4, n) words."""
    c = [offsets.astype(np.uint64)] + [np.zeros(offsets.size, np.uint64) for _ in range(3)]
    key = [seed & 0xFFFFFFFF, seed >> 32]
    mask = np.uint64(0xFFFFFFFF)
    for _ in range(10):
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        high = [(v >> np.uint64(32)) ^ c[n] ^ np.uint64(key[n // 2]) for v, n in ((q, 1), (p, 3))]
        c = [high[0], q & mask, high[1], p & mask]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return np.array(c).astype(np.uint32)


@cases("random_bits")
def test_random_bits(fixture: Fixture) -> None:
    y = np.zeros((512, 4), I32)
    launch(fixture, 2, y, 1234)
    np.testing.assert_array_equal(y.T.astype(np.uint32), philox(1234, np.arange(512)))


@cases("dropout")
def test_dropout(fixture: Fixture, rng: np.random.Generator) -> None:
    n, p = 700, F32(0.3)
    x, y = numbers(rng, n, F32), np.zeros(n, F32)
    launch(fixture, 2, x, y, n, p, 99)
    bits = philox(99, np.arange(n))[0].astype(I32)
    uniform = np.where(bits < 0, -bits - 1, bits) * 4.6566127342e-10
    np.testing.assert_allclose(y, np.where(uniform > p, x / (1 - p), 0), rtol=1e-6)


@cases("embedding")
def test_embedding(fixture: Fixture, rng: np.random.Generator) -> None:
    table, ids = numbers(rng, (50, 96), np.float16), rng.integers(0, 50, 13)
    out = np.zeros((13, 96), np.float16)
    launch(fixture, 13, table, ids, out, 96)
    np.testing.assert_array_equal(out, table[ids])


@pytest.mark.sampled(4)
@cases("scatter_add")
def test_scatter_with_atomics(fixture: Fixture, rng: np.random.Generator) -> None:
    kind = fixture.dtype("x")
    n, width = 80, 48
    x, ids = rng.integers(-3, 4, (n, width)).astype(kind), rng.integers(0, 9, n).astype(I32)
    out = np.zeros((9, width), kind)
    launch(fixture, 3, x, ids, out, n, width)
    want = np.zeros((9, width))
    np.add.at(want, ids, x.astype(np.float64))
    np.testing.assert_array_equal(out.astype(np.float64), want)


@cases("atomics")
def test_atomics(fixture: Fixture, rng: np.random.Generator) -> None:
    n, block = 500, fixture.constants["BLOCK"]
    x = rng.integers(-(2**31), 2**31, n).astype(I32)
    sums, largest, smallest = np.zeros(8, I32), np.full(8, -(2**31), I32), np.full(8, 2**31 - 1, I32)
    bits = np.array([0] * 16 + [-1] * 8, I32)
    counter = np.zeros(5, I32)
    launch(fixture, -(-n // block), x, sums, largest, smallest, bits, counter, n)
    parts = [x[k::8] for k in range(8)]
    np.testing.assert_array_equal(sums, [p.astype(np.int64).sum().astype(I32) for p in parts])
    np.testing.assert_array_equal(largest, [p.max() for p in parts])
    np.testing.assert_array_equal(smallest, [p.min() for p in parts])
    steps = (np.bitwise_or, np.bitwise_xor, np.bitwise_and)
    np.testing.assert_array_equal(bits, [step.reduce(p) for step in steps for p in parts])
    np.testing.assert_array_equal(sorted(counter), [0, 1, 2, 3, 4])
    assert counter[0] == 4


@cases("packed_by_assembly")
def test_inline_assembly_over_packed_bytes(fixture: Fixture, rng: np.random.Generator) -> None:
    x, y = rng.integers(-128, 128, (2, 1504)).astype(np.int8)
    z = np.zeros(1504, np.int8)
    launch(fixture, 2, x, y, z, 1504)
    np.testing.assert_array_equal(z, x + y)


def collatz(v: int, rounds: int) -> int:
    steps = 0
    while steps < rounds and v > 1:
        v = v // 2 if v % 2 == 0 else 3 * v + 1
        steps += 1
    return steps


@cases("device_function")
def test_a_loop_around_a_device_function(fixture: Fixture) -> None:
    x, y = np.arange(1, 31, dtype=I32), np.zeros(30, I32)
    launch(fixture, 30, x, y, 50)
    np.testing.assert_array_equal(y, [collatz(int(v), 50) for v in x])


@cases("waiting_lanes")
def test_a_loop_that_the_slowest_lane_ends(fixture: Fixture) -> None:
    x, y = np.arange(1, 257, dtype=I32), np.zeros(256, I32)
    launch(fixture, 2, x, y, 40)
    np.testing.assert_array_equal(y, [collatz(int(v), 40) for v in x])


@cases("asserted", "printed")
def test_calls_of_the_system_library(fixture: Fixture, rng: np.random.Generator) -> None:
    x, y = rng.integers(0, 99, 256).astype(I32), np.zeros(256, I32)
    if "n" in fixture.types:
        launch(fixture, 2, x, y, 256)
        np.testing.assert_array_equal(y, x + 1)
    else:
        launch(fixture, 2, x, y)
        np.testing.assert_array_equal(y, x * 2)


@cases("swapped")
def test_reordering_in_registers(fixture: Fixture, rng: np.random.Generator) -> None:
    kind, b = fixture.dtype("x"), fixture.constants["BLOCK"]
    x, y = numbers(rng, b, kind), numbers(rng, b, kind)
    z = np.zeros(7 * b, kind)
    launch(fixture, 1, x, y, z)
    np.testing.assert_array_equal(z[: 2 * b], np.stack([x, y], 1).reshape(-1))
    np.testing.assert_array_equal(z[2 * b : 2 * b + b // 2], x[1::2] - x[::2])
    np.testing.assert_array_equal(z[3 * b : 4 * b], y[::-1])
    np.testing.assert_array_equal(z[4 * b : 5 * b], x.reshape(4, b // 8, 2).transpose(2, 0, 1).reshape(-1))
    np.testing.assert_array_equal(z[5 * b :], np.concatenate([x, y]))
