"""Speed of the PTX emulator, every check on: python -m tests.benchmarks.emulator_speed [--profile]

Vector add and a tiled SIMT matmul, compiled by nvcc (tests/ptx/emulator/kernels), on one core: thread instructions per
second. Beside them numba's CUDA simulator on the same two kernels (numba_simulator.py), with the same tiles and the
same work per thread, in a process of its own (NUMBA_ENABLE_CUDASIM=1): elements per second of both, and their ratio.
The simulator is run on small problems, because its time grows with the number of threads and of loop turns; the
emulator on problems that fill its batches, and also on the simulator's. Then tile kernels for tensor cores.

numba comes with `pip install -e ".[bench]"`; without it the first part runs alone. --profile says where time goes.
"""

from __future__ import annotations

import cProfile
import importlib.util
import json
import os
import pstats
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tinygpu.ptx.emulator import Report, TensorMap, emulate

KERNELS = Path(__file__).parents[1] / "ptx" / "emulator" / "kernels"
# Sizes that take the simulator some seconds, and sizes that fill the emulator's batches.
SIMULATED_ADD, SIMULATED_MATMUL = 4096, 64
EMULATED_ADD, EMULATED_MATMUL = 1 << 20, 512
# What the emulator should reach: thread instructions per second, times the simulator's speed, seconds per tile kernel.
GOAL_RATE = 20e6
GOAL_RATIO = 200.0
GOAL_TILE_SECONDS = 5.0


@dataclass(frozen=True)
class Case:
    """One kernel on one problem.

    run    launches it once and checks its result
    work   elements (vector add) or multiply-adds (matmul) of the problem
    """

    name: str
    run: Callable[[], Report]
    work: int


@cache
def ptx(name: str) -> str:
    return (KERNELS / f"{name}.ptx").read_text(encoding="utf-8")


def vector_add(n: int) -> Case:
    x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)

    def run() -> Report:
        z = np.zeros(n, np.float32)
        report = emulate(ptx("vector_add"), grid=(n + 255) // 256, block=256, args=[x, y, z, n])
        np.testing.assert_array_equal(z, x + y)
        return report

    return Case(f"vector add, {n:,} elements", run, n)


def matmul(size: int) -> Case:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-3, 4, (size, size)).astype(np.float32) for _ in range(2))

    def run() -> Report:
        c = np.zeros((size, size), np.float32)
        tiles = (size + 63) // 64
        report = emulate(ptx("matmul_simt"), grid=(tiles, tiles), block=256, args=[a, b, c, size, size, size])
        np.testing.assert_array_equal(c, a @ b)
        return report

    return Case(f"SIMT matmul, {size}^3", run, size**3)


def least_seconds(case: Case, repeats: int) -> tuple[float, Report]:
    """Least CPU seconds of some runs; the first run also compiles what the later ones find in caches."""
    best, report = float("inf"), case.run()
    for _ in range(repeats):
        begun = time.process_time()
        report = case.run()
        best = min(best, time.process_time() - begun)
    return best, report


