"""Partitions by brute force: thread ids and value indices spelled in the digits of a partition, one by one."""

from __future__ import annotations

import math

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
    inner, outer = draw(st.permutations([0, 1]))
    size = {inner: 4 * per_register, outer: 8}
    values = [Mode.of(per_register, inner, 1)] if per_register > 1 else []
    for extent in draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), max_size=3)):
        axis = draw(st.sampled_from([0, 1]))
        values.append(Mode.of(extent, axis, size[axis]))
        size[axis] *= extent
    warps = []
    for extent in draw(st.lists(st.sampled_from([2, 3]), max_size=2)):
        axis = draw(st.sampled_from([0, 1, None]))
        warps.append(Mode.of(extent, axis, 0 if axis is None else size[axis]))
        if axis is not None:
            size[axis] *= extent
    lanes = (Mode.of(4, inner, per_register), Mode.of(8, outer, 1))
    return Partition((expr(size[0]), expr(size[1])), (*lanes, *warps), tuple(values)), per_register, transposed


def value_count(partition: Partition) -> int:
    return math.prod(int(mode.extent) for mode in partition.values)
