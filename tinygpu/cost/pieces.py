"""Pieces of global memory (sectors, accesses of L2) that the warp instructions of one access touch.

What an access touches is decided by the leaves of its layout (threads, instructions) -> bits, and by where its windows
begin. The leaves are expressions, and the count over them is one too: for arrays of candidates the lanes are listed
once for each distinct warp, and for ranges the least is said.

Where in a piece a warp's addresses begin decides how many pieces they touch, and nothing else of where they are. Digits
that move all lanes by whole pieces therefore only multiply, and the others say how often a warp begins where.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tinygpu.cost.distinct import distinct
from tinygpu.expressions import Expr, Table, expr, tabulated
from tinygpu.expressions.evaluation import Value
from tinygpu.layouts.leaf import Leaf, same
from tinygpu.layouts.step import Step
from tinygpu.program.access import WARP, Access
from tinygpu.program.windows import Window

Column: TypeAlias = NDArray[np.int64]
Digit: TypeAlias = tuple[Column, Column]  # of every candidate: (size, bits from one to the next)
Bounds: TypeAlias = tuple[int, int]

# Rows of a box are asked for by one instruction, however many there are.
ROWS_OF_A_BOX = 1 << 20


def pieces(access: Access, window: Window, piece_bytes: int) -> Expr:
    """Pieces of `piece_bytes` that one execution of an access to a tensor touches, summed over its instructions: those
    of a warp, or the boxes of a bulk copy.

    Where windows begin at different places of a piece, this is the mean over all that their steps reach.
    Tensors begin at whole pieces; edges are not looked at.
    """
    threads, instructions = access.layout.modes
    idle = tuple(access.once and not isinstance(step, Step) for _, step in access.starts.threads.steps)
    leaves: list[Leaf] = []
    for size, step in (*threads.steps, *instructions.steps):
        leaves += [size, 0 if isinstance(step, Step) else step]
    side_by_side = same(leaves[1], access.width_bits)
    together = ROWS_OF_A_BOX if access.by_engine else WARP
    form = _Form(8 * piece_bytes, together, idle, side_by_side, len(instructions.steps), len(window.steps))
    leaves = [access.width_bits, window.begin, *(step for _, step in window.steps), *leaves]
    return tabulated(_table(form), *map(expr, leaves))


@dataclass(frozen=True, slots=True)
class _Form:
    """What is known of an access before its numbers are.

    piece_bits    of one piece
    together      lanes of one instruction
    idle          per digit of the threads: whether only the first of those that it tells apart takes part
    side_by_side  whether along the first of these digits each begins where the one before it ends
    instructions  how many digits they have
    windows       how many steps move the windows
    """

    piece_bits: int
    together: int
    idle: tuple[bool, ...]
    side_by_side: bool
    instructions: int
    windows: int


@lru_cache(maxsize=256)
def _table(form: _Form) -> Table:
    said = "".join("ax"[idle] for idle in form.idle) + "s" * form.side_by_side
    name = f"pieces_{form.piece_bits}_{form.together}_{said}_{form.instructions}_{form.windows}"

    @lru_cache(maxsize=1 << 14)
    def one(*numbers: int) -> float:
        found: float = _touched(form, *(np.array([number], dtype=np.int64) for number in numbers)).item()
        return found

    def many(*leaves: Value) -> Value:
        listed = [place for place, leaf in enumerate(leaves) if np.ndim(leaf)]
        if not listed:
            return one(*map(int, leaves))
        columns = np.broadcast_arrays(*(leaves[place] for place in listed))
        distinct, row = _distinct([column.reshape(-1) for column in columns])
        numbers = [np.full(len(distinct), leaf, dtype=np.int64) if not np.ndim(leaf) else leaf for leaf in leaves]
        for place, column in zip(listed, distinct.T, strict=True):
            numbers[place] = column
        return _touched(form, *numbers)[row].reshape(columns[0].shape)

    return Table(name, one, many, lambda *bounds: _least(form, bounds))


# -- of candidates -----------------------------------------------------------------------------------------------------


def _touched(form: _Form, width: Column, begin: Column, *leaves: Column) -> NDArray[Any]:
    """Pieces for each candidate, integers where all are; one that no constraint admits (sizes below 1) touches none."""
    windows, rest = leaves[: form.windows], leaves[form.windows :]
    digits = list(zip(rest[::2], rest[1::2], strict=True))
    threads, instructions = digits[: len(form.idle)], digits[len(form.idle) :]
    some = np.logical_and.reduce([width > 0, *(size > 0 for size, _ in digits)])
    lanes, warps, even = _warps(form, threads)
    found, reached = np.zeros(width.shape, dtype=np.int64), np.ones(width.shape, dtype=np.int64)
    for among, (total, of) in (
        (some & even, _of_warps(form.piece_bits, width, begin, windows, lanes, [*warps, *instructions], some & even)),
        (some & ~even, _of_uneven(form, width, begin, windows, threads, instructions, some & ~even)),
    ):
        found[among], reached[among] = total, of
    return found / reached if (found % reached).any() else found // reached


def _warps(form: _Form, threads: Sequence[Digit]) -> tuple[list[Digit], list[Digit], NDArray[np.bool_]]:
    """The digits of the lanes, those of the warps, and where the threads' digits split into them: all warps alike."""
    lanes, warps = list[Digit](), list[Digit]()
    left = np.full(threads[0][0].shape, form.together, dtype=np.int64)
    even = np.ones(left.shape, dtype=np.bool_)
    for (size, step), idle in zip(threads, form.idle, strict=True):
        here = np.maximum(np.minimum(size, left), 1)
        even &= (left % here == 0) & (size % here == 0)
        left = left // here
        lanes.append((here, np.where(here > 1, step, 0)))
        warps.append((np.ones_like(size) if idle else size // here, step * here))
    return lanes, warps, even


def _of_warps(
    piece: int,
    width: Column,
    begin: Column,
    windows: Sequence[Column],
    lanes: Sequence[Digit],
    others: Sequence[Digit],
    among: NDArray[np.bool_],
) -> tuple[Column, Column]:
    """(pieces, of how many windows) where all instructions have the same lanes and other digits begin them."""
    times = np.ones(width.shape, dtype=np.int64)
    between = list[Digit]()
    for size, step in others:
        apart = (step % piece != 0) & (size > 1)
        times = np.where(apart, times, times * size)
        between.append((np.where(apart, size, 1), np.where(apart, step % piece, 0)))
    moved = [step % piece for step in windows]
    columns = [width, begin % piece, *moved, *(c for digit in (*lanes, *between) for c in digit)]
    rows, place = _distinct([column[among] for column in columns])
    together, reached = np.zeros(len(rows), dtype=np.int64), np.ones(len(rows), dtype=np.int64)
    first, middle = 2 + len(moved), 2 + len(moved) + 2 * len(lanes)
    for number, row in enumerate(rows.tolist()):
        together[number], reached[number] = _of_warp(piece, first, middle, tuple(row))
    return times[among] * together[place], reached[place]


@lru_cache(maxsize=1 << 16)  # thousands of candidates after thousands have the same warps
def _of_warp(piece: int, first: int, middle: int, row: tuple[int, ...]) -> tuple[int, int]:
    """(pieces, of how many windows) of one warp.

    row  width, begin and windows, from `first` on the digits of lanes, from `middle` on the others
    """
    held = _offsets(row[first:middle:2], row[first + 1 : middle : 2])
    often, reached = begins(piece, row[1], row[middle::2], row[middle + 1 :: 2], row[2:first])
    return _count(held, row[0], often, piece), reached


def _of_uneven(
    form: _Form,
    width: Column,
    begin: Column,
    windows: Sequence[Column],
    threads: Sequence[Digit],
    instructions: Sequence[Digit],
    among: NDArray[np.bool_],
) -> tuple[Column, Column]:
    """(pieces, of how many windows) where the digits of the threads end within a warp: every warp is listed."""
    columns = [width, begin, *windows, *(c for digit in (*threads, *instructions) for c in digit)]
    rows, place = _distinct([column[among] for column in columns])
    found, reached = np.zeros(len(rows), dtype=np.int64), np.ones(len(rows), dtype=np.int64)
    first, middle = 2 + len(windows), 2 + len(windows) + 2 * len(threads)
    for number, row in enumerate(rows.tolist()):
        sizes = row[first:middle:2]
        held = _offsets(sizes, row[first + 1 : middle : 2])
        acting = np.ones(len(held), dtype=np.bool_)
        for below, size, idle in zip(_below(sizes), sizes, form.idle, strict=True):
            if idle:
                acting &= np.arange(len(held)) // below % size == 0
        often, reached[number] = begins(form.piece_bits, row[1], row[middle::2], row[middle + 1 :: 2], row[2:first])
        warps = [slice(first, first + form.together) for first in range(0, len(held), form.together)]
        found[number] = sum(_count(held[warp][acting[warp]], row[0], often, form.piece_bits) for warp in warps)
    return found[place], reached[place]


def _distinct(columns: Sequence[Column]) -> tuple[Column, NDArray[np.intp]]:
    """The distinct rows of a table that is given by columns, and of each row which of these it is."""
    whole = [np.asarray(column, dtype=np.int64) for column in columns]
    first, row = distinct(whole)
    return np.stack([column[first] for column in whole], axis=1), row


def _below(sizes: Sequence[int]) -> list[int]:
    return [math.prod(sizes[:place]) for place in range(len(sizes))]


def _offsets(sizes: Sequence[int], steps: Sequence[int]) -> Column:
    """(product of the sizes,) the first digit running fastest."""
    out = np.zeros(1, dtype=np.int64)
    for size, step in zip(sizes, steps, strict=True):
        out = (np.arange(size, dtype=np.int64)[:, None] * step + out).reshape(-1)
    return out


def begins(
    piece: int, begin: int, sizes: Sequence[int], steps: Sequence[int], windows: Sequence[int]
) -> tuple[dict[int, int], int]:
    """How often warps begin at each place of a piece, and of how many windows that is the sum."""
    often, reached = {begin % piece: 1}, 1
    for step in windows:
        period = piece // math.gcd(step, piece)
        reached *= period
        often = _moved(often, [(n * step, 1) for n in range(period)], piece)
    for size, step in zip(sizes, steps, strict=True):
        period = piece // math.gcd(step, piece)
        rounds, more = divmod(size, period)
        often = _moved(often, [(n * step, rounds + (n < more)) for n in range(min(size, period))], piece)
    return often, reached


def _moved(often: dict[int, int], moves: Sequence[tuple[int, int]], piece: int) -> dict[int, int]:
    if len(moves) == 1:
        ((by, count),) = moves
        return {(place + by) % piece: times * count for place, times in often.items()}
    out: dict[int, int] = {}
    for place, times in often.items():
        for by, count in moves:
            there = (place + by) % piece
            out[there] = out.get(there, 0) + times * count
    return out


def _count(lanes: Column, width: int, often: dict[int, int], piece: int) -> int:
    """Distinct pieces that lanes of `width` touch, summed over the places where their addresses begin."""
    if not len(lanes):
        return 0
    begun = np.array(list(often), dtype=np.int64)[:, None, None] + lanes[None, :, None]
    touched = (begun + np.minimum(np.arange(-(-width // piece) + 1) * piece, width - 1)) // piece
    touched = np.sort(touched.reshape(len(often), -1), axis=1)
    distinct = 1 + (touched[:, 1:] != touched[:, :-1]).sum(axis=1)
    return int(distinct @ np.array(list(often.values()), dtype=np.int64))


# -- of ranges ---------------------------------------------------------------------------------------------------------


def _least(form: _Form, bounds: Sequence[Bounds]) -> int:
    """At least: for each instruction the pieces that the bytes of lanes that do not overlap fill, and one for each lane
    that stands a piece or more from all others.
    """
    (narrow, wide), rest = bounds[0], bounds[2 + form.windows :]
    digits = list(zip(rest[::2], rest[1::2], strict=True))
    if narrow < 1 or any(size[1] < 1 for size, _ in digits):
        return 0
    threads = [digit for digit, idle in zip(digits[: len(form.idle)], form.idle, strict=True) if not idle]
    if form.side_by_side:
        (fewest, most), _ = threads[0]
        narrow, wide, threads = narrow * max(fewest, 1), wide * most, threads[1:]
    filled = -(-_apart(threads, wide) * narrow // form.piece_bits)
    each = max(filled, _apart(threads, wide + form.piece_bits))
    return each * math.prod(max(size, 1) for (size, _), _ in digits[len(form.idle) :])


def _apart(digits: Sequence[tuple[Bounds, Bounds]], width: int) -> int:
    """Of how many combinations of the digits each begins `width` or more behind the one before, at least."""
    out, reach = 1, 0
    for (fewest, most), (step, longest) in sorted(digits, key=lambda digit: digit[1]):
        if step >= reach + width:
            out *= max(fewest, 1)
            reach += (most - 1) * longest
    return out
