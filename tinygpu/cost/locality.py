"""L2 locality of a tiled grid: which panels a run of consecutive CTAs touches, and the DRAM traffic that follows.

The output has `tiles_m` x `tiles_n` tiles, one CTA each. A tile (m, n) reads row panel m of A and column panel n of B.
CTAs start in the order of their number `pid`, which walks groups of `group` tile rows, column by column inside a group:

    group 2, tiles 4 x 3:    0 2 4
                             1 3 5
                             6 8 10
                             7 9 11
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.distinct import distinct

Counts: TypeAlias = int | NDArray[np.int64]
Cells: TypeAlias = int | float | NDArray[np.int64] | NDArray[np.float64]


def raster(pid: Counts, tiles_m: Counts, tiles_n: Counts, group: Counts) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Tile (m, n) that CTA number `pid` computes.

    pid      0 <= pid < tiles_m * tiles_n
    group    tile rows per group, 1 or more; the last group may have fewer. group=1 walks row by row

    >>> [tuple(map(int, raster(pid, 4, 3, 2))) for pid in (0, 1, 2, 6)]
    [(0, 0), (1, 0), (0, 1), (2, 0)]
    """
    p, tm, tn, g = _integers(pid, tiles_m, tiles_n, group)
    _positive(tiles_m=tm, tiles_n=tn, group=g)
    if p.size and (p.min() < 0 or (p >= tm * tn).any()):
        raise ValueError("a CTA number must lie between 0 and tiles_m * tiles_n - 1")
    index = p // (g * tn)
    inside = p % (g * tn)
    rows = np.minimum(g, tm - index * g)
    return index * g + inside % rows, inside // rows


