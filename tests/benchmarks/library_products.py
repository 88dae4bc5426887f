"""Matrix products as libraries make them: usual tiles, and what each of them asks of a device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.demand import Chain, Demand, Phase, Work
from tinygpu.cost.locality import dram_read_bytes
from tinygpu.devices import Device


@dataclass(frozen=True, slots=True)
class Problem:
    """C[m, n] = A[m, k] B[k, n] with f32 sums and a result of 16 bits; sizes may be arrays over problems."""

    m: int
    n: int
    k: int
    operand: str = "bf16"

    @property
    def bits(self) -> int:
        """Of an element of A and B."""
        return {"bf16": 16, "e4m3": 8, "e2m1": 4}[self.operand]


# Groups of candidates; the launches of a group follow each other, each a Demand over the candidates of the group.
Enumeration = Callable[[Problem, Device], Sequence[Sequence[Demand]]]


@dataclass(frozen=True, slots=True)
class Tile:
    """A CTA tile m x n x k, its warp tile, and pipeline stages."""

    m: int
    n: int
    k: int
    warp_m: int
    warp_n: int
    stages: int


# The tiles that Ampere matrix-product libraries are made of.
AMPERE = (
    Tile(256, 128, 32, 64, 64, 3),
    Tile(128, 256, 32, 64, 64, 3),
    Tile(256, 128, 64, 64, 64, 3),
    Tile(128, 256, 64, 64, 64, 3),
    Tile(256, 64, 32, 64, 64, 4),
    Tile(64, 256, 32, 64, 64, 4),
    Tile(128, 128, 32, 64, 64, 3),
    Tile(128, 128, 32, 64, 64, 4),
    Tile(128, 128, 32, 64, 64, 5),
    Tile(128, 128, 64, 64, 64, 3),
    Tile(128, 64, 32, 64, 32, 6),
    Tile(64, 128, 32, 32, 64, 6),
    Tile(128, 64, 64, 64, 32, 3),
    Tile(64, 128, 64, 32, 64, 3),
    Tile(64, 64, 64, 32, 32, 4),
)
# Warpgroup tiles of Hopper libraries; a consumer warpgroup takes 64 rows, one more warpgroup loads.
HOPPER = (
    *(Tile(128, n, 64, 64, n, 4) for n in (96, 128, 160, 192, 224, 256)),
    *(Tile(256, n, 64, 64, n, 4) for n in (64, 96, 128)),
    *(Tile(64, n, 64, 64, n, 5) for n in (128, 192, 256)),
    Tile(128, 64, 64, 64, 64, 6),
)
# Tiles of libraries for tcgen05, with sums in tensor memory: 128 rows, four warps that store and two that lead. Those
# of 256 rows are of two CTAs, whose instruction (cta_group::2) reads 128 rows of A and half of B in each of them.
BLACKWELL = tuple(
    Tile(m, n, 64, 32, n, stages)
    for m, deep in ((128, (6, 6, 6, 5, 4)), (256, (8, 8, 7, 6, 6)))
    for n, stages in zip((64, 96, 128, 192, 256), deep, strict=True)
)
# The vendor's library has narrow ones as well, which 16 or 32 rows of m fill: its tiles lie the other way (`product`).
NARROW = tuple(Tile(m, n, 64, 32, n, 8) for m in (128, 256) for n in (16, 32))
SPLITS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
GROUPS = (1, 4, 8, 16)
# Iterations that each part of a k-split keeps.
LEAST_ITERATIONS = 4


def library_kernels(problem: Problem, gpu: Device) -> Sequence[Sequence[Demand]]:
    """Every tile and raster group in one launch, and with every k-split in two."""
    whole = candidates(problem, gpu, (1,))
    split = candidates(problem, gpu, SPLITS)
    groups: list[Sequence[Demand]] = [(product(problem, gpu, whole),)]
    if len(split):
        groups.append((product(problem, gpu, split), split_sum(problem, gpu, split[:, 6])))
    return groups


def of_vendor(problem: Problem, gpu: Device) -> bool:
    """Whether frameworks take the vendor's library for tcgen05: in 8 and 4 bits they have kernels of their own."""
    return gpu.cc in (100, 103) and problem.bits == 16


def tiles_of(problem: Problem, gpu: Device) -> tuple[Tile, ...]:
    if of_vendor(problem, gpu):
        return NARROW + BLACKWELL
    return {90: HOPPER, 100: BLACKWELL, 103: BLACKWELL}.get(gpu.cc, AMPERE)


def candidates(problem: Problem, gpu: Device, splits: tuple[int, ...]) -> NDArray[np.int64]:
    """Rows of (m, n, k, warp m, warp n, stages, split, group); a split keeps at least 4 iterations."""
    return np.array(
        [
            (t.m, t.n, t.k, t.warp_m, t.warp_n, t.stages, split, group)
            for t in tiles_of(problem, gpu)
            for split in splits
            for group in GROUPS
            if split == 1 or problem.k // (t.k * split) >= LEAST_ITERATIONS
        ],
        dtype=np.int64,
    )


