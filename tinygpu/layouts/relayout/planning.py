"""The plan of a relayout: from two distributions of one tile, (threads, values) -> coordinates, to who gives what."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts import shapes
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.relayout import binary, matching
from tinygpu.layouts.relayout.plan import LANES, WORD_BYTES, Pick, RelayoutPlan, Shuffle, Step

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
    if bits not in (8, 16, 32, 64):
        raise LayoutError(f"a relayout moves elements of 8, 16, 32 or 64 bits, not of {bits}")
    before, after = _held(source, extents), _held(target, extents)
    if bits == 64:  # two words each
        before, after = (np.stack([2 * held, 2 * held + 1], axis=2).reshape(len(held), -1) for held in (before, after))
    value_bytes = min(bits // 8, WORD_BYTES)
    packing = registers_of(before.shape[1], value_bytes), registers_of(after.shape[1], value_bytes)
    if before.shape == after.shape and np.array_equal(before, after):
        return _nothing(before.shape[1] // packing[0])
    if missing := np.setdiff1d(after, before).size:
        raise LayoutError(f"{target} holds coordinates that {source} does not, {missing} of them")
    warps = _warps(before, after)
    found = None if warps is None else _within_warp(warps[0], warps[1], value_bytes, packing)
    return found or RelayoutPlan("shared", before.shape[1] // packing[0])


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


def _nothing(words: int) -> RelayoutPlan:
    return RelayoutPlan("nothing", words, (), tuple(range(words)))


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


def _within_warp(a: Held, b: Held, value_bytes: int, packing: tuple[int, int]) -> RelayoutPlan | None:
    """The plan of one warp; None where it does not have what it wants."""
    repeat = _repeat(a, b, value_bytes, packing)
    if repeat is not None:
        times, below = repeat
        once = _within_warp(_digit(a, times, below[0], 0), _digit(b, times, below[1], 0), value_bytes, packing)
        return None if once is None else _repeated(once, times, (below[0] // packing[0], below[1] // packing[1]))
    return _of_a_warp(a.tobytes(), b.tobytes(), a.shape[1], value_bytes, packing)


@lru_cache(maxsize=1024)
def _of_a_warp(
    a: bytes, b: bytes, values: int, value_bytes: int, packing: tuple[int, int]
) -> RelayoutPlan | None:
    """Of what does not repeat; remembered, because the candidates of a machine have few of them."""
    before, after = (np.frombuffer(held, dtype=np.int64).reshape(LANES, -1) for held in (a, b))
    columns = binary.Columns.of(before), binary.Columns.of(after)
    if columns[0] is not None and columns[1] is not None:
        return binary.plan(columns[0], columns[1], value_bytes, packing)
    return matching.plan(before, after, value_bytes, packing)


# -- values that repeat alike ------------------------------------------------------------------------------------------


def _repeat(a: Held, b: Held, value_bytes: int, packing: tuple[int, int]) -> tuple[int, tuple[int, int]] | None:
    """(times, values below it before and behind) of a digit of the values that moves alike before and behind.

    Only what does not repeat is planned. Factors of two stay where the whole needs fewer rounds than its parts.
    """
    columns = binary.Columns.of(a), binary.Columns.of(b)
    whole = None
    if columns[0] is not None and columns[1] is not None:
        whole = binary.least_rounds(columns[0], columns[1], WORD_BYTES // value_bytes)
    for times in (7, 5, 3, 2):
        for below_a in _places(a, times, packing[0]):
            for below_b in _places(b, times, packing[1]):
                step = a[0, below_a] - a[0, 0]
                if step != b[0, below_b] - b[0, 0] or not _disjoint(a, times, below_a, step):
                    continue
                part_a, part_b = _digit(a, times, below_a, 0), _digit(b, times, below_b, 0)
                if not set(part_b.ravel().tolist()) <= set(part_a.ravel().tolist()):
                    continue
                if whole is not None:
                    parts = binary.Columns.of(part_a), binary.Columns.of(part_b)
                    if parts[0] is None or parts[1] is None:
                        continue
                    if times * binary.least_rounds(parts[0], parts[1], WORD_BYTES // value_bytes) > whole:
                        continue
                elif times == 2:
                    continue
                return times, (below_a, below_b)
    return None


def _places(held: Held, times: int, packing: int) -> list[int]:
    """Values below each digit of this size that steps evenly and divides no word, the last digits first."""
    count = held.shape[1]
    out = []
    for below in range(count // times, 0, -1):
        if count % (times * below) or below % packing or (held < 0).any():
            continue
        parts = held.reshape(len(held), -1, times, below)
        step = parts[0, 0, 1, 0] - parts[0, 0, 0, 0]
        if step and (parts == parts[:, :, :1] + step * np.arange(times)[:, None]).all():
            out.append(below)
    return out


def _digit(held: Held, times: int, below: int, digit: int) -> Held:
    """The values whose digit of this size is a given one."""
    return np.ascontiguousarray(held.reshape(len(held), -1, times, below)[:, :, digit].reshape(len(held), -1))


def _disjoint(held: Held, times: int, below: int, step: int) -> bool:
    """Whether the values of one digit and of the next have no coordinate in common."""
    one = np.unique(_digit(held, times, below, 0))
    return all(not np.isin(one + k * step, one).any() for k in range(1, times))


def _repeated(once: RelayoutPlan, times: int, below: tuple[int, int]) -> RelayoutPlan:
    """The plan `times` over, for words of which a digit counts the repeats, with so many words below it."""

    def place(word: int, repeat: int, width: int) -> int:
        return word // width * width * times + repeat * width + word % width

    inputs = once.inputs * times
    steps: list[Step] = []
    outputs = [0] * (times * len(once.outputs))
    for repeat in range(times):
        number = {word: place(word, repeat, below[0]) for word in range(once.inputs)}
        for word, step in enumerate(once.steps, once.inputs):
            number[word] = inputs + len(steps)
            if isinstance(step, Shuffle):
                steps.append(replace(step, word=number[step.word]))
            else:
                steps.append(Pick(number[step.first], number[step.second], step.bytes_of))
        for register, word in enumerate(once.outputs):
            outputs[place(register, repeat, below[1])] = number[word]
    return RelayoutPlan(once.kind, inputs, tuple(steps), tuple(outputs))


