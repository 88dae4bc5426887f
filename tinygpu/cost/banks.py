"""Shared-memory wavefronts: how often the banks must be asked to serve one warp instruction.

They are counted by definition, lane by lane; docs/math.md has closed forms for layouts that are linear over F2.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

# Shared memory has 32 banks, successive 4-byte words lie in successive banks, and lanes that read one word share it
# (CUDA C++ programming guide, "Shared Memory" of compute capability 5.x and later).
BANKS = 32
BANK_BYTES = 4
ROW_BYTES = BANKS * BANK_BYTES
WARP_LANES = 32
# ldmatrix and stmatrix move 8x8 matrices of 16-bit elements: eight rows of 16 bytes, whose addresses eight lanes give
# (PTX ISA, "ldmatrix").
MATRIX_ROWS = 8
MATRIX_ROW_BYTES = 16
WIDTHS_BYTES = (1, 2, 4, 8, 16)


def phases(width_bytes: int) -> int:
    """Phases in which a full warp's access of this width is served: 1 up to 4 bytes a lane, 2 for 8, 4 for 16.

    >>> [phases(width) for width in (1, 4, 8, 16)]
    [1, 1, 2, 4]
    """
    # 8-byte accesses are served by half-warps and 16-byte accesses by quarter-warps, 128 bytes at a time (many
    # microbenchmarks, and the CUDA C++ best practices guide for the 64-bit case). Hardware may merge phases whose
    # lanes share addresses; this model then counts too many, never too few.
    if width_bytes not in WIDTHS_BYTES:
        raise ValueError(f"[bank conflicts] a lane moves 1, 2, 4, 8 or 16 bytes in one instruction, not {width_bytes}")
    return max(1, width_bytes // BANK_BYTES)


def wavefronts(addresses: NDArray[np.int64], width_bytes: int) -> int:
    """Shared-memory wavefronts that one warp instruction needs, counted by definition.

    addresses    (32,) byte address per lane; inactive lanes are -1
    width_bytes  bytes per lane: 1, 2, 4, 8 or 16

    >>> wavefronts(np.arange(32) * 4, 4), wavefronts(np.arange(32) * 128, 4)
    (1, 32)
    """
    return int(count_wavefronts(np.asarray(addresses).reshape(1, -1), width_bytes).item())


def count_wavefronts(addresses: NDArray[np.int64], width_bytes: int) -> NDArray[np.int64]:
    """Wavefronts of many warp instructions at once, counted by definition; shape (...).

    addresses    (..., 32) byte address per lane; inactive lanes are -1
    width_bytes  bytes per lane: 1, 2, 4, 8 or 16

    Each phase needs as many wavefronts as its fullest bank has distinct words; a phase without lanes needs none.
    """
    count = phases(width_bytes)
    lanes = _checked(addresses, width_bytes, (WARP_LANES,), "bank conflicts")
    by_phase = lanes.reshape(*lanes.shape[:-1], count, WARP_LANES // count)
    total: NDArray[np.int64] = _fullest_bank(by_phase, width_bytes).sum(axis=-1)
    return total


def matrix_wavefronts(addresses: NDArray[np.int64]) -> NDArray[np.int64]:
    """Wavefronts of ldmatrix or stmatrix instructions, one phase for each 8x8 matrix; shape (...).

    addresses   (..., 8), (..., 16) or (..., 32) byte addresses of the rows of 16 bytes, eight for each matrix

    >>> int(matrix_wavefronts(np.arange(8) * 128)), int(matrix_wavefronts(np.arange(8) * 144))
    (8, 1)
    """
    rows = _checked(addresses, MATRIX_ROW_BYTES, (8, 16, 32), "ldmatrix bank conflicts")
    by_matrix = rows.reshape(*rows.shape[:-1], rows.shape[-1] // MATRIX_ROWS, MATRIX_ROWS)
    total: NDArray[np.int64] = _fullest_bank(by_matrix, MATRIX_ROW_BYTES).sum(axis=-1)
    return total


def _fullest_bank(addresses: NDArray[np.int64], width_bytes: int) -> NDArray[np.int64]:
    """For each phase the largest number of distinct words in one bank: (..., lanes) -> (...)."""
    words_per_lane = max(1, width_bytes // BANK_BYTES)
    first = addresses[..., None] // BANK_BYTES
    words = np.where(first < 0, -1, first + np.arange(words_per_lane))
    flat = np.sort(words.reshape(math.prod(addresses.shape[:-1]), -1), axis=1)
    new = flat >= 0
    new[:, 1:] &= flat[:, 1:] != flat[:, :-1]
    slot = np.arange(len(flat))[:, None] * BANKS + (flat & BANKS - 1)
    per_bank = np.bincount(slot[new], minlength=len(flat) * BANKS).reshape(len(flat), BANKS)
    fullest: NDArray[np.int64] = per_bank.max(axis=1).astype(np.int64)
    return fullest.reshape(addresses.shape[:-1])


def _checked(addresses: NDArray[np.int64], width_bytes: int, lengths: tuple[int, ...], where: str) -> NDArray[np.int64]:
    lanes = np.asarray(addresses)
    if lanes.dtype.kind not in "iu":
        raise TypeError(f"[{where}] addresses are whole bytes, not {lanes.dtype}")
    if lanes.ndim == 0 or lanes.shape[-1] not in lengths:
        wanted = " or ".join(str(length) for length in lengths)
        raise ValueError(f"[{where}] the last axis lists {wanted} lanes, but the addresses have shape {lanes.shape}")
    lanes = lanes.astype(np.int64)
    if np.any(lanes < -1):
        raise ValueError(f"[{where}] an address is a byte number or -1 for an inactive lane, not {lanes.min()}")
    moving = lanes[lanes != -1]
    wrong = moving[moving % width_bytes != 0]
    if wrong.size:
        raise ValueError(
            f"[{where}] address {wrong[0]} is not a multiple of the {width_bytes} bytes that a lane moves"
        )
    return lanes
