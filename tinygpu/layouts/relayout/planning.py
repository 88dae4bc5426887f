"""The plan of a relayout: from two distributions of one tile, (threads, values) -> coordinates, to who gives what."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts import shapes
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.relayout import binary, matching
from tinygpu.layouts.relayout.plan import LANES, WORD_BYTES, RelayoutPlan
from tinygpu.layouts.relayout.repeats import Repeats, repeats

Held = NDArray[np.int64]


def relayout(source: Layout, target: Layout, extents: tuple[int, ...], bits: int) -> RelayoutPlan:
    """How the values of a tile get from the holders of `source` to those of `target`.

    source, target  (threads, values) -> coordinates of a tile; several threads may hold one coordinate
    extents         of the tile
    bits            of an element: 8, 16, 32 or 64. As many of 8 and 16 bits share a register as fill it, where the
                    values of a thread fill whole registers

    >>> C, A = Layout.parse("((4,8),(2,2)):((2@1,1@0),(1@1,8@0))"), Layout.parse("((4,8),(2,2)):((1@1,1@0),(8@0,4@1))")
    >>> print(relayout(C, A, (16, 8), 32))  # accumulators of mma.sync to its left operand, tf32
    shuffles: 4 shuffles, 8 selects
    """
    words = _words(source, target, bits)
    before, after = _held(source, extents), _held(target, extents)
    if missing := np.setdiff1d(after, before).size:
        raise LayoutError(f"{target} holds coordinates that {source} does not, {missing} of them")
    if before.shape == after.shape and np.array_equal(before, after):
        return RelayoutPlan("nothing", words.inputs, (), tuple(range(words.inputs)))
    warps = _warps(before, after)
    planned = None if warps is None else _planned(*warps, words)
    if planned is None:
        return RelayoutPlan("shared", words.inputs)
    once, alike = planned
    found = alike.of(once)
    return found.in_halves() if words.halves == 2 else found


def counts(source: Layout, target: Layout, extents: tuple[int, ...], bits: int) -> tuple[int, int, int]:
    """Shuffles, selects and byte permutations of the plan, from what the first warp does; none where it cannot."""
    words = _words(source, target, bits)
    warps = _warps(_held(source, extents)[:LANES], _held(target, extents)[:LANES])
    planned = None if warps is None else _planned(*warps, words)
    if planned is None:
        return 0, 0, 0
    once, alike = planned
    times = alike.times * words.halves
    return times * once.shuffles, times * once.selects, times * once.permutes


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """How the values of a thread lie in its words.

    halves  words of a value of 64 bits
    inputs  words of a thread before
    """

    value_bytes: int
    packing: tuple[int, int]
    repeats: Repeats
    halves: int
    inputs: int


def _words(source: Layout, target: Layout, bits: int) -> Words:
    if bits not in (8, 16, 32, 64):
        raise LayoutError(f"a relayout moves elements of 8, 16, 32 or 64 bits, not of {bits}")
    value_bytes, halves = min(bits // 8, WORD_BYTES), max(bits // 32, 1)
    packing = registers_of(source[1].size, value_bytes), registers_of(target[1].size, value_bytes)
    alike = repeats(source, target, WORD_BYTES // value_bytes, packing)
    return Words(value_bytes, packing, alike, halves, source[1].size // packing[0] * halves)


def registers_of(values: int, value_bytes: int) -> int:
    """Values that share a register: as many as fill it, where the values of a thread fill whole registers."""
    fill = WORD_BYTES // value_bytes
    return fill if values % fill == 0 else 1


def _held(layout: Layout, extents: tuple[int, ...]) -> Held:
    """(threads, values) numbers of coordinates; the bits of the axes stand side by side."""
    wide = tuple(1 << (extent - 1).bit_length() for extent in extents)
    threads, values = (mode.coordinates(tuple(range(len(extents)))) for mode in layout.modes)
    below = np.array(shapes.prefix_products(wide), dtype=np.int64)
    for axis, extent in enumerate(extents):
        reach = int(threads[:, axis].max() + values[:, axis].max())
        if reach >= extent:
            raise LayoutError(f"{layout}: axis {axis} reaches {reach}, outside [0, {extent}) of the tile")
    held: Held = (threads @ below)[:, None] + (values @ below)[None]
    return held


def _warps(before: Held, after: Held) -> tuple[Held, Held] | None:
    """What the lanes of every warp hold, counted from its first coordinate; None where warps differ."""
    count = -(-max(len(before), len(after)) // LANES)
    parts = []
    for held in (before, after):
        whole = np.full((count * LANES, held.shape[1]), -1, dtype=np.int64)
        whole[: len(held)] = held
        parts.append(whole.reshape(count, LANES, -1))
    least = np.where(parts[0] < 0, np.iinfo(np.int64).max, parts[0]).min(axis=(1, 2), keepdims=True)
    a, b = (np.where(held < 0, -1, held - least) for held in parts)
    if (b < -1).any() or (a != a[:1]).any() or (b != b[:1]).any():
        return None
    return a[0], b[0]


def _planned(a: Held, b: Held, words: Words) -> tuple[RelayoutPlan, Repeats] | None:
    """The plan of one repeat in a warp, and the repeats; None where the warp does not have what it wants.

    Where values have several holders, only all repeats together may have what one of them wants.
    """
    for alike in (words.repeats, Repeats.none(a.shape[1], b.shape[1], words.packing)):
        before, behind = (np.ascontiguousarray(held[:, p[0]]) for held, p in ((a, alike.before), (b, alike.behind)))
        found = _of_a_warp(before.tobytes(), behind.tobytes(), words.value_bytes, words.packing)
        if found is not None:
            return found, alike
    return None


@lru_cache(maxsize=4096)
def _of_a_warp(a: bytes, b: bytes, value_bytes: int, packing: tuple[int, int]) -> RelayoutPlan | None:
    """Remembered, because the candidates of a machine have few of them."""
    before, after = (np.frombuffer(held, dtype=np.int64).reshape(LANES, -1) for held in (a, b))
    columns = binary.Columns.of(before), binary.Columns.of(after)
    if columns[0] is not None and columns[1] is not None:
        return binary.plan(columns[0], columns[1], value_bytes, packing)
    return matching.plan(before, after, value_bytes, packing)
