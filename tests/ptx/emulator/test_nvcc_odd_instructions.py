"""Instructions that compilers seldom emit, and packed arithmetic: each row of the output is one instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from compiled import run
from numpy.typing import NDArray

F16, F32, F64, I32, U32, U64 = np.float16, np.float32, np.float64, np.int32, np.uint32, np.uint64
BF16 = ml_dtypes.bfloat16
FILE = "odd_instructions"
Values = NDArray[Any]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(41)


def signed(v: int, bits: int = 32) -> int:
    v &= (1 << bits) - 1
    return v - (1 << bits) if v >> (bits - 1) else v


def clip(v: int, low: int, high: int) -> int:
    return max(low, min(high, v))


def lanes(f: Callable[..., int], *words: int, bits: int = 8, sign: bool = False) -> int:
    """Apply f to the packed lanes of words."""
    result = 0
    for at in range(0, 32, bits):
        parts = [w >> at & ((1 << bits) - 1) for w in words]
        parts = [signed(p, bits) for p in parts] if sign else parts
        result |= (f(*parts) & ((1 << bits) - 1)) << at
    return result


def permute(x: int, y: int, selector: int) -> int:
    source = y << 32 | x
    result = 0
    for k in range(4):
        nibble = selector >> 4 * k & 15
        byte = source >> 8 * (nibble & 7) & 255
        if nibble & 8:
            byte = 255 if byte & 128 else 0
        result |= byte << 8 * k
    return result


INTEGER_ROWS: dict[int, Callable[[int, int], int]] = {
    0: lambda x, y: x >> 5 & 0x7FF,
    2: lambda x, y: y & ~(0xFFF << 8) | (x & 0xFFF) << 8,
    3: lambda x, y: x.bit_length() - 1,
    6: lambda x, y: permute(x, y, 0x7012),
    7: lambda x, y: permute(x, y, 0x3211),
    8: lambda x, y: abs(x - y) + 5,
    9: lambda x, y: (signed(x) * signed(y) >> 32) + signed(x),
    10: lambda x, y: (x & 0xFFFFFF) * (y & 0xFFFFFF) >> 16,
    11: lambda x, y: clip(x + signed(y), -(1 << 31), (1 << 31) - 1),
    12: lambda x, y: sum(abs((x >> k & 255) - (y >> k & 255)) for k in (0, 8, 16, 24)) + x,
    13: lambda x, y: lanes(max, x, y, bits=16, sign=True),
    14: lambda x, y: int((x >> 8 & 255) < (y & 0xFFFF)),
    15: lambda x, y: (x << min(y, 32)) + x,
    16: lambda x, y: y,
    17: lambda x, y: 5 if x >= y else 9,
    18: lambda x, y: 0x3F800000 if signed(x) < signed(y) else 0,
    19: lambda x, y: -1 if signed(x) >= signed(y) else 0,
    20: lambda x, y: x * y,
    21: lambda x, y: (x << 16 | x >> 16) + y,
    25: lambda x, y: (y == 0) + x,
    26: lambda x, y: clip(signed(-abs(signed(x))) - signed(y), -(1 << 31), (1 << 31) - 1),
}


def test_integers(rng: np.random.Generator) -> None:
    n = 64
    a, b = (rng.integers(0, 1 << 32, n).astype(U32) for _ in range(2))
    b[:8] = rng.integers(0, 40, 8)
    b[8] = 0
    o = np.zeros((30, n), U32)
    run(FILE, "odd_integers", 1, 64, a, b, o, n)
    for row, oracle in INTEGER_ROWS.items():
        want = [oracle(int(x), int(y)) & 0xFFFFFFFF for x, y in zip(a, b, strict=True)]
        assert o[row].tolist() == want, f"row {row}"


def test_floats(rng: np.random.Generator) -> None:
    n = 200
    a, b = (rng.standard_normal(n).astype(F32) * 3 for _ in range(2))
    a[:3], b[3:6] = [np.nan, np.inf, -0.0], [np.nan, -np.inf, 0.25]
    o = np.zeros((21, n), F32)
    run(FILE, "odd_floats", 4, 64, a, b, o, n)
    x, y = a.astype(F64), b.astype(F64)
    with np.errstate(all="ignore"):
        fused = np.clip(x * y + 0.5, 0, 1)
        nan_max = np.where(np.isnan(x) | np.isnan(y), np.nan, np.maximum(x, y))
        want = [
            x + y, x * y, x * y + x, x / y, x / y, np.sqrt(abs(x)), np.sqrt(abs(y)), 1 / x,
            np.where(np.isnan(fused), 0, fused), np.copysign(y, x), nan_max, np.tanh(x), np.exp2(x), np.log2(abs(x)),
            np.cos(x), np.rint(x), np.floor(x), np.where(np.isfinite(x), np.trunc(x), np.where(x > 0, 2.0**31, 0)),
            x * y + x, np.where(np.isfinite(x), y, x), x,
        ]  # fmt: skip
    directed = {0: -1, 1: 1, 2: 0, 4: 1, 5: -1, 7: 0}
    for row, expected in enumerate(want):
        tolerance = 2.0**-10 if row == 20 else 5e-4 if row == 11 else 2e-6
        # cos.approx has an absolute bound.
        np.testing.assert_allclose(o[row], expected, rtol=tolerance, atol=2e-6, err_msg=f"row {row}")
        good = np.isfinite(expected) & np.isfinite(o[row])
        error = o[row].astype(F64)[good] - expected[good]
        side = directed.get(row)
        if side == 0:
            assert (abs(o[row][good]) <= abs(expected[good])).all(), f"row {row} rounds towards zero"
        elif side is not None:
            assert (error * side >= 0).all(), f"row {row} rounds to one side"


def test_packed_halves(rng: np.random.Generator) -> None:
    n = 100
    a, b = (rng.standard_normal((n, 2)).astype(F16) for _ in range(2))
    o = np.zeros((16, n, 2), F16)
    run(FILE, "packed_halves", 2, 64, a, b, o, n)
    x, y = a.astype(F64), b.astype(F64)
    complex_product = (x[:, 0] + 1j * x[:, 1]) * (y[:, 0] + 1j * y[:, 1]) + x[:, 0] + 1j * x[:, 1]
    want = [
        np.maximum(x * y + x, 0), np.clip(x + y, 0, 1), x / y, np.exp2(x), 1 / np.sqrt(abs(y)),
        np.stack([complex_product.real, complex_product.imag], 1), np.minimum(x, y), x >= y,
        np.stack([x[:, 0], y[:, 0]], 1), x[:, ::-1], np.floor(x), np.stack([x[:, 0] * 3, y[:, 1]], 1),
        np.stack([np.floor(x[:, 0]), np.rint(abs(y[:, 1]))], 1), np.tanh(x), np.repeat(np.sin(x[:, :1]), 2, 1),
        np.stack([np.maximum(x, y)[:, 0], np.rint(y[:, 1])], 1),
    ]  # fmt: skip
    for row, expected in enumerate(want):
        np.testing.assert_allclose(o[row].astype(F64), expected, rtol=2e-3, atol=3e-3, err_msg=f"row {row}")
    for row in (0, 1, 6, 7, 8, 9, 10, 11, 12, 15):
        np.testing.assert_array_equal(o[row], np.asarray(want[row]).astype(F16), err_msg=f"row {row}")


def test_packed_bfloats(rng: np.random.Generator) -> None:
    n = 100
    a, b = (rng.standard_normal((n, 2)).astype(BF16) for _ in range(2))
    o = np.zeros((9, n, 2), BF16)
    run(FILE, "packed_bfloats", 2, 64, a, b, o, n)
    x, y = a.astype(F32), b.astype(F32)
    want = [
        (x.astype(F64) * y + x).astype(F32), x + y, x * y, np.maximum(x, -y), np.exp(x), x - y,
        np.stack([x[:, 0] + 1, y[:, 1] / F32(3)], 1), np.stack([x[:, 0] * F32(1.01), np.trunc(y[:, 1])], 1),
        np.stack([x[:, 0] / F32(7), np.sqrt(abs(y[:, 0]))], 1),
    ]  # fmt: skip
    for row, expected in enumerate(want):
        np.testing.assert_allclose(o[row].astype(F32), expected, rtol=2.0**-7, atol=1e-6, err_msg=f"row {row}")
    for row in (0, 1, 2, 3, 5, 6):
        np.testing.assert_array_equal(o[row], np.asarray(want[row]).astype(BF16), err_msg=f"row {row}")


def test_bytes_and_shorts_in_a_word(rng: np.random.Generator) -> None:
    n = 60
    a, b = (rng.integers(0, 1 << 32, n).astype(U32) for _ in range(2))
    b[:10] = a[:10]
    o = np.zeros((18, n), U32)
    run(FILE, "packed_bytes", 1, 64, a, b, o, n)
    for k, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        sx, sy = signed(x), signed(y)
        halves = (signed(x, 16), signed(y, 16))
        want = [
            lanes(lambda p, q: p + q, x, y), lanes(lambda p, q: min(p + q, 255), x, y),
            lanes(lambda p, q: clip(p - q, -128, 127), x, y, sign=True),
            lanes(lambda p, q: abs(p - q), x, y, sign=True), lanes(lambda p, q: (p + q + 1) >> 1, x, y),
            lanes(lambda p, q: 255 if p > q else 0, x, y), lanes(max, x, y, bits=16, sign=True),
            sum(abs(signed(x >> s, 8) - signed(y >> s, 8)) for s in (0, 8, 16, 24)),
            lanes(lambda p, q: int(p == q), x, y & 0xFF00FF00), lanes(lambda p, q: (p + q) >> 1, x, y),
            max(signed(sx + sy), 5), min(sx, sy, -9), lanes(lambda p, q: max(p, q, 0), x, y, bits=16, sign=True),
            permute(x, y, x & 0x7777), int(f"{x:032b}"[::-1], 2) + ((y & -y).bit_length()),
            (sx + sy + 1) >> 1, (x + y) >> 1, halves[0] * 1 + halves[1] * -2 + 9,
        ]  # fmt: skip
        assert o[:, k].tolist() == [w & 0xFFFFFFFF for w in want]


def test_loads_and_stores_of_odd_shapes(rng: np.random.Generator) -> None:
    p = rng.integers(0, 1 << 20, 64).astype(U32)
    o = np.zeros((3, 32), U32)
    run(FILE, "odd_memory", 1, 32, p, o)
    t = np.arange(32)
    r = 31 - t
    u = np.where(t > 15, p[:32], p[32:])
    np.testing.assert_array_equal(o[0], r + (p[:32] >> 8 & 255) * 1000 + u + p[:32])
    np.testing.assert_array_equal(o[1], r)
    np.testing.assert_array_equal(o[2], p[:32])


def test_warp_instructions(rng: np.random.Generator) -> None:
    x = rng.integers(0, 20, 32).astype(I32)
    o = np.zeros((11, 32), I32)
    run(FILE, "odd_warp", 1, 32, x, o)
    t = np.arange(32)
    v = x.tolist()
    np.testing.assert_array_equal(o[0], [v[k - 5] + 1000 if k % 16 >= 5 else v[k] for k in t])
    # In segments of eight lanes, an exchange by 9 reaches a lower segment only.
    np.testing.assert_array_equal(o[1], [v[k ^ 9] + 1000 if k & 8 else v[k] for k in t])
    assert (o[2] == int(len(set(x > 10)) == 1)).all()
    assert (o[3].view(U32) == sum(int(u <= 10) << k for k, u in enumerate(v))).all()
    assert (o[4] == min(v)).all()
    assert (o[5] == np.bitwise_or.reduce(x)).all()
    np.testing.assert_array_equal(
        o[6].view(U32), [sum(int(u & 3 == w & 3) << k for k, u in enumerate(v)) for w in v]
    )
    assert (o[7] == -1).all()
    np.testing.assert_array_equal(o[8].view(U32), (0xFFFFFFFF << t) & 0xFFFFFFFF)
    assert (o[9] == -1).all()
    np.testing.assert_array_equal(o[10], np.where(x & 1, (x & 1).sum(), 100))


def test_atomics_of_every_kind() -> None:
    i = np.array([9, -99, -1, 0, -7, 0], I32)
    u, w = np.array([0, 3, 1000, 0], U32), np.zeros(42, U64)
    f, d = np.zeros(1, F32), np.zeros(1)
    h, b, c = np.zeros((2, 2), F16), np.zeros((1, 2), BF16), np.array([0, 0], np.uint16)
    w[40] = np.int64(9).view(U64)
    run(FILE, "odd_atomics", 1, 32, i, u, w, f, d, h, b, c)
    t = np.arange(32)
    assert i[:4].tolist() == [min(9, *(t * 7 % 31 - 12)), -9, ~0xFF, (1 << 20) - 1]
    assert i[5] + i[4] == t.sum() - 7
    count = 0
    for _ in t:
        count = 0 if count >= 10 else count + 1
    down = 3
    for _ in t:
        down = 6 if down == 0 or down > 6 else down - 1
    assert u.tolist() == [count, down, 1000 - t.sum(), np.bitwise_xor.reduce(t * t)]
    assert w[0] == 31 << 33
    assert (w[1:33] == 5).all()
    assert w[40].view(np.int64) == -34
    assert w[41] == 64
    assert (f[0], d[0]) == (16, 8)
    assert h.tolist() == [[32, 64], [16, 0]]
    assert b.astype(F32).tolist() == [[32, -32]]
    assert c.tolist() == [96, 0]
