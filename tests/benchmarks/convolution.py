"""What the 2-D convolution of Kernel Tuner's examples asks for, counted for many configurations at once.

A block of `block_size` threads computes tiles of `tile_size` pixels a thread, `block_size` apart, with a filter of
15 x 15 in constant memory and all loops unrolled. With `use_shmem` (always, where there is no such parameter) it first
copies what it reads to shared memory, with columns added where `use_padding` says so; without, it reads the input
itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.demand import Chain, Demand, Phase, Work
from tinygpu.devices import Device

Ints = NDArray[np.int64]

# Instructions per copied element beyond load and store: address, comparison, and a predicate.
COPY_OVERHEAD = 3
PROLOGUE_INSTRUCTIONS = 40


def convolution(gpu: Device, size: int, p: Mapping[str, Ints]) -> Demand:
    """The demand of every configuration, for an image of `size` x `size` pixels in f32."""
    bx, by, tx, ty = p["block_size_x"], p["block_size_y"], p["tile_size_x"], p["tile_size_y"]
    filter_x, filter_y = p["filter_width"], p["filter_height"]
    staged = p.get("use_shmem", np.ones_like(bx)) == 1
    threads = bx * by
    warps = -(-threads // 32)
    border_x, border_y = filter_x // 2 * 2, filter_y // 2 * 2
    wide, high = bx * tx + border_x, by * ty + border_y  # pixels that a block reads

    # Columns that keep rows of threads apart, as the kernel's macro says.
    pads = (p["use_padding"] == 1) & (bx % 32 != 0) & ((wide - bx) % 32 != 0)
    pitch = wide + np.where(pads, (32 - (wide - bx)) % 32, 0)

    # Loops are unrolled, so that a thread loads a pixel once for all of its sums that use it.
    loads = reads_of_a_thread(bx, tx, filter_x) * reads_of_a_thread(by, ty, filter_y)
    # A warp's lanes run along x, then y: words of shared memory, and of the image where nothing is staged.
    conflicts = np.array([lanes_wavefronts(int(x), int(w)) for x, w in zip(bx, pitch, strict=True)])
    lines = np.array([lanes_lines(int(x), size + 14) for x in bx])
    fmas = filter_x * filter_y * tx * ty
    copies = np.where(staged, -(-wide // bx) * -(-high // by), 0)
    unique_sectors = high * (-(-wide * 4 // 32) + 1)
    # What is not staged passes through L1 load by load; L1 keeps what a block reads while it fits.
    block_bytes = wide * high * 4
    resident = np.maximum(np.minimum(gpu.max_threads_per_sm // (warps * 32), gpu.max_blocks_per_sm), 1)
    forgotten = (~staged) & (block_bytes * resident > gpu.max_smem_bytes_per_sm)
    rows_again = np.where(forgotten, filter_y, 1)

    loop = Work(
        fma_flops=2 * fmas * warps * 32,
        warp_instructions=warps * (fmas + loads),
        smem_load_wavefronts=np.where(staged, warps * loads * conflicts, 0),
        l1_wavefronts=np.where(staged, 0, warps * loads * lines),
    )
    copy = Work(
        warp_instructions=warps * (copies * (2 + COPY_OVERHEAD) + PROLOGUE_INSTRUCTIONS),
        smem_store_wavefronts=warps * copies * conflicts,
        l1_wavefronts=warps * copies * lines,
        sectors_read=unique_sectors * rows_again,
    )
    out = Work(
        warp_instructions=warps * tx * ty * 3,
        sectors_written=np.minimum(-(-bx * 4 // 32) * by, threads) * tx * ty,
    )
    read = (size + border_x) * (size + border_y) * 4
    return Demand(
        ctas=-(-size // (bx * tx)) * -(-size // (by * ty)),
        threads_per_cta=warps * 32,
        registers_per_thread=np.minimum(tx * ty + reads_of_a_thread(bx, tx, filter_x) + 24, 255),
        smem_bytes_per_cta=np.where(staged, pitch * high * 4, 0),
        prologue=Phase(copy, Chain(global_loads=1, barriers=staged.astype(np.int64))),
        iteration=Phase(loop),
        epilogue=Phase(out),
        dram_bytes_read=read,
        dram_bytes_written=size * size * 4,
    )


def reads_of_a_thread(block: Ints, tile: Ints, width: Ints) -> Ints:
    """Different pixels along an axis that a thread reads for `tile` sums, `block` apart, of `width` terms each.

    >>> reads_of_a_thread(np.array([2, 32]), np.array([8, 2]), np.array([15, 15])).tolist()
    [29, 30]
    """
    return np.asarray(width + (tile - 1) * np.minimum(block, width), dtype=np.int64)


@cache
def lanes_wavefronts(block_x: int, pitch: int) -> int:
    """Wavefronts of a load of one word in which lane l reads word (l div block_x) x pitch + l mod block_x.

    >>> lanes_wavefronts(32, 46), lanes_wavefronts(16, 30), lanes_wavefronts(16, 32)
    (1, 2, 2)
    """
    lanes = np.arange(32)
    words = np.unique(lanes // block_x * pitch + lanes % block_x)
    return int(np.bincount(words % 32).max())


@cache
def lanes_lines(block_x: int, pitch: int) -> int:
    """Lines of 128 bytes that such a load touches, which L1 serves one after another."""
    lanes = np.arange(32)
    return len(np.unique((lanes // block_x * pitch + lanes % block_x) // 32))