def product(problem: Problem, gpu: Device, table: NDArray[np.int64]) -> Demand:
    """The matrix product itself, for every row of `candidates`.

    Frameworks hand the vendor's library their matrices as it finds them in memory, columns for rows, and so it makes
    the transposed result: rows of a tile go along n. Its CTAs for tcgen05 take tile after tile, and store one from
    tensor memory while the next one is multiplied, as CUTLASS's for sm_100 do.
    """
    vendor = of_vendor(problem, gpu)
    if vendor:
        problem = Problem(problem.n, problem.m, problem.k, problem.operand)
    # Operands go from shared memory to the tensor cores without the warps, from CTAs that share what they load.
    hopper, blackwell = gpu.cc == 90, gpu.cc in (100, 103)
    bm, bn, bk, wm, wn, stages, split, group = table.T
    bk = bk * 16 // problem.bits  # tiles are as wide in bytes whatever the type
    tiles_m, tiles_n = -(-problem.m // bm), -(-problem.n // bn)
    depth = -(-problem.k // (bk * split))  # iterations of one CTA
    paired = 1 + (bm == 256) * blackwell  # CTAs of a tile
    ctas = tiles_m * tiles_n * split * paired
    whole_m, bm = bm, bm // paired
    math_warps = (bm // wm) * (bn // wn) * (4 if hopper else 1)
    warps = math_warps + (4 if hopper else 2 if blackwell else 0)
    row_bytes = bk * problem.bits // 8
    rows_b = bn // paired
    loaded = (bm + rows_b) * row_bytes
    # Clusters of two share the larger operand tile: multicast reads it from L2 once for both. A pair's halves differ.
    shared = np.maximum(bm, bn) * row_bytes // 2 * (paired == 1)
    fetched = loaded - shared if hopper or blackwell else loaded

    if hopper or blackwell:
        rows = 64 if hopper else 128
        iteration = Work(
            tensor_flops=2 * bm * bn * bk,
            # An instruction reads 64 (128) rows of A and N of B, 32 bytes deep; TMA writes each tile once.
            smem_load_wavefronts=(bm // rows) * (row_bytes // 32) * (rows + rows_b) * 32 // 128,
            smem_store_wavefronts=loaded // 128,
            warp_instructions=(math_warps * (row_bytes // 32 + 12) if hopper else row_bytes // 32 + 24) + 8,
            sectors_read=fetched // 32,
        )
        chain = Chain()
    else:
        iteration = Work(
            tensor_flops=2 * bm * bn * bk,
            smem_load_wavefronts=math_warps * (wm + wn) * row_bytes // 128,
            smem_store_wavefronts=loaded // 128,
            # mma, ldmatrix.x4, 16-byte cp.async, then loop and address arithmetic of every warp
            warp_instructions=bm * bn * row_bytes // (16 * 8 * 32)
            + math_warps * (wm + wn) * row_bytes // 512
            + loaded // 512
            + math_warps * 20,
            sectors_read=fetched // 32,
        )
        chain = Chain(barriers=1, smem_loads=1)
    # A k-split writes f32 sums to the workspace, otherwise C in bf16 by way of shared memory.
    out_bytes = np.where(split > 1, 4, 2)
    epilogue = Work(
        smem_store_wavefronts=bm * bn * out_bytes // 128,
        smem_load_wavefronts=bm * bn * out_bytes // 128,
        warp_instructions=bm * bn // 32,
        sectors_written=bm * bn * out_bytes // 32,
    )
    resident = 1 + (loaded * stages < gpu.max_smem_bytes_per_sm // 2)
    wave = gpu.sm_count * resident
    read = dram_read_bytes(
        gpu.l2_near_bytes,
        whole_m * problem.k * problem.bits // 8,
        bn * problem.k * problem.bits // 8,
        whole_m * bn * 2,
        tiles_m,
        tiles_n,
        group,
        np.maximum(wave // (split * paired), 1),
    )
    return Demand(
        ctas=ctas,
        threads_per_cta=warps * 32,
        registers_per_thread=168 if hopper else 128 if blackwell else wm * wn // 32 + (wm + wn) // 2 + 40,
        smem_bytes_per_cta=np.maximum(loaded * stages, bm * bn * 2),
        iterations=depth,
        iteration=Phase(iteration, chain),
        prologue=Phase(Work(warp_instructions=60 * warps), Chain(fmas=30, global_loads=1)),
        epilogue=Phase(epilogue, Chain(mmas=1, barriers=2, smem_loads=1)),
        prefetch_iterations=stages - 1,
        bytes_in_flight_per_cta=fetched * np.maximum(stages - 1, 1),
        held=int(vendor),
        persistent=int(vendor),
        turns=2 if vendor else 1,
        dram_bytes_read=read,
        dram_bytes_written=problem.m * problem.n * 2,
        compulsory_dram_bytes=compulsory_bytes(problem),
        useful_tensor_flops=2 * problem.m * problem.n * problem.k,
        operand=problem.operand,
        tensor_path="wgmma" if hopper else "tcgen05" if blackwell else "mma.sync",
    )


def split_sum(problem: Problem, gpu: Device, split: NDArray[np.int64]) -> Demand:
    """The launch that adds `split` workspaces of f32 and writes bf16, 4 elements a thread; empty where split is 1."""
    elements = problem.m * problem.n
    workspace_bytes = 4 * elements * split
    from_dram = np.where(workspace_bytes > gpu.l2_near_bytes, workspace_bytes, 0)
    return Demand(
        ctas=-(-elements // 1024),
        threads_per_cta=256,
        registers_per_thread=32,
        smem_bytes_per_cta=0,
        iteration=Phase(
            Work(
                sectors_read=1024 * 4 * split // 32,
                sectors_written=1024 * 2 // 32,
                warp_instructions=8 * (20 + 6 * split),
                fma_flops=2 * 1024 * split,
            )
        ),
        bytes_in_flight_per_cta=1024 * 4 * np.minimum(split, 4),
        dram_bytes_read=from_dram,
        dram_bytes_written=0,
    )


def compulsory_bytes(problem: Problem) -> Any:
    return (problem.m * problem.k + problem.k * problem.n) * problem.bits // 8 + 2 * problem.m * problem.n
