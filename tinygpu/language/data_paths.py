"""Data paths: where the elements of a tile lie in tensor memory, as layouts (row, column) -> (lane, column of cells).

Most tiles have row r in lane r. Of a product with fewer rows than there are lanes, rows are in some of the lanes, or
one half of the columns lies below the other: who multiplies says so (`MatrixMultiply.path`), a buffer has it, and what
a warp reaches there, by the lanes and columns of its instruction, is found through it. Where the same rows lie in
several lanes, as copies may lay them (`RowCopy.path`), a third mode of the path counts the copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from tinygpu.expressions import Expr, Operand, expr
from tinygpu.language.tile import Tile
from tinygpu.layouts.algebra import coalesce_modes
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf, same
from tinygpu.layouts.step import E, Step

LANES_OF_A_WARP = 32
Digit: TypeAlias = tuple[Leaf, Leaf | Step]
Steps: TypeAlias = tuple[Digit, ...]


def rows_in_lanes(rows: Operand, columns: Operand) -> Layout:
    """Row r in lane r, column c in column c.

    >>> print(rows_in_lanes(128, 64))
    (128,64):(1@lane,1@column)
    """
    return Layout.of([(expr(rows), E("lane"))], [(expr(columns), E("column"))])


def columns_taken(path: Layout) -> Expr:
    """Columns of cells that a path goes over.

    >>> int(columns_taken(Layout.parse("(64,(32,2)):(1@lane,(1@column,64@lane))")))
    32
    """
    taken = expr(1)
    for size, step in path.steps:
        if isinstance(step, Step) and not same(step.along("column"), 0):
            taken = taken * size
    return taken


def divides_columns(path: Layout) -> bool:
    """Whether some columns of a tile lie in other lanes than the rest."""
    return any(isinstance(step, Step) and not same(step.along("lane"), 0) for _, step in path[1].steps)


def path_of(tile: Tile) -> Layout:
    """Of a window in tensor memory, from its first cell on."""
    buffer = tile.buffer
    if buffer is None or buffer.path is None:
        return rows_in_lanes(*tile.shape)
    if divides_columns(buffer.path):
        return buffer.path
    return Layout.of(buffer.path[0].steps, [(tile.shape[1], E("column"))], *copies(buffer.path))


def copies(path: Layout) -> list[Steps]:
    """The digits that count lanes with the same rows, as a mode; none where every row lies in one lane.

    >>> copies(rows_in_lanes(128, 64))
    []
    """
    return [mode.steps for mode in path.modes[2:]]


def alike(one: Layout, other: Layout) -> bool:
    """Whether two paths are the same."""
    return coalesce_modes(one) == coalesce_modes(other)


def halves(path: Layout) -> int:
    """How many halves of a warp's lanes, 16 each, have something of the tile: both, or the lower one alone."""
    return 2 if _along_lanes(LANES_OF_A_WARP // 2, 2, path) is not None else 1


def held(access: Layout, path: Layout) -> Layout | None:
    """(threads, registers) -> (row, column): what a warpgroup holds whose warps each access cells of their lanes.

    access  (lane of a warp, register) -> lane and column, from the warp's first lane and the tile's first column on

    None where it reaches lanes that have nothing of the tile.

    >>> path = Layout.parse("((16,4),64):((1@lane,32@lane),1@column)")
    >>> print(held(Layout.parse("((16,2),32):((1@lane,32@column),1@column)"), path))
    ((16,2,4),32):((1@0,32@1,16@0),1@1)

    Who reaches copies of the same rows holds the same.

    >>> print(held(Layout.parse("(32,4):(1@lane,1@column)"), Layout.parse("(64,4,2):(1@lane,1@column,64@lane)")))
    ((64,2),4):((1@0,0),1@1)
    """
    warps = [(2, 32 * E("lane")), (2, 64 * E("lane"))]
    threads = _through([*access[0].steps, *warps], path)
    registers = _through(access[1].steps, path)
    if threads is None or registers is None:
        return None
    return coalesce_modes(Layout.of(threads, registers))


def _lanes(path: Layout) -> list[tuple[Leaf, Leaf, Leaf | Step]]:
    """(size, step along the lanes, step along the tile) of digits that move along lanes; of copies the last is 0."""
    found: list[tuple[Leaf, Leaf, Leaf | Step]] = []
    for axis, mode in enumerate(path.modes):
        below: Leaf = 1
        for size, step in mode.steps:
            if isinstance(step, Step) and not same(step.along("lane"), 0):
                found.append((size, step.along("lane"), below * E(axis) if axis < 2 else 0))
            below = expr(below) * size
    return found


def _through(digits: Sequence[Digit], path: Layout) -> list[Digit] | None:
    """Digits along lanes and columns as digits along rows and columns of the tile."""
    out: list[Digit] = []
    for size, step in digits:
        if same(size, 1):
            continue
        if not isinstance(step, Step):
            return None
        lane, column = step.along("lane"), step.along("column")
        if same(lane, 0):
            out.append((size, column * E(1)))
            continue
        moved = _along_lanes(int(expr(lane)), int(expr(size)), path)
        if moved is None:
            return None
        out.append((size, moved))
    return out


def _along_lanes(lane: int, size: int, path: Layout) -> Leaf | Step | None:
    """One step of a digit of so many values along so many lanes, along the tile; None where there is nothing."""
    for many, step, moved in _lanes(path):
        first, known = int(expr(step)), expr(many).is_number
        if known and first <= lane and lane % first == 0 and lane * size <= first * int(expr(many)):
            return lane // first * moved
    return None
