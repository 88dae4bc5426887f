"""Layouts: maps between finite index spaces, their algebra, their F2 view, and pictures of them."""

from tinygpu.layouts.algebra import (
    blocked_product,
    coalesce,
    coalesce_modes,
    complement,
    concatenate,
    is_tractable,
    left_inverse,
    logical_divide,
    logical_product,
    raked_product,
    right_inverse,
    same_function,
    side_by_side,
    tiled_divide,
    zipped_divide,
)
from tinygpu.layouts.composed import ComposedLayout
from tinygpu.layouts.composition import compose
from tinygpu.layouts.draw import bank_picture, banks_together, holder_picture, offset_picture
from tinygpu.layouts.errors import LayoutError
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.linear import LinearLayout
from tinygpu.layouts.picture import Picture
from tinygpu.layouts.shapes import IntTuple
from tinygpu.layouts.step import E, Step
from tinygpu.layouts.swizzle import Swizzle

__all__ = [
    "ComposedLayout",
    "E",
    "IntTuple",
    "Layout",
    "LayoutError",
    "LinearLayout",
    "Picture",
    "Step",
    "Swizzle",
    "bank_picture",
    "banks_together",
    "blocked_product",
    "coalesce",
    "coalesce_modes",
    "complement",
    "compose",
    "concatenate",
    "holder_picture",
    "is_tractable",
    "left_inverse",
    "logical_divide",
    "logical_product",
    "offset_picture",
    "raked_product",
    "right_inverse",
    "same_function",
    "side_by_side",
    "tiled_divide",
    "zipped_divide",
]
