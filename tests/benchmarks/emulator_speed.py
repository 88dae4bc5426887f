"""Speed of the PTX emulator, every check on: python -m tests.benchmarks.emulator_speed [--profile]

Vector add and a tiled SIMT matmul, compiled by nvcc (tests/ptx/emulator/kernels), on one core: thread instructions per
second. Beside them numba's CUDA simulator on the same two kernels (numba_simulator.py), with the same tiles and the
same work per thread, in a process of its own (NUMBA_ENABLE_CUDASIM=1): elements per second of both, and their ratio.
The simulator is run on small problems, because its time grows with the number of threads and of loop turns; the
emulator on problems that fill its batches, and also on the simulator's. Then tile kernels for tensor cores, one of two
CTAs beside one of wgmma at 1024^3, and 32 lanes that start the same bulk store beside one that does.

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

sys.path.append(str(Path(__file__).parents[1] / "ptx" / "emulator"))
from triton_fixture import FOLDER, launch, load

KERNELS = Path(__file__).parents[1] / "ptx" / "emulator" / "kernels"
# Sizes that take the simulator some seconds, and sizes that fill the emulator's batches.
SIMULATED_ADD, SIMULATED_MATMUL = 4096, 64
EMULATED_ADD, EMULATED_MATMUL = 1 << 20, 512
# What the emulator should reach: thread instructions per second, times the simulator's speed, seconds per tile kernel.
GOAL_RATE = 20e6
GOAL_RATIO = 200.0
GOAL_TILE_SECONDS = 5.0
GOAL_PAIR_RATIO = 2.0


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


TILE_SIZE, PAIR_SIZE = 512, 1024
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


def tensor_copy_tiles(kernel: TileKernel, size: int = TILE_SIZE) -> Case:
    """The product with tensor copies and asynchronous matrix units."""
    dtype = ml_dtypes.bfloat16 if kernel.persistent else np.float16
    a, b = small_integers(dtype, size)
    # Grids are those of TILE_SIZE; persistent CTAs take as many tiles as there are.
    times = 1 if kernel.persistent else size // TILE_SIZE
    grid = (kernel.grid[0] * times, kernel.grid[1] * times)
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
            ptx(f"{kernel.fixture}/matmuls"), entry=kernel.entry, grid=grid, block=kernel.block,
            cluster=kernel.cluster, args=[*maps, *tail], dynamic_smem=kernel.smem,
        )  # fmt: skip
        np.testing.assert_array_equal(c, want.astype(c.dtype))
        return report

    return Case(f"{kernel.fixture}: {kernel.name}", run, size**3)


def small_integers(dtype: Any, size: int = TILE_SIZE) -> Any:
    """a and b, both with k along their rows; every sum is exact in binary32."""
    return np.random.default_rng(0).integers(-2, 3, (2, size, size)).astype(dtype)


def triton_pair(name: str) -> Case:
    """A product by pairs of CTAs that Triton compiled, of tiles that its name gives the height of."""
    fixture = load(FOLDER / f"{name}.ptx")
    bm, bn = fixture.constants["BM"], fixture.constants["BN"]
    size = PAIR_SIZE
    a, b = small_integers(np.float16, size)
    want = a.astype(np.float32) @ b.astype(np.float32)

    def run() -> Report:
        c = np.zeros((size, size), np.float32)
        report = launch(fixture, (size // bm, size // bn), a, b, c, size, size, size)
        np.testing.assert_array_equal(c, want)
        return report

    return Case(f"sm_100a: Triton, pairs of CTAs, {bm}x{bn}", run, size**3)


def pair_cases() -> list[Case]:
    """1024^3: wgmma first, then kernels of two CTAs that multiply by tcgen05 together."""
    kernels = [k for k in TILE_KERNELS if k.name in ("wgmma, ring of 4 stages", "tcgen05, pairs of CTAs")]
    ours = [tensor_copy_tiles(kernel, PAIR_SIZE) for kernel in kernels]
    return [*ours, triton_pair("pair-256.sm_100"), triton_pair("pair-128.sm_100")]


BULK_STORES = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 lanes)
{
    .reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<3>;
    .shared .align 128 .b8 s[8192];
    ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [lanes];
    mov.u32 %r2, %tid.x; mov.u32 %r5, s; mad.lo.u32 %r7, %r2, 4, %r5; mov.u32 %r8, 0;
FILL:
    add.u32 %r3, %r8, %r7; st.shared.u32 [%r3], %r3; add.u32 %r8, %r8, 128;
    setp.lt.u32 %p1, %r8, 8192; @%p1 bra FILL;
    mov.u32 %r6, %ctaid.x; mul.wide.u32 %rd2, %r6, 8192; add.u64 %rd1, %rd1, %rd2;
    fence.proxy.async.shared::cta;
    bar.warp.sync -1;
    setp.ge.u32 %p2, %r2, %r1;
    @%p2 bra DONE;
    cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r5], 8192;
    cp.async.bulk.commit_group;
    cp.async.bulk.wait_group 0;
DONE:
    ret;
}
"""


def bulk_stores(lanes: int) -> Case:
    """16 CTAs of a warp, of which so many lanes store the same 8 KB."""

    def run() -> Report:
        out = np.zeros(16 * 2048, np.uint32)
        return emulate(BULK_STORES, grid=16, block=32, args=[out, lanes])

    return Case(f"bulk store of 8 KB by {lanes} lane{'s' if lanes > 1 else ''}, 16 CTAs", run, 16 * 2048)


def side_by_side(cases: list[Case], repeats: int) -> None:
    """CPU seconds, and how many times the first case's."""
    first = 0.0
    for case in cases:
        seconds, report = least_seconds(case, repeats)
        first = first or seconds
        speed = report.counters.thread_instructions / seconds
        print(f"{case.name:40} {seconds:8.3f} {speed / 1e6:20.1f} M {seconds / first:10.2f} times the first")


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
    print(f"\n{PAIR_SIZE}^3, two CTAs beside wgmma")
    side_by_side(pair_cases(), 1)
    print("\none lane beside 32 that do the same")
    side_by_side([bulk_stores(1), bulk_stores(32)], 3)
    print(
        f"goals: {GOAL_RATE / 1e6:.0f} M thread instructions/s for the SIMT matmul, {GOAL_RATIO:.0f} times the "
        f"simulator, {GOAL_TILE_SECONDS:.0f} s for a tile kernel, {GOAL_PAIR_RATIO:.0f} times wgmma for pairs of CTAs"
    )


if __name__ == "__main__":
    main()
