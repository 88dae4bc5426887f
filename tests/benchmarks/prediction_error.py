"""Error of predicted matmul times against measured ones.

    python tests/benchmarks/prediction_error.py TABLE.csv[.xz] ... [--every N]

A TABLE has the columns dtype, m, n, k and one column of microseconds per GPU and framework (a100_sxm.trt, l40s.vllm):
times of library matrix products. For every problem the shortest time predicted over an enumeration of usual library
tiles stands against the measured one, by ranges of m and as a whole. Nothing is fitted; but the tensor rate that a
device sustains is itself that of a library product of 8192 cubed. Beside it stand the error with no limit of power, so
that it shows what that rate does, and the two-constant roofline: 70 % of the tensor peak, 80 % of the datasheet's
bandwidth, plus 3 us a launch.

What is timed is a layer of an inference framework, by the published collector of these tables. In bf16 that is the
product. In fp8 the layer is given A in bf16, and converts it first: in one pass with a scale that it knows (vllm), or
in two, the first of which looks for the scale (trt). These passes are launches before the product, in both models. One
more table says what the times themselves tell of that: how much longer products of fp8 take than those with m and n
exchanged, per element of A that is converted; and how often the same product is slower in fp8 than in bf16.

The tiles below are a stand-in for a machine's own space: any function from a Problem and a Device to the kernels of all
candidates can be passed to `errors`.
"""

from __future__ import annotations

import argparse
import csv
import lzma
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.demand import Chain, Demand, Phase, Work
from tinygpu.cost.locality import dram_read_bytes
from tinygpu.cost.predictor import predict
from tinygpu.devices import Device, device

Floats = NDArray[np.float64]


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


def tiles_of(gpu: Device) -> tuple[Tile, ...]:
    return {90: HOPPER, 100: BLACKWELL, 103: BLACKWELL}.get(gpu.cc, AMPERE)


def candidates(problem: Problem, gpu: Device, splits: tuple[int, ...]) -> NDArray[np.int64]:
    """Rows of (m, n, k, warp m, warp n, stages, split, group); a split keeps at least 4 iterations."""
    return np.array(
        [
            (t.m, t.n, t.k, t.warp_m, t.warp_n, t.stages, split, group)
            for t in tiles_of(gpu)
            for split in splits
            for group in GROUPS
            if split == 1 or problem.k // (t.k * split) >= LEAST_ITERATIONS
        ],
        dtype=np.int64,
    )


def product(problem: Problem, gpu: Device, table: NDArray[np.int64]) -> Demand:
    """The matrix product itself, for every row of `candidates`."""
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


# Passes over A before a product of fp8, by framework: the scale is found, and A is converted; or the latter alone. A
# scale that is to be found is set to 0 first, which is one more launch.
PASSES = {"trt": 2, "vllm": 1}
# Elements of A that a CTA converts: 256 threads, 8 each.
CONVERTED = 2048


