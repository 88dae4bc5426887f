"""Partitions: maps from Work (threads of a role, values of a thread) to the coordinates of a tile.

A partition is a layout (threads, values) -> coordinates. The thread id is spelled in the digits of the thread mode and
the value index in those of the value mode, the fastest digit first, and each digit steps along axes of the tile. Sizes
and steps are expressions over parameters, so one partition describes all candidates of a structure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tinygpu.expressions import Expr, expr, joined
from tinygpu.layouts import shapes
from tinygpu.layouts.algebra import coalesce
from tinygpu.layouts.draw import holder_picture
from tinygpu.layouts.layout import WINDOW, Layout
from tinygpu.layouts.leaf import Leaf, times
from tinygpu.layouts.picture import Picture, notebook
from tinygpu.layouts.step import Axis, Step


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """Something that must hold for a partition to cover its tile: a condition and the sentence for it."""

    name: str
    condition: Expr
    sentence: str


@dataclass(frozen=True, eq=False)
class Partition:
    """Who holds what of a tile.

    shape       extent of the tile along each axis, in elements
    layout      (threads, values) -> coordinates along the axes 0, 1 ... of the tile. The lane runs fastest, and the
                vector that one instruction moves comes first among a thread's values; threads that differ along a digit
                of stride 0 hold the same
    conditions  what must hold for the layout to cover the tile exactly once
    made_for    threads of the role that it was made for (None: as many as the thread mode has)
    part_of     (the partition of which it is the part along some axes, by `along` or `reduced`, which axis of that each
                axis here is, None for one that was added): axes may have been exchanged, added and dropped since
    whole       (the partition of which axes were taken apart, of every axis of it those here): what merging them gives
    """

    shape: tuple[Expr, ...]
    layout: Layout
    conditions: tuple[Condition, ...] = ()
    made_for: Expr | None = None
    part_of: tuple[Partition, tuple[int | None, ...]] | None = field(
        default=None, repr=False, metadata={"saved": False}
    )
    whole: tuple[Partition, tuple[tuple[int, ...], ...]] | None = field(
        default=None, repr=False, metadata={"saved": False}
    )

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(map(expr, self.shape)))
        foreign = [a for a in self.layout.axes if isinstance(a, str) or a >= len(self.shape)]
        if self.layout.rank != 2 or foreign:
            axes = f"the axes of its tile, {', '.join(map(str, range(len(self.shape))))}"
            raise ValueError(f"{self.layout}: a partition has two modes, threads and values, that step along {axes}")

    def __str__(self) -> str:
        return f"[{joined(self.shape, 'x')}] {self.coalesced.layout}"

    @property
    def threads(self) -> Layout:
        """thread -> the part of the coordinates that the thread decides."""
        return self.layout[0]

    @property
    def values(self) -> Layout:
        """value of a thread -> the part of the coordinates that the value index decides."""
        return self.layout[1]

    @property
    def axes(self) -> tuple[int, ...]:
        """Those of the tile: 0, 1 and so on."""
        return tuple(range(len(self.shape)))

    @property
    def value_count(self) -> Expr:
        """Values that one thread holds."""
        return _product(self.values)

    @property
    def thread_count(self) -> Expr:
        """Threads among which the tile is divided."""
        return _product(self.threads)

    def reduced(self, axis: int) -> Partition:
        """The partition of a tile whose extent along `axis` is 1: threads that differed there hold the same."""
        if axis not in self._reduced:
            self._reduced[axis] = self._without(axis)
        return self._reduced[axis]

    @cached_property
    def _reduced(self) -> dict[int, Partition]:
        """What `reduced` gave, by axis: rows of a tile are asked for time and again."""
        return {}

    def _without(self, axis: int) -> Partition:
        shape = tuple(expr(1) if a == axis else s for a, s in enumerate(self.shape))
        kept = self.layout.project({a: a for a in self.axes if a != axis})
        values = [(size, stride) for size, stride in kept[1].steps if isinstance(stride, Step)]
        layout = Layout.regrouped(kept[0].steps, values)
        return Partition(shape, layout, self.conditions, self.made_for, self._origin)

    @property
    def T(self) -> Partition:
        """The partition of the transposed tile: everybody holds what they held, under exchanged coordinates."""
        if len(self.shape) != 2:
            raise ValueError(f"a partition of a tile with {len(self.shape)} axes has no transpose; it takes two")
        return self.permute(1, 0)

    def permute(self, *order: int) -> Partition:
        """The partition of the same tile with its axes in another order: axis k is what axis order[k] was."""
        layout = self.layout.project({axis: place for place, axis in enumerate(order)})
        origin, places = self._origin
        shape, part_of = tuple(self.shape[axis] for axis in order), (origin, tuple(places[axis] for axis in order))
        return Partition(shape, layout, self.conditions, self.made_for, part_of)

    def unsqueeze(self, axis: int) -> Partition:
        """The partition of the same tile with one more axis, of extent 1, before `axis` (after the last: the rank)."""
        shape = (*self.shape[:axis], expr(1), *self.shape[axis:])
        layout = self.layout.project({a: a if a < axis else a + 1 for a in self.axes})
        origin, places = self._origin
        part_of = origin, (*places[:axis], None, *places[axis:])
        return Partition(shape, layout, self.conditions, self.made_for, part_of)

    def squeeze(self, axis: int) -> Partition:
        """The partition of the same tile without an axis of extent 1."""
        kept = self.layout.project({a: a if a < axis else a - 1 for a in self.axes if a != axis})
        origin, places = self._origin
        part_of = origin, (*places[:axis], *places[axis + 1 :])
        return Partition(self.shape[:axis] + self.shape[axis + 1 :], kept, self.conditions, self.made_for, part_of)

    def spread(self, axes: tuple[int, ...], rank: int) -> Partition:
        """The partition of the same tile as one of `rank` axes: axis k is axes[k] there; the others have extent 1."""
        shape = [expr(1)] * rank
        for axis, place in enumerate(axes):
            shape[place] = self.shape[axis]
        layout = self.layout.project(dict(enumerate(axes)))
        return Partition(tuple(shape), layout, self.conditions, self.made_for)

    def whole_of(self, others: Iterable[Partition]) -> Partition | None:
        """The partition of which this one and the others are parts, its axes as they are here; None: there is none.

        An axis along which all of them have extent 1 has it there, too.

        >>> who = Partition((2, 4), Layout.parse("(4,2):(1@1,1@0)"))
        >>> rows, columns = who.along(0), who.along(1)
        >>> print(rows.whole_of([columns]))
        [2x4] (4,2):(1@1,1@0)
        >>> print(columns.T.whole_of([rows.T]))
        [4x2] (4,2):(1@0,1@1)
        >>> print(rows.whole_of([columns.T]))
        None
        """
        origin, places = self._origin
        parts, found = (self, *others), list(places)
        for other in parts[1:]:
            if other._origin[0] is not origin or len(other._origin[1]) != len(found):
                return None
            for axis, place in enumerate(other._origin[1]):
                if None not in (place, found[axis]) and place != found[axis]:
                    return None
                found[axis] = place if found[axis] is None else found[axis]
        order = [place for place in found if place is not None]
        if len(order) != len(found) or sorted(order) != list(origin.axes):
            return None
        whole = origin if order == list(origin.axes) else origin.permute(*order)
        for axis in whole.axes:
            if not whole.shape[axis].same(1) and all(part.shape[axis].same(1) for part in parts):
                whole = whole.reduced(axis)
        return whole

    @property
    def _origin(self) -> tuple[Partition, tuple[int | None, ...]]:
        return self.part_of or (self, self.axes)

    def along(self, *axes: int) -> Partition:
        """The part of the partition along some axes: all others shrink to extent 1."""
        out = self
        for axis in range(len(self.shape)):
            if axis not in axes:
                out = out.reduced(axis)
        return out

    # -- with numbers in -------------------------------------------------------------------------------------------

    @cached_property
    def coalesced(self) -> Partition:
        """The same partition in the fewest digits."""
        layout = Layout.regrouped(coalesce(self.threads).steps, coalesce(self.values).steps)
        return Partition(self.shape, layout, self.conditions, self.made_for)

    def thread_coordinates(self) -> NDArray[np.int64]:
        """(threads, axes): the part of the coordinate that the thread id decides."""
        return self._parts[0]

    def value_coordinates(self) -> NDArray[np.int64]:
        """(values, axes): the part of the coordinate that the value index decides."""
        return self._parts[1]

    @cached_property
    def _parts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        found = self.threads.coordinates(self.axes), self.values.coordinates(self.axes)
        for part in found:
            part.setflags(write=False)
        return found

    def coordinates(self) -> NDArray[np.int64]:
        """(threads, values, axes): who holds what."""
        return self.thread_coordinates()[:, None, :] + self.value_coordinates()[None, :, :]

    def picture(self, window: tuple[int, int] | None = None) -> Picture:
        """Who holds each element of a tile, as T3:V1: thread 3, its value 1; `window` rows and columns, None for all.

        Rows are the first of two axes that are longer than 1; a tile with one such axis is one row. Raises ValueError
        for a tile with more.

        >>> print(Partition((2, 4), Layout.parse("(4,2):(1@1,1@0)")).picture())
        (4,2):(1@1,1@0) in 2 x 4
              0     1     2     3
        0 T0:V0 T1:V0 T2:V0 T3:V0
        1 T0:V1 T1:V1 T2:V1 T3:V1
        """
        shape = [int(extent) for extent in self.shape]
        long = [axis for axis, extent in enumerate(shape) if extent > 1]
        if len(long) > 2:
            listed = " x ".join(map(str, shape))
            raise ValueError(f"a tile of {listed} has {len(long)} axes longer than 1; a picture shows two")
        onto: dict[Axis, Axis] = {axis: 2 - len(long) + place for place, axis in enumerate(long)}
        rows, columns = [1, 1, *(shape[axis] for axis in long)][-2:]
        return holder_picture(self.layout.project(onto), (rows, columns), window)

    def _repr_html_(self) -> str:
        """Notebooks show this: the notation, and with numbers who holds what of the first rows and columns."""
        numbers = self.layout.is_numeric and all(extent.is_number for extent in self.shape)
        drawable = numbers and sum(int(extent) > 1 for extent in self.shape) < 3
        return notebook(str(self), self.coalesced.picture(WINDOW) if drawable else None)

    def stores(self) -> NDArray[np.bool_]:
        """(threads,): the thread that stores, where several hold the same values."""
        index = np.arange(self.threads.size)
        keep = np.ones(len(index), dtype=np.bool_)
        for size, below in self.copies():
            keep &= index // below % size == 0
        return keep

    def copies(self) -> Iterator[tuple[int, int]]:
        """(size, product of the sizes below) of the digits of the thread id that decide no coordinate."""
        below = 1
        for size, stride in zip(shapes.flatten(self.threads.extents), shapes.flatten(self.threads.stride), strict=True):
            if not isinstance(stride, Step):
                yield size, below
            below *= size


def _product(mode: Layout) -> Expr:
    total: Leaf = 1
    for size, _ in mode.steps:
        total = times(total, size)
    return expr(total)
