"""Kernels from Triton (fixtures) as subjects."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mutations.nvcc_subjects import close, rng, same
from mutations.statements import entries
from mutations.subjects import Launch, Subject

KERNELS = Path(__file__).parent.parent / "triton_kernels"
F16, F32, I32 = np.float16, np.float32, np.int32
Prepared = tuple[Callable[[], bool], Any, list[Any]]
"""(whether the buffers hold the right result, grid, arguments)."""


def softmax() -> Prepared:
    x = rng().standard_normal((2, 784)).astype(F32)
    y = np.zeros_like(x)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return close(y, e / e.sum(axis=1, keepdims=True)), 2, [x, y, 784]


def layer_norm() -> Prepared:
    x = rng().standard_normal((2, 777)).astype(F32)
    gamma, beta = (rng().standard_normal(777).astype(F32) for _ in range(2))
    y = np.zeros((2, 777), F16)
    normal = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    return close(y, normal * gamma + beta, 2e-3, 2e-3), 2, [x, gamma, beta, y, 777, F32(1e-5)]


def matmul() -> Prepared:
    m, n, k = 64, 64, 224
    a, b = rng().integers(-4, 5, (m, k)).astype(F16), rng().integers(-4, 5, (k, n)).astype(F16)
    c = np.zeros((m, n), F16)
    return same(c, (a.astype(F32) @ b.astype(F32)).astype(F16)), (1, 1), [a, b, c, m, n, k]


def attention() -> Prepared:
    length, width = 384, 64
    q, k, v = (rng().standard_normal((1, length, width)).astype(F16) for _ in range(3))
    out = np.zeros_like(q)
    score = np.einsum("hld,hmd->hlm", q.astype(F32), k.astype(F32)) * 0.125
    score = np.where(np.tril(np.ones((length, length))) > 0, score, -np.inf)
    p = np.exp(score - score.max(axis=-1, keepdims=True))
    want = (p / p.sum(axis=-1, keepdims=True)) @ v.astype(F32)
    return close(out, want, 0, 5e-3), (length // 64, 1), [q, k, v, out, length, F32(0.125)]


def transpose() -> Prepared:
    x = rng().standard_normal((96, 80)).astype(F32)
    y = np.zeros((80, 96), F32)
    return same(y, x.T), (2, 2), [x, y, 96, 80]


def scan() -> Prepared:
    x = rng().integers(-9, 9, (2, 512)).astype(I32)
    y = np.zeros_like(x)
    return same(y, np.cumsum(x, axis=1)), 2, [x, y]


def sort() -> Prepared:
    x = rng().integers(-999, 999, (1, 256)).astype(I32)
    y = np.zeros_like(x)
    return same(y, np.sort(x, axis=1)), 1, [x, y]


def lock() -> Prepared:
    x = rng().integers(-9, 9, (4, 128)).astype(F32)
    total = np.zeros(128, F32)
    return same(total, x.sum(axis=0)), 4, [x, total, np.zeros(1, I32)]


def int8_matmul() -> Prepared:
    a, b = (rng().integers(-100, 100, (64, 448)).astype(np.int8) for _ in range(2))
    c = np.zeros((64, 64), I32)
    return same(c, a.astype(np.int64) @ b.astype(np.int64).T), (1, 1), [a, b, c, 64, 448]


SM_80 = (softmax, layer_norm, matmul, attention, transpose, scan, sort, lock, int8_matmul)


def triton_subjects() -> list[Subject]:
    return [_subject(make) for make in SM_80]


def _subject(make: Callable[[], Prepared]) -> Subject:
    text = (KERNELS / f"{make.__name__}.ptx").read_text()
    shared, warps = (int(v) for v in re.findall(r"\d+", text.split("\n")[0]))

    def launch() -> Launch:
        right, grid, args = make()
        # Triton's two scratch pointers, which these kernels do not use, are null.
        options = {"grid": grid, "block": 32 * warps, "dynamic_smem": shared, "args": [*args, 0, 0]}
        return Launch(options, right)

    return Subject(f"triton {make.__name__}", text, entries(text)[0], launch)
