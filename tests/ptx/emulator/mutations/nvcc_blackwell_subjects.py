"""Kernels from CUDA C++ for sm_100a as subjects: tensor memory, warp roles, pairs of CTAs, block scales."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np

from mutations.nvcc_hopper_subjects import operands, small, tiles
from mutations.subjects import Launch, Subject, Values, close, compiled, launch, rng, same

KERNELS = Path(__file__).parent.parent / "kernels" / "sm_100a"
F16, F32, I32, U8 = np.float16, np.float32, np.int32, np.uint8
BF16, E4M3 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn
# Eleven steps: both the body that nvcc unrolls and the rest of the loop run more than once.
K = 64 * 11


def simple_f16() -> Launch:
    a, b, c, want = operands(F16, 128, 64, K)
    return launch(same(c, want), (1, 1), 128, tiles(a, 128), tiles(b), c, 64, K)


def persistent() -> Launch:
    m, n, k = 256, 384, 64 * 7
    a, b, c, want = operands(BF16, m, n, k, BF16)
    maps = (tiles(a, 128), tiles(b, 128), tiles(c, 128))
    return launch(same(c, want), 1, 192, *maps, m // 128, n // 128, k, dynamic_smem=131072)


def pair() -> Launch:
    m, n, k = 256, 128, K
    a, b, c, want = operands(F16, m, n, k)
    return launch(same(c, want), (2, 1), 192, tiles(a, 128), tiles(b), c, n, k, cluster=2, dynamic_smem=73728)


def scale_blocks(scales: Values) -> Values:
    """(rows, groups) scales as the kernels want them: per 128 rows and 4 groups, byte 16 (r % 32) + 4 (r / 32) + j."""
    rows, groups = scales.shape
    blocks = scales.reshape(rows // 128, 4, 32, groups // 4, 4).transpose(0, 3, 2, 1, 4)
    return np.ascontiguousarray(blocks).reshape(-1)


def scaled_mxf8() -> Launch:
    m, n, k = 128, 128, 128 * 9
    a, b, c = small(E4M3, m, k), small(E4M3, n, k), np.zeros((m, n), F32)
    sa, sb = (rng(rows).integers(124, 131, (rows, k // 32)).astype(U8) for rows in (m, n))
    wide = [v.astype(F32) * np.repeat(2.0 ** (s.astype(F32) - 127), 32, axis=1) for v, s in ((a, sa), (b, sb))]
    args = (tiles(a, 128), tiles(b, 128), scale_blocks(sa), scale_blocks(sb), c, n, k)
    return launch(close(c, wide[0] @ wide[1].T, 1e-5), (1, 1), 128, *args)


def chained() -> Launch:
    keys = 64 * 5
    q, k, v = (rng(s).integers(-2, 3, (rows, 64)) for s, rows in enumerate((128, keys, keys)))
    c = np.zeros((128, 64), F32)
    maps = (tiles(q.astype(F16), 128), tiles(k.astype(F16)), tiles(v.astype(F16)))
    return launch(same(c, np.maximum(q @ k.T, 0) @ v), 1, 128, *maps, c, keys)


def steal() -> Launch:
    blocks = 20
    x = rng().integers(-99, 99, (blocks, 128)).astype(I32)
    y = np.zeros_like(x)
    return launch(same(y, 3 * x + np.arange(blocks)[:, None]), blocks, 128, x, y, np.zeros(blocks, I32))


FILES: dict[str, tuple[Callable[[], Launch], ...]] = {
    "matmuls": (simple_f16, persistent, pair, scaled_mxf8, chained),
    "launch_control": (steal,),
}


def nvcc_blackwell_subjects() -> list[Subject]:
    return [
        Subject(f"nvcc sm_100a {make.__name__}", partial(compiled, KERNELS / f"{file}.ptx", make))
        for file, launches in FILES.items()
        for make in launches
    ]
