"""Scale factors of block-scaled tcgen05.mma: where they lie in tensor memory, what they are worth.

A scale factor is a byte. The 32-bit cell at lane l, column c holds up to four scale factors of one row of A (or column
of B) along K; 32 rows lie in 32 lanes, the next 32 in the next column. Every slab of 32 lanes reads its own copy (PTX
ISA 9.1, "Block Scaling"; placement from the layout data of public production code). Where two slabs share the rows
(M = 128 of a CTA pair), a slab needs the scale factors of its own half of the columns of B only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tinygpu.ptx.emulator.units.narrow_floats import NARROW_FLOATS
from tinygpu.ptx.emulator.units.tensor_memory_maps import SLAB_LANES, LayoutId, Slab

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class ScaleCells:
    """The bytes that hold the scale factors of some rows, for one slab: (rows, scale factors) each.

    lane, column  of the cell, the column relative to the address
    byte          0 to 3 within the cell
    """

    lane: Ints
    column: Ints
    byte: Ints


@cache
def scale_cells(slab: Slab, operand: str, count: int, first_byte: int) -> ScaleCells:
    """Where this slab finds the scale factors of the rows of A (operand "A") or columns of B ("B") that it multiplies.

    Of a slab of several quarters each has the rows of A that lie in it, and the first the columns of B.

    count       scale factors per row: 1, 2 or 4
    first_byte  the scale factor id of the instruction descriptor
    """
    # Rows of A are counted in the CTA; columns of B within the slab's part.
    index = slab.row + np.arange(slab.rows) if operand == "A" else np.arange(slab.columns)
    lanes = slab.lane + np.arange(slab.rows) if operand == "A" else slab.lane
    shape = (index.size, count)
    lane = np.broadcast_to((lanes // SLAB_LANES * SLAB_LANES + index % SLAB_LANES)[:, None], shape)
    column = np.broadcast_to((index // SLAB_LANES)[:, None], shape)
    byte = np.broadcast_to(first_byte + np.arange(count)[None, :], shape)
    return ScaleCells(lane, column, byte)


def scale_columns(layout: LayoutId, operand: str, rows: int, n: int) -> int:
    """Columns of tensor memory that one group of scale factors covers: 32 rows (or columns of B) to a column."""
    if operand == "A":
        return -(-rows // SLAB_LANES)
    return -(-(n // 2 if layout == "B" else n) // SLAB_LANES)


def scale_values(data: NDArray[np.uint8], scale_type: str) -> Floats:
    """What scale factors of type "ue8m0" or "ue4m3" are worth."""
    if scale_type not in ("ue8m0", "ue4m3"):
        raise ValueError(f"scale factors are ue8m0 or ue4m3, not {scale_type}")
    return NARROW_FLOATS[scale_type].decode(data).astype(np.float64)


def spread_scales(scales: Floats, k: int) -> Floats:
    """Scale factors (rows, count) as one factor per element of K: (rows, k)."""
    if k % scales.shape[1]:
        raise ValueError(f"{scales.shape[1]} scale factors do not divide K = {k}")
    return np.repeat(scales, k // scales.shape[1], axis=1)
