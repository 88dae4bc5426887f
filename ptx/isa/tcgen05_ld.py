"""tcgen05.ld: columns of tensor memory to registers; and which cells the registers of a warp hold, of every shape.

operands   a tile in TMEM whose elements fill cells; registers of a warpgroup, row t in thread t
legality   who holds what: a warp reaches the lanes from 32 (w mod 4) on
meaning    a copy
cost       128 lanes x 4 bytes of each column
lowering   `Tcgen05Ld.statement`, in the fewest instructions, and one wait for all

Of layouts, axes are "lane" and "column" of tensor memory, from the address on; a value is a 32-bit register.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tinygpu.language.instruction import CellLoad
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


@dataclass(frozen=True, eq=False)
class Tcgen05Ld(CellLoad):
    """tcgen05.ld.32x32b: each thread of a warpgroup has the row of its lane."""

    target: ClassVar[int] = 100
    only: ClassVar[tuple[int, ...]] = (100, 103)
    isa: ClassVar[tuple[int, int]] = (8, 6)
    counts: ClassVar[tuple[int, ...]] = (1, 2, 4, 8, 16, 32, 64, 128)
    source: ClassVar[str] = "PTX ISA, tcgen05.ld; tcgen05.wait"

    @property
    def label(self) -> str:
        return "tcgen05.ld"

    def statement(self, registers: Sequence[str], address: str) -> str:
        held = ", ".join(registers)
        return f"tcgen05.ld.sync.aligned.32x32b.x{len(registers)}.b32 {{{held}}}, {address};"

    def complete(self) -> str:
        return "tcgen05.wait::ld.sync.aligned;"
