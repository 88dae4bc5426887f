"""How the lanes of a warp, or of a warpgroup, hold matrices in registers (PTX ISA, "Matrix Fragments").

Every fragment of mma.sync and wgmma follows one rule. With g = lane / 4, t = lane % 4 and r elements per 32-bit
register (one for f64), the registers of A alternate between rows g and g + 8 before K moves on by 4 r; lanes of a quad
hold r neighbours along K each. The warps of a warpgroup hold 16 rows each. Only mma.m8n8k4 of f16 differs: it has four
small products in one warp.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

LANES = 32
Index = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Fragment:
    """How lanes hold a matrix.

    rows, columns  of the matrix
    lanes          that hold it: 32, or 128 of a warpgroup
    elements       elements per lane
    gather         (rows * columns,) position of each matrix element among lane * elements + element
    scatter        (lanes * elements,) position in the row-major matrix of each lane's element
    """

    rows: int
    columns: int
    lanes: int
    elements: int
    gather: Index
    scatter: Index


def make_fragment(columns: int, row: Index, column: Index) -> Fragment:
    """The fragment in which element i of lane l is the matrix element (row[l, i], column[l, i]).

    Raises ValueError unless every element of the matrix is held exactly once.
    """
    row, column = np.broadcast_arrays(row, column)
    lanes, elements = row.shape
    rows = lanes * elements // columns
    scatter = (row * columns + column).reshape(-1)
    if rows * columns != scatter.size or not np.array_equal(np.sort(scatter), np.arange(scatter.size)):
        raise ValueError(f"this fragment does not hold each element of a {rows}x{columns} matrix exactly once")
    gather = np.empty(scatter.size, np.int64)
    gather[scatter] = np.arange(scatter.size)
    gather.setflags(write=False)
    scatter.setflags(write=False)
    return Fragment(rows, columns, lanes, elements, gather, scatter)


def _lanes(count: int) -> tuple[Index, Index, Index]:
    """(warp, lane / 4, lane % 4) of each lane, as columns."""
    lane = np.arange(count, dtype=np.int64)[:, None]
    return lane // LANES, lane % LANES // 4, lane % 4


@lru_cache(maxsize=256)
def left_fragment(m: int, k: int, per_register: int) -> Fragment:
    """A (m x k); m is 8, 16, or 64 for the four warps of a warpgroup.

    per_register  elements in one register: 1 for f64 and tf32, 2 for 16-bit types, ... 32 for single bits
    """
    warp, g, t = _lanes(128 if m == 64 else LANES)
    i = np.arange(min(m, 16) * k // LANES, dtype=np.int64)[None, :]
    run, register = i % per_register, i // per_register
    if m == 8:
        return make_fragment(k, g, t * per_register + run + 4 * per_register * register)
    row = 16 * warp + g + 8 * (register % 2)
    return make_fragment(k, row, t * per_register + run + 4 * per_register * (register // 2))


@lru_cache(maxsize=64)
def right_fragment(k: int, per_register: int) -> Fragment:
    """B (k x 8)."""
    _, g, t = _lanes(LANES)
    i = np.arange(k * 8 // LANES, dtype=np.int64)[None, :]
    row = t * per_register + i % per_register + 4 * per_register * (i // per_register)
    return make_fragment(8, row, g)


@lru_cache(maxsize=64)
def accumulator_fragment(m: int, n: int) -> Fragment:
    """C and D (m x n), counted in elements whatever their packing; m is 8, 16 or 64, n a multiple of 8."""
    warp, g, t = _lanes(128 if m == 64 else LANES)
    i = np.arange(min(m, 16) * n // LANES, dtype=np.int64)[None, :]
    if m == 8:
        return make_fragment(n, g, 8 * (i // 2) + 2 * t + i % 2)
    return make_fragment(n, 16 * warp + g + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * t + i % 2)


# ---- wmma: pieces of 16 (or 8) rows and of 8 columns, one after the other -----------------------------------------


@lru_cache(maxsize=64)
def stacked_left(m: int, k: int, per_register: int) -> Fragment:
    """A (m x k) of wmma, whose layout the manual leaves open: that of mma, 16 rows after the other."""
    piece = left_fragment(min(m, 16), k, per_register)
    row, column = np.divmod(piece.scatter.reshape(LANES, -1), k)
    return _stack(k, row, column, m // piece.rows, 16, 0)


@lru_cache(maxsize=64)
def stacked_right(k: int, n: int, per_register: int) -> Fragment:
    """B (k x n) of wmma: that of mma, 8 columns after the other."""
    row, column = np.divmod(right_fragment(k, per_register).scatter.reshape(LANES, -1), 8)
    return _stack(n, row, column, n // 8, 0, 8)


@lru_cache(maxsize=64)
def stacked_accumulator(m: int, n: int) -> Fragment:
    """C and D (m x n) of wmma: that of mma, 8 columns after the other, then 16 rows after the other."""
    piece = accumulator_fragment(min(m, 16), n)
    row, column = np.divmod(piece.scatter.reshape(LANES, -1), n)
    return _stack(n, row, column, m // piece.rows, 16, 0)


def _stack(columns: int, row: Index, column: Index, count: int, rows_apart: int, columns_apart: int) -> Fragment:
    rows = np.concatenate([row + k * rows_apart for k in range(count)], axis=1)
    return make_fragment(columns, rows, np.concatenate([column + k * columns_apart for k in range(count)], axis=1))


# ---- mma.m8n8k4 of f16: lanes 4q to 4q + 3 and 16 + 4q to 19 + 4q make product q -----------------------------------


def _quad_pairs() -> tuple[Index, Index, Index]:
    """(product, lane % 4, 1 for the high group) of each lane, as columns."""
    lane = np.arange(LANES, dtype=np.int64)[:, None]
    return lane % 16 // 4, lane % 4, lane // 16


@lru_cache(maxsize=4)
def quad_pair_operand(along_k: bool) -> Fragment:
    """A or B of the four 8x4 products, stacked to 32 x 4 as [product * 8 + (row of A or column of B), k].

    along_k  whether a lane holds four neighbours along K (A by rows, B by columns), else four along M or N
    """
    product, part, high = _quad_pairs()
    i = np.arange(4, dtype=np.int64)[None, :]
    if along_k:
        return make_fragment(4, 8 * product + part + 4 * high, i)
    return make_fragment(4, 8 * product + i + 4 * high, part)


@lru_cache(maxsize=4)
def quad_pair_accumulator(wide: bool) -> Fragment:
    """C and D of the four 8x8 products, stacked to 32 x 8; `wide` for f32, which is held differently from f16."""
    product, part, high = _quad_pairs()
    i = np.arange(8, dtype=np.int64)[None, :]
    if not wide:
        return make_fragment(8, 8 * product + part + 4 * high, i)
    row = (part & 1) + (i & 2) + 4 * high
    return make_fragment(8, 8 * product + row, (i & 4) + (part & 2) + (i & 1))


# ---- matrices of bytes, as ldmatrix and stmatrix move them --------------------------------------------------------


@lru_cache(maxsize=8)
def byte_matrix_fragment(rows: int, transposed: bool) -> Fragment:
    """Which byte of a matrix of 16-byte rows each of a lane's bytes is (PTX ISA, "ldmatrix", "stmatrix").

    rows        8 (one register per lane) or 16 (two)
    transposed  whether memory holds the transpose of what the lanes get: then a lane's four bytes come from four rows

    Eight transposed rows are those of stmatrix.m16n8, whose lanes hold four accumulators of an mma in one register.
    Raises ValueError for 16 rows that are not transposed.
    """
    if rows == 16 and not transposed:
        raise ValueError("16 rows of bytes are held transposed only")
    _, g, t = _lanes(LANES)
    i = np.arange(rows // 2, dtype=np.int64)[None, :]
    if not transposed:
        return make_fragment(16, g, 4 * t + i)
    if rows == 8:
        return make_fragment(16, 2 * t + i % 2, g + 8 * (i // 2))
    return make_fragment(16, 4 * t + i % 4, g + 8 * (i // 4))
