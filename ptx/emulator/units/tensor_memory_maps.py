"""Where things lie in tensor memory: accumulators, registers of tcgen05.ld and .st, rows of tcgen05.cp.

Tensor memory of a CTA is 128 lanes x 512 columns of 32-bit cells. An address holds the lane in its upper and the column
in its lower half (PTX ISA 9.1, "Tensor Memory"; "Data Path Layout Organization" says which layout an MMA uses; the
formulas are those of public production code, stated there with round trips on hardware).

The multiplier works in four slabs of 32 lanes. A slab computes some rows of D for some columns of B, and everything it
reads from tensor memory (A, scale factors) it reads in its own lanes. From that one fact follow all placements.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

LANES = 128
COLUMNS = 512
SLAB_LANES = 32
LayoutId = Literal["A", "B", "C", "D", "E", "F", "G"]
Ints = NDArray[np.int64]


def split_address(address: int) -> tuple[int, int]:
    """(lane, column) of a tensor memory address."""
    return address >> 16 & 0xFFFF, address & 0xFFFF


def join_address(lane: int, column: int) -> int:
    """The address of a lane and column."""
    return lane << 16 | column


# ---- accumulators -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Slab:
    """What one quarter of the data path computes of the D of one CTA.

    lane      first lane; `rows` lanes follow each other
    row       first row of the CTA's part of D
    rows      rows (lanes) of this slab
    column    first column of D, which lies in the first column of the accumulator
    columns   columns of D
    """

    lane: int
    row: int
    rows: int
    column: int
    columns: int


def layout_id(m: int, cta_group: int, ws: bool, sparse: bool) -> LayoutId:
    """The data path layout of an MMA with this M. Raises ValueError where there is none."""
    if cta_group == 2 and not ws:
        if m == 256:
            return "A"
        if m == 128:
            return "C" if sparse else "B"
    if cta_group == 1:
        if m == 128:
            return "D"
        if m == 64:
            return "E" if ws else "F"
        if m == 32 and ws:
            return "G"
    raise ValueError(f"no data path layout for M = {m}, cta_group::{cta_group}{', .ws' if ws else ''}")


def rows_per_cta(layout: LayoutId) -> int:
    """Rows of D that one CTA holds."""
    return {"A": 128, "B": 64, "C": 64, "D": 128, "E": 64, "F": 64, "G": 32}[layout]


def uses_half_the_lanes(layout: LayoutId) -> bool:
    """The layout leaves half of each slab's lanes alone; addresses choose the lower or (lane 16) the upper half."""
    return layout in ("C", "F")


def accumulator_columns(layout: LayoutId, n: int) -> int:
    """Columns of tensor memory that the accumulator covers."""
    return n // {"B": 2, "E": 2, "G": 4}.get(layout, 1)


