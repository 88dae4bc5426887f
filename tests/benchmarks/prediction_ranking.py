"""How well predictions rank the candidates of one problem.

    python -m tests.benchmarks.prediction_ranking SPACE.json[.xz]

SPACE is a cache file of Kernel Tuner for the kernel Xgemm of CLBlast: a matrix product in f32, with the measured time
of every tile size, vector width and choice of local memory. Each configuration becomes a Demand by counting what that
kernel does; nothing is fitted. Reported are, for all configurations of the file:

    Spearman     rank correlation of predicted and measured times
    regret       measured time of the best among the N shortest predictions, over the best measured time, minus 1
    Spearman within the fastest quarter, where a search decides

The file is third-party data and not part of the project.
"""

from __future__ import annotations

import argparse
import json
import lzma
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.demand import Chain, Demand, Phase, Work
from tinygpu.cost.locality import dram_read_bytes
from tinygpu.cost.predictor import predict
from tinygpu.devices import Device, devices

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Predictor = Callable[[Device, Demand], Floats]

# The parameters of Xgemm, in the file's words. M, N: tile of a work group; DIMC: its threads; DIMA, DIMB: its threads
# along m and n while they copy; VW: vector width; SA, SB: whether the operand goes through local memory.
PARAMETERS = ("MWG", "NWG", "KWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "VWM", "VWN", "SA", "SB")


@dataclass(frozen=True, slots=True)
class Measured:
    """Configurations of one kernel on one GPU, with their times.

    columns  per parameter the values of all configurations
    seconds  measured times
    size     m = n = k
    """

    gpu: Device
    columns: Mapping[str, Ints]
    seconds: Floats
    size: int


def load(path: Path) -> Measured:
    """The configurations that ran; raises ValueError for the file of another kernel."""
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        data: Any = json.load(file)
    if data["kernel_name"] != "Xgemm":
        raise ValueError(f"[{path.name}] holds times of {data['kernel_name']}; this benchmark knows Xgemm alone")
    ran = [row for row in data["cache"].values() if isinstance(row["time"], int | float)]
    columns = {name: np.array([row[name] for row in ran], dtype=np.int64) for name in PARAMETERS}
    seconds = np.array([row["time"] * 1e-3 for row in ran])
    return Measured(_gpu(data["device_name"]), columns, seconds, int(data["problem_size"][0]))


def _gpu(name: str) -> Device:
    """The device of the library whose marketing name the file gives."""
    for gpu in devices():
        if gpu.marketing_name.removeprefix("GeForce ") in name:
            return gpu
    raise ValueError(f"the library has no device {name!r}")


def xgemm(gpu: Device, size: int, p: Mapping[str, Ints]) -> Demand:
    """What Xgemm asks for. Each thread holds MWG / MDIMC x NWG / NDIMC sums; a round goes KWG deep."""
    rows, columns = p["MWG"] // p["MDIMC"], p["NWG"] // p["NDIMC"]
    threads, depth = p["MDIMC"] * p["NDIMC"], p["KWG"]
    warps = -(-threads // 32)
    per_k_a, per_k_b = rows // p["VWM"], columns // p["VWN"]
    shared_a, shared_b = p["SA"] == 1, p["SB"] == 1
    tile_a, tile_b = p["MWG"] * depth * 4, p["NWG"] * depth * 4

    # Lanes of a warp: the thread's number along m runs fastest. A thread's sums lie next to each other, so that lanes
    # are `rows` (or `columns`) elements apart. L1 and shared memory are one array and serve both kinds of loads.
    waves_a = np.array([read_wavefronts(*row) for row in zip(rows, p["VWM"], p["MDIMC"], strict=True)])
    waves_b = np.array([row_wavefronts(*row) for row in zip(columns, p["VWN"], p["MDIMC"], strict=True)])
    loads = warps * depth * (per_k_a * waves_a + per_k_b * waves_b)
    copied = np.where(shared_a, tile_a, 0) + np.where(shared_b, tile_b, 0)
    copies = np.where(shared_a, tile_a // (4 * p["VWM"] * 32), 0) + np.where(shared_b, tile_b // (4 * p["VWN"] * 32), 0)
    instructions = (
        warps * depth * (rows * columns + per_k_a + per_k_b)  # FMAs and loads
        + copies * 6
        + warps * depth * 2  # counters and addresses of two rounds written out at a time
        + warps * depth * np.where(shared_a, 0, per_k_a)
        + warps * depth * np.where(shared_b, 0, per_k_b)
    )
    # Sums and operands that find no register are kept in local memory, which L1 serves: out and in again for each k.
    registers = rows * columns + 2 * (rows + columns) + 28
    spilled = warps * depth * 2 * np.maximum(registers - gpu.max_registers_per_thread, 0)
    instructions, loads = instructions + spilled, loads + spilled
    work = Work(
        fma_flops=2 * p["MWG"] * p["NWG"] * depth,
        warp_instructions=instructions,
        smem_load_wavefronts=loads,
        smem_store_wavefronts=-(-copied // 128),
        sectors_read=(tile_a + tile_b) // 32,
    )
    # Loads of the next k cannot be asked for before the registers of this one are free: each k waits for its operands
    # once, and direct ones wait for L1.
    waits = depth // 2
    direct = np.where(shared_a & shared_b, 0, 1)
    chain = Chain(barriers=2 * np.maximum(shared_a, shared_b), smem_loads=waits * (1 + direct), fmas=waits)
    tiles_m, tiles_n = size // p["MWG"], size // p["NWG"]
    smem = np.where(shared_a, tile_a, 0) + np.where(shared_b, tile_b, 0)
    resident = np.maximum(gpu.max_threads_per_sm // threads, 1)
    read = dram_read_bytes(
        gpu.l2_near_bytes,
        p["MWG"] * size * 4,
        p["NWG"] * size * 4,
        p["MWG"] * p["NWG"] * 4,
        tiles_n,
        tiles_m,
        np.ones_like(threads),
        gpu.sm_count * resident,
    )
    return Demand(
        ctas=tiles_m * tiles_n,
        threads_per_cta=threads,
        registers_per_thread=np.minimum(registers, 255),
        smem_bytes_per_cta=smem,
        iterations=size // depth,
        iteration=Phase(work, chain),
        epilogue=Phase(
            Work(sectors_written=p["MWG"] * p["NWG"] * 4 // 32, warp_instructions=warps * rows * columns * 3)
        ),
        bytes_in_flight_per_cta=tile_a + tile_b,
        dram_bytes_read=read,
        dram_bytes_written=size * size * 4,
        compulsory_dram_bytes=3 * size * size * 4,
    )


@cache
def read_wavefronts(elements: int, vector: int, across: int) -> int:
    """Wavefronts of one load in which lane l reads `vector` floats at (l mod across) x elements."""
    lanes = np.arange(32) % across
    return _wavefronts(lanes * elements, vector)


@cache
def row_wavefronts(elements: int, vector: int, across: int) -> int:
    """Wavefronts of one load in which lane l reads `vector` floats at (l div across) x elements."""
    return _wavefronts(np.arange(32) // across * elements, vector)


def _wavefronts(words: Ints, vector: int) -> int:
    """Wavefronts of the loads of up to 4 floats that make up one vector.

    A load of 1, 2 or 4 floats is served in phases of 32, 16 or 8 lanes (docs/math.md); lanes of a phase that read the
    same word share it. (Parts of compute capability 7 are said to serve two phases at once where neighbours read the
    same; the project's rule does not know that, and neither does this count.)
    """
    width = min(vector, 4)
    phases = words.reshape(width, 32 // width)
    total = 0
    for first in range(0, vector, width):
        for phase in phases:
            touched = np.unique(phase[:, None] + first + np.arange(width))
            total += int(np.bincount(touched % 32).max())
    return total


@dataclass(frozen=True, slots=True)
class Ranking:
    """How predictions order measured candidates; regrets by the number of candidates that may be tried."""

    spearman: float
    spearman_fast: float
    regret: Mapping[int, float]
    median_error: float

    def __str__(self) -> str:
        regrets = ", ".join(f"top {n} {r:.1%}" for n, r in self.regret.items())
        return (
            f"Spearman {self.spearman:.3f}, within the fastest quarter {self.spearman_fast:.3f}; "
            f"regret of the {regrets}; "
            f"median absolute error {self.median_error:.0%}"
        )


def ranking(predicted: Floats, measured: Floats, tries: Sequence[int] = (1, 8, 50)) -> Ranking:
    """Compares two lists of seconds of the same candidates."""
    order = np.argsort(predicted, kind="stable")
    best = measured.min()
    fast = measured <= np.quantile(measured, 0.25)
    return Ranking(
        spearman(predicted, measured),
        spearman(predicted[fast], measured[fast]),
        {n: float(measured[order[:n]].min() / best - 1) for n in tries},
        float(np.median(np.abs(predicted / measured - 1))),
    )


def spearman(a: Floats, b: Floats) -> float:
    """Rank correlation; equal values share their mean rank."""
    return float(np.corrcoef(_ranks(a), _ranks(b))[0, 1])


def _ranks(values: Floats) -> Floats:
    _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray((last - (count - 1) / 2)[inverse], dtype=np.float64)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Rank correlation and regret of predicted times within one problem.")
    parser.add_argument(
        "space", type=Path, nargs="+", help="cache file of Kernel Tuner, as it is or compressed with xz"
    )
    chosen = parser.parse_args(arguments)
    for path in chosen.space:
        if not path.exists():
            print(f"skipped: no measured space at {path}")
            continue
        found = load(path)
        demand = xgemm(found.gpu, found.size, found.columns)
        predicted = np.asarray(predict(found.gpu, demand).seconds)
        print(f"{path.name}, {len(predicted):,} candidates on {found.gpu}: {ranking(predicted, found.seconds)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
