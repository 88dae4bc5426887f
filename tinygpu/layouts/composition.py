"""Composition: the layout R with R(c) = A(B(c)) for every coordinate c of B, or a refusal.

R keeps B's modes: each size of B stays, or is cut into a group of sizes with the same product. `compose` refuses
if and only if no such R exists, up to _LISTED coordinates; above, it may also refuse where carries cancel (below),
and says so. A layout that cuts across B's modes is not looked for, because the coordinates of B would mean nothing
to it: coalesce B first to give up its modes.

How: write each offset of B in the digits of A's shape. As long as the digits of all modes of B add up without a
carry, A(sum of x_m d_m) = sum of x_m A(d_m), which is a layout. A mode whose own digits carry is cut where they first
do: before the cut its offsets are evenly spaced, so no other cut can work. What is left are carries that cancel
each other (A = (2,2,2):(1,0,2) at 0, 3, 6 gives 0, 1, 2); these are decided by listing every coordinate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tinygpu.layouts import shapes
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.modes import Mode, Vector, digits, merged, read_modes, value_at, values_at
from tinygpu.layouts.shapes import IntTuple, StrideTree
from tinygpu.layouts.step import Axis, Step

_LISTED = 1 << 20
"""Coordinates up to which cancelling carries are decided by listing (8 MiB per array of offsets)."""


def compose(outer: Layout, inner: Layout) -> Layout:
    """R = outer o inner, with R(c) == outer(inner(c)) for every coordinate c of inner.

    The shape of R refines the shape of inner. The offsets of inner must lie in the domain of outer, [0, outer.size):
    a layout is a map of its whole domain, and its last mode does not go on for ever. Where inner is a map into
    coordinates, mode k of outer is what lies along axis k.

    >>> print(compose(Layout.parse("(4,8):(8,1)"), Layout.parse("(8,2):(2,16)")))
    ((2,4),2):((16,1),4)
    >>> print(compose(Layout.parse("(16,8):(12,1)"), Layout.parse("((4,8),(2,2)):((2@1,1@0),(1@1,8@0))")))
    ((4,8),(2,2)):((2,12),(1,96))
    """
    where = f"composing {outer} with {inner}"
    if inner.axes:
        inner = inner.linearised(tuple(mode.size for mode in outer.modes))
    axes = outer.axes
    width = max(len(axes), 1)
    parts = [outer.along(axis).leaves for axis in axes] or [outer.leaves]  # the same sizes, each with its own strides
    table = [(leaves[0][0], tuple(stride for _, stride in leaves)) for leaves in zip(*parts, strict=True)]
    modes = _compose(table, width, inner, where)
    sizes: list[IntTuple] = []
    strides: list[StrideTree] = []
    for group in modes:
        steps = tuple(_stride(vector, axes) for _, vector in group)
        sizes.append(group[0][0] if len(group) == 1 else tuple(s for s, _ in group))
        strides.append(steps[0] if len(group) == 1 else steps)
    return Layout.from_leaves(inner.shape, tuple(sizes), tuple(strides))


def _stride(vector: Vector, axes: tuple[Axis, ...]) -> int | Step:
    return Step(tuple(zip(axes, vector, strict=True))) if axes else vector[0]


def _compose(outer: list[Mode], width: int, inner: Layout, where: str) -> list[list[Mode]]:
    """For each leaf of inner, the modes that replace it."""
    extent = shapes.size(tuple(s for s, _ in outer))
    if inner.cosize > extent:
        raise LayoutError(
            f"{where}: offset {inner.cosize - 1} of the inner layout is outside [0, {extent}), the domain of the outer"
        )
    table = merged(outer)
    cut = _cut(tuple(s for s, _ in table), inner)
    if isinstance(cut, str):
        groups = _listed(table, width, inner, where, cut)
    else:
        groups = [[(s, value_at(d, table, width)) for s, d in leaf] for leaf in cut]
    return [merged(group) or [(1, (0,) * width)] for group in groups]


def _cut(radices: tuple[int, ...], inner: Layout) -> list[list[tuple[int, int]]] | str:
    """The leaves of inner, cut so that their digits add up without a carry; or why they do not."""
    used = [0] * len(radices)
    leaves = []
    for size, stride in inner.leaves:
        pieces = []
        left, step = size, stride
        while left > 1:
            digit = digits(step, radices)
            run = min([left, *((r - 1) // d + 1 for r, d in zip(radices, digit, strict=True) if d)])
            if left % run:
                return f"the mode {size}:{stride} must be cut after {run} steps, and {left} is not a multiple of {run}"
            used = [u + (run - 1) * d for u, d in zip(used, digit, strict=True)]
            pieces.append((run, step))
            left, step = left // run, step * run
        leaves.append(pieces)
    for reach, radix in zip(used, radices, strict=True):
        if reach >= radix:
            return f"its modes carry into each other: together they count to {reach} in a mode of size {radix}"
    return leaves


def _listed(table: Sequence[Mode], width: int, inner: Layout, where: str, reason: str) -> list[list[Mode]]:
    """The same by listing: read each leaf alone, then compare the sum with every coordinate."""
    if inner.size > _LISTED:
        raise LayoutError(f"{where}: {reason} ({inner.size} coordinates are too many to list and look further)")
    groups = []
    for size, stride in inner.leaves:
        modes = read_modes(values_at(np.arange(size) * stride, table, width)) if size > 1 else []
        if isinstance(modes, tuple):
            run, rest = modes
            raise LayoutError(
                f"{where}: the mode {size}:{stride} is evenly spaced for {run} steps only, and {rest} is not a "
                f"multiple of {run}, so no shape:stride gives these offsets"
            )
        groups.append(modes)
    wanted = values_at(inner.offsets(), table, width)
    found = values_at(np.arange(inner.size), [mode for group in groups for mode in group], width)
    wrong = (wanted != found).any(axis=1)
    if wrong.any():
        index = int(np.argmax(wrong))
        raise LayoutError(
            f"{where}: at {shapes.text(shapes.coordinate_of(index, inner.extents))} the offset is "
            f"{_vector_text(wanted[index])}, and its modes one by one give {_vector_text(found[index])}, so no "
            f"shape:stride with these modes gives these offsets"
        )
    return groups


def _vector_text(vector: Sequence[int]) -> str:
    values: Vector = tuple(int(v) for v in vector)
    return str(values[0]) if len(values) == 1 else shapes.text(values)
