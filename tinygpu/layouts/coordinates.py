"""CoordLayout: a layout into coordinates, whose strides are integer vectors.

A map into a product of spaces is one map into each of them, so a CoordLayout is a tuple of layouts over one shape:
(row, column) of a tensor, lane x column of TMEM, CTA rank x offset.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts import shapes
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.shapes import IntTuple


@dataclass(frozen=True, slots=True)
class CoordLayout:
    """The map x -> (components[0](x), components[1](x), ...).

    components   layouts with one shape between them; component k counts along the axis names[k]
    names        one per axis, each different: ("row", "column"), ("lane", "column"), ("cta", "offset")

    >>> print(CoordLayout.identity((4, 8), ("row", "column")))
    (4,8):(1@row,1@column)
    """

    components: tuple[Layout, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "components", tuple(self.components))
        object.__setattr__(self, "names", tuple(self.names))
        if not self.components:
            raise LayoutError("a layout into coordinates needs at least one axis")
        if len(self.components) != len(self.names) or len(set(self.names)) != len(self.names):
            raise LayoutError(
                f"axes {', '.join(self.names) or 'none'}: {len(self.components)} components need "
                f"{len(self.components)} different names"
            )
        for name in self.names:
            if not name.isidentifier():
                raise LayoutError(f"axis name {name!r} must be an identifier, such as 'row'")
        first = self.components[0]
        for name, layout in zip(self.names, self.components, strict=True):
            if layout.shape != first.shape:
                raise LayoutError(
                    f"axis {name}: {layout} must have the shape of axis {self.names[0]}, {shapes.text(first.shape)}"
                )

    @classmethod
    def identity(cls, extents: tuple[int, ...], names: tuple[str, ...]) -> CoordLayout:
        """Every coordinate of a tensor of these extents, mapped to itself."""
        axes = range(len(extents))
        return cls(tuple(Layout(extents, tuple(int(i == k) for i in axes)) for k in axes), names)

    @classmethod
    def product(cls, layouts: tuple[Layout, ...], names: tuple[str, ...]) -> CoordLayout:
        """Side by side: (x, y, ...) -> (layouts[0](x), layouts[1](y), ...); mode k counts along axis k alone."""
        shape = tuple(layout.shape for layout in layouts)
        components = []
        for k in range(len(layouts)):
            strides = [
                layout.stride if i == k else shapes.unflatten((0,) * len(layout.leaves), layout.shape)
                for i, layout in enumerate(layouts)
            ]
            components.append(Layout(shape, tuple(strides)))
        return cls(tuple(components), names)

    @classmethod
    def parse(cls, source: str, names: tuple[str, ...]) -> CoordLayout:
        """The layout written as "(4,8):(1@row,1@column)"; a stride is 0 or a sum such as 2@row+1@column."""
        shape_text, colon, stride_text = source.partition(":")
        if not colon:
            raise LayoutError(f"{source!r}: expected shape:stride, as in (4,8):(1@row,1@column)")
        shape = shapes.parse(shape_text)
        leaves = [_vector(term, names, source) for term in _TERM.findall(stride_text)]
        profile = shapes.parse(_TERM.sub("0", stride_text))
        if not shapes.congruent(shape, profile):
            raise LayoutError(f"{source!r}: shape and stride must be nested alike, with one stride per size")
        components = tuple(
            Layout(shape, shapes.unflatten(tuple(leaf[k] for leaf in leaves), shape)) for k in range(len(names))
        )
        return cls(components, names)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> CoordLayout:
        """The layout that `to_json` wrote."""
        return cls(tuple(Layout.from_json(c) for c in value["components"]), tuple(value["names"]))

    def to_json(self) -> dict[str, Any]:
        """{"names": [...], "components": [...]}."""
        return {"names": list(self.names), "components": [c.to_json() for c in self.components]}

    def __str__(self) -> str:
        stride = shapes.unflatten(tuple(range(len(self.strides))), self.shape)
        return f"{shapes.text(self.shape)}:{self._stride_text(stride)}"

    def _stride_text(self, tree: IntTuple) -> str:
        if isinstance(tree, tuple):
            return "(" + ",".join(self._stride_text(branch) for branch in tree) + ")"
        terms = [f"{d}@{name}" for d, name in zip(self.strides[tree], self.names, strict=True) if d]
        return "+".join(terms) or "0"

    @property
    def shape(self) -> IntTuple:
        return self.components[0].shape

    @property
    def strides(self) -> tuple[tuple[int, ...], ...]:
        """The stride vector of every leaf, one number per axis."""
        return tuple(zip(*(shapes.flatten(c.stride) for c in self.components), strict=True))

    @property
    def size(self) -> int:
        """How many coordinates the domain has."""
        return self.components[0].size

    @property
    def rank(self) -> int:
        return self.components[0].rank

    @property
    def coextents(self) -> tuple[int, ...]:
        """Per axis, one more than the largest value."""
        return tuple(c.cosize for c in self.components)

    def __getitem__(self, mode: int) -> CoordLayout:
        return CoordLayout(tuple(c[mode] for c in self.components), self.names)

    def __call__(self, *coordinate: IntTuple) -> tuple[int, ...]:
        """The coordinate at a linear index or at a coordinate of the domain."""
        return tuple(c(*coordinate) for c in self.components)

    def axis(self, name: str) -> Layout:
        """The layout along one axis."""
        if name not in self.names:
            raise LayoutError(f"{self} has no axis {name!r}; its axes are {', '.join(self.names)}")
        return self.components[self.names.index(name)]

    def at(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """(..., axes) the coordinates at an int64 array of linear indices."""
        return np.stack([c.at(indices) for c in self.components], axis=-1)

    def offsets(self) -> NDArray[np.int64]:
        """(size, axes) the coordinates of every point of the domain, in colexicographic order."""
        return self.at(np.arange(self.size, dtype=np.int64))

    def linearised(self, extents: tuple[int, ...]) -> Layout:
        """The layout into linear indices of a tensor with these extents, the first axis running fastest.

        Composing a memory layout of that shape with it gives the access. An axis that leaves its extent is refused,
        because its index would land on a different coordinate.

        >>> CoordLayout.parse("(2,4):(1@column,1@row)", ("row", "column")).linearised((4, 8))
        Layout((2, 4), (4, 1))
        """
        if len(extents) != len(self.names):
            raise LayoutError(f"{self} has {len(self.names)} axes, not the {len(extents)} of {shapes.text(extents)}")
        for name, component, extent in zip(self.names, self.components, extents, strict=True):
            if component.cosize > extent:
                raise LayoutError(
                    f"{self}: axis {name} reaches {component.cosize - 1}, outside [0, {extent}) of the tensor "
                    f"{shapes.text(extents)}"
                )
        steps = shapes.prefix_products(extents)
        flat = tuple(sum(d * step for d, step in zip(vector, steps, strict=True)) for vector in self.strides)
        return Layout(self.shape, shapes.unflatten(flat, self.shape))


_TERM = re.compile(r"[^(),\s]+")  # one stride, such as 2@row+1@column


def _vector(term: str, names: tuple[str, ...], source: str) -> tuple[int, ...]:
    vector = [0] * len(names)
    if term == "0":
        return tuple(vector)
    for part in term.split("+"):
        count, at, name = part.partition("@")
        if not at or not count.isdecimal() or name not in names:
            raise LayoutError(
                f"{source!r}: stride {term!r} must be 0 or a sum of terms such as 1@{names[0]}; "
                f"the axes are {', '.join(names)}"
            )
        vector[names.index(name)] += int(count)
    return tuple(vector)
