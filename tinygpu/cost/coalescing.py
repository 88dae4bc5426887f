"""Global-memory sectors per request: how many 32-byte pieces one warp instruction touches."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts.f2 import rank

# L2 and DRAM move sectors of 32 bytes, four to a line of 128; a request is one warp instruction and costs the distinct
# sectors of its active lanes (Nsight Compute documentation, "Memory Tables").
SECTOR_BYTES = 32
WARP_LANES = 32
# sm_100 adds 256-bit global loads and stores; all others end at 128 bits (PTX ISA, "ld").
WIDTHS_BYTES = (1, 2, 4, 8, 16, 32)


def sectors(addresses: NDArray[np.int64], width_bytes: int) -> int:
    """Distinct 32-byte sectors that the active lanes of one warp instruction touch, counted by definition.

    addresses    (32,) byte address per lane; inactive lanes are -1
    width_bytes  bytes per lane: 1, 2, 4, 8, 16 or 32

    >>> sectors(np.arange(32) * 4, 4), sectors(np.arange(32) * 4 + 4, 4)
    (4, 5)
    """
    return int(count_sectors(np.asarray(addresses).reshape(1, -1), width_bytes).item())


def count_sectors(addresses: NDArray[np.int64], width_bytes: int) -> NDArray[np.int64]:
    """Sectors of many warp instructions at once, counted by definition; shape (...).

    addresses    (..., 32) byte address per lane; inactive lanes are -1
    width_bytes  bytes per lane: 1, 2, 4, 8, 16 or 32; addresses are multiples of it, so no lane straddles a sector
    """
    lanes = _checked(addresses, width_bytes)
    touched = np.sort(lanes // SECTOR_BYTES, axis=-1)  # that of an inactive lane is -1 as well
    new = touched >= 0
    new[..., 1:] &= touched[..., 1:] != touched[..., :-1]
    found: NDArray[np.int64] = new.sum(axis=-1, dtype=np.int64)
    return found


def ideal_sectors(addresses: NDArray[np.int64], width_bytes: int) -> NDArray[np.int64]:
    """Fewest sectors that could hold the distinct bytes of each warp instruction; shape (...).

    addresses    (..., 32) byte address per lane; inactive lanes are -1

    >>> int(ideal_sectors(np.arange(32) * 128, 4))
    4
    """
    lanes = np.sort(_checked(addresses, width_bytes), axis=-1)
    new = lanes >= 0
    new[..., 1:] &= lanes[..., 1:] != lanes[..., :-1]
    distinct_bytes = new.sum(axis=-1) * width_bytes
    ideal: NDArray[np.int64] = -(-distinct_bytes // SECTOR_BYTES)
    return ideal


def linear_sectors(columns: Sequence[int], width_bytes: int) -> int:
    """Sectors of a full warp whose byte addresses are F2-linear in the lane number (closed form).

    columns      byte-address image of each of the five lane bits; every column is a multiple of the width
    width_bytes  bytes per lane: 1, 2, 4, 8, 16 or 32

    A constant XOR, or an added base that is a multiple of 32 bytes, changes nothing.

    >>> linear_sectors([4, 8, 16, 32, 64], 4), linear_sectors([16, 32, 64, 128, 256], 16)
    (4, 16)
    """
    # 2^rank(A >> 5): the sector number is the address without its five low bits. A lane's own bytes add nothing:
    # an address that is a multiple of a width of at most 32 never straddles a sector.
    _refuse_width(width_bytes)
    if len(columns) != 5:
        raise ValueError(f"[coalescing] a warp has five lane bits, but {len(columns)} columns were given")
    for bit, column in enumerate(columns):
        if column < 0 or column % width_bytes:
            raise ValueError(
                f"[coalescing] lane bit {bit} moves the address by {column}, which is not a multiple of the "
                f"{width_bytes} bytes that a lane moves"
            )
    return int(2 ** rank([column // SECTOR_BYTES for column in columns]))


def strided_sectors(stride_bytes: int, width_bytes: int, offset_bytes: int = 0, lanes: int = WARP_LANES) -> int:
    """Sectors of `lanes` active lanes in which lane l moves `width_bytes` at offset + l * stride (closed form).

    offset_bytes   address of lane 0 (only its place in a sector counts); it and the stride are multiples of the width
    lanes          active lanes, 0 .. 32: the first ones

    >>> strided_sectors(4, 4), strided_sectors(4, 4, 4), strided_sectors(128, 16), strided_sectors(8, 4, lanes=8)
    (4, 5, 32, 2)
    """
    _refuse_width(width_bytes)
    if stride_bytes % width_bytes or offset_bytes % width_bytes:
        raise ValueError(
            f"[coalescing] lanes of {width_bytes} bytes need a stride and an offset that are multiples of it, not "
            f"{stride_bytes} and {offset_bytes}"
        )
    if not 0 <= lanes <= WARP_LANES:
        raise ValueError(f"[coalescing] a warp has 0 to 32 active lanes, not {lanes}")
    if lanes == 0:
        return 0
    last = stride_bytes * (lanes - 1)
    stride, start = abs(stride_bytes), offset_bytes + min(0, last)
    if stride >= SECTOR_BYTES:
        return lanes  # each lane in a sector of its own
    # A stride below 32 bytes skips no sector between the first byte and the last.
    return (start % SECTOR_BYTES + stride * (lanes - 1) + width_bytes - 1) // SECTOR_BYTES + 1


def least_sectors(width_bytes: int, lanes: int = WARP_LANES) -> int:
    """Sectors of a perfectly coalesced request: the lanes' bytes in a row, from a sector's start.

    >>> [least_sectors(width) for width in (2, 4, 8, 16)]
    [2, 4, 8, 16]
    """
    _refuse_width(width_bytes)
    return math.ceil(width_bytes * lanes / SECTOR_BYTES)


def _refuse_width(width_bytes: int) -> None:
    if width_bytes not in WIDTHS_BYTES:
        raise ValueError(f"[coalescing] a lane moves 1, 2, 4, 8, 16 or 32 bytes in one instruction, not {width_bytes}")


def _checked(addresses: NDArray[np.int64], width_bytes: int) -> NDArray[np.int64]:
    _refuse_width(width_bytes)
    lanes = np.asarray(addresses)
    if lanes.dtype.kind not in "iu":
        raise TypeError(f"[coalescing] addresses are whole bytes, not {lanes.dtype}")
    if lanes.ndim == 0 or lanes.shape[-1] != WARP_LANES:
        raise ValueError(f"[coalescing] the last axis lists 32 lanes, but the addresses have shape {lanes.shape}")
    lanes = lanes.astype(np.int64)
    if np.any(lanes < -1):
        raise ValueError(f"[coalescing] an address is a byte number or -1 for an inactive lane, not {lanes.min()}")
    moving = lanes[lanes != -1]
    wrong = moving[moving % width_bytes != 0]
    if wrong.size:
        raise ValueError(
            f"[coalescing] address {wrong[0]} is not a multiple of the {width_bytes} bytes that a lane moves"
        )
    return lanes
