"""Vector add and a tiled SIMT matmul for numba's CUDA simulator: prints elements and multiply-adds per CPU second.

Run by emulator_speed.py, with NUMBA_ENABLE_CUDASIM=1 and the two sizes. The kernels do what vector_add.cu and
matmul_simt.cu do, statement by statement: 64 x 64 tiles in shared memory, 256 threads, 4 x 4 values per thread.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import cuda, float32


def add_kernel(x: Any, y: Any, z: Any, n: Any) -> None:
    i = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if i < n:
        z[i] = x[i] + y[i]


def matmul_kernel(a: Any, b: Any, c: Any, m: Any, n: Any, k: Any) -> None:
    sa = cuda.shared.array((16, 68), float32)
    sb = cuda.shared.array((16, 64), float32)
    tid = cuda.threadIdx.x
    tx, ty = tid % 16, tid // 16
    row0, col0 = cuda.blockIdx.y * 64, cuda.blockIdx.x * 64
    acc = cuda.local.array((4, 4), float32)
    ra = cuda.local.array(4, float32)
    rb = cuda.local.array(4, float32)
    for i in range(4):
        for j in range(4):
            acc[i, j] = 0.0
    for k0 in range(0, k, 16):
        for i in range(tid, 64 * 16, 256):
            r, kk, cc, kb = i // 16, i % 16, i % 64, i // 64
            sa[kk, r] = a[row0 + r, k0 + kk] if row0 + r < m and k0 + kk < k else 0.0
            sb[kb, cc] = b[k0 + kb, col0 + cc] if col0 + cc < n and k0 + kb < k else 0.0
        cuda.syncthreads()
        for kk in range(16):
            for i in range(4):
                ra[i] = sa[kk, ty * 4 + i]
                rb[i] = sb[kk, tx * 4 + i]
            for i in range(4):
                for j in range(4):
                    acc[i, j] += ra[i] * rb[j]
        cuda.syncthreads()
    for i in range(4):
        for j in range(4):
            row, col = row0 + ty * 4 + i, col0 + tx * 4 + j
            if row < m and col < n:
                c[row, col] = acc[i, j]


def add_once(kernel: Any, n: int) -> None:
    x, y, z = np.arange(n, dtype=np.float32), np.ones(n, np.float32), np.zeros(n, np.float32)
    kernel[n // 256, 256](x, y, z, n)
    np.testing.assert_array_equal(z, x + y)


def matmul_once(kernel: Any, n: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (n, n)).astype(np.float32) for _ in range(2))
    c = np.zeros((n, n), np.float32)
    kernel[(n // 64, n // 64), 256](a, b, c, n, n, n)
    np.testing.assert_array_equal(c, a @ b)


def least_seconds(once: Callable[[Any, int], None], kernel: Any, size: int) -> float:
    """CPU seconds of the faster of two runs."""
    best = float("inf")
    for _ in range(2):
        begun = time.process_time()
        once(kernel, size)
        best = min(best, time.process_time() - begun)
    return best


if __name__ == "__main__":
    add_size, matmul_size = (int(word) for word in sys.argv[1:])
    add = add_size / least_seconds(add_once, cuda.jit(add_kernel), add_size)
    matmul = matmul_size**3 / least_seconds(matmul_once, cuda.jit(matmul_kernel), matmul_size)
    print(json.dumps({"add": add, "matmul": matmul}))