@lru_cache(maxsize=256)
def accumulator_slabs(layout: LayoutId, n: int, half: int = 0) -> tuple[Slab, ...]:
    """The four slabs of an accumulator of N columns; `half` is the lane of the address, 0 or (layouts C, F) 16."""
    if half and not (half == 16 and uses_half_the_lanes(layout)):
        raise ValueError(f"an accumulator of layout {layout} cannot start at lane {half}")
    quarters = range(4)
    if layout in ("A", "D"):
        return tuple(Slab(32 * q, 32 * q, 32, 0, n) for q in quarters)
    if layout in ("C", "F"):
        return tuple(Slab(32 * q + half, 16 * q, 16, 0, n) for q in quarters)
    if layout in ("B", "E"):
        return tuple(Slab(32 * q, 32 * (q % 2), 32, n // 2 * (q // 2), n // 2) for q in quarters)
    return tuple(Slab(32 * q, 0, 32, n // 4 * q, n // 4) for q in quarters)


@lru_cache(maxsize=256)
def joined_slabs(layout: LayoutId, n: int, half: int = 0) -> tuple[Slab, ...]:
    """The same cells of D in fewer slabs: those are one whose lanes and rows follow each other in the same columns."""
    joined: list[Slab] = []
    for slab in accumulator_slabs(layout, n, half):
        last = joined[-1] if joined else None
        if last is not None and slab == Slab(
            last.lane + last.rows, last.row + last.rows, slab.rows, last.column, last.columns
        ):
            joined[-1] = replace(last, rows=last.rows + slab.rows)
        else:
            joined.append(slab)
    return tuple(joined)


def accumulator_cells(layout: LayoutId, n: int, half: int = 0) -> tuple[Ints, Ints]:
    """(lane, column relative to the address) of each element of one CTA's D: (rows, n) each."""
    rows = rows_per_cta(layout)
    lane, column = np.full((rows, n), -1, np.int64), np.full((rows, n), -1, np.int64)
    for s in accumulator_slabs(layout, n, half):
        part = (slice(s.row, s.row + s.rows), slice(s.column, s.column + s.columns))
        lane[part] = s.lane + np.arange(s.rows)[:, None]
        column[part] = np.arange(s.columns)[None, :]
    return lane, column


# ---- tcgen05.ld and .st -------------------------------------------------------------------------------------------

AccessShape = Literal["32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2"]
# shape: (registers of .x1, greatest repetition). PTX ISA, "tcgen05.ld"; counted by assembling every combination.
ACCESS_SHAPES: dict[str, tuple[int, int]] = {
    "32x32b": (1, 128), "16x64b": (1, 128), "16x128b": (2, 64), "16x256b": (4, 32), "16x32bx2": (1, 128),
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class AccessCells:
    """Which cells the registers of a warp hold, relative to the address.

    lane     (32 threads, registers)
    column   (32 threads, registers); with packing the column of the low half, the high half is in the next one
    columns  columns from the address on that are touched or skipped over
    packed   a register holds the low halves of two cells
    places   (registers, 32 threads) lane * 512 + column: the same in a row of all cells
    """

    lane: Ints
    column: Ints
    columns: int
    packed: bool
    places: Ints = field(init=False)

    def __post_init__(self) -> None:
        places = np.ascontiguousarray((COLUMNS * self.lane + self.column).T)
        places.setflags(write=False)
        object.__setattr__(self, "places", places)

    @property
    def lanes(self) -> int:
        """Lanes touched, from the address on."""
        return int(self.lane.max()) + 1


@lru_cache(maxsize=256)
def access_cells(shape: str, repeat: int, packed: bool = False, split: int = 0) -> AccessCells:
    """The cells of `tcgen05.ld/st.SHAPE.xREPEAT`; packed for .pack::16b and .unpack::16b.

    split  for 16x32bx2: distance in columns of the two windows, the immediate operand
    """
    if shape not in ACCESS_SHAPES:
        raise ValueError(f"unknown shape {shape!r}; known: {', '.join(ACCESS_SHAPES)}")
    registers, most = ACCESS_SHAPES[shape]
    if repeat < 1 or repeat & (repeat - 1) or repeat > most:
        raise ValueError(f"{shape} repeats 1, 2, 4, ... {most} times, not {repeat}")
    t = np.arange(32)[:, None]
    r = np.arange(registers * repeat)[None, :]
    window = np.zeros((32, 1), np.int64)
    if shape == "32x32b":
        lane, column = t + 0 * r, r + 0 * t
    elif shape == "16x64b":
        lane, column = t // 4 + 8 * (t % 2) + 0 * r, 2 * r + t // 2 % 2
    elif shape == "16x128b":
        lane, column = t // 4 + 8 * (r % 2), 4 * (r // 2) + t % 4
    elif shape == "16x256b":
        lane, column = t // 4 + 8 * (r // 2 % 2), 8 * (r // 4) + 2 * (t % 4) + r % 2
    else:
        lane, column = t % 16 + 0 * r, r + 0 * t
        window = split * (t // 16)
    # Packed registers take two cells each; the split of 16x32bx2 counts cells, packed or not.
    column = column * (2 if packed else 1) + window
    lane, column = np.ascontiguousarray(lane), np.ascontiguousarray(column)
    lane.setflags(write=False)
    column.setflags(write=False)
    return AccessCells(lane, column, int(column.max()) + (2 if packed else 1), packed)


# ---- tcgen05.cp ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CopyShape:
    """Rows that tcgen05.cp reads from shared memory, and the lanes that get them.

    rows       rows of the source matrix
    row_bytes  bytes of each (after decompression): 16 or 32
    lanes      per copy of the matrix the lane of each row
    """

    rows: int
    row_bytes: int
    lanes: tuple[tuple[int, ...], ...]

    @property
    def columns(self) -> int:
        """Columns of tensor memory that get written."""
        return self.row_bytes // 4

    @property
    def aligned_lane(self) -> bool:
        """The lane of the address must be 0: all slabs are written."""
        return self.rows != 4


# Lane placement: public production code whose authors state bit-exact tests on hardware.
COPY_SHAPES: dict[str, CopyShape] = {
    "128x256b": CopyShape(128, 32, (tuple(range(128)),)),
    "128x128b": CopyShape(128, 16, (tuple(range(128)),)),
    "4x256b": CopyShape(4, 32, (tuple(range(0, 128, 32)),)),
    "64x128b.warpx2::02_13": CopyShape(64, 16, (tuple(range(64)), tuple(range(64, 128)))),
    "64x128b.warpx2::01_23": CopyShape(
        64, 16, tuple(tuple(i % 32 + 64 * (i // 32) + 32 * c for i in range(64)) for c in range(2))
    ),
    "32x128b.warpx4": CopyShape(32, 16, tuple(tuple(range(32 * c, 32 * c + 32)) for c in range(4))),
}
