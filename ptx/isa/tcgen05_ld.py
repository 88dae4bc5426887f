"""tcgen05.ld and tcgen05.st: which cells of tensor memory the registers of a warp hold. No machine issues them yet.

Axes are "lane" and "column" of tensor memory, from the address on; a value is a 32-bit register.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import E


@dataclass(frozen=True, slots=True)
class AccessShape:
    """One shape.

    name     as PTX writes it
    once     (lane of the warp, register) -> lane and column, of .x1
    columns  of tensor memory that .x1 takes, and by which repetitions are apart
    most     the greatest repetition
    """

    name: str
    once: Layout
    columns: int
    most: int

    def repeated(self, count: Leaf) -> Layout:
        """The layout of .x`count`, which may be a symbol.

        >>> print(SHAPES[3].repeated(2))
        ((4,8),(2,2,2)):((2@column,1@lane),(1@column,8@lane,8@column))
        """
        values = [mode for mode in self.once[1].steps if mode[0] != 1]
        return Layout.of(self.once[0].steps, [*values, (count, self.columns * E("column"))])


# PTX ISA, tcgen05.ld: figures of .32x32b, .16x64b, .16x128b and .16x256b; repetitions lie along the columns.
SHAPES = (
    AccessShape("32x32b", Layout.parse("(32,1):(1@lane,0)"), 1, 128),
    AccessShape("16x64b", Layout.parse("((2,2,8),1):((8@lane,1@column,1@lane),0)"), 2, 128),
    AccessShape("16x128b", Layout.parse("((4,8),2):((1@column,1@lane),8@lane)"), 4, 64),
    AccessShape("16x256b", Layout.parse("((4,8),(2,2)):((2@column,1@lane),(1@column,8@lane))"), 8, 32),
)


def split(distance: Leaf, count: Leaf) -> Layout:
    """The layout of .16x32bx2: two windows of columns, so many apart, `count` registers.

    >>> print(split(8, 4))
    ((16,2),4):((1@lane,8@column),1@column)
    """
    return Layout.of([(16, E("lane")), (2, distance * E("column"))], [(count, E("column"))])


def packed(layout: Layout) -> Layout:
    """The same with .pack::16b: a register holds the low halves of two neighbouring columns, and values are halves.

    >>> print(packed(SHAPES[0].repeated(4)))
    (32,(2,4)):(1@lane,(1@column,2@column))
    """
    wide = layout.project({"lane": "lane", "column": 2 * E("column")})
    return Layout.of(wide[0].steps, [(2, E("column")), *wide[1].steps])
