"""Random partitions of tiles with two axes, filled in: any digits in any order, on threads and on values."""

from __future__ import annotations

import math

from hypothesis import strategies as st

from tinygpu.expressions import expr
from tinygpu.language import E, Layout, Partition
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import Step


@st.composite
def partitions(draw: st.DrawFn, contiguous: int = 1, vectors: tuple[int, ...] = (1, 2, 4)) -> tuple[Partition, int]:
    """(partition, vector): `vector` neighbours along the contiguous axis open every thread's list of values.

    Some digits of the thread may stand for no axis: several threads hold the same.
    """
    threads = draw(st.sampled_from([32, 64, 128]))
    radices: list[tuple[str, int, int | None]] = []
    left = threads
    while left > 1:
        extent = draw(st.sampled_from([e for e in (2, 4, 8, 16, 32) if left % e == 0]))
        axis = draw(st.sampled_from([0, 1, None]))
        radices.append(("thread", extent, axis))
        left //= extent
    for extent in draw(st.lists(st.sampled_from([2, 3, 4, 5]), max_size=3)):
        radices.append(("value", extent, draw(st.sampled_from([0, 1]))))
    vector = draw(st.sampled_from(vectors))
    order = draw(st.permutations(radices))
    below = [1, 1]
    below[contiguous] = vector
    made: dict[str, list[tuple[Leaf, Leaf | Step]]] = {"thread": [], "value": []}
    for kind, extent, axis in order:
        if axis is None:
            made[kind].append((extent, 0))
        else:
            made[kind].append((extent, below[axis] * E(axis)))
            below[axis] *= extent
    values = [(vector, E(contiguous)), *draw(st.permutations(made["value"]))]
    shape = (expr(below[0]), expr(below[1]))
    partition = Partition(shape, Layout.of(draw(st.permutations(made["thread"])), values))
    assert int(partition.thread_count) == threads
    assert math.prod(int(s) for s in shape) * _copies(partition) == threads * int(partition.value_count)
    return partition, vector


def _copies(partition: Partition) -> int:
    return math.prod(int(size) for size, stride in partition.threads.steps if not isinstance(stride, Step))
