"""C++ as nvcc compiles it: calls that stay calls, memory of every space, cache hints, narrow integers."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from compiled import run
from numpy.typing import NDArray

F32, F64, I32, I64, U32 = np.float32, np.float64, np.int32, np.int64, np.uint32
Values = NDArray[Any]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(5)


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def test_virtual_functions(rng: np.random.Generator) -> None:
    n = 70
    x = rng.integers(-9, 9, n).astype(F32)
    y = np.zeros_like(x)
    run("calls", "virtual_calls", 2, 64, x, y, n)
    square, circle = x * x, 3 * x * x
    np.testing.assert_array_equal(y, np.where(np.arange(n) % 3 == 0, square * 3, circle * 3 + 1))


def test_function_pointers_in_tables_and_variables(rng: np.random.Generator) -> None:
    n = 70
    x, i = rng.integers(0, 99, n).astype(I32), np.arange(n)
    y = np.zeros_like(x)
    run("calls", "function_pointers", 2, 64, x, y, n)
    np.testing.assert_array_equal(y, np.choose(x % 3, [x + i, x * i, x ^ i]) + (i ^ 5))


def test_recursion_of_one_and_of_two_functions(rng: np.random.Generator) -> None:
    n = 40
    x = rng.integers(0, 9, n).astype(I32)
    y, ordered = np.zeros(n, I32), np.zeros((n, 12), I32)
    run("calls", "recursion", 1, 64, x, y, ordered, n)
    fib = [0, 1]
    while len(fib) < 10:
        fib.append(fib[-1] + fib[-2])
    np.testing.assert_array_equal(y, np.array(fib)[x] * 2 + (x % 2 == 0))
    k = np.arange(12)
    np.testing.assert_array_equal(ordered, np.sort(x[(np.arange(n)[:, None] * 5 + k * 7) % n] * 3 + k, axis=1))


def test_a_stack_of_structs_in_local_memory() -> None:
    depth = np.arange(40, dtype=I32) % 7
    moves = np.zeros(40, U32)
    run("language", "local_stack", 1, 64, depth, moves, 40)

    def walk(disks: int, a: int, b: int, value: int) -> int:
        if disks == 0:
            return value
        value = walk(disks - 1, a, 3 - a - b, value)
        value = (value * 31 + a * 3 + b) & 0xFFFFFFFF
        return walk(disks - 1, 3 - a - b, b, value)

    assert moves.tolist() == [walk(int(d), 0, 2, 17) for d in depth]


def test_globals_with_initial_values_and_pointers_to_each_other() -> None:
    out = np.zeros(16)
    run("language", "globals", 1, 32, out)
    text = b"tiny machines"
    want = [*text, text[5] + 8, 1 + 4 - 2.25 + 0.1, ord("x") - 7 + 2.5 + 3]
    np.testing.assert_array_equal(out, want)


def test_printing_is_executed_and_discarded(rng: np.random.Generator) -> None:
    run("language", "printing", 1, 32, rng.integers(-2, 2, 20).astype(I32), 20)


def test_structs_by_value_in_parameters_and_calls(rng: np.random.Generator) -> None:
    n = 30
    x = rng.integers(-9, 9, (n, 3)).astype(F32)
    y = np.zeros(n, F32)
    params = struct.pack("<ifq5B3x3f4x", n, 2.0, 1 << 10, 1, 2, 3, 4, 5, 1.0, -2.0, 3.0)
    run("language", "structs", 1, 32, params, x, y)
    np.testing.assert_array_equal(y, 2 * x @ np.array([1, -2, 3], F32) + 1024 + 1 + np.arange(n) % 5)


def test_a_dense_switch_within_a_loop(rng: np.random.Generator) -> None:
    n = 200
    x = rng.integers(0, 1000, n).astype(I32)
    y = np.zeros_like(x)
    run("language", "switch_dense", 2, 128, x, y, n)

    def interpret(v: int) -> int:
        r = 0
        for pc in range(6):
            match (v + pc * 5) % 12:
                case 0:
                    r += 3
                case 1:
                    r ^= v
                case 2:
                    r = r * 3 + 1
                case 3:
                    r += 2 - pc
                case 4:
                    r += 2
                case 5:
                    r = (r & 0xFFFFFFFF).bit_count()
                case 6:
                    r <<= 1
                case 7:
                    r >>= 1
                case 8:
                    r += 0 if r & 1 else 9
                case 9:
                    r = -r
                case 10:
                    r = truncated(r, 7)
                case _:
                    r = ~r
        return r

    assert y.tolist() == [interpret(int(v)) for v in x]


def test_bytes_shorts_and_integers_of_128_bits(rng: np.random.Generator) -> None:
    n = 60
    a, b = rng.integers(-128, 128, n).astype(np.int8), rng.integers(0, 1 << 16, n).astype(np.uint16)
    out = np.zeros(n, I32)
    run("language", "narrow_integers", 1, 64, a, b, out, n)
    for x, y, got in zip(a.tolist(), b.tolist(), out.tolist(), strict=True):
        big = signed(x * (y << 70) - 5, 128)
        unsigned = (big % (1 << 128)) // 1000003
        want = signed(x * y, 16) + ((x + (y >> 3)) & 255) * 3 + signed(big >> 64, 32)
        want += (x << (y & 7)) + (big < 0) + unsigned % 1009
        assert got == signed(want, 32)


def test_clocks_move_forward() -> None:
    out = np.zeros(32, I64)
    run("language", "clocks", 1, 32, out)
    assert (out == 7).all()


def test_two_arrays_in_one_dynamic_block(rng: np.random.Generator) -> None:
    n = 50
    x, k, y = rng.standard_normal(n), rng.integers(-5, 5, n).astype(I32), np.zeros(n)
    run("language", "dynamic_shared", 1, 32, x, k, y, n, dynamic_smem=12 * n)
    np.testing.assert_array_equal(y, x[::-1] * k[::-1])


def test_generic_pointers_into_four_spaces(rng: np.random.Generator) -> None:
    x, y = rng.integers(0, 9, 32).astype(I32), np.zeros(32, I32)
    run("language", "generic_pointers", 1, 32, x, y)
    t = np.arange(32)
    local = t // 8 + 1 + np.where(t // 8 == t % 4, x, 0)
    constants = np.array([10, 20, 30, 40])[t // 8]
    np.testing.assert_array_equal(
        y, np.choose(t & 3, [x + 1000, 131 - t + 2000, local + 4000, constants + 8000 * (t % 4 == 3)])
    )


def test_vector_loads_with_cache_hints(rng: np.random.Generator) -> None:
    n = 32
    a, b = rng.integers(-9, 9, (n, 4)).astype(F32), rng.integers(-9, 9, (n, 4)).astype(np.int16)
    c, d = rng.integers(0, 9, (n, 2)).astype(np.uint8), rng.integers(-9, 9, (n, 2)).astype(F64)
    o = np.zeros((n, 4), F32)
    run("language", "cache_hints", 1, n, a, b, c, d, o)
    want = a + b
    want[:, 0] += 5 * a[:, 0]
    want[:, 1:3] += c
    want[:, 3] += d.prod(axis=1)
    np.testing.assert_array_equal(o, want)
