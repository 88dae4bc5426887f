"""Windows of values in registers: who holds what of a part of a tile, wherever the part begins.

A window begins at a multiple of its extent, so that all windows along an axis are held alike. Digits of the values that
step over whole windows choose between them; the others, and all digits of the threads, stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from operator import add
from typing import Any

import sympy

from tinygpu.expressions import Expr, all_of, expr, maximum, minimum, where
from tinygpu.language.partition import Condition, Partition
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import Step


def windowed(held: Partition, shape: tuple[Expr, ...], name: str, bits: int) -> Partition:
    """The partition of a window of so many elements along each axis, of a value with this name.

    bits  of an element: a window takes registers, not parts of them

    Its conditions say when every thread has the same values of every window.
    """
    kept: tuple[list[tuple[Leaf, Leaf | Step]], ...] = ([], [])
    demands: list[Expr] = []
    for digits, inside_of in zip(held.layout, kept, strict=True):
        for size, step in digits.steps:
            inside = _inside(expr(size), step, held.shape, shape)
            inside_of.append((size if inside.same(size) else _leaf(inside), step))
            if digits is held.threads:
                demands.append(inside == size)
                continue
            demands.append(expr(size) % inside == 0)
            demands += _outside(inside, expr(size), step, held.shape, shape)
    for axis, (have, want) in enumerate(zip(held.shape, shape, strict=True)):
        if not have.same(want):
            covered = expr(1)
            for size, step in (*kept[0], *kept[1]):
                if isinstance(step, Step) and not expr(step.along(axis)).same(0):
                    covered = covered * expr(size)
            demands += [have % want == 0, covered == want]
    if bits < 32:
        together = expr(1)  # neighbours among a thread's values that stay neighbours
        for (size, _), (part, _) in zip(reversed(held.values.steps), reversed(kept[1]), strict=True):
            together = where(expr(part) == size, together, 1) * part
        demands.append((together * bits % 32 == 0) | (together == held.value_count))
    sentence = f"every thread has the same part of each window of %{name}"
    whole = Condition(f"windows of %{name}", all_of(demands), sentence)
    return Partition(shape, Layout.regrouped(*kept), (*held.conditions, whole), held.made_for)


def _leaf(size: Expr) -> Leaf:
    return int(size) if size.is_number else size


def _inside(size: Expr, step: Leaf | Step, whole: tuple[Expr, ...], shape: tuple[Expr, ...]) -> Expr:
    """How many values of a digit lie in one window."""
    inside = size
    if not isinstance(step, Step):
        return inside
    for axis, count in step.terms:
        if not isinstance(axis, int) or whole[axis].same(shape[axis]):
            continue
        width, each = shape[axis], expr(count)
        if width.is_number and each.is_number:
            fit = max(int(width) // int(each), 1)
            inside = expr(min(int(inside), fit)) if inside.is_number else expr(fit)
        else:
            inside = minimum(inside, maximum(width // each, 1))
    return inside




def _outside(
    inside: Expr, size: Expr, step: Leaf | Step, whole: tuple[Expr, ...], shape: tuple[Expr, ...]
) -> list[Expr]:
    """What lies beyond one window of a digit's values lies whole windows further."""
    if not isinstance(step, Step):
        return []
    moved = [(axis, expr(count)) for axis, count in step.terms if isinstance(axis, int)]
    return [
        (inside == size) | (count * inside % shape[axis] == 0)
        for axis, count in moved
        if not whole[axis].same(shape[axis])
    ]


def window_values(whole: Partition, part: Partition, begin: Sequence[int]) -> list[int]:
    """The values of a thread that lie in the window that begins there, in its order; of partitions of numbers."""
    index = {tuple(c): value for value, c in enumerate(whole.value_coordinates().tolist())}
    return [index[tuple(map(add, c, begin))] for c in part.value_coordinates().tolist()]


def is_multiple(begin: Expr, extent: Expr) -> bool:
    """Whether a sum of multiples of indices and sizes is a multiple of an extent, by its form."""
    return _is_multiple(begin.sympy, extent.sympy)


@lru_cache(maxsize=4096)  # values under one partition ask the same
def _is_multiple(begin: Any, extent: Any) -> bool:
    terms = sympy.Add.make_args(begin.expand())
    return all((term / extent).cancel().as_numer_denom()[1] == 1 for term in terms)
