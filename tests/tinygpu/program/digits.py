"""Partitions by brute force: thread ids and value indices spelled in the digits of a partition, one by one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from hypothesis import strategies as st

from tinygpu.language import Mode, Partition
from tinygpu.language.partition import expr

Coordinate = tuple[int, ...]


def spelled(number: int, modes: tuple[Mode, ...], rank: int) -> Coordinate:
    """Where a thread id, or a value index, stands: its digits, fastest first, each `stride` steps along its axis."""
    out = [0] * rank
    for mode in modes:
        number, digit = divmod(number, int(mode.extent))
        if mode.axis is not None:
            out[mode.axis] += digit * int(mode.stride)
    return tuple(out)


def held(partition: Partition, thread: int, value: int) -> Coordinate:
    """The element that a value of a thread stands for."""
    rank = len(partition.shape)
    both = spelled(thread, partition.threads, rank), spelled(value, partition.values, rank)
    return tuple(a + b for a, b in zip(*both, strict=True))


@st.composite
def loose_partitions(draw: st.DrawFn) -> Partition:
    """Any digits at all: of one value, of no axis, such as continue each other, and such as do not."""

    def modes(kinds: tuple[int | None, ...]) -> tuple[Mode, ...]:
        out: list[Mode] = []
        for _ in range(draw(st.integers(0, 4))):
            extent, axis = draw(st.sampled_from([1, 2, 3, 4])), draw(st.sampled_from(kinds))
            stride = draw(st.integers(1, 6))
            if out and draw(st.booleans()):  # the digit before goes on
                axis, stride = out[-1].axis, int(out[-1].extent * out[-1].stride)
            out.append(Mode.of(extent, axis, 0 if axis is None else stride))
        return tuple(out)

    return Partition((expr(64), expr(64)), modes((0, 1, None)), modes((0, 1)))


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
    values = [Mode.of(per_register, inner, 1)] if per_register > 1 else []
    for extent, axis in matrices:
        values.append(Mode.of(extent, axis, size[axis]))
        size[axis] *= extent
    warps = []
    for extent, axis in several:
        warps.append(Mode.of(extent, axis, 0 if axis is None else size[axis]))
        if axis is not None:
            size[axis] *= extent
    lanes = (Mode.of(4, inner, per_register), Mode.of(8, outer, 1))
    return Partition((expr(size[0]), expr(size[1])), (*lanes, *warps), tuple(values)), per_register, transposed


def value_count(partition: Partition) -> int:
    return math.prod(int(mode.extent) for mode in partition.values)
