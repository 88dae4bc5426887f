"""A matmul in Triton, to be timed beside ours: with pointers, and with tensor descriptors (TMA) and persistent CTAs.

Both take b row by row (k, n) or as the weights of a linear layer (n, k), any sizes, and a list of configurations among
which the fastest is taken for each problem, by the same protocol as ours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl


@triton.jit
def _tile_of(tile, tiles_m, tiles_n, GROUP: tl.constexpr):
    """Rows of tiles are visited in groups, so that a group's operands stay in the L2."""
    in_group = GROUP * tiles_n
    first = tile // in_group * GROUP
    height = tl.minimum(tiles_m - first, GROUP)
    return first + tile % in_group % height, tile % in_group // height


@triton.jit
def pointers(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_a, stride_bk, stride_bn, stride_c,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    row, column = _tile_of(tl.program_id(0), tl.cdiv(M, BM), tl.cdiv(N, BN), GROUP)
    # rows and columns beyond the edge read others instead, and are not stored
    rows = ((row * BM + tl.arange(0, BM)) % M).to(tl.int64)
    columns = ((column * BN + tl.arange(0, BN)) % N).to(tl.int64)
    inner = tl.arange(0, BK)
    a = a_ptr + rows[:, None] * stride_a + inner[None, :]
    b = b_ptr + inner[:, None] * stride_bk + columns[None, :] * stride_bn
    sums = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(tl.cdiv(K, BK)):
        left = K - k * BK
        x = tl.load(a, mask=inner[None, :] < left, other=0.0)
        y = tl.load(b, mask=inner[:, None] < left, other=0.0)
        sums = tl.dot(x, y, sums)
        a += BK
        b += BK * stride_bk
    rows = (row * BM + tl.arange(0, BM)).to(tl.int64)
    columns = (column * BN + tl.arange(0, BN)).to(tl.int64)
    c = c_ptr + rows[:, None] * stride_c + columns[None, :]
    tl.store(c, sums.to(c_ptr.dtype.element_ty), mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def descriptors(
    a_desc, b_desc, c_desc, M, N, K,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n, rounds = tl.cdiv(M, BM), tl.cdiv(N, BN), tl.cdiv(K, BK)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=True):
        row, column = _tile_of(tile, tiles_m, tiles_n, GROUP)
        sums = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(rounds):
            x = a_desc.load([row * BM, k * BK])
            if COLUMNS:
                y = b_desc.load([column * BN, k * BK]).T
            else:
                y = b_desc.load([k * BK, column * BN])
            sums = tl.dot(x, y, sums)
        c_desc.store([row * BM, column * BN], sums.to(c_desc.dtype))


@dataclass(frozen=True, slots=True)
class Configuration:
    """One of the kernels with its constants."""

    kernel: str
    bm: int
    bn: int
    bk: int
    warps: int
    stages: int
    group: int = 8

    def __str__(self) -> str:
        return f"{self.kernel} {self.bm}x{self.bn}x{self.bk}, {self.warps} warps, {self.stages} stages"


# Tiles that are usual on Hopper, from large to skinny.
CONFIGURATIONS = (
    Configuration("descriptors", 128, 256, 64, 8, 3),
    Configuration("descriptors", 256, 128, 64, 8, 3),
    Configuration("descriptors", 128, 128, 64, 8, 4),
    Configuration("descriptors", 128, 128, 64, 4, 4),
    Configuration("descriptors", 64, 128, 128, 4, 4),
    Configuration("pointers", 128, 256, 64, 8, 3),
    Configuration("pointers", 128, 128, 64, 4, 4),
    Configuration("pointers", 64, 128, 64, 4, 4),
    Configuration("pointers", 64, 64, 128, 4, 4),
    Configuration("pointers", 16, 64, 256, 4, 4),
    Configuration("pointers", 16, 32, 256, 4, 5),
    Configuration("pointers", 16, 128, 128, 4, 5),
    Configuration("pointers", 32, 64, 128, 4, 5),
)


def configurations(m: int) -> tuple[Configuration, ...]:
    """Those worth a try for so many rows: tiles neither more than twice as high as the rows nor far too low."""
    return tuple(c for c in CONFIGURATIONS if c.bm <= max(2 * m, 16) and (c.bm >= 64 or m <= 64))


def launcher(config: Configuration, a: Any, b: Any, c: Any, sms: int) -> Callable[[], None]:
    """A function that launches c = a @ b once, on the current stream. Operands are tensors of PyTorch; b may be the
    transpose of a contiguous one."""
    (m, k), n = a.shape, b.shape[1]
    constants = {
        "BM": config.bm, "BN": config.bn, "BK": config.bk, "GROUP": config.group, "num_warps": config.warps,
        "num_stages": config.stages,
    }  # fmt: skip
    tiles = triton.cdiv(m, config.bm) * triton.cdiv(n, config.bn)
    if config.kernel == "pointers":
        strides = (a.stride(0), b.stride(0), b.stride(1), c.stride(0))

        def launch() -> None:
            pointers[(tiles,)](a, b, c, m, n, k, *strides, **constants)
    else:
        from triton.tools.tensor_descriptor import TensorDescriptor

        columns = b.stride(0) == 1 and b.stride(1) != 1
        box = [config.bn, config.bk] if columns else [config.bk, config.bn]
        operands = (
            TensorDescriptor.from_tensor(a, [config.bm, config.bk]),
            TensorDescriptor.from_tensor(b.T if columns else b, box),
            TensorDescriptor.from_tensor(c, [config.bm, config.bn]),
        )

        def launch() -> None:
            descriptors[(min(tiles, sms),)](*operands, m, n, k, COLUMNS=columns, **constants)

    return launch
