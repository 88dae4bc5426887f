"""Strides of tensors: in which order axes lie in memory, and how far apart neighbours along each are.

The contiguous axis has neighbours side by side. The distance of rows, which are neighbours along the axis that comes
next in memory, is the leading dimension (`x.ld`); every further axis has a stride of its own (`x.stride0` of axis 0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

MOST_AXES = 5
# No kernel steps further at a time: strides are multiplied with 32-bit counts of elements in 64 bits.
MOST_STRIDE_ELEMS = 2**48 - 1


def order_of(rank: int, major: str) -> tuple[int, ...]:
    """Axes of a row- or column-major tensor, the fastest first."""
    return tuple(range(rank)) if major == "col" else tuple(reversed(range(rank)))


def packed(shape: Sequence[int], order: Sequence[int], given: Mapping[int, int]) -> tuple[int, ...]:
    """Elements between neighbours along each axis; those that are not given follow without a gap.

    order  axes, the fastest first
    given  of some axes: elements between neighbours
    """
    out, step = [1] * len(shape), shape[order[0]]
    for axis in order[1:]:
        out[axis] = given.get(axis, step)
        step = out[axis] * shape[axis]
    return tuple(out)


def overlapping(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether two elements of a tensor may lie at the same place; axes must nest for it to be known that none do."""
    reach = 0
    for stride, size in sorted((d, s) for s, d in zip(shape, strides, strict=True) if s > 1):
        if stride <= reach:
            return True
        reach += stride * (size - 1)
    return False


def resized(
    shape: Sequence[int],
    strides: Sequence[int],
    order: Sequence[int],
    to: Sequence[int],
    fitting: Callable[[int, int], int],
    most_gap: int | None = None,
) -> tuple[int, ...]:
    """Strides for other extents: axes keep their order in memory, and the gaps between them.

    to       the other extents
    fitting   (axis, least stride) -> a stride that the axis may have
    most_gap  wider gaps are cut to this and what is left of them when divided by it; None: none are
    """
    place = {axis: number for number, axis in enumerate(order)}
    inwards, *further = sorted(range(len(shape)), key=lambda axis: (axis != order[0], strides[axis], place[axis]))
    out, before = list(strides), inwards
    for axis in further:
        gap = max(strides[axis] - strides[before] * shape[before], 0)
        if most_gap is not None and gap > most_gap:
            gap = most_gap + gap % most_gap
        out[axis], before = fitting(axis, out[before] * to[before] + gap), axis
    return tuple(out)
