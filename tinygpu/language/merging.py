"""Axes that are merged and split: several axes of a tile side by side as one, and who holds what of them.

A window of (bh, bw, bk) elements is read as a matrix of (bh * bw) x bk. Where an element of the matrix stands in the
window is found by dividing, so a partition of the matrix becomes one of the window digit by digit: a digit that counts
beyond the end of an axis is cut there, into one that counts along this axis and one that counts along the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from tinygpu.expressions import Expr, all_of, expr, joined, maximum, minimum
from tinygpu.language.partition import Condition, Partition
from tinygpu.language.register_windows import is_multiple
from tinygpu.layouts.algebra import coalesce
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf, leaf
from tinygpu.layouts.step import E, Step

Digit = tuple[Leaf, Leaf | Step]


def merged(partition: Partition, groups: Sequence[Sequence[int]]) -> Partition:
    """The partition of a tile whose axes are merged.

    groups  of every axis that it has then those that become one, the slowest first
    """
    if partition.whole is not None and partition.whole[1] == tuple(map(tuple, groups)):
        return partition.whole[0]
    onto: dict[int | str, int | str | Step | None] = {}
    shape = []
    for place, group in enumerate(groups):
        together = expr(1)
        for axis in reversed(group):
            onto[axis] = leaf(together, "a step") * E(place)
            together = together * partition.shape[axis]
        shape.append(together)
    threads, values = partition.layout.project(onto)
    joined_up = coalesce(values).steps or values.steps  # neighbours along the merged axis are neighbours
    return Partition(
        tuple(shape), Layout.regrouped(threads.steps, joined_up), partition.conditions, partition.made_for
    )


def split(
    partition: Partition, groups: Sequence[Sequence[int]], shape: Sequence[Expr], name: str = "tile"
) -> Partition:
    """The partition of a tile whose axes are taken apart.

    groups  of every axis of the partition those of the tile that it stands for, the slowest first
    shape   extents of the tile
    """
    cut = _Cut(groups, shape)
    modes = [
        [digit for size, stride in mode.steps for digit in cut.digits(expr(size), stride)]
        for mode in (partition.threads, partition.values)
    ]
    # Who holds every element once leaves no axis; of a partition by hand it is asked.
    needed = [*cut.needed, *([] if partition.conditions else cut.within())]
    condition = all_of([c for c in needed if not c.same(True)])
    conditions = partition.conditions
    if not condition.same(True):
        extents = joined((shape[axis] for group in groups if len(group) > 1 for axis in group), " x ")
        sentence = f"what threads and values of {name} count along {extents} ends where an axis does"
        conditions = (*conditions, Condition(f"axes of {name}", condition, sentence))
    whole = partition, tuple(map(tuple, groups))
    return Partition(tuple(shape), Layout.regrouped(*modes), conditions, partition.made_for, whole=whole)


def _fitting(left: Expr, step: Expr, above: Expr) -> Expr:
    """How many of `left` steps a digit takes before it has gone `above` elements; as plainly as its form allows."""
    if is_multiple(step, above):
        return expr(1)
    fit = maximum(above // maximum(step, 1), 1)
    return fit if fit.is_number and is_multiple(left, fit) else maximum(minimum(left, fit), 1)  # no size is 0


@dataclass(slots=True, eq=False)
class _Cut:
    """Digits along merged axes as digits along the axes that these stand for.

    needed  what must hold for that
    reach   of every axis, how far its digits count
    """

    groups: Sequence[Sequence[int]]
    shape: Sequence[Expr]
    needed: list[Expr] = field(default_factory=list)
    reach: dict[int, Expr] = field(default_factory=dict)

    def digits(self, size: Expr, stride: Leaf | Step) -> Iterator[Digit]:
        """The digits of one, the fastest first."""
        if not isinstance(stride, Step) or not stride.terms:
            yield leaf(size, "a size"), stride
        elif len(stride.terms) > 1 or len(self.groups[int(stride.terms[0][0])]) == 1:
            onto = Step(())
            for axis, count in stride.terms:  # one that steps along several axes counts along the fastest of each
                onto += self._counted(self.groups[int(axis)][-1], size, expr(count))
            yield leaf(size, "a size"), onto
        else:
            ((axis, count),) = stride.terms
            yield from self._cut(size, expr(count), self.groups[int(axis)])

    def _cut(self, left: Expr, step: Expr, group: Sequence[int]) -> Iterator[Digit]:
        below = expr(1)
        for part in reversed(group[1:]):
            above = below * self.shape[part]
            here = _fitting(left, step, above)
            if not here.same(1):
                yield leaf(here, "a size"), self._counted(part, here, step // below)
            self.needed.append(left % here == 0)
            left, step, below = left // here, step * here, above
            self.needed.append((left == 1) | (step % above == 0))
        yield leaf(left, "a size"), self._counted(group[0], left, step // below)

    def _counted(self, axis: int, size: Expr, step: Expr) -> Step:
        self.reach[axis] = self.reach.get(axis, expr(0)) + (size - 1) * step
        return leaf(step, "a step") * E(axis)

    def within(self) -> list[Expr]:
        """Digits together stay within each axis."""
        return [most <= self.shape[axis] - 1 for axis, most in self.reach.items()]
