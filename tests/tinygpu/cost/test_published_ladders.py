"""Ladders of hand-written matrix products that were published with a time for every step: the predictor orders them.

Each step becomes a Demand by counting what the kernel does, as its write-up and source say; nothing is fitted. Where
two steps were measured within a few percent of each other, only the order of the others is asked for.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pytest

from tinygpu.cost.demand import Chain, Demand, Phase, Work
from tinygpu.cost.locality import dram_read_bytes
from tinygpu.cost.predictor import Prediction, predict
from tinygpu.devices import Device, device

WARP = np.arange(32)


def wavefronts(words: np.ndarray, width: int) -> int:
    """Wavefronts of one warp's load of 1, 2 or 4 floats a lane, lane l from `words[l]` on; the same word is read once.

    >>> wavefronts(WARP, 1), wavefronts(4 * WARP, 4), wavefronts(0 * WARP, 1), wavefronts(8 * WARP, 1)
    (1, 4, 1, 8)
    """
    total = 0
    for phase in words.reshape(width, 32 // width):
        touched = np.unique(phase[:, None] + np.arange(width))
        total += int(np.bincount(touched % 32).max())
    return total


# --- f32 on CUDA cores, RTX A6000, 4092 cubed ------------------------------------------------------------------------
# Source: S. Boehm, "How to Optimize a CUDA Matmul Kernel for cuBLAS-like Performance", siboehm.com/articles/22/CUDA-MMM
# and github.com/siboehm/SGEMM_CUDA, README: GFLOP/s of each kernel.
SIMT_MEASURED = {
    "naive": 309.0,
    "coalesced": 1986.5,
    "shared memory": 2980.3,
    "1D tiles of threads": 8474.7,
    "2D tiles of threads": 15971.7,
    "vectors": 18237.3,
    "longer tiles": 19721.0,
    "tiles of warps": 21779.3,
}
SIZE = 4096


@dataclass(frozen=True)
class Simt:
    """One step.

    tile       m, n and k of a CTA
    threads    of a CTA
    sums       of a thread
    per_k      wavefronts (shared memory or L1) and load instructions of one warp for one k
    copies     instructions of a warp that bring one tile to shared memory; 0 where operands come from L1
    registers  per thread
    """

    tile: tuple[int, int, int]
    threads: int
    sums: int
    per_k: tuple[int, int]
    copies: int
    registers: int

    def demand(self, gpu: Device) -> Demand:
        m, n, k = self.tile
        warps = self.threads // 32
        loads, instructions = self.per_k
        shared = self.copies > 0
        tile_bytes = (m + n) * k * 4
        work = Work(
            fma_flops=2 * m * n * k,
            smem_load_wavefronts=warps * k * loads,
            smem_store_wavefronts=tile_bytes // 128 * shared,
            # FMAs and loads; beside a load from global memory the arithmetic of its address
            warp_instructions=warps * (k * (self.sums + instructions * (1 if shared else 2)) + 2 * self.copies + 16),
            sectors_read=tile_bytes // 32,
        )
        chain = Chain(barriers=2 * shared, smem_loads=1, fmas=1)
        resident = max(1, min(gpu.max_threads_per_sm // self.threads, 65536 // (self.registers * self.threads)))
        return Demand(
            ctas=(SIZE // m) * (SIZE // n),
            threads_per_cta=self.threads,
            registers_per_thread=self.registers,
            smem_bytes_per_cta=tile_bytes * shared,
            iterations=SIZE // k,
            iteration=Phase(work, chain),
            epilogue=Phase(Work(sectors_written=m * n * 4 // 32, warp_instructions=warps * self.sums * 2)),
            bytes_in_flight_per_cta=tile_bytes,
            dram_bytes_read=dram_read_bytes(
                gpu.l2_near_bytes, m * SIZE * 4, n * SIZE * 4, m * n * 4, SIZE // m, SIZE // n,
                np.ones((), dtype=np.int64), gpu.sm_count * resident,
            ),
            dram_bytes_written=SIZE * SIZE * 4,
        )  # fmt: skip


def simt_ladder() -> dict[str, Simt]:
    row, column = WARP // 16, WARP % 16  # a warp's place among threads that stand 16 side by side
    return {
        # Neighbouring lanes read different rows of a: a line each. Four rounds of the loop are under way at a time.
        "naive": Simt((32, 32, 4), 1024, 1, (32 + 1, 2), 0, 32),
        "coalesced": Simt((32, 32, 4), 1024, 1, (1 + 1, 2), 0, 32),
        "shared memory": Simt((32, 32, 32), 1024, 1, (1 + 1, 2), 2, 32),
        # 8 sums below each other: every k takes 8 values of a, the same for all lanes, and one of b per lane.
        "1D tiles of threads": Simt((64, 64, 8), 512, 8, (8 + 1, 8 + 1), 2, 48),
        # 8 x 8 sums: values of a lie 8 words (one tile's depth) apart, those of b next to each other.
        "2D tiles of threads": Simt(
            (128, 128, 8), 256, 64,
            (8 * wavefronts(row * 8 * 8, 1) + 2 * wavefronts(column * 8, 4), 8 + 2), 8, 128,
        ),
        # a is transposed on its way to shared memory, so that both are read, and brought, as vectors of 4.
        "vectors": Simt(
            (128, 128, 8), 256, 64, (2 * wavefronts(row * 8, 4) + 2 * wavefronts(column * 8, 4), 2 + 2), 2, 128
        ),
        "longer tiles": Simt(
            (128, 128, 16), 256, 64, (2 * wavefronts(row * 8, 4) + 2 * wavefronts(column * 8, 4), 2 + 2), 4, 128
        ),
        # A warp's threads stand 8 x 4: 8 rows and 4 times 4 columns each, so that lanes share more of what they read.
        "tiles of warps": Simt(
            (128, 128, 16), 128, 128,
            (2 * wavefronts(WARP // 4 * 8, 4) + 4 * wavefronts(WARP % 4 * 4, 4), 2 + 4), 8, 168,
        ),
    }  # fmt: skip


def test_the_ladder_of_cuda_cores_is_ordered() -> None:
    gpu = device("a6000")
    predicted = {name: 2 * SIZE**3 / seconds(step.demand(gpu), gpu) / 1e9 for name, step in simt_ladder().items()}
    assert list(predicted) == list(SIMT_MEASURED)
    assert sorted(SIMT_MEASURED.values()) == list(SIMT_MEASURED.values())
    for slower, faster in itertools.pairwise(predicted):
        assert predicted[slower] < predicted[faster], (slower, faster, predicted)


def test_what_bounds_each_step_is_what_its_write_up_says() -> None:
    """Shared memory in the middle of the ladder; the last step computes most of the time."""
    gpu, ladder = device("a6000"), simt_ladder()
    busiest = {}
    for name, step in ladder.items():
        parts = predict(gpu, step.demand(gpu)).breakdown()
        busiest[name] = max(("fma", "smem", "issue", "l2", "dram"), key=lambda unit: parts[unit])
    assert busiest["1D tiles of threads"] == busiest["2D tiles of threads"] == "smem"
    assert busiest["tiles of warps"] in ("fma", "issue")  # FMAs are 94 % of its instructions


# --- bf16 on Hopper's tensor cores, H100 SXM, 8192 cubed -------------------------------------------------------------
# Source: P. Shankhdhar, "Outperforming cuBLAS on H100: a Worklog", cudaforfun.substack.com, and its kernels,
# github.com/pranjalssh/fast.cu (tiles and stages). TFLOP/s: one run of all kernels, issues/13 there. Kernel
# 4 is left out: there it is slower than 3, and in the README faster; kernels 7 to 11 are within a few percent.
HOPPER_MEASURED = {
    "1: CUDA cores": 29.2,
    "2: tensor cores": 219.7,
    "3: larger tiles": 374.7,
    "5: producer, two consumers": 429.0,
    "6: persistent": 487.8,
}
EDGE = 8192


@dataclass(frozen=True)
class Hopper:
    """One step with wgmma and TMA.

    tile       m, n and k of a CTA
    consumers  warpgroups that multiply; a producer stands beside them where there are stages to fill
    stages     slots of the ring; 1: load, wait, multiply, wait
    cluster    CTAs that share tiles of b by multicast
    """

    tile: tuple[int, int, int]
    consumers: int
    stages: int
    persistent: bool = False
    cluster: int = 1
    group: int = 1

    def demand(self, gpu: Device) -> Demand:
        m, n, k = self.tile
        ring = self.stages > 1
        loaded = (m * k + n * k // self.cluster) * 2
        smem = (m + n) * k * 2 * self.stages
        warps = 4 * (self.consumers + ring)
        wide = min(n, 256)
        work = Work(
            tensor_flops=2 * m * n * k,
            smem_load_wavefronts=(m // 64) * (k // 16) * (n // wide) * (64 + wide) * 32 // 128,
            smem_store_wavefronts=(m + n) * k * 2 // 128,
            warp_instructions=4 * self.consumers * (k // 16 + 12) + 8,
            sectors_read=loaded // 32,
        )
        registers = 168 if ring else min(255, m * n // 128 + 40)
        ctas = (EDGE // m) * (EDGE // n)
        return Demand(
            ctas=ctas,
            threads_per_cta=32 * warps,
            registers_per_thread=registers,
            smem_bytes_per_cta=smem,
            iterations=EDGE // k,
            iteration=Phase(work, Chain(barriers=1 if ring else 2, mmas=1)),
            prologue=Phase(Work(warp_instructions=60 * warps), Chain(fmas=30, global_loads=1)),
            epilogue=Phase(
                Work(sectors_written=m * n * 2 // 32, warp_instructions=m * n // 32 * 2), Chain(barriers=2)
            ),
            prefetch_iterations=self.stages - 1,
            bytes_in_flight_per_cta=loaded * self.stages,
            held=int(ring),
            persistent=int(self.persistent),
            dram_bytes_read=dram_read_bytes(
                gpu.l2_near_bytes, m * EDGE * 2, n * EDGE * 2, m * n * 2, EDGE // m, EDGE // n,
                np.asarray(self.group), gpu.sm_count * (1 if ring else 3),
            ),
            dram_bytes_written=EDGE * EDGE * 2,
            operand="bf16",
            tensor_path="wgmma",
        )  # fmt: skip


HOPPER = {
    "2: tensor cores": Hopper((64, 64, 64), 1, 1),
    "3: larger tiles": Hopper((128, 128, 64), 1, 1),
    "5: producer, two consumers": Hopper((128, 256, 64), 2, 3),
    "6: persistent": Hopper((128, 256, 64), 2, 3, persistent=True, group=16),
    "8: clusters": Hopper((128, 256, 64), 2, 3, persistent=True, cluster=2, group=16),
}


def hopper_predicted() -> dict[str, float]:
    """TFLOP/s of every step."""
    gpu = device("h100")
    # The first step is the 2D-tiled kernel of the other ladder, on a larger problem.
    simt = simt_ladder()["2D tiles of threads"].demand(gpu)
    found = {"1: CUDA cores": 2 * SIZE**3 / seconds(simt, gpu) / 1e12}
    return found | {name: 2 * EDGE**3 / seconds(step.demand(gpu), gpu) / 1e12 for name, step in HOPPER.items()}


def test_the_hopper_ladder_is_ordered() -> None:
    predicted = hopper_predicted()
    assert sorted(HOPPER_MEASURED.values()) == list(HOPPER_MEASURED.values())
    for slower, faster in itertools.pairwise(HOPPER_MEASURED):
        assert predicted[slower] < predicted[faster], (slower, faster, predicted)
    assert predicted["8: clusters"] >= predicted["6: persistent"]


@pytest.mark.parametrize("ladder", ["simt", "hopper"])
def test_speeds_are_within_a_factor_of_what_was_measured(ladder: str) -> None:
    """The order is what counts; the speeds themselves stay within a factor of 2.2."""
    gpu = device("a6000")
    if ladder == "simt":
        measured = SIMT_MEASURED
        predicted = {name: 2 * SIZE**3 / seconds(step.demand(gpu), gpu) / 1e9 for name, step in simt_ladder().items()}
    else:
        measured, predicted = HOPPER_MEASURED, hopper_predicted()
    for name, speed in measured.items():
        assert 1 / 2.2 <= predicted[name] / speed <= 2.2, (name, predicted[name], speed)


def seconds(demand: Demand, gpu: Device) -> float:
    found: Prediction = predict(gpu, demand)
    return float(found.seconds)


if __name__ == "__main__":  # the table of docs/dojo.md
    a6000 = device("a6000")
    for step_name, step_of in simt_ladder().items():
        p = predict(a6000, step_of.demand(a6000))
        rate = 2 * SIZE**3 / float(p.seconds) / 1e9
        print(f"| {step_name} | {SIMT_MEASURED[step_name]:,.0f} | {rate:,.0f} | {p.sentence()} |")
    for step_name, rate in hopper_predicted().items():
        print(f"| {step_name} | {HOPPER_MEASURED.get(step_name, float('nan')):,.1f} | {rate:,.1f} |")
