"""What Xgemm asks for, CLBlast's matrix product in f32, counted for many configurations of Kernel Tuner at once.

M, N: tile of a work group; DIMC: its threads; DIMA, DIMB: its threads along m and n while they copy; VW: vector width;
SA, SB: whether the operand goes through local memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.demand import Chain, Demand, Phase, Work
from tinygpu.cost.locality import dram_read_bytes
from tinygpu.devices import Device

Ints = NDArray[np.int64]


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
