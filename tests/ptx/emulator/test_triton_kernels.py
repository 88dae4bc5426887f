"""PTX from Triton (fixtures in triton_kernels/, made by make.py there), compared with NumPy; no fault on any."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tinygpu.ptx.emulator import Report, emulate

FOLDER = Path(__file__).parent / "triton_kernels"
F16, F32, I32 = np.float16, np.float32, np.int32


def run(name: str, grid: Any, *args: Any, order: Any = "late") -> Report:
    """Launch a fixture; Triton's two scratch pointers, which these kernels do not use, are null."""
    text = (FOLDER / f"{name}.ptx").read_text()
    shared, warps = (int(v) for v in re.findall(r"\d+", text.split("\n")[0]))
    options: dict[str, Any] = {"grid": grid, "block": 32 * warps, "dynamic_smem": shared, "order": order}
    report = emulate(text, args=[*args, 0, 0], **options)
    assert report.faults == ()
    assert report.advisories == ()
    return report


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(17)


def test_softmax(rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, 784)).astype(F32)
    y = np.zeros_like(x)
    run("softmax", 5, x, y, 784)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(y, e / e.sum(axis=1, keepdims=True), rtol=1e-5)


def test_layer_norm_over_a_ragged_row(rng: np.random.Generator) -> None:
    x = rng.standard_normal((5, 777)).astype(F32)
    gamma, beta = (rng.standard_normal(777).astype(F32) for _ in range(2))
    y = np.zeros((5, 777), F16)
    run("layer_norm", 5, x, gamma, beta, y, 777, F32(1e-5))
    normal = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, normal * gamma + beta, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("order", ["late", "early", "random"])
@pytest.mark.parametrize(("m", "n", "k"), [(128, 192, 160), (80, 144, 48)])
def test_matmul_with_software_pipelining(rng: np.random.Generator, m: int, n: int, k: int, order: str) -> None:
    a, b = rng.integers(-4, 5, (m, k)).astype(F16), rng.integers(-4, 5, (k, n)).astype(F16)
    c = np.zeros((m, n), F16)
    run("matmul", ((m + 63) // 64, (n + 63) // 64), a, b, c, m, n, k, order=order)
    np.testing.assert_array_equal(c, (a.astype(F32) @ b.astype(F32)).astype(F16))


def test_causal_attention(rng: np.random.Generator) -> None:
    heads, length, width = 2, 128, 64
    q, k, v = (rng.standard_normal((heads, length, width)).astype(F16) for _ in range(3))
    out = np.zeros_like(q)
    run("attention", (length // 64, heads), q, k, v, out, length, F32(0.125))
    score = np.einsum("hld,hmd->hlm", q.astype(F32), k.astype(F32)) * 0.125
    score = np.where(np.tril(np.ones((length, length))) > 0, score, -np.inf)
    p = np.exp(score - score.max(axis=-1, keepdims=True))
    np.testing.assert_allclose(out, (p / p.sum(axis=-1, keepdims=True)) @ v.astype(F32), atol=5e-3)


def test_transpose(rng: np.random.Generator) -> None:
    x = rng.standard_normal((96, 80)).astype(F32)
    y = np.zeros((80, 96), F32)
    run("transpose", (2, 2), x, y, 96, 80)
    np.testing.assert_array_equal(y, x.T)


def test_scan(rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, (2, 512)).astype(I32)
    y = np.zeros_like(x)
    run("scan", 2, x, y)
    np.testing.assert_array_equal(y, np.cumsum(x, axis=1))


def test_sort(rng: np.random.Generator) -> None:
    x = rng.integers(-999, 999, (2, 256)).astype(I32)
    y = np.zeros_like(x)
    run("sort", 2, x, y)
    np.testing.assert_array_equal(y, np.sort(x, axis=1))


def test_a_spin_lock_between_ctas(rng: np.random.Generator) -> None:
    x = rng.integers(-9, 9, (6, 128)).astype(F32)
    total = np.zeros(128, F32)
    run("lock", 6, x, total, np.zeros(1, I32))
    np.testing.assert_array_equal(total, x.sum(axis=0))


def test_int8_matmul(rng: np.random.Generator) -> None:
    a, b = (rng.integers(-100, 100, (64, 192)).astype(np.int8) for _ in range(2))
    c = np.zeros((64, 64), I32)
    run("int8_matmul", (1, 1), a, b, c, 64, 192)
    np.testing.assert_array_equal(c, a.astype(np.int64) @ b.astype(np.int64).T)