def panels(
    first: Counts, last: Counts, tiles_m: Counts, tiles_n: Counts, group: Counts
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number of distinct (row panels of A, column panels of B) that the CTAs first <= pid < last touch.

    The closed form splits the run into the end of its first group, the whole groups between, and the start of its last
    group. Rows of different groups are different, so they add up; inside one group a run of L CTAs over r rows touches
    min(r, L) rows. Columns of a group's end are a suffix, those of a group's start a prefix.

    >>> [int(x) for x in panels(0, 4, 4, 3, 2)]
    [2, 2]
    """
    a, b, tm, tn, g = _integers(first, last, tiles_m, tiles_n, group)
    _positive(tiles_m=tm, tiles_n=tn, group=g)
    if a.size and (a.min() < 0 or (b <= a).any() or (b > tm * tn).any()):
        raise ValueError("a run of CTAs must satisfy 0 <= first < last <= tiles_m * tiles_n")
    per_group = g * tn
    group_a, group_b = a // per_group, (b - 1) // per_group
    in_a, in_b = a % per_group, (b - 1) % per_group
    rows_a = np.minimum(g, tm - group_a * g)
    rows_b = np.minimum(g, tm - group_b * g)
    start_column, end_column = in_a // rows_a, in_b // rows_b

    single = group_a == group_b
    length = b - a
    head = per_group - in_a  # CTAs of the first group, which is whole when another one follows
    rows = np.where(
        single,
        np.minimum(rows_a, length),
        np.minimum(rows_a, head) + (group_b - group_a - 1) * g + np.minimum(rows_b, in_b + 1),
    )
    across = np.where(group_b - group_a > 1, tn, np.minimum(tn, tn - start_column + end_column + 1))
    columns = np.where(single, end_column - start_column + 1, across)
    return rows, columns


def resident_window(
    capacity_bytes: Cells,
    row_panel_bytes: Cells,
    column_panel_bytes: Cells,
    tile_bytes: Cells,
    tiles_m: Counts,
    tiles_n: Counts,
    group: Counts,
    ctas_per_wave: Counts,
) -> NDArray[np.int64]:
    """Longest run of CTAs, from the first one on, whose panels and output tiles fit into `capacity_bytes` of L2.

    At least one wave (its CTAs walk k together, so that a slice of each panel is enough), at most the whole grid.
    """
    tm, tn, g, wave = _integers(tiles_m, tiles_n, group, ctas_per_wave)
    _positive(tiles_m=tm, tiles_n=tn, group=g, ctas_per_wave=wave)
    total = tm * tn
    low: NDArray[np.int64] = np.minimum(wave, total)
    high: NDArray[np.int64] = total
    while (low < high).any():
        middle = (low + high + 1) // 2
        rows, columns = panels(np.zeros_like(middle), middle, tm, tn, g)
        fits = rows * row_panel_bytes + columns * column_panel_bytes + middle * np.asarray(tile_bytes) <= capacity_bytes
        low, high = np.where(fits, middle, low), np.where(fits, high, np.maximum(middle - 1, low))
    return low


def dram_read_bytes(
    capacity_bytes: Cells,
    row_panel_bytes: Cells,
    column_panel_bytes: Cells,
    tile_bytes: Cells,
    tiles_m: Counts,
    tiles_n: Counts,
    group: Counts,
    ctas_per_wave: Counts,
) -> NDArray[np.float64]:
    """Bytes of A and B that are read from DRAM.

    capacity_bytes      L2 that holds data which all SMs read (`Device.l2_near_bytes`)
    row_panel_bytes     one row panel of A: tile rows x k x element
    column_panel_bytes  one column panel of B
    tile_bytes          one output tile, which also passes through L2
    ctas_per_wave       CTAs that run at a time on the whole device

    The model: the L2 keeps what the last `resident_window` CTAs touched, and forgets the rest. The grid is a sequence
    of such windows, each of which reads its distinct panels once. Windows at up to 8 evenly spaced places are counted
    exactly, and their mean stands for all; with 8 windows or fewer the sum is exact.
    """
    cells = np.broadcast_arrays(capacity_bytes, row_panel_bytes, column_panel_bytes, tile_bytes)
    counts = _integers(tiles_m, tiles_n, group, ctas_per_wave)
    shape = np.broadcast_shapes(cells[0].shape, counts[0].shape)
    whole = [np.broadcast_to(c, shape).reshape(-1) for c in (*(c.astype(np.float64) for c in cells), *counts)]
    # Candidates differ in much that plays no part here.
    first, which = distinct(whole)
    return _read_bytes(*(column[first] for column in whole))[which].reshape(shape)


def _read_bytes(
    capacity_bytes: NDArray[np.float64],
    row_panel_bytes: NDArray[np.float64],
    column_panel_bytes: NDArray[np.float64],
    tile_bytes: NDArray[np.float64],
    tm: NDArray[np.int64],
    tn: NDArray[np.int64],
    g: NDArray[np.int64],
    wave: NDArray[np.int64],
) -> NDArray[np.float64]:
    window = resident_window(capacity_bytes, row_panel_bytes, column_panel_bytes, tile_bytes, tm, tn, g, wave)
    total = tm * tn
    windows = -(-total // window)
    sampled = np.minimum(windows, _SAMPLED_WINDOWS)
    read = np.zeros(total.shape)
    place = 0
    while (inside := place < sampled).any():
        index = np.where(inside, place * windows // sampled, 0)
        first = index * window
        rows, columns = panels(first, np.minimum(first + window, total), tm, tn, g)
        read = read + np.where(inside, rows * row_panel_bytes + columns * column_panel_bytes, 0)
        place += 1
    # A partial window at the end counts as the part of a window that it is.
    scale = np.where(windows <= _SAMPLED_WINDOWS, 1.0, total / window / sampled)
    everything = tm * row_panel_bytes + tn * column_panel_bytes
    return np.asarray(np.maximum(read * scale, everything), dtype=np.float64)


_SAMPLED_WINDOWS = 8


def _integers(*values: Counts) -> tuple[NDArray[np.int64], ...]:
    arrays = np.broadcast_arrays(*values)
    for array in arrays:
        if array.dtype.kind not in "iu":
            raise TypeError(f"tile and CTA counts must be whole numbers, not {array.dtype}")
    return tuple(array.astype(np.int64) for array in arrays)


def _positive(**counts: NDArray[np.int64]) -> None:
    for name, array in counts.items():
        if array.size and array.min() < 1:
            raise ValueError(f"{name} must be at least 1, not {array.min()}")
