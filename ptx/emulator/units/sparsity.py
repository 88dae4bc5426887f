"""Structured sparsity of A: which of the elements of a row the stored ones are (PTX ISA, "Sparse matrix storage").

Of each chunk of four elements two are stored, and two 2-bit indices say which; 4-bit types count pairs of neighbours
instead of elements, and tf32 counts its halves, so that one of two is stored and its index is 0b0100 or 0b1110.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

LANES = 32


@dataclass(frozen=True, slots=True, eq=False)
class SparsityLayout:
    """Where the indices of a 16 x k matrix lie in the metadata registers of a warp.

    k          columns of the whole matrix; k / 2 are stored
    element_bits  width of one stored element
    lanes_used    lanes of each quad that give metadata: 1, 2 or 4
    lane, shift   (16, chunks) lane of selector 0, and first bit, of the four bits of each chunk
    """

    k: int
    element_bits: int
    lanes_used: int
    lane: NDArray[np.int64]
    shift: NDArray[np.int64]

    @property
    def selectors(self) -> int:
        """How many values the sparsity selector may have."""
        return 4 // self.lanes_used


@lru_cache(maxsize=32)
def sparsity_layout(k: int, element_bits: int) -> SparsityLayout:
    """The layout for A of 16 x k elements (PTX ISA, figures "metadata layout" of mma.sp).

    16-bit types and tf32: a lane holds 16 bits of row g, and above them those of row g + 8; the next lane goes on along
    K. 8- and 4-bit types: a lane holds 32 bits of row g, the next lane those of row g + 8, then K goes on.
    """
    chunk = {32: 2, 16: 4, 8: 4, 4: 8}[element_bits]
    chunks = k // chunk
    row = np.arange(16)[:, None]
    bit = 4 * np.arange(chunks)[None, :]
    g, high = row % 8, row // 8
    if element_bits >= 16:
        unit = bit // 16
        lane, shift = 4 * g + unit, bit % 16 + 16 * high
        used = chunks * 4 // 16
    else:
        unit = bit // 32
        lane, shift = 4 * g + 2 * unit + high, bit % 32 + 0 * high
        used = 2 * (chunks * 4 // 32)
    if used not in (1, 2, 4):
        raise ValueError(f"no sparse matrix has {k} columns of {element_bits}-bit elements")
    lane, shift = np.broadcast_arrays(lane, shift)
    return SparsityLayout(k, element_bits, used, lane.astype(np.int64), shift.astype(np.int64))


def chunk_indices(layout: SparsityLayout, metadata: NDArray[np.uint32], selector: int) -> NDArray[np.int64]:
    """The four bits of each chunk: (..., 16, chunks) from metadata registers (..., 32)."""
    lane = layout.lane + selector * layout.lanes_used
    words = metadata[..., lane].astype(np.int64)
    return (words >> layout.shift) & 15


def illegal_chunks(layout: SparsityLayout, indices: NDArray[np.int64], ordered: bool) -> NDArray[np.bool_]:
    """Which chunks have four bits without meaning.

    ordered  whether the second index must be the greater (mma.sp::ordered_metadata); equal indices are never legal
    """
    first, second = indices & 3, indices >> 2
    if layout.element_bits == 32:
        return np.asarray((indices != 0b0100) & (indices != 0b1110))
    return np.asarray(second <= first if ordered else second == first)


def stored_columns(layout: SparsityLayout, indices: NDArray[np.int64]) -> NDArray[np.int64]:
    """Column of each stored element: (..., 16, k / 2) from the four bits of each chunk (..., 16, chunks)."""
    first, second = indices & 3, indices >> 2
    start = np.arange(indices.shape[-1])
    if layout.element_bits == 32:
        return np.asarray(2 * start + first // 2)
    if layout.element_bits == 4:
        pairs = np.stack([8 * start + 2 * first, 8 * start + 2 * second], axis=-1)
        return (pairs[..., None] + np.arange(2)).reshape(*indices.shape[:-1], -1)
    return np.stack([4 * start + first, 4 * start + second], axis=-1).reshape(*indices.shape[:-1], -1)


def expand(
    layout: SparsityLayout, stored: NDArray[np.float64], indices: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The whole matrix (..., 16, k) from its stored elements (..., 16, k / 2); all others are zero."""
    whole = np.zeros((*stored.shape[:-1], layout.k))
    np.put_along_axis(whole, stored_columns(layout, indices), stored, axis=-1)
    return whole
