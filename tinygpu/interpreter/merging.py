"""How two tuples of values become one, of whole arrays: an array of tuples is one with a field for each tile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygpu.dtypes import DType
from tinygpu.interpreter.elements import Array, as_elements
from tinygpu.interpreter.worker import Worker
from tinygpu.language.tile import Tile
from tinygpu.program import nodes as n


def tupled(values: list[Any], kinds: list[DType]) -> Any:
    """An array of tuples, of as many arrays of one shape; of one array that array."""
    if len(values) == 1:
        return values[0]
    whole = np.empty(np.shape(values[0]), dtype=[(f"f{place}", kind.numpy) for place, kind in enumerate(kinds)])
    for place, value in enumerate(values):
        whole[f"f{place}"] = value
    return whole


def parts(values: Any, count: int) -> list[Any]:
    """The arrays of which an array of tuples is made."""
    return [values] if count == 1 else [values[f"f{place}"] for place in range(count)]


def merging(
    merge: n.Merge,
    operand: Callable[[Any, str], Callable[[Worker], Any]],
    meaning: Callable[[n.Apply], Callable[..., Any]],
) -> Callable[[Worker], Callable[[Array, Array], Any]]:
    """What makes one tuple of two while a CTA runs.

    operand  how an operand that is no tile gets its number, in a type
    meaning  what an instruction does
    """
    steps = []
    for step in merge.steps:
        takes, _ = step.instruction.elements()
        given = [(o.name, None) if isinstance(o, Tile) else ("", operand(o, kind))
                 for o, kind in zip(step.operands, takes, strict=True)]  # fmt: skip
        steps.append((step.result, meaning(step), given))
    count, kinds = len(merge.made), [tile.dtype for tile in merge.made]

    def of(w: Worker) -> Callable[[Array, Array], Any]:
        def merged(left: Array, right: Array) -> Any:
            pairs = zip((*merge.left, *merge.right), (*parts(left, count), *parts(right, count)), strict=True)
            known: dict[str, Any] = {tile.name: value for tile, value in pairs}
            for result, does, given in steps:
                made = does(*[known[name] if get is None else get(w) for name, get in given])
                known[result.name] = made if merge.plain is not None else as_elements(made, result.dtype)
            return tupled([known[tile.name] for tile in merge.made], kinds)

        return merged

    return of


def scanned(
    merge: Callable[[Array, Array], Any], values: Array, axis: int, exclusive: bool, first: Any, carried: Array | None
) -> tuple[Array, Array]:
    """(prefixes along an axis, what all have together), in steps of 1, 2, 4 elements and so on.

    first    what an exclusive scan begins with, where nothing is carried
    carried  what stands before all elements
    """
    made, count, distance = np.array(values), values.shape[axis], 1

    def part(whole: Array, begin: int, end: int) -> Array:
        return whole[(*[slice(None)] * axis, slice(begin, end))]

    while distance < count:
        behind = merge(part(made, 0, count - distance), part(made, distance, count))
        part(made, distance, count)[...] = np.array(behind)
        distance *= 2
    if carried is not None:
        made = np.array(merge(np.broadcast_to(carried, made.shape), made)).astype(values.dtype)
    total = np.array(part(made, count - 1, count))
    if exclusive:
        begin = np.empty_like(total)
        begin[...] = first if carried is None else carried
        made = np.concatenate([begin, part(made, 0, count - 1)], axis=axis)
    return made, total
