"""A matrix instruction over a tile: the partitions of its operands among the warps of a role."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tinygpu.dtypes import DType
from tinygpu.expressions import Expr, Operand, expr
from tinygpu.language.instruction.multiply import WORD_OF_SCALES, Fragment, MatrixMultiply
from tinygpu.language.partition import Condition, Partition
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import E, Step


@dataclass(frozen=True, slots=True, eq=False)
class Tiled:
    """A matrix instruction repeated over a tile by the warps of a role: the partitions of a, b and c.

    m, n, k  extents of one instruction
    scales   of those of a and of b, where the instruction takes scales of blocks along k
    """

    m: int
    n: int
    k: int
    a: Partition
    b: Partition
    c: Partition
    scales: tuple[Partition, ...] = ()


def tiled(
    instruction: MatrixMultiply,
    a: DType,
    b: DType,
    shape: tuple[Operand, Operand],
    warps: tuple[Operand, Operand],
    depth: Operand | None = None,
) -> Tiled:
    """Partitions of one step of `instruction` over an m x n tile, `warps` = (along m, along n) the grid of warps.

    depth  elements along k whose scales a thread holds, where the instruction takes such

    Raises ValueError where so many warps have more than the tile.
    """
    m, n, k = instruction.shape(a, b)
    bm, bn = expr(shape[0]), expr(shape[1])
    wm, wn = expr(warps[0]), expr(warps[1])
    for extent, count, each, what in ((bm, wm, m, "rows"), (bn, wn, n, "columns")):
        if (extent // (count * each)).same(0):
            who = f"{instruction.scope}{'s' * (not count.same(1))}"
            more = f"{count} {who} with {each} {what} of {instruction.label} each"
            raise ValueError(f"p.tiled: {more} have more than the {extent} {what} of the tile")
    operands = zip(instruction.fragments(a, b), ((m, k), (k, n), (m, n)), strict=True)
    (la, va), (lb, vb), (lc, vc) = (held_digits(fragment, extents) for fragment, extents in operands)
    conditions = (
        Condition(
            f"{instruction.label} rows", bm % (wm * m) == 0, f"each warp's rows are a whole number of {m}-row fragments"
        ),
        Condition(
            f"{instruction.label} columns",
            bn % (wn * n) == 0,
            f"each warp's columns are a whole number of {n}-column fragments",
        ),
    )
    threads = (128 if instruction.scope == "warpgroup" else 32) * wm * wn
    along_m, along_n = (wm, (bm // wm) * E(0)), (wn, (bn // wn) * E(1))
    repeat_m, repeat_n = (bm // (wm * m), m * E(0)), (bn // (wn * n), n * E(1))
    idle_m, idle_n = (wm, 0), (wn, 0)
    a_held = Layout.of([*la, along_m, idle_n], [*va, repeat_m])
    b_held = Layout.of([*lb, idle_m, along_n], [*vb, repeat_n])
    c_held = Layout.of([*lc, along_m, along_n], [*vc, repeat_m, repeat_n])
    return Tiled(
        m,
        n,
        k,
        Partition((bm, expr(k)), a_held, conditions, threads),
        Partition((expr(k), bn), b_held, conditions, threads),
        Partition((bm, bn), c_held, conditions, threads),
        () if depth is None else _scales(instruction, (a, b), (bm, bn), (wm, wn), expr(depth)),
    )


def _scales(
    instruction: MatrixMultiply, kinds: tuple[DType, DType], shape: tuple[Expr, Expr], warps: tuple[Expr, Expr],
    depth: Expr,
) -> tuple[Partition, ...]:
    """Who holds what of the scales of so many elements along k: registers of four, along k first."""
    taken = instruction.scales(*kinds)
    if taken is None or taken.fragments is None:
        where = "no scales of blocks" if taken is None else "scales in TMEM, which no thread holds"
        raise ValueError(f"{instruction.label} takes {where}; leave depth= out")
    extents, blocks, held = instruction.shape(*kinds), depth // taken.block, []
    whole = Condition(
        f"{instruction.label} scales",
        depth % (WORD_OF_SCALES * taken.block) == 0,
        f"the scales of a row are registers of {WORD_OF_SCALES}, of {WORD_OF_SCALES * taken.block} elements along k",
    )
    for side, fragment in enumerate(taken.fragments):
        lanes, word = fragment.modes
        own = shape[side] // warps[side]
        along: list[tuple[Leaf, Leaf | Step]] = [(warps[0], 0), (warps[1], 0)]
        along[side] = (warps[side], own * E(side))
        further = (blocks // WORD_OF_SCALES, WORD_OF_SCALES * E(1 - side))
        repeat = (own // extents[side], extents[side] * E(side))
        layout = Layout.of([*lanes.steps, *along], [*word.steps, further, repeat])
        rows = (shape[0], blocks) if side == 0 else (blocks, shape[1])
        held.append(Partition(rows, layout, (whole,), 32 * warps[0] * warps[1]))
    return tuple(held)


Digits: TypeAlias = tuple[tuple[Leaf, Leaf | Step], ...]


def held_digits(fragment: Fragment, extents: tuple[Operand, Operand]) -> tuple[Digits, Digits]:
    """Digits of the threads and of the values of an operand of these extents, over which a fragment repeats."""
    if fragment is None:
        return (), ()
    threads, values = fragment.modes
    repeats: list[tuple[Leaf, Leaf | Step]] = []
    for axis, extent in enumerate(extents):
        reach = fragment.along(axis).cosize
        if (expr(extent) % reach).is_number and int(expr(extent) % reach):
            raise ValueError(
                f"the fragment {fragment} has an extent of {reach} along axis {axis}, and its operand has {extent}, "
                "which is no multiple of it"
            )
        times = expr(extent) // reach
        if not times.same(1):
            repeats.append((times, reach * E(axis)))
    return threads.steps, (*values.steps, *repeats)
