"""Kernels from CUDA C++ (fixtures of nvcc) as subjects."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from mutations.subjects import Launch, Subject, close, compiled, launch, rng, same

KERNELS = Path(__file__).parent.parent / "kernels"
F16, F32, F64, I32, U32, U64 = np.float16, np.float32, np.float64, np.int32, np.uint32, np.uint64
BF16 = ml_dtypes.bfloat16
Values = NDArray[Any]


def matmul_mma() -> Launch:
    n, k = 128, 256
    a, b = (rng().integers(-4, 5, (n, k)).astype(F16) for _ in range(2))
    c = np.zeros((n, n), F32)
    return launch(same(c, a.astype(F32) @ b.T.astype(F32)), 1, 128, a, b, c, n, n, k, dynamic_smem=65536)


def matmul_simt() -> Launch:
    a, b = rng().integers(-4, 5, (64, 48)).astype(F32), rng().integers(-4, 5, (48, 64)).astype(F32)
    c = np.zeros((64, 64), F32)
    return launch(same(c, a @ b), 1, 256, a, b, c, 64, 64, 48)


def row_softmax() -> Launch:
    x = rng().standard_normal((3, 515)).astype(F32)
    y = np.zeros_like(x)
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return launch(close(y, e / e.sum(axis=1, keepdims=True)), 3, 128, x, y, 515)


def layer_norm() -> Launch:
    x = rng().standard_normal((2, 300)).astype(F32)
    y = np.zeros_like(x)
    want = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    return launch(close(y, want, 1e-3, 1e-4), 2, 256, x, np.ones(300, F32), np.zeros(300, F32), y, 300)


def scan_block() -> Launch:
    x = rng().integers(-9, 9, 512).astype(I32)
    y = np.zeros_like(x)
    return launch(same(y, np.cumsum(x.reshape(2, -1), axis=1).ravel()), 2, 256, x, y, 512, dynamic_smem=1024)


def last_block_sum() -> Launch:
    x = rng().integers(-9, 9, 5000).astype(F32)
    total = np.zeros(1, F32)
    return launch(same(total, x.sum(keepdims=True)), 8, 256, x, np.zeros(8, F32), total, 5000)


def histogram() -> Launch:
    x = rng().integers(0, 256, 3000).astype(np.uint8)
    counts = np.zeros(256, U32)
    return launch(same(counts, np.bincount(x, minlength=256)), 2, 256, x, counts, 3000)


def producer_consumer() -> Launch:
    x = rng().standard_normal((2, 7, 64)).astype(F32)
    y = np.zeros_like(x)
    return launch(same(y, x[:, :, ::-1] * 2), 2, 128, x, y, 7)


def transpose() -> Launch:
    x = rng().standard_normal((70, 45)).astype(F32)
    y = np.zeros((45, 70), F32)
    return launch(same(y, x.T), (2, 3), (32, 8), x, y, 70, 45)


def spin_lock() -> Launch:
    counter = np.zeros(1, I32)
    return launch(same(counter, np.array([256])), 2, 64, counter)


def lookback_scan() -> Launch:
    x = rng().integers(-9, 9, 1500).astype(I32)
    y = np.zeros_like(x)
    return launch(same(y, np.cumsum(x)), 6, 256, x, y, np.zeros(6, U64), np.zeros(1, U32), 1500)


def jacobi() -> Launch:
    n, steps = 300, 4
    a = rng().integers(0, 1 << 12, n).astype(F32) * 4096
    want = a.copy()
    for _ in range(steps):
        want[1:-1] = F32(0.25) * want[:-2] + F32(0.5) * want[1:-1] + F32(0.25) * want[2:]
    return launch(close(a, want), 3, 128, a, a.copy(), np.zeros(1, U32), n, steps)


def radix_sort_block() -> Launch:
    keys = rng().integers(0, 1 << 16, (2, 128)).astype(U32)
    return launch(same(keys, np.sort(keys, axis=1)), 2, 128, keys, 4)


def bitonic() -> Launch:
    keys = rng().integers(-(1 << 62), 1 << 62, 512)
    return launch(same(keys, np.sort(keys)), 1, 256, keys)


def fft256() -> Launch:
    x = (rng().standard_normal((2, 256)) + 1j * rng().standard_normal((2, 256))).astype(np.complex64)
    y = np.zeros_like(x)
    return launch(close(y, np.fft.fft(x, axis=1), 1e-4, 1e-4), 2, 128, x, y)


def transpose_swizzled() -> Launch:
    x = rng().standard_normal((32, 64))
    y = np.zeros((64, 32))
    return launch(same(y, x.T), (2, 1), (32, 8), x, y, 32, 64)


def work_queue() -> Launch:
    items = rng().integers(0, 1000, 40).astype(I32)
    out, want = np.zeros(40, U64), np.zeros(40, U64)
    for n, item in enumerate(items.tolist()):
        for t in range(64):
            v = item
            for _ in range(item & 7):
                v = v * 31 + t
            want[n] = (int(want[n]) + v) % (1 << 64)
    return launch(same(out, want), 5, 64, items, 40, np.zeros(1, I32), out)


def free_list() -> Launch:
    order = rng().permutation(256)
    following = np.zeros(256, U32)
    following[order[:-1]] = order[1:]
    owners = np.zeros(256, I32)
    return launch(same(owners, np.ones(256)), 2, 128, np.array([order[0]], U64), following, owners)


def pipeline_block() -> Launch:
    tiles = 7
    x = rng().integers(0, 99, (2, tiles, 128)).astype(I32)
    y = np.zeros((2, 128), I32)
    weights = 3 ** np.arange(tiles)[::-1]
    return launch(same(y, np.tensordot(x[:, :, ::-1], weights, (1, 0))), 2, 128, x, y, tiles)


def pipeline_roles() -> Launch:
    tiles = 8
    x = rng().standard_normal((tiles, 32, 4)).astype(F32)
    y = np.zeros_like(x)
    want = x[:, ::-1].copy()
    want[..., 0] *= 2
    return launch(same(y, want), 1, 64, x, y, tiles)


def pipeline_thread() -> Launch:
    steps = 11
    x = rng().integers(0, 99, (steps, 64, 4)).astype(I32)
    y = np.zeros_like(x)
    want = x.copy()
    want[..., 3] += np.arange(steps)[:, None]
    return launch(same(y, want), 1, 64, x, y, steps)


def barriers() -> Launch:
    rounds = 5
    x = rng().integers(0, 99, (rounds, 128)).astype(I32)
    y = np.zeros(128, I32)
    want = np.roll(x, -37, axis=1).sum(axis=0) + 7 * 10
    want[:64] = want[63::-1]
    return launch(same(y, want), 1, 128, x, y, rounds)


def group_copies() -> Launch:
    n = 100
    x = rng().integers(0, 99, (2, n)).astype(F32)
    y = np.zeros_like(x)
    want = x[:, ::-1].copy()
    want[:, :32] += x[0, 31::-1] + x[0, 63:31:-1]
    return launch(same(y, want), 2, 64, x, y, n, dynamic_smem=4 * n)


def message_chain() -> Launch:
    out = np.zeros(6, I32)
    return launch(same(out, 2 ** np.arange(6) - 1), 6, 32, np.zeros((6, 2), I32), out)


def latch_and_semaphore() -> Launch:
    out = np.zeros(64, I32)
    return launch(same(out, np.full(64, 64)), 1, 64, out)


def simt_double_buffered() -> Launch:
    m, n, k = 64, 64, 56
    a, b = rng().integers(-4, 5, (m, k)).astype(F32), rng().integers(-4, 5, (k, n)).astype(F32)
    c = np.zeros((m, n), F32)
    return launch(same(c, a @ b), 1, 256, a, b, c, n, k)


def mma_tf32_mbarrier() -> Launch:
    m, n, k = 64, 32, 16 * 8
    a, b = rng().integers(-4, 5, (m, k)).astype(F32), rng().integers(-4, 5, (n, k)).astype(F32)
    c = np.zeros((m, n), F32)
    return launch(same(c, a @ b.T), 1, 160, a, b, c, n, k)


def splitk_semaphore() -> Launch:
    m, n, k = 32, 16, 128
    a, b = rng().integers(-4, 5, (m, k)).astype(F16), rng().integers(-4, 5, (n, k)).astype(F16)
    c = np.full((m, n), np.nan, F32)
    want = a.astype(F32) @ b.T.astype(F32)
    return launch(same(c, want), (2, 2, 4), 32, a, b, c, np.zeros((2, 2), I32), n, k)


def flash_attention() -> Launch:
    queries, keys = 64, 320
    q, k, v = (rng().standard_normal((rows, 64)).astype(BF16) for rows in (queries, keys, keys))
    o = np.zeros((queries, 64), F32)
    scores = q.astype(F64) @ k.astype(F64).T / 8
    p = np.exp(scores - scores.max(axis=1, keepdims=True))
    want = p @ v.astype(F64) / p.sum(axis=1, keepdims=True)
    return launch(close(o, want, 0, 0.01), 1, 128, q, k, v, o, keys, F32(0.125))


SM_80: dict[str, tuple[Callable[[], Launch], ...]] = {
    "matmul_mma": (matmul_mma,),
    "matmul_simt": (matmul_simt,),
    "reductions": (row_softmax, layer_norm, scan_block, last_block_sum, histogram),
    "control": (producer_consumer, transpose, spin_lock),
    "algorithms": (
        lookback_scan, jacobi, radix_sort_block, bitonic, fft256, transpose_swizzled, work_queue, free_list,
    ),
    "groups_and_pipelines": (
        pipeline_block, pipeline_roles, pipeline_thread, barriers, group_copies, message_chain, latch_and_semaphore,
    ),
    "matmuls_sm80": (simt_double_buffered, mma_tf32_mbarrier, splitk_semaphore, flash_attention),
}  # fmt: skip


def nvcc_subjects() -> list[Subject]:
    return [
        Subject(f"nvcc {make.__name__}", partial(compiled, KERNELS / f"{file}.ptx", make))
        for file, launches in SM_80.items()
        for make in launches
    ]
