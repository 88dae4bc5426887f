"""ComposedLayout: a layout, a permutation of its offsets, and a layout behind it: where the elements of a tile lie."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts.composition import compose
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.layout import WINDOW, Layout
from tinygpu.layouts.linear import LinearLayout
from tinygpu.layouts.picture import drawn_offsets, notebook
from tinygpu.layouts.shapes import IntTuple, ShapeTree
from tinygpu.layouts.swizzle import Swizzle


@dataclass(frozen=True, slots=True)
class ComposedLayout:
    """The map x -> outer(swizzle(layout(x))); all in the same unit, elements or bytes.

    swizzle   a Swizzle, or any invertible LinearLayout of offset bits (one that a solver found)
    layout    the shape:stride layout before it
    outer     a layout behind it, for rows whose pitch is no power of two: `layout` rounds their pitch up, so that all
              bits of a row's number are bits that a swizzle may read, and `outer` puts the pitch back. None: no such

    >>> print(ComposedLayout(Swizzle(3, 0, 3), Layout((8, 8), (8, 1))))
    Sw<3,0,3> o (8,8):(8,1)
    >>> rows = ComposedLayout(Swizzle(0, 0, 0), Layout((4, 12), (16, 1)), Layout((16, 4), (1, 12)))
    >>> print(rows, rows(3, 2))
    (16,4):(1,12) o (4,12):(16,1) 38
    """

    swizzle: Swizzle | LinearLayout
    layout: Layout
    outer: Layout | None = None

    def __post_init__(self) -> None:
        if self.outer is not None and self.layout.cosize > self.outer.size:
            raise LayoutError(
                f"{self.layout} reaches offset {self.layout.cosize - 1}, outside [0, {self.outer.size}), the domain of "
                f"{self.outer}"
            )
        if isinstance(self.swizzle, LinearLayout):
            if self.layout.cosize > 1 << self.swizzle.in_bits:
                raise LayoutError(
                    f"{self.layout} reaches offset {self.layout.cosize - 1}, which does not fit into the "
                    f"{self.swizzle.in_bits} bits that its swizzle permutes"
                )
            if not self.swizzle.is_bijective:
                raise LayoutError(
                    f"the swizzle of {self.layout} must be a permutation, but its matrix of {self.swizzle.out_bits} x "
                    f"{self.swizzle.in_bits} bits has rank {self.swizzle.rank}"
                )

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ComposedLayout:
        """The layout that `to_json` wrote."""
        outer = value["swizzle"]
        swizzle = LinearLayout.from_json(outer) if "columns" in outer else Swizzle.from_json(outer)
        behind = value.get("outer")
        return cls(swizzle, Layout.from_json(value["layout"]), Layout.from_json(behind) if behind else None)

    def to_json(self) -> dict[str, Any]:
        """{"swizzle": ..., "layout": ...}, and "outer" where there is one."""
        behind = {"outer": self.outer.to_json()} if self.outer is not None else {}
        return {"swizzle": self.swizzle.to_json(), "layout": self.layout.to_json()} | behind

    def __str__(self) -> str:
        moved = isinstance(self.swizzle, LinearLayout) or self.swizzle.bits
        parts = (self.outer, self.swizzle if moved or self.outer is None else None, self.layout)
        return " o ".join(str(part) for part in parts if part is not None)

    def _repr_html_(self) -> str:
        """Notebooks show this: the notation, and the offsets of the first rows and columns of two modes."""
        sizes = [mode.size for mode in self.layout.modes]
        if len(sizes) != 2 or self.size > 1 << 16:
            return notebook(str(self), None)
        return notebook(str(self), drawn_offsets("offsets", self.offsets().reshape(sizes[::-1]).T, WINDOW))

    @property
    def shape(self) -> ShapeTree:
        return self.layout.shape

    @property
    def extents(self) -> IntTuple:
        """The shape of the layout before the permutation."""
        return self.layout.extents

    @property
    def size(self) -> int:
        return self.layout.size

    @property
    def cosize(self) -> int:
        """One more than the largest offset; found by listing all of them."""
        return int(self.offsets().max()) + 1

    def __call__(self, *coordinate: IntTuple) -> int:
        """The offset at a linear index or at a coordinate of the domain."""
        found = self.swizzle(self.layout(*coordinate))
        return found if self.outer is None else self.outer(found)

    def at(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Offsets at an int64 array of linear indices."""
        return self._behind(self.layout.at(indices))

    def at_coordinates(self, coordinates: NDArray[np.int64]) -> NDArray[np.int64]:
        """Offsets at coordinates, shape (..., modes): one number for each top-level mode, within its size."""
        return self._behind(self.layout.at_coordinates(coordinates))

    def offsets(self) -> NDArray[np.int64]:
        """(size,) the offset of every coordinate, in colexicographic order."""
        return self._behind(self.layout.offsets())

    def _behind(self, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
        found = self.swizzle.at(offsets)
        return found if self.outer is None else self.outer.at(found)

    def compose(self, inner: Layout) -> ComposedLayout:
        """self o inner: the swizzle stays outside, so the conditions are those of composing the layouts."""
        return ComposedLayout(self.swizzle, compose(self.layout, inner), self.outer)

    def to_linear(self) -> LinearLayout:
        """The same map as one matrix over F2; refuses where the layout is not linear."""
        if self.outer is not None:
            raise LayoutError(f"{self} is not linear over F2: its rows lie at a pitch behind the swizzle")
        linear = LinearLayout.from_layout(self.layout)
        if isinstance(self.swizzle, LinearLayout):
            outer = self.swizzle
        else:
            outer = self.swizzle.to_linear(max(linear.out_bits, self.swizzle.period_bits))
        return outer.compose(linear.widened(outer.in_bits))