def simulated_rates() -> dict[str, float] | None:
    """The rates of numba's simulator, from a process of its own; None without numba."""
    if importlib.util.find_spec("numba") is None:
        return None
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("numba_simulator.py"))]
    command += [str(SIMULATED_ADD), str(SIMULATED_MATMUL)]
    environment = os.environ | {"NUMBA_ENABLE_CUDASIM": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    rates: dict[str, float] = json.loads(done.stdout)
    return rates


@dataclass(frozen=True)
class TileKernel:
    """A kernel of Hopper or Blackwell for c = a b^T, a and b through tensor maps with boxes of 64 x (rows) elements.

    fixture     folder of matmuls.ptx: the target
    boxes       rows of a's and of b's boxes
    persistent  it takes a map of c (bf16) and the numbers of tiles; others a pointer to c (f32), n and k
    """

    name: str
    fixture: str
    entry: str
    grid: tuple[int, int]
    block: int
    boxes: tuple[int, int]
    smem: int = 0
    cluster: tuple[int, int, int] = (1, 1, 1)
    persistent: bool = False


TILE_SIZE = 512
TILE_KERNELS = (
    TileKernel("wgmma, ring of 4 stages", "sm_90a", "wgmma_pipelined", (8, 8), 128, (64, 64), 65536),
    TileKernel("wgmma, cluster with multicast", "sm_90a", "clustered", (8, 8), 160, (64, 32), 49152, (1, 2, 1)),
    TileKernel("wgmma, persistent", "sm_90a", "persistent", (4, 1), 384, (128, 128), 131072, persistent=True),
    TileKernel("tcgen05, one tile", "sm_100a", "simple_f16", (8, 4), 128, (128, 64)),
    TileKernel("tcgen05, pairs of CTAs", "sm_100a", "pair", (4, 4), 192, (128, 64), 73728, (2, 1, 1)),
    TileKernel("tcgen05, persistent", "sm_100a", "persistent", (4, 1), 192, (128, 128), 131072, persistent=True),
)


def ampere_tiles() -> Case:
    """The product with mma.sync and cp.async."""
    size = TILE_SIZE
    a, b = small_integers(np.float16)

    def run() -> Report:
        c = np.zeros((size, size), np.float32)
        tiles, args = size // 128, [a, b, c, size, size, size]
        report = emulate(ptx("matmul_mma"), grid=(tiles, tiles), block=128, args=args, dynamic_smem=65536)
        np.testing.assert_array_equal(c, a.astype(np.float32) @ b.astype(np.float32).T)
        return report

    return Case("sm_80: mma.sync, cp.async", run, size**3)


def tensor_copy_tiles(kernel: TileKernel) -> Case:
    """The product with tensor copies and asynchronous matrix units."""
    size, dtype = TILE_SIZE, ml_dtypes.bfloat16 if kernel.persistent else np.float16
    a, b = small_integers(dtype)
    want = a.astype(np.float32) @ b.astype(np.float32).T

    def run() -> Report:
        c = np.zeros((size, size), dtype if kernel.persistent else np.float32)
        maps = [
            TensorMap(x, (64, rows), swizzle="128B") for x, rows in zip((a, b), kernel.boxes, strict=True)
        ]
        tail: list[Any] = [c, size, size]
        if kernel.persistent:
            tiles = size // 128
            rows = 64 if kernel.fixture == "sm_90a" else 128
            tail = [TensorMap(c, (64, rows), swizzle="128B"), tiles, tiles, size]
        report = emulate(
            ptx(f"{kernel.fixture}/matmuls"), entry=kernel.entry, grid=kernel.grid, block=kernel.block,
            cluster=kernel.cluster, args=[*maps, *tail], dynamic_smem=kernel.smem,
        )  # fmt: skip
        np.testing.assert_array_equal(c, want.astype(c.dtype))
        return report

    return Case(f"{kernel.fixture}: {kernel.name}", run, size**3)


def small_integers(dtype: Any) -> Any:
    """a and b, both with k along their rows; every sum is exact in binary32."""
    return np.random.default_rng(0).integers(-2, 3, (2, TILE_SIZE, TILE_SIZE)).astype(dtype)


def tile_kernels() -> list[Case]:
    """512 x 512 x 512 products on tensor cores: Ampere's, Hopper's and Blackwell's, whose fixtures are there."""
    there = [k for k in TILE_KERNELS if (KERNELS / k.fixture / "matmuls.ptx").is_file()]
    return [ampere_tiles(), *(tensor_copy_tiles(kernel) for kernel in there)]


def profile(case: Case) -> None:
    """Where the time of a run goes."""
    case.run()
    profiler = cProfile.Profile()
    profiler.runcall(case.run)
    print(f"\n{case.name}: by own time")
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    cases = {"add": vector_add(EMULATED_ADD), "matmul": matmul(EMULATED_MATMUL)}
    if "--profile" in sys.argv:
        for case in (*cases.values(), *tile_kernels()):
            profile(case)
        return
    simulated = simulated_rates()
    small = {"add": vector_add(SIMULATED_ADD), "matmul": matmul(SIMULATED_MATMUL)}
    head = ("kernel, all checks on", "CPU s", "thread instructions/s", "work/s")
    print("{:40} {:>8} {:>22} {:>10}  times numba's simulator".format(*head))
    for key in cases:
        for case in (cases[key], small[key]):
            seconds, report = least_seconds(case, 3)
            speed = report.counters.thread_instructions / seconds
            ratio = "" if simulated is None else f"{case.work / seconds / simulated[key]:,.0f}"
            print(f"{case.name:40} {seconds:8.3f} {speed / 1e6:20.1f} M {case.work / seconds:10.3g}  {ratio:>10}")
        if simulated is not None:
            print(f"{'  numba simulator':40} {'':8} {'':22} {simulated[key]:10.3g}  {1:>10}")
    for case in tile_kernels():
        seconds, report = least_seconds(case, 1)
        speed = report.counters.thread_instructions / seconds
        print(f"{case.name:40} {seconds:8.3f} {speed / 1e6:20.1f} M {case.work / seconds:10.3g}")
    print(
        f"goals: {GOAL_RATE / 1e6:.0f} M thread instructions/s for the SIMT matmul, {GOAL_RATIO:.0f} times the "
        f"simulator, {GOAL_TILE_SECONDS:.0f} s for a tile kernel"
    )


if __name__ == "__main__":
    main()
