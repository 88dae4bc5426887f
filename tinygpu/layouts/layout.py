"""Layout: shape:stride, a map from a nested index space to non-negative offsets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts import shapes
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.shapes import IntTuple


@dataclass(frozen=True, slots=True)
class Layout:
    """The map x -> sum of x_i * stride_i over the leaves of a nested shape.

    shape    positive integers, nested: the domain, in colexicographic order (the first mode runs fastest)
    stride   non-negative integers, nested like the shape: elements between neighbours of a mode; 0 repeats

    Two layouts are equal when shape and stride are; `algebra.coalesce` makes equal functions equal values.

    >>> Layout((4, 8), (8, 1))(1, 2)
    10
    """

    shape: IntTuple
    stride: IntTuple

    def __post_init__(self) -> None:
        shape = shapes.checked_shape(self.shape)
        stride = shapes.normalised(self.stride, "a stride")
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "stride", stride)
        if not shapes.congruent(shape, stride):
            raise LayoutError(f"{self}: shape and stride must be nested alike, with one stride per size")
        for leaf in shapes.flatten(stride):
            if leaf < 0:
                raise LayoutError(f"{self}: stride {leaf} is negative; offsets count up from 0")

    @classmethod
    def column_major(cls, shape: IntTuple) -> Layout:
        """The compact layout in which the first mode is contiguous: the identity on linear indices."""
        leaves = shapes.flatten(shapes.checked_shape(shape))
        return cls.from_leaves(shape, leaves, shapes.prefix_products(leaves))

    @classmethod
    def row_major(cls, shape: IntTuple) -> Layout:
        """The compact layout in which the last mode is contiguous."""
        leaves = shapes.flatten(shapes.checked_shape(shape))
        return cls.from_leaves(shape, leaves, shapes.prefix_products(leaves[::-1])[::-1])

    @classmethod
    def from_leaves(cls, profile: IntTuple, sizes: tuple[IntTuple, ...], strides: tuple[IntTuple, ...]) -> Layout:
        """The layout nested like `profile`, with the given sizes and strides in place of its leaves."""
        profile = shapes.normalised(profile, "a profile")
        return cls(shapes.unflatten(sizes, profile), shapes.unflatten(strides, profile))

    @classmethod
    def parse(cls, source: str) -> Layout:
        """The layout written as "(4,8):(1,4)"; "(4,8)" alone is the compact column-major one."""
        shape, colon, stride = source.partition(":")
        if not colon:
            return cls.column_major(shapes.parse(shape))
        return cls(shapes.parse(shape), shapes.parse(stride))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Layout:
        """The layout that `to_json` wrote."""
        return cls(value["shape"], value["stride"])

    def to_json(self) -> dict[str, Any]:
        """{"shape": ..., "stride": ...} with nested lists of integers."""
        return {"shape": _lists(self.shape), "stride": _lists(self.stride)}

    def __str__(self) -> str:
        return f"{shapes.text(self.shape)}:{shapes.text(self.stride)}"

    def __repr__(self) -> str:
        return f"Layout({self.shape!r}, {self.stride!r})"

    @property
    def size(self) -> int:
        """How many coordinates the domain has."""
        return shapes.size(self.shape)

    @property
    def cosize(self) -> int:
        """One more than the largest offset."""
        return 1 + sum((s - 1) * d for s, d in self.leaves)

    @property
    def rank(self) -> int:
        """How many modes the shape has at the top; an integer shape is one mode."""
        return len(self.modes)

    @property
    def leaves(self) -> tuple[tuple[int, int], ...]:
        """(size, stride) of every leaf, fastest first."""
        return tuple(zip(shapes.flatten(self.shape), shapes.flatten(self.stride), strict=True))

    @property
    def modes(self) -> tuple[Layout, ...]:
        """The top-level modes, each a layout of its own."""
        if isinstance(self.shape, int) or isinstance(self.stride, int):
            return (self,)
        return tuple(Layout(s, d) for s, d in zip(self.shape, self.stride, strict=True))

    def __getitem__(self, mode: int) -> Layout:
        modes = self.modes
        if not -len(modes) <= mode < len(modes):
            raise LayoutError(f"{self} has no mode {mode}; its {len(modes)} modes count from 0")
        return modes[mode]

    def __len__(self) -> int:
        return self.rank

    def __iter__(self) -> Iterator[Layout]:
        return iter(self.modes)

    def __call__(self, *coordinate: IntTuple) -> int:
        """The offset at a linear index, `layout(9)`, or at a coordinate, `layout(1, 2)` or `layout((1, (0, 1)))`.

        Where the shape is nested, an integer stands for a linear index into that mode. A coordinate outside the
        domain is a LayoutError.
        """
        where = coordinate[0] if len(coordinate) == 1 else coordinate
        index = shapes.index_of(shapes.normalised(where, "a coordinate"), self.shape)
        offset = 0
        for extent, step in self.leaves:
            offset += index % extent * step
            index //= extent
        return offset

    def at(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Offsets at linear indices: an int64 array of the same shape; an index outside the domain is refused."""
        rest = np.array(indices, dtype=np.int64)
        if rest.size and not (rest.min() >= 0 and rest.max() < self.size):
            outside = int(rest.min()) if rest.min() < 0 else int(rest.max())
            raise LayoutError(f"{self}: index {outside} is outside [0, {self.size})")
        if self.cosize > 1 << 62:
            raise LayoutError(f"{self}: offsets up to {self.cosize - 1} do not fit into 64 bits")
        offsets = np.zeros_like(rest)
        for extent, step in self.leaves:
            if extent > 1:
                offsets += rest % extent * step
                rest //= extent
        return offsets

    def offsets(self) -> NDArray[np.int64]:
        """(size,) the offset of every coordinate, in colexicographic order."""
        return self.at(np.arange(self.size, dtype=np.int64))


def _lists(tree: IntTuple) -> Any:
    return tree if isinstance(tree, int) else [_lists(branch) for branch in tree]
