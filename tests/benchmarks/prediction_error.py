"""Error of predicted matmul times against measured ones: python tests/benchmarks/prediction_error.py TABLE.csv[.xz]

TABLE has the columns dtype, m, n, k and one column of microseconds per GPU and framework (a100_sxm.trt, a100_sxm.alt,
h100_sxm.trt, h100_sxm.alt): times of library matrix products. For every problem with m, n, k >= 512 the shortest time
predicted over an enumeration of usual library tiles stands against the measured one. Nothing is fitted. Beside it
stands the two-constant roofline: 70 % of the tensor peak, 80 % of the datasheet's bandwidth, plus 3 us.

The tiles below are a stand-in for a machine's own space: any function from a Problem and a Device to the kernels of all
candidates can be passed to `errors`.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.demand import Chain, Demand, Phase, Work
from tinygpu.cost.locality import dram_read_bytes
from tinygpu.cost.predictor import predict
from tinygpu.devices import Device, device

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Problem:
    """C[m, n] = A[m, k] B[k, n], bf16 with f32 sums."""

    m: int
    n: int
    k: int


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
SPLITS = (2, 3, 4, 6, 8, 12, 16, 24, 32)
GROUPS = (1, 4, 8, 16)


def library_kernels(problem: Problem, gpu: Device) -> Sequence[Sequence[Demand]]:
    """Every tile and raster group in one launch, and with every k-split in two."""
    whole = candidates(problem, gpu, (1,))
    split = candidates(problem, gpu, SPLITS)
    groups: list[Sequence[Demand]] = [(product(problem, gpu, whole),)]
    if len(split):
        groups.append((product(problem, gpu, split), split_sum(problem, gpu, split[:, 6])))
    return groups


def candidates(problem: Problem, gpu: Device, splits: tuple[int, ...]) -> NDArray[np.int64]:
    """Rows of (m, n, k, warp m, warp n, stages, split, group); a split keeps at least 4 iterations."""
    return np.array(
        [
            (t.m, t.n, t.k, t.warp_m, t.warp_n, t.stages, split, group)
            for t in (HOPPER if gpu.cc == 90 else AMPERE)
            for split in splits
            for group in GROUPS
            if split == 1 or problem.k // (t.k * split) >= 4
        ],
        dtype=np.int64,
    )


def product(problem: Problem, gpu: Device, table: NDArray[np.int64]) -> Demand:
    """The matrix product itself, for every row of `candidates`."""
    hopper = gpu.cc == 90
    bm, bn, bk, wm, wn, stages, split, group = table.T
    tiles_m, tiles_n = -(-problem.m // bm), -(-problem.n // bn)
    depth = -(-problem.k // (bk * split))  # iterations of one CTA
    ctas = tiles_m * tiles_n * split
    math_warps = (bm // wm) * (bn // wn) * (4 if hopper else 1)
    warps = math_warps + (4 if hopper else 0)
    loaded = (bm + bn) * bk * 2
    # Clusters of two share the larger operand tile: multicast reads it from L2 once for both.
    fetched = loaded - np.maximum(bm, bn) * bk if hopper else loaded

    if hopper:
        iteration = Work(
            tensor_flops=2 * bm * bn * bk,
            # m64nNk16 reads 64 rows of A and N of B, 16 deep, from shared memory; TMA writes each tile once.
            smem_load_wavefronts=(bm // 64) * (bk // 16) * (64 + bn) * 32 // 128,
            smem_store_wavefronts=loaded // 128,
            warp_instructions=math_warps * (bk // 16 + 12) + 8,
            sectors_read=fetched // 32,
        )
        chain = Chain()
    else:
        iteration = Work(
            tensor_flops=2 * bm * bn * bk,
            smem_load_wavefronts=math_warps * (wm + wn) * bk * 2 // 128,
            smem_store_wavefronts=loaded // 128,
            # mma, ldmatrix.x4, 16-byte cp.async, then loop and address arithmetic of every warp
            warp_instructions=bm * bn * bk // (16 * 8 * 16)
            + math_warps * (wm + wn) * bk * 2 // 512
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
        bm * problem.k * 2,
        bn * problem.k * 2,
        bm * bn * 2,
        tiles_m,
        tiles_n,
        group,
        np.maximum(wave // split, 1),
    )
    return Demand(
        ctas=ctas,
        threads_per_cta=warps * 32,
        registers_per_thread=168 if hopper else wm * wn // 32 + (wm + wn) // 2 + 40,
        smem_bytes_per_cta=np.maximum(loaded * stages, bm * bn * 2),
        iterations=depth,
        iteration=Phase(iteration, chain),
        prologue=Phase(Work(warp_instructions=60 * warps), Chain(fmas=30, global_loads=1)),
        epilogue=Phase(epilogue, Chain(mmas=1, barriers=2, smem_loads=1)),
        prefetch_iterations=stages - 1,
        bytes_in_flight_per_cta=fetched * np.maximum(stages - 1, 1),
        dram_bytes_read=read,
        dram_bytes_written=problem.m * problem.n * 2,
        compulsory_dram_bytes=2 * (problem.m * problem.k + problem.k * problem.n + problem.m * problem.n),
        useful_tensor_flops=2 * problem.m * problem.n * problem.k,
        operand="bf16",
        tensor_path="wgmma" if hopper else "mma.sync",
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


def seconds(problem: Problem, gpu: Device, enumeration: Enumeration = library_kernels) -> Floats:
    """Predicted seconds of every candidate."""
    groups = [sum(predict(gpu, demand).seconds for demand in launches) for launches in enumeration(problem, gpu)]
    return np.concatenate([np.atleast_1d(group) for group in groups])


def two_constant_roofline(problem: Problem, gpu: Device) -> float:
    """70 % of the tensor peak, 80 % of the datasheet's bandwidth, plus 3 us."""
    m, n, k = problem.m, problem.n, problem.k
    peak = gpu.number("tflops_bf16_dense") * 1e12
    bandwidth = gpu.number("dram_bw_gbs_datasheet") * 1e9
    return max(2 * m * n * k / (0.7 * peak), 2 * (m * k + k * n + m * n) / (0.8 * bandwidth)) + 3e-6


