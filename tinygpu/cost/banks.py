"""Shared-memory wavefronts: how often the banks must be asked to serve one warp instruction.

`wavefronts` and its relatives count by definition; `linear_wavefronts` and `strided_wavefronts` are closed forms that
give the same number without listing an address.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts.f2 import rank

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


def linear_wavefronts(columns: Sequence[int], width_bytes: int) -> int:
    """Wavefronts of a full warp whose byte addresses are F2-linear in the lane number (closed form).

    columns      byte-address image of each of the five lane bits; every column is a multiple of the width
    width_bytes  bytes per lane: 1, 2, 4, 8 or 16

    A constant XOR, or an added base that is a multiple of both 4 bytes and the width, changes nothing.

    >>> linear_wavefronts([128, 256, 512, 1024, 2048], 4), linear_wavefronts([4, 8, 16, 32, 64], 4)
    (32, 1)
    """
    # wavefronts = phases * 2^(rank(W P) - rank(B P)): on the lanes of one phase (P) the word map W has 2^rank(W P)
    # images and the bank map B folds 2^(rank(W P) - rank(B P)) of them onto each bank that it hits.
    count = phases(width_bytes)
    if len(columns) != 5:
        raise ValueError(f"[bank conflicts] a warp has five lane bits, but {len(columns)} columns were given")
    _refuse_misaligned_columns(columns, width_bytes)
    in_phase = columns[: 5 - (count.bit_length() - 1)]
    return count * _fold(in_phase)


def linear_matrix_wavefronts(columns: Sequence[int]) -> int:
    """Wavefronts of ldmatrix whose row addresses are F2-linear in the row's lane number (closed form).

    columns   byte-address image of each lane bit: 3, 4 or 5 of them for .x1, .x2 and .x4

    >>> linear_matrix_wavefronts([128, 256, 512]), linear_matrix_wavefronts([128 ^ 16, 256 ^ 32, 512 ^ 64])
    (8, 1)
    """
    # Conflict-free exactly when lane bits 0..2 reach address bits 4..6 with rank 3 (or share rows).
    if len(columns) not in (3, 4, 5):
        raise ValueError(f"[ldmatrix bank conflicts] 3, 4 or 5 lane bits give row addresses, not {len(columns)}")
    _refuse_misaligned_columns(columns, MATRIX_ROW_BYTES)
    return int(2 ** (len(columns) - 3)) * _fold(columns[:3])


def strided_wavefronts(stride_bytes: int, width_bytes: int) -> int | None:
    """Wavefronts of a full warp in which lane l moves `width_bytes` at base + l * stride (closed form).

    None where no closed form holds: lanes narrower than a word whose stride is wider than a word but not a multiple
    of one. The base is any multiple of the width.

    >>> [strided_wavefronts(4 * words, 4) for words in (1, 2, 3, 32, 33)]
    [1, 2, 1, 32, 1]
    """
    count = phases(width_bytes)
    stride = abs(stride_bytes)
    if stride % width_bytes:
        raise ValueError(
            f"[bank conflicts] lanes of {width_bytes} bytes need a stride that is a multiple of {width_bytes} bytes, "
            f"not {stride_bytes}"
        )
    if stride == 0:
        return count
    if width_bytes < BANK_BYTES:
        if stride <= BANK_BYTES:
            return 1  # at most 32 successive words
        if stride % BANK_BYTES:
            return None
    # In units of one lane's width (a word at least) a row of banks holds as many units as a phase has lanes, u of
    # stride s fall on u / gcd(s, u) of them, so each of these serves gcd(s, u) lanes.
    unit = max(width_bytes, BANK_BYTES)
    return count * math.gcd(stride // unit, ROW_BYTES // unit)


def least_padding(row_bytes: int, width_bytes: int, step_bytes: int) -> int | None:
    """Fewest bytes to add to each row so that lanes that walk down a column meet no bank conflict.

    row_bytes    bytes of a row, a multiple of the width
    width_bytes  bytes per lane of the walk: 4, 8 or 16
    step_bytes   the padding is a multiple of this (the widest vector of any access), itself one of the width

    None where no padding helps, because the step itself is too coarse. One period of the banks is enumerated.

    >>> least_padding(128, 4, 4), least_padding(128, 16, 16), least_padding(128, 4, 16)
    (4, 16, None)
    """
    if step_bytes <= 0 or step_bytes % width_bytes:
        raise ValueError(
            f"[padding] the step must be a positive multiple of the access width {width_bytes}, not {step_bytes}"
        )
    for padding in range(0, ROW_BYTES, step_bytes):
        if strided_wavefronts(row_bytes + padding, width_bytes) == phases(width_bytes):
            return padding
    return None


def _fold(columns: Sequence[int]) -> int:
    words = rank([column >> 2 for column in columns])
    banks = rank([column >> 2 & BANKS - 1 for column in columns])
    return int(2 ** (words - banks))


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


def _refuse_misaligned_columns(columns: Sequence[int], width_bytes: int) -> None:
    for bit, column in enumerate(columns):
        if column < 0 or column % width_bytes:
            raise ValueError(
                f"[bank conflicts] lane bit {bit} moves the address by {column}, which is not a multiple of the "
                f"{width_bytes} bytes that a lane moves"
            )
