"""PTX that nvcc emitted (fixtures in kernels/, made by kernels/make.py), compared with NumPy; no fault on any of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tinygpu.ptx.emulator import EmulationFault, Report, emulate

KERNELS = Path(__file__).parent / "kernels"
F32 = np.float32
I32 = np.int32
Values = NDArray[Any]


def run(file: str, entry: str, grid: Any, block: Any, *args: Any, **options: Any) -> Report:
    report = emulate((KERNELS / f"{file}.ptx").read_text(), entry=entry, grid=grid, block=block, args=args, **options)
    assert report.faults == ()
    known = {"last_block_sum": "acquire without a fence", "switches": "barrier after exit"}
    assert {a.rule for a in report.advisories} <= {known.get(entry, "")}
    return report


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("order", ["late", "early", "random"])
def test_mma_matmul_is_exact_for_small_integers(rng: np.random.Generator, order: str) -> None:
    m, n, k = 256, 128, 160
    a = rng.integers(-4, 5, (m, k)).astype(np.float16)
    b = rng.integers(-4, 5, (n, k)).astype(np.float16)
    c = np.full((m, n), np.nan, F32)
    args = (a, b, c, m, n, k)
    report = run("matmul_mma", "matmul_mma", (n // 128, m // 128), 128, *args, dynamic_smem=65536, order=order)
    np.testing.assert_array_equal(c, a.astype(F32) @ b.T.astype(F32))
    assert report.counters.mma_operations == 2 * m * n * k


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 16), (70, 65, 33), (1, 130, 7)])
def test_simt_matmul_covers_every_edge(rng: np.random.Generator, m: int, n: int, k: int) -> None:
    a = rng.standard_normal((m, k)).astype(F32)
    b = rng.standard_normal((k, n)).astype(F32)
    c = np.full((m, n), np.nan, F32)
    run("matmul_simt", "matmul_simt", ((n + 63) // 64, (m + 63) // 64), 256, a, b, c, m, n, k)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 1000, 1027])
def test_saxpy_with_vectors_and_a_scalar_tail(rng: np.random.Generator, n: int) -> None:
    x, y = (rng.standard_normal(n).astype(F32) for _ in range(2))
    want = (np.float64(2.5) * x + y).astype(F32)
    run("elementwise", "saxpy4", 2, 256, F32(2.5), x, y, n)
    np.testing.assert_array_equal(y, want)


def test_packed_half_arithmetic(rng: np.random.Generator) -> None:
    n = 700
    x, y = (rng.standard_normal(2 * n).astype(np.float16) for _ in range(2))
    z = np.zeros(2 * n, np.float16)
    run("elementwise", "half_math", 2, 128, x, y, z, n)
    p = (x.astype(np.float64) * y + x).astype(np.float16)
    np.testing.assert_array_equal(z, np.minimum(p, np.maximum(x + y, x * y)) - np.abs(-y))


def test_bfloat_arithmetic(rng: np.random.Generator) -> None:
    n = 300
    x, y = (rng.standard_normal(n).astype(ml_dtypes.bfloat16) for _ in range(2))
    z = np.zeros(n, ml_dtypes.bfloat16)
    run("elementwise", "bfloat_math", 3, 128, x, y, z, n)
    fused = (x.astype(np.float64) * y.astype(np.float64) + x.astype(np.float64)).astype(F32).astype(ml_dtypes.bfloat16)
    want = (fused.astype(F32) * F32(0.5) + y.astype(F32)).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(z, want)


def test_single_precision_functions(rng: np.random.Generator) -> None:
    n = 500
    x = (rng.standard_normal(n) * 3).astype(F32)
    out = np.zeros((6, n), F32)
    run("elementwise", "special", 4, 128, x, out, n)
    v = x.astype(np.float64)
    a = np.abs(v)
    want = [
        np.exp(v) + np.log(a + 1),
        np.sin(v) * np.cos(v),
        1 / np.sqrt(v * v + 1) + np.sqrt(a),
        np.tanh(v) + np.array([math.erf(t) for t in v]) + (a + 0.5) ** 1.7,
        v / (1 + a) + np.floor(v) + np.rint(v) + np.fmod(x, F32(0.7)),
        np.exp(v) + np.sin(v) + v / 3,
    ]
    np.testing.assert_allclose(out, want, rtol=2e-5, atol=2e-5)


def test_double_precision(rng: np.random.Generator) -> None:
    n = 300
    x, y, z = rng.standard_normal(n), rng.standard_normal(n), np.zeros(n)
    run("elementwise", "doubles", 3, 128, x, y, z, n)
    want = (x * y + np.sqrt(abs(x))) / (1 + y * y) + np.exp(-abs(x)) + np.log(abs(y) + 2)
    np.testing.assert_allclose(z, want, rtol=1e-13)


def test_conversions(rng: np.random.Generator) -> None:
    n = 300
    x = (rng.standard_normal(n) * 50).astype(F32)
    si, ui, b = np.zeros(n, I32), np.zeros(n, np.uint32), np.zeros(n, np.uint8)
    h, wide, back = np.zeros(n, np.int16), np.zeros(n, np.int64), np.zeros(n, F32)
    run("elementwise", "conversions", 3, 128, x, si, ui, b, h, wide, back, n)
    np.testing.assert_array_equal(si, np.rint(x).astype(I32) + np.trunc(x).astype(I32))
    np.testing.assert_array_equal(ui, np.floor(abs(x)).astype(np.uint32))
    np.testing.assert_array_equal(b, np.trunc(x).astype(I32).astype(np.uint8))
    np.testing.assert_array_equal(h, np.trunc(x * F32(100)).astype(np.int16))
    np.testing.assert_array_equal(wide, np.ceil(x * F32(1e10)).astype(np.int64))
    np.testing.assert_allclose(back, wide.astype(F32) + si + x * 3.0 + b.astype(np.int8), rtol=1e-6)


def test_integer_division(rng: np.random.Generator) -> None:
    n = 500
    a = rng.integers(-(2**31), 2**31, n).astype(I32)
    b = (rng.integers(1, 2**20, n) * rng.choice([-1, 1], n)).astype(I32)
    b[:50] = rng.integers(1, 9, 50)
    q, u, wide = np.zeros((3, n), I32), np.zeros((3, n), np.uint32), np.zeros((2, n), np.int64)
    run("integers", "divisions", 4, 128, a, b, q, u, wide, n)

    def split(x: int, y: int) -> tuple[int, int]:
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return quotient, x - quotient * y

    for i in range(n):
        x, y = int(a[i]), int(b[i])
        ux, uy = x & 0xFFFFFFFF, y & 0xFFFFFFFF
        assert (q[0, i], q[1, i]) == split(x, y)
        assert (u[0, i], u[1, i]) == divmod(ux, uy)
        assert (wide[0, i], wide[1, i]) == split(x * 1000003, y)
        assert q[2, i] == split(x, 7)[0] + split(x, 12)[1]
        assert u[2, i] == ux // 10 + ux % 1000


def test_softmax(rng: np.random.Generator) -> None:
    x = rng.standard_normal((7, 515)).astype(F32)
    y = np.zeros_like(x)
    run("reductions", "row_softmax", 7, 128, x, y, 515)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_layer_norm(rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, 700)).astype(F32)
    gamma, beta = (rng.standard_normal(700).astype(F32) for _ in range(2))
    y = np.zeros_like(x)
    run("reductions", "layer_norm", 5, 256, x, gamma, beta, y, 700)
    normal = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, normal * gamma + beta, rtol=1e-3, atol=1e-4)


def test_scan_in_dynamic_shared_memory(rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, 1000).astype(I32)
    y = np.zeros_like(x)
    run("reductions", "scan_block", 4, 256, x, y, 1000, dynamic_smem=1024)
    want = np.concatenate([np.cumsum(part) for part in np.split(x, [256, 512, 768])])
    np.testing.assert_array_equal(y, want)


def test_the_last_block_may_read_what_others_fenced(rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, 10000).astype(F32)
    partial, total = np.zeros(20, F32), np.zeros(1, F32)
    run("reductions", "last_block_sum", 20, 256, x, partial, total, 10000)
    assert total[0] == x.sum()


def test_histogram_with_shared_and_global_atomics(rng: np.random.Generator) -> None:
    x = rng.integers(0, 256, 20000).astype(np.uint8)
    counts = np.zeros(256, np.uint32)
    run("reductions", "histogram", 10, 256, x, counts, 20000)
    np.testing.assert_array_equal(counts, np.bincount(x, minlength=256))


def test_divergent_loops() -> None:
    x = np.arange(1, 1001).astype(np.uint32)
    steps = np.zeros(1000, I32)
    report = run("control", "collatz", 4, 256, x, steps, 1000)

    def collatz(v: int) -> int:
        count = 0
        while v != 1 and count <= 400:
            v = 3 * v + 1 if v & 1 else v // 2
            count += 1
        return count

    assert steps.tolist() == [collatz(int(v)) for v in x]
    assert report.counters.divergent_branches > 0


def test_calls_of_device_functions(rng: np.random.Generator) -> None:
    x = rng.standard_normal(200).astype(F32)
    y = np.zeros_like(x)
    run("control", "calls", 2, 128, x, y, 200)
    want = [np.polyval((2.0 ** np.arange(1 + i % 8))[::-1], float(x[i])) for i in range(200)]
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)


def test_local_arrays_passed_by_pointer(rng: np.random.Generator) -> None:
    x = rng.integers(-99, 99, (100, 8)).astype(I32)
    y = np.zeros_like(x)
    run("control", "sort8", 1, 128, x, y, 100)
    np.testing.assert_array_equal(y, np.sort(x, axis=1))


def test_a_switch_through_a_branch_table(rng: np.random.Generator) -> None:
    x, y = rng.integers(0, 1000, 300).astype(I32), rng.integers(0, 9, 300).astype(I32)

    def switch(v: int, old: int) -> int:
        if v & 7 == 2:
            k = 0
            while k < v & 15:
                v += k * k
                k += 1
            return v
        return {0: v * 3, 1: v - 11, 3: v ^ 0x55, 4: -v, 5: v // 3, 6: 7, 7: v + old}[v & 7]

    want = [switch(int(v), int(old)) for v, old in zip(x, y, strict=True)]
    run("control", "switches", 3, 128, x, y, 300)
    assert y.tolist() == want


def test_votes_matches_reductions_and_shuffles(rng: np.random.Generator) -> None:
    n = 128
    x = rng.integers(0, 200, n).astype(I32)
    y = np.zeros((6, n), np.uint32)
    run("control", "votes", 2, 64, x, y, n)
    for warp in range(4):
        v = [int(t) for t in x[warp * 32 : warp * 32 + 32]]
        out = y[:, warp * 32 : warp * 32 + 32]
        odd = sum((t & 1) << k for k, t in enumerate(v))
        folded = 0
        for t in v:
            folded ^= t
        for lane, t in enumerate(v):
            assert out[0, lane] == odd
            assert out[1, lane] == sum(((u & 3) == (t & 3)) << k for k, u in enumerate(v))
            assert out[2, lane] == (0xFFFFFFFF + 1) & 0xFFFFFFFF
            assert out[3, lane] == sum(v) + max(v) + folded
            up = v[lane - 3] if lane % 8 >= 3 else t
            other = v[lane // 16 * 16 + (t & 31 & 15)]
            assert out[4, lane] == up + other + (max(v) > 100) + (min(v) > 0)
            first = (odd & -odd).bit_length() - 1
            assert out[5, lane] == (odd + v[first] if t & 1 else 0)


@pytest.mark.end_to_end
def test_a_spin_lock_makes_progress_within_a_warp() -> None:
    counter = np.zeros(1, I32)
    run("control", "spin_lock", 3, 64, counter)
    assert counter[0] == 3 * 64 * 2


def test_producer_and_consumer_warps_with_named_barriers(rng: np.random.Generator) -> None:
    x = rng.standard_normal((3, 6, 64)).astype(F32)
    y = np.zeros_like(x)
    run("control", "producer_consumer", 3, 128, x, y, 6)
    np.testing.assert_array_equal(y, x[:, :, ::-1] * 2)


def test_transpose_through_padded_shared_memory(rng: np.random.Generator) -> None:
    x = rng.standard_normal((70, 45)).astype(F32)
    y = np.zeros((45, 70), F32)
    report = run("control", "transpose", (2, 3), (32, 8), x, y, 70, 45)
    np.testing.assert_array_equal(y, x.T)
    # The padding makes both directions free of conflicts.
    assert report.counters.shared_load_wavefronts == report.counters.shared_load_requests
    assert report.counters.shared_store_wavefronts == report.counters.shared_store_requests


def test_barriers_that_count_and_vote(rng: np.random.Generator) -> None:
    x = rng.integers(0, 100, (3, 96)).astype(I32)
    x[0] = np.minimum(x[0], 79)
    y = np.zeros_like(x)
    run("barriers", "counting", 3, 96, x, y)
    want = [int((row & 1).sum()) * 4 + 2 * bool((row < 90).all()) + bool((row > 80).any()) for row in x]
    np.testing.assert_array_equal(y, np.repeat(np.array(want)[:, None], 96, axis=1))


def test_assertions_hold_or_trap() -> None:
    x = np.arange(64, dtype=I32)
    y = np.zeros_like(x)
    run("barriers", "checked", 1, 64, x, y, 64)
    np.testing.assert_array_equal(y, x)
    with pytest.raises(EmulationFault) as caught:
        run("barriers", "checked", 1, 64, x, y, 50)
    assert (caught.value.kind, caught.value.thread) == ("trap", (50, 0, 0))


def test_cooperative_groups_within_a_warp() -> None:
    x = np.arange(64, dtype=I32)
    y = np.zeros_like(x)
    run("barriers", "tiled", 1, 64, x, y)
    sums = np.repeat(x.reshape(8, 8).sum(axis=1), 8)
    np.testing.assert_array_equal(y, sums * 100 + x % 8 + 32_000_000)


def test_neighbouring_bytes_in_shared_memory_are_no_conflict(rng: np.random.Generator) -> None:
    x = rng.integers(0, 256, 1000).astype(np.uint8)
    y = np.zeros_like(x)
    run("barriers", "reverse_bytes", 1, 128, x, y, 1000)
    np.testing.assert_array_equal(y, x[::-1] + ((np.arange(1000) + 64) % 128).astype(np.uint8))


def test_calls_within_calls_and_structs_by_value() -> None:
    x = np.arange(40, dtype=I32)
    y = np.zeros(40, np.int64)
    pair = np.zeros(1, np.dtype([("a", "i4"), ("b", "f4"), ("c", "i8")]))
    pair["a"], pair["b"], pair["c"] = 3, 7.5, 11
    run("barriers", "nested", 1, 64, x, y, pair.tobytes(), 40)
    for v, got in zip(x.tolist(), y.tolist(), strict=True):
        r = v * 3 + 1 if v & 1 else (v + 1) * 3 + 1 + (v + 2) * 3 + 1
        assert got == (r << 33) + r + r + 3 * 11 + 7