def rows(path: Path, column: str, least: int) -> list[tuple[Problem, float]]:
    """(problem, measured seconds) of the table, for m, n, k >= least."""
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        found = []
        for row in csv.DictReader(file):
            problem = Problem(int(row["m"]), int(row["n"]), int(row["k"]))
            if row[column] and min(problem.m, problem.n, problem.k) >= least:
                found.append((problem, float(row[column]) * 1e-6))
    return found


@dataclass(frozen=True, slots=True)
class Errors:
    """Predicted over measured - 1, one entry per problem, for the model and for the two-constant roofline."""

    model: Floats
    roofline: Floats

    def __str__(self) -> str:
        out = f"{len(self.model)} problems"
        for name, e in (("model", self.model), ("two constants", self.roofline)):
            low, middle, high = np.percentile(e, (5, 50, 95))
            out += f"; {name}: mean absolute error {np.abs(e).mean():.1%}, bias {e.mean():+.1%}"
            out += f" (5 %: {low:+.0%}, median {middle:+.0%}, 95 %: {high:+.0%})"
        return out


def errors(
    measured: Sequence[tuple[Problem, float]], gpu: Device, enumeration: Enumeration = library_kernels
) -> Errors:
    """The best candidate's predicted time against each measured one."""
    model = [seconds(problem, gpu, enumeration).min() / truth - 1 for problem, truth in measured]
    roofline = [two_constant_roofline(problem, gpu) / truth - 1 for problem, truth in measured]
    return Errors(np.array(model), np.array(roofline))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Error of predicted matmul times against a table of measured ones.")
    parser.add_argument("table", type=Path, help="CSV of measured times, as it is or compressed with xz")
    parser.add_argument("--every", type=int, default=1, help="use every n-th problem")
    parser.add_argument("--least", type=int, default=512, help="least m, n and k")
    chosen = parser.parse_args(arguments)
    if not chosen.table.exists():
        print(f"skipped: no table of measured times at {chosen.table}")
        return 0
    for name, columns in (("a100", ("a100_sxm.alt", "a100_sxm.trt")), ("h100", ("h100_sxm.trt", "h100_sxm.alt"))):
        for column in columns:
            measured = rows(chosen.table, column, chosen.least)[:: chosen.every]
            print(f"{device(name)}, {column}: {errors(measured, device(name))}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
