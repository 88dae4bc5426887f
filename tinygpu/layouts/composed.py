"""ComposedLayout: a layout followed by a permutation of its offsets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.layouts.composition import compose
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.linear import LinearLayout
from tinygpu.layouts.shapes import IntTuple, ShapeTree
from tinygpu.layouts.swizzle import Swizzle


@dataclass(frozen=True, slots=True)
class ComposedLayout:
    """The map x -> swizzle(layout(x)); both in the same unit, elements or bytes.

    swizzle   a Swizzle, or any invertible LinearLayout of offset bits (one that a solver found)
    layout    the shape:stride layout before it

    >>> print(ComposedLayout(Swizzle(3, 0, 3), Layout((8, 8), (8, 1))))
    Sw<3,0,3> o (8,8):(8,1)
    """

    swizzle: Swizzle | LinearLayout
    layout: Layout

    def __post_init__(self) -> None:
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
        return cls(swizzle, Layout.from_json(value["layout"]))

    def to_json(self) -> dict[str, Any]:
        """{"swizzle": ..., "layout": ...}."""
        return {"swizzle": self.swizzle.to_json(), "layout": self.layout.to_json()}

    def __str__(self) -> str:
        return f"{self.swizzle} o {self.layout}"

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
        return self.swizzle(self.layout(*coordinate))

    def at(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Offsets at an int64 array of linear indices."""
        return self.swizzle.at(self.layout.at(indices))

    def offsets(self) -> NDArray[np.int64]:
        """(size,) the offset of every coordinate, in colexicographic order."""
        return self.swizzle.at(self.layout.offsets())

    def compose(self, inner: Layout) -> ComposedLayout:
        """self o inner: the swizzle stays outside, so the conditions are those of composing the layouts."""
        return ComposedLayout(self.swizzle, compose(self.layout, inner))

    def to_linear(self) -> LinearLayout:
        """The same map as one matrix over F2; refuses where the layout is not linear."""
        linear = LinearLayout.from_layout(self.layout)
        if isinstance(self.swizzle, LinearLayout):
            outer = self.swizzle
        else:
            outer = self.swizzle.to_linear(max(linear.out_bits, self.swizzle.period_bits))
        return outer.compose(linear.widened(outer.in_bits))
