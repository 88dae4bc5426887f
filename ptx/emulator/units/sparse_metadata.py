"""Sparsity metadata of tcgen05.mma.sp: which elements of a row of A are the stored ones.

For each chunk of K a 4-bit index says where its stored elements belong (PTX ISA 9.1, "Sparse Matrices"). The manual
shows the placement of the indices in tensor memory in figures only; the formulas here restate the layout data of public
production code, which covers slabs of 32 rows. Layouts that use half of the lanes (C and F) are not known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.units.tcgen05_descriptors import KINDS
from tinygpu.ptx.emulator.units.tensor_memory_maps import Slab

Ints = NDArray[np.int64]
# The meaningful indices (PTX ISA, "Sparse tcgen05.mma.sp"): two positions, the lower bits say where the first belongs.
_PAIRS = (0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b0110, 0b1110)
_SINGLES = (0b0100, 0b1110)


@dataclass(frozen=True, slots=True, eq=False)
class MetadataCells:
    """Where the indices of a slab's rows lie: (rows, chunks) each.

    lane, column  of the cell, the column relative to the address
    shift         bits by which the index is shifted within the cell
    """

    lane: Ints
    column: Ints
    shift: Ints


def chunk_elements(kind: str) -> int:
    """Elements of dense K that one index speaks of."""
    if kind == "tf32":
        return 2
    return 8 if KINDS[kind].packs_pairs else 4


def legal_indices(kind: str) -> tuple[int, ...]:
    """The indices that have a meaning."""
    return _SINGLES if kind == "tf32" else _PAIRS


def metadata_columns(kind: str) -> int:
    """Columns that the metadata of one instruction covers."""
    return 1 if kind in ("f16", "tf32") else 2


def metadata_cells(slab: Slab, kind: str, selector: int = 0) -> MetadataCells:
    """The cells with the indices of this slab's rows. Raises ValueError for slabs of fewer than 32 rows.

    selector  the sparsity selector of the instruction descriptor: the column within a group
    """
    if slab.rows != 32:
        raise ValueError("the metadata placement of layouts that use half of the lanes is not known")
    row = np.arange(slab.rows)[:, None]
    chunks = 8 if kind in ("f16", "tf32") else 16
    chunk = np.arange(chunks)[None, :]
    if chunks == 8:
        # Rows m and m + 8 share a cell; the two halves of K lie eight lanes apart.
        lane = slab.lane + row % 8 + 8 * (chunk // 4) + 16 * (row // 16)
        column = np.full(lane.shape, selector)
        shift = 4 * (4 * (row // 8 % 2) + chunk % 4)
    else:
        lane = slab.lane + row + 0 * chunk
        column = chunk // 8 + 0 * row
        shift = 4 * (chunk % 8) + 0 * row
    return MetadataCells(lane, column, shift)


def stored_positions(indices: Ints, kind: str) -> tuple[Ints, NDArray[np.bool_]]:
    """Positions along dense K of the stored elements, (rows, stored), and which indices are illegal, (rows, chunks).

    indices  (rows, chunks) of 0 to 15
    """
    width = chunk_elements(kind)
    start = np.arange(indices.shape[1])[None, :, None] * width
    low, high = indices[..., None] & 3, indices[..., None] >> 2 & 3
    if kind == "tf32":
        # The index counts halves of a 32-bit element.
        return (start + low // 2).reshape(indices.shape[0], -1), ~np.isin(indices, legal_indices(kind))
    pairs = np.concatenate([low, high], axis=2)
    if width == 8:
        pairs = np.concatenate([2 * low, 2 * low + 1, 2 * high, 2 * high + 1], axis=2)
    return (start + pairs).reshape(indices.shape[0], -1), ~np.isin(indices, legal_indices(kind))
