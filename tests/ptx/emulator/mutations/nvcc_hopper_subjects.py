"""Kernels from CUDA C++ for sm_90a as subjects: tensor copies, clusters, rings and roles around wgmma."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from mutations.subjects import Launch, Subject, Values, close, compiled, launch, rng, same
from tinygpu.ptx.emulator import TensorMap

KERNELS = Path(__file__).parent.parent / "kernels" / "sm_90a"
F16, F32, F64, I32, U32 = np.float16, np.float32, np.float64, np.int32, np.uint32
BF16 = ml_dtypes.bfloat16
# Eleven steps: nvcc unrolls loops by four, so that both the unrolled body and the rest run more than once.
K = 64 * 11


def small(dtype: Any, *shape: int) -> Values:
    """Integers for which all sums are exact."""
    made: Values = rng(sum(shape)).integers(-4, 5, shape).astype(dtype)
    return made


def tiles(values: Values, rows: int = 64) -> TensorMap:
    """Boxes of 128 bytes x rows."""
    return TensorMap(values, (128 // values.itemsize, rows), swizzle="128B")


def operands(dtype: Any, m: int, n: int, k: int, result: Any = F32) -> tuple[Values, Values, Values, Values]:
    """(a, b by rows of k, c, what c must become)."""
    a, b = small(dtype, m, k), small(dtype, n, k)
    return a, b, np.zeros((m, n), result), (a.astype(F32) @ b.astype(F32).T).astype(result)


def bulk_1d() -> Launch:
    x = rng().integers(-99, 99, (11, 256)).astype(F32)
    y = np.zeros_like(x)
    return launch(same(y, 2 * x + 1), 1, 64, x, y, 11)


def tma_transpose() -> Launch:
    x = rng().standard_normal((44, 72)).astype(F32)
    y = np.zeros((72, 44), F32)
    return launch(same(y, x.T), (3, 2), 128, *(TensorMap(v, (32, 32), swizzle="128B") for v in (x, y)))


def tma_halo() -> Launch:
    x = rng().integers(-9, 9, (1, 13, 28)).astype(F32)
    y = np.zeros_like(x)
    p = np.pad(x, ((0, 0), (1, 1), (1, 1)))
    want = np.sum([p[:, b : b + 13, a : a + 28] for b in range(3) for a in range(3)], axis=0)
    return launch(same(y, want), (2, 2, 1), 128, TensorMap(x, (20, 10, 1)), y, 28, 13)


def multicast() -> Launch:
    x = rng().standard_normal((64, 32)).astype(F32)
    y = np.zeros((8, 32, 32), F32)
    want = np.repeat(x.reshape(2, 32, 32), 4, axis=0)
    return launch(same(y, want), 8, 64, TensorMap(x, (32, 8)), y, cluster=4)


def dsmem_sum() -> Launch:
    x = rng().integers(-9, 9, (2, 1000)).astype(F32)
    y = np.zeros((2, 4), F32)
    return launch(same(y, np.repeat(x.sum(axis=1)[:, None], 4, axis=1)), (4, 2), 128, x, y, 1000, cluster=4)


def dsmem_histogram() -> Launch:
    x = rng().integers(0, 256, 3000).astype(np.uint8)
    counts = np.zeros(256, U32)
    return launch(same(counts, np.bincount(x, minlength=256)), 4, 128, x, counts, 3000, cluster=2)


def ring() -> Launch:
    rounds = 11
    x = rng().integers(0, 99, (4, 64)).astype(U32)
    y, v = np.zeros_like(x), x.copy()
    for r in range(rounds):
        v = np.roll((v * 3 + r)[:, ::-1], 1, axis=0)
    return launch(same(y, v), 4, 64, x, y, rounds, cluster=4)


def red_async() -> Launch:
    x = rng().integers(0, 1 << 20, (2, 128)).astype(U32)
    y = np.zeros((2, 2, 32), U32)
    want = np.stack([x[::-1].reshape(2, 4, 32).sum(axis=1), x[::-1, :32]], axis=1)
    return launch(same(y, want), 2, 128, x, y, cluster=2)


def bulk_reduce() -> Launch:
    x = rng().integers(-99, 99, (5, 128)).astype(F32)
    total, top = np.zeros(128, F32), np.full(128, -1000, I32)
    right = (same(total, x.sum(axis=0)), same(top, x.max(axis=0)))
    return launch(lambda: all(r() for r in right), 5, 128, x, total, top)


def library_way() -> Launch:
    x = rng().integers(-99, 99, (3, 256)).astype(I32)
    y = np.zeros_like(x)
    return launch(same(y, x + 7 * np.arange(256)), 3, 96, x, y)


def library_cluster() -> Launch:
    x = rng().integers(-99, 99, (4, 32)).astype(I32)
    y = np.zeros(4, I32)
    return launch(same(y, x.sum(axis=1)[[1, 0, 3, 2]]), 4, 32, x, y, cluster=2)


def modified_map() -> Launch:
    blocks, rows = 3, 8
    x = rng().standard_normal((blocks, rows, 32)).astype(F32)
    y, want = np.ones((blocks, 8, 32), F32), x.copy()
    for block in range(blocks):
        want[block, rows - block :] = 0
    pattern, maps = TensorMap(x.reshape(-1, 32), (32, 8)), np.zeros((blocks, 128), np.uint8)
    return launch(same(y, want), blocks, 64, pattern, maps, x, y, rows)


def wgmma_f16() -> Launch:
    a, b, c, want = operands(F16, 64, 64, K)
    return launch(same(c, want), (1, 1), 128, tiles(a), tiles(b), c, 64, K)


def wgmma_registers() -> Launch:
    m, n, k = 64, 64, K
    a, b, c = rng().integers(-99, 99, (m, k)).astype(np.int8), small(F16, n, k), np.zeros((m, n), F32)
    return launch(same(c, a @ b.astype(F32).T), (1, 1), 128, a, b, c, n, k)


def wgmma_pipelined() -> Launch:
    a, b, c, want = operands(F16, 64, 64, K)
    return launch(same(c, want), (1, 1), 128, tiles(a), tiles(b), c, 64, K, dynamic_smem=65536)


def persistent() -> Launch:
    m, n, k = 128, 384, K
    a, b, c, want = operands(BF16, m, n, k, BF16)
    maps = (tiles(a, 128), tiles(b, 128), tiles(c))
    return launch(same(c, want), 1, 384, *maps, m // 128, n // 128, k, dynamic_smem=131072)


def clustered() -> Launch:
    m, n, k = 128, 64, K
    a, b, c, want = operands(F16, m, n, k)
    maps = (tiles(a), tiles(b, 32))
    return launch(same(c, want), (1, 2), 160, *maps, c, n, k, cluster=(1, 2, 1), dynamic_smem=49152)


def ping_pong() -> Launch:
    m, n, k = 128, 192, K
    a, b, c, want = operands(F16, m, n, k)
    return launch(same(c, want), 1, 384, tiles(a), tiles(b), c, 2, 3, k, dynamic_smem=65536)


def split_k() -> Launch:
    m, n, k = 64, 64, 2 * K
    a, b, c, want = operands(F16, m, n, k)
    return launch(same(c, want), (1, 1, 2), 128, tiles(a), tiles(b), TensorMap(c, (64, 64)), k)


def attention() -> Launch:
    queries, keys = 64, K
    q, k, v = (rng().standard_normal((rows, 64)).astype(BF16) for rows in (queries, keys, keys))
    o = np.zeros((queries, 64), F32)
    scores = q.astype(F64) @ k.astype(F64).T / 8
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    want = p @ v.astype(F64) / p.sum(axis=1, keepdims=True)
    args = (tiles(q), tiles(k), tiles(v), o, keys, F32(0.125))
    return launch(close(o, want, 0, 0.01), 1, 160, *args, dynamic_smem=5 * 8192)


FILES: dict[str, tuple[Callable[[], Launch], ...]] = {
    "copies": (
        bulk_1d, tma_transpose, tma_halo, multicast, dsmem_sum, dsmem_histogram, ring, red_async, bulk_reduce,
        library_way, library_cluster, modified_map,
    ),
    "matmuls": (
        wgmma_f16, wgmma_registers, wgmma_pipelined, persistent, clustered, ping_pong, split_k, attention,
    ),
}  # fmt: skip


def nvcc_hopper_subjects() -> list[Subject]:
    return [
        Subject(f"nvcc sm_90a {make.__name__}", partial(compiled, KERNELS / f"{file}.ptx", make))
        for file, launches in FILES.items()
        for make in launches
    ]
