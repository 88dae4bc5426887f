"""Partitions by brute force: thread ids and value indices spelled in the digits of a partition, one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import strategies as st

from tinygpu.language import E, Layout, Partition
from tinygpu.language.partition import expr
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import Step

Coordinate = tuple[int, ...]
Digit = tuple[int, Leaf | Step]  # how many values, and the steps from one to the next


def digit(size: int, axis: int | None, steps: int = 1) -> Digit:
    """A digit along an axis; along none, all of its values hold the same."""
    return size, 0 if axis is None else steps * E(axis)


def spelled(number: int, mode: Layout, rank: int) -> Coordinate:
    """Where a thread id, or a value index, stands: its digits, fastest first, each so many steps along an axis."""
    out = [0] * rank
    for size, stride in mode.steps:
        number, value = divmod(number, int(size))
        for axis, count in stride.terms if isinstance(stride, Step) else ():
            out[int(axis)] += value * int(count)
    return tuple(out)


def held(partition: Partition, thread: int, value: int) -> Coordinate:
    """The element that a value of a thread stands for."""
    rank = len(partition.shape)
    both = spelled(thread, partition.threads, rank), spelled(value, partition.values, rank)
    return tuple(a + b for a, b in zip(*both, strict=True))


@st.composite
def loose_partitions(draw: st.DrawFn) -> Partition:
    """Any digits at all: of one value, of no axis, such as continue each other, and such as do not."""

    def digits(kinds: tuple[int | None, ...]) -> list[Digit]:
        out: list[Digit] = []
        for _ in range(draw(st.integers(0, 4))):
            size, axis = draw(st.sampled_from([1, 2, 3, 4])), draw(st.sampled_from(kinds))
            before = out[-1] if out else (1, 0)
            if isinstance(before[1], Step) and draw(st.booleans()):  # the digit before goes on
                out.append((size, before[1] * before[0]))
            elif axis is not None and draw(st.integers(0, 4)) == 0:  # along both axes at once
                out.append((size, E(0) + draw(st.integers(1, 6)) * E(1)))
            else:
                out.append(digit(size, axis, draw(st.integers(1, 6))))
        return out

    return Partition((expr(64), expr(64)), Layout.of(digits((0, 1, None)), digits((0, 1))))


@st.composite
def fragments(draw: st.DrawFn) -> tuple[Partition, int, bool]:
    """(partition, elements in 32 bits, whether matrices lie transposed): 8x8 matrices of mma.sync, by several warps."""
    per_register = draw(st.sampled_from([1, 2, 4]))
    transposed = draw(st.booleans()) if per_register == 2 else False
    values = draw(st.lists(st.tuples(st.sampled_from([1, 2, 3, 4, 6]), st.sampled_from([0, 1])), max_size=3))
    warps = draw(st.lists(st.tuples(st.sampled_from([2, 3]), st.sampled_from([0, 1, None])), max_size=2))
    return fragment(per_register, transposed, draw(st.sampled_from([0, 1])), values, warps)


def fragment(
    per_register: int,
    transposed: bool,
    inner: int,
    matrices: Sequence[tuple[int, int]],
    several: Sequence[tuple[int, int | None]] = (),
) -> tuple[Partition, int, bool]:
    """inner     the axis along which the elements of a register run
    matrices  (extent, axis) of the values' digits, in matrices
    several   (extent, axis) of the warps' digits, after the lanes
    """
    outer = 1 - inner
    size = {inner: 4 * per_register, outer: 8}
    values = [digit(per_register, inner)] if per_register > 1 else []
    for extent, axis in matrices:
        values.append(digit(extent, axis, size[axis]))
        size[axis] *= extent
    warps = []
    for extent, axis in several:
        warps.append(digit(extent, axis, 0 if axis is None else size[axis]))
        if axis is not None:
            size[axis] *= extent
    held = Layout.of([digit(4, inner, per_register), digit(8, outer), *warps], values)
    return Partition((expr(size[0]), expr(size[1])), held), per_register, transposed


def value_count(partition: Partition) -> int:
    return math.prod(int(size) for size, _ in partition.values.steps)
