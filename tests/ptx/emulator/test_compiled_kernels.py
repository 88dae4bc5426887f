"""PTX that nvcc emitted (fixtures in kernels/, made by kernels/make.py), compared with NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tinygpu.ptx.emulator import emulate

KERNELS = Path(__file__).parent / "kernels"


def ptx(name: str) -> str:
    return (KERNELS / f"{name}.ptx").read_text()


@pytest.mark.parametrize("order", ["late", "early", "random"])
def test_mma_matmul_is_exact_for_small_integers(order: str) -> None:
    rng = np.random.default_rng(1)
    m, n, k = 256, 128, 160
    a = rng.integers(-4, 5, (m, k)).astype(np.float16)
    b = rng.integers(-4, 5, (n, k)).astype(np.float16)
    c = np.full((m, n), np.nan, np.float32)
    grid = (n // 128, m // 128)
    args = [a, b, c, m, n, k]
    report = emulate(ptx("matmul_mma"), grid=grid, block=128, args=args, dynamic_smem=65536, order=order)
    np.testing.assert_array_equal(c, a.astype(np.float32) @ b.T.astype(np.float32))
    assert report.faults == ()
    assert report.counters.mma_operations == 2 * m * n * k


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 16), (70, 65, 33), (1, 130, 7)])
def test_simt_matmul_covers_every_edge(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(2)
    a = rng.standard_normal((m, k)).astype(np.float32)
    b = rng.standard_normal((k, n)).astype(np.float32)
    c = np.full((m, n), np.nan, np.float32)
    grid = ((n + 63) // 64, (m + 63) // 64)
    report = emulate(ptx("matmul_simt"), grid=grid, block=256, args=[a, b, c, m, n, k])
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)
    assert report.faults == ()