def conversion_seconds(problem: Problem, gpu: Device, passes: int) -> Floats:
    """Launches that convert A from bf16 to 8 bits; a later pass finds in L2 what fits there."""
    elements = np.asarray(problem.m * problem.k, dtype=np.int64)
    total = np.full(elements.shape, gpu.number("launch_overhead_graph_us") * 1e-6 * (passes > 1))
    for number in range(passes):
        last = number == passes - 1
        in_l2 = (number > 0) & (2 * elements <= gpu.l2_near_bytes)
        demand = Demand(
            ctas=-(-elements // CONVERTED),
            threads_per_cta=256,
            registers_per_thread=32,
            smem_bytes_per_cta=0,
            iteration=Phase(
                Work(
                    sectors_read=2 * CONVERTED // 32,
                    sectors_written=CONVERTED // 32 if last else 0,
                    warp_instructions=8 * 40,
                    fma_flops=2 * CONVERTED,
                )
            ),
            bytes_in_flight_per_cta=2 * CONVERTED,
            dram_bytes_read=np.where(in_l2, 0, 2 * elements),
            dram_bytes_written=elements if last else 0,
        )
        total = total + predict(gpu, demand).seconds
    return total


def seconds(problem: Problem, gpu: Device, enumeration: Enumeration = library_kernels) -> Floats:
    """Predicted seconds of every candidate."""
    groups = [sum(predict(gpu, demand).seconds for demand in launches) for launches in enumeration(problem, gpu)]
    return np.concatenate([np.atleast_1d(group) for group in groups])


def compulsory_bytes(problem: Problem) -> Any:
    return (problem.m * problem.k + problem.k * problem.n) * problem.bits // 8 + 2 * problem.m * problem.n


def best_seconds(problems: Sequence[Problem], gpu: Device, *, limited: bool = True) -> Floats:
    """The shortest time of the library kernels for each of many problems of one type, at once.

    limited  by power; otherwise the tensor cores run at the datasheet's rate for as long as they like
    """
    return np.concatenate([best[0 if limited else 1] for best in _best(problems, gpu)])


def _best(problems: Sequence[Problem], gpu: Device) -> Iterator[tuple[Floats, Floats]]:
    """The shortest times of some problems after others, as they are and with no limit of power."""
    for first in range(0, len(problems), CHUNK):
        part = problems[first : first + CHUNK]
        sizes = np.array([(p.m, p.n, p.k) for p in part], dtype=np.int64)
        many = Problem(*(sizes[:, axis : axis + 1] for axis in range(3)), part[0].operand)  # type: ignore[arg-type]
        deepest = Problem(1, 1, int(sizes[:, 2].max()), part[0].operand)
        whole, split = candidates(deepest, gpu, (1,)), candidates(deepest, gpu, SPLITS)
        found = predict(gpu, product(many, gpu, whole))
        best = [found.seconds.min(axis=1), (found.seconds - found.power_s).min(axis=1)]
        if len(split):
            added = predict(gpu, split_sum(many, gpu, split[:, 6])).seconds
            found = predict(gpu, product(many, gpu, split))
            deep = many.k // (split[:, 2] * split[:, 6]) >= LEAST_ITERATIONS
            for number, alone in enumerate((found.seconds, found.seconds - found.power_s)):
                best[number] = np.minimum(best[number], np.where(deep, alone + added, np.inf).min(axis=1))
        yield best[0], best[1]


# Problems that are predicted at once.
CHUNK = 128


def two_constant_roofline(problem: Problem, gpu: Device, passes: int = 0) -> float:
    """70 % of the tensor peak, 80 % of the datasheet's bandwidth, plus 3 us; the same for what converts A before."""
    m, n, k = problem.m, problem.n, problem.k
    peak = gpu.number({"bf16": "tflops_bf16_dense", "e4m3": "tflops_fp8_dense"}[problem.operand]) * 1e12
    bandwidth = gpu.number("dram_bw_gbs_datasheet") * 1e9
    before = (passes + (passes > 1)) * 3e-6 + (2 * passes + (passes > 0)) * m * k / (0.8 * bandwidth)
    return before + max(2 * m * n * k / (0.7 * peak), compulsory_bytes(problem) / (0.8 * bandwidth)) + 3e-6


# Types of the tables, in the words of this project. nvfp4 is left out: no device says what it sustains with it.
OPERANDS = {"bfloat16": "bf16", "fp8": "e4m3"}


def rows(path: Path, column: str, least: int = 1, dtype: str = "bfloat16") -> list[tuple[Problem, float]]:
    """(problem, measured seconds) of the table for one type, for m, n, k >= least."""
    found = []
    for row in _table(path):
        problem = Problem(int(row["m"]), int(row["n"]), int(row["k"]), OPERANDS.get(row["dtype"], row["dtype"]))
        if row[column] and row["dtype"] == dtype and min(problem.m, problem.n, problem.k) >= least:
            found.append((problem, float(row[column]) * 1e-6))
    return found


@cache
def _table(path: Path) -> list[dict[str, str]]:
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# Ranges of problems, in the order of the rows that are printed.
RANGES: tuple[tuple[str, Callable[[Problem], bool]], ...] = (
    ("m <= 16", lambda p: p.m <= 16),
    ("16 < m <= 128", lambda p: 16 < p.m <= 128),
    ("m > 128, one of m, n, k < 512", lambda p: p.m > 128 and min(p.m, p.n, p.k) < 512),
    ("m, n, k >= 512", lambda p: min(p.m, p.n, p.k) >= 512),
    ("all", lambda p: True),
)


@dataclass(frozen=True, slots=True)
class Errors:
    """Predicted over measured - 1, one entry per problem.

    model      the predictor's
    roofline   of the two-constant roofline
    unlimited  the predictor's, with no limit of power
    """

    model: Floats
    roofline: Floats
    unlimited: Floats | None = None

    def __str__(self) -> str:
        out = f"{len(self.model)} problems"
        for name, e in (("model", self.model), ("two constants", self.roofline)):
            low, middle, high = np.percentile(e, (5, 50, 95))
            out += f"; {name}: mean absolute error {np.abs(e).mean():.1%}, bias {e.mean():+.1%}"
            out += f" (5 %: {low:+.0%}, median {middle:+.0%}, 95 %: {high:+.0%})"
        return out


    def row(self) -> str:
        """Cells of a table."""
        e = self.model
        low, high = np.percentile(e, (5, 95))
        unlimited = e if self.unlimited is None else self.unlimited
        return (
            f"{len(e):,} | {np.abs(e).mean():.1%} | {e.mean():+.1%} | {low:+.0%} to {high:+.0%} "
            f"| {np.abs(unlimited).mean():.1%} | {np.abs(self.roofline).mean():.1%}"
        ).replace("%", " %")

    def of(self, mask: NDArray[np.bool_]) -> Errors:
        """Of some of the problems."""
        unlimited = None if self.unlimited is None else self.unlimited[mask]
        return Errors(self.model[mask], self.roofline[mask], unlimited)


def errors(
    measured: Sequence[tuple[Problem, float]],
    gpu: Device,
    enumeration: Enumeration = library_kernels,
    passes: int = 0,
) -> Errors:
    """The best candidate's predicted time against each measured one, with `passes` over A before the product."""
    problems, truth = [problem for problem, _ in measured], np.array([seconds for _, seconds in measured])
    roofline = np.array([two_constant_roofline(problem, gpu, passes) for problem in problems]) / truth - 1
    before = np.array([float(conversion_seconds(problem, gpu, passes)) for problem in problems]) if passes else 0.0
    if enumeration is not library_kernels:
        model = np.array([seconds(problem, gpu, enumeration).min() for problem in problems])
        return Errors((before + model) / truth - 1, roofline)
    found = list(_best(problems, gpu))
    limited, unlimited = (np.concatenate([best[number] for best in found]) for number in (0, 1))
    return Errors((before + limited) / truth - 1, roofline, (before + unlimited) / truth - 1)


def report(path: Path, every: int) -> Iterator[str]:
    """A table in Markdown: for each device, framework and type of a file, by ranges of sizes."""
    for column in columns_of(path):
        gpu = device(column.partition(".")[0].removesuffix("_sxm"))
        for dtype in dict.fromkeys(row["dtype"] for row in _table(path)):
            if dtype not in OPERANDS:
                continue
            measured = rows(path, column, dtype=dtype)[::every]
            if not measured:
                continue
            found = errors(measured, gpu, passes=PASSES.get(column.partition(".")[2], 0) if dtype == "fp8" else 0)
            for name, belongs in RANGES:
                mask = np.array([belongs(problem) for problem, _ in measured])
                if mask.any():
                    yield f"| {gpu.name}, {column}, {dtype} | {name} | {found.of(mask).row()} |"


def columns_of(path: Path) -> list[str]:
    """The columns of times, by GPU and framework."""
    return [name for name in _table(path)[0] if name not in ("dtype", "m", "n", "k")]


# Elements of A by which two products must differ to say how long one takes to convert; below, it drowns in noise.
FAR_APART = 2e7


def conversions(path: Path) -> Iterator[str]:
    """What the times of a file say of products of fp8, for each device and framework."""
    for column in columns_of(path):
        times = {dtype: {(p.m, p.n, p.k): s for p, s in rows(path, column, dtype=dtype)} for dtype in OPERANDS}
        wide, narrow = times["bfloat16"], times["fp8"]
        both = [size for size in narrow if size in wide]
        if not both:
            continue
        slower = sum(narrow[size] > wide[size] for size in both) / len(both)
        cells = []
        for found in (narrow, wide):
            slopes = [
                (found[m, n, k] - found[n, m, k]) / ((m - n) * k) * 1e12
                for m, n, k in found
                if m > n and (n, m, k) in found and (m - n) * k >= FAR_APART
            ]
            cells.append(f"{len(slopes):,} | {np.median(slopes):+.2f}" if slopes else "0 | -")
        bf16 = cells[1].partition("| ")[2]
        yield f"| {column} | {cells[0]} | {bf16} | {len(both):,} | {slower:.0%} |".replace("%", " %")


HEAD = (
    "| device, column and type | sizes | problems | mean absolute error | bias | 5 % to 95 % of the errors "
    "| no power limit | two constants |\n| --- | --- | --- | --- | --- | --- | --- | --- |"
)
CONVERSIONS_HEAD = (
    "| column | pairs with m and n exchanged | fp8, us per million elements of A more | bf16, the same "
    "| products in both types | slower in fp8 |\n| --- | --- | --- | --- | --- | --- |"
)
SUSTAINED = (
    "The tensor rate that a device sustains is that of a library product of 8192 cubed on it, where one was measured."
)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Error of predicted matmul times against tables of measured ones.")
    parser.add_argument("table", type=Path, nargs="+", help="CSV of measured times, as it is or compressed with xz")
    parser.add_argument("--every", type=int, default=1, help="use every n-th problem")
    chosen = parser.parse_args(arguments)
    there = [path for path in chosen.table if path.exists()]
    for path in chosen.table:
        if path not in there:
            print(f"skipped: no table of measured times at {path}")
    if there:
        print(HEAD)
    for path in there:
        for line in report(path, chosen.every):
            print(line, flush=True)
    if there:
        print(SUSTAINED)
    told = [line for path in there for line in conversions(path)]
    if told:
        print("\n".join(("", CONVERSIONS_HEAD, *told)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
