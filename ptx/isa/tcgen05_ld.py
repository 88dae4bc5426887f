"""tcgen05.ld: columns of tensor memory to registers; and which cells the registers of a warp hold, of every shape.

operands   a tile in TMEM whose elements fill cells; registers of a warpgroup, of .32x32b row t in thread t
legality   who holds what: a warp reaches the lanes from 32 (w mod 4) on, and there what the shape says
meaning    a copy
cost       128 lanes x 4 bytes of each column
lowering   `Tcgen05Ld.statement`, in the fewest instructions, and one wait for all

Of layouts, axes are "lane" and "column" of tensor memory, from the address on; a value is a 32-bit register.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tinygpu.language.instruction import CellLoad, CellMove
from tinygpu.language.instruction.base import or_of
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
SPLIT = "16x32bx2"


def split(distance: Leaf, count: Leaf, halves: bool = False) -> Layout:
    """The layout of .16x32bx2: two windows of columns, so many apart, `count` registers.

    halves  with .pack::16b, which leaves the distance one of columns

    >>> print(split(8, 4))
    ((16,2),4):((1@lane,8@column),1@column)
    >>> print(split(8, 4, halves=True))
    ((16,2),(2,4)):((1@lane,8@column),(1@column,2@column))
    """
    values = packed(Layout.of([], [(count, E("column"))])) if halves else Layout.of([], [(count, E("column"))])
    return Layout.of([(16, E("lane")), (2, distance * E("column"))], values[1].steps)


def packed(layout: Layout) -> Layout:
    """The same with .pack::16b: a register holds the low halves of two neighbouring columns, and values are halves.

    >>> print(packed(SHAPES[0].repeated(4)))
    (32,(2,4)):(1@lane,(1@column,2@column))
    """
    wide = layout.project({"lane": "lane", "column": 2 * E("column")})
    return Layout.of(wide[0].steps, [(2, E("column")), *wide[1].steps])


@dataclass(frozen=True, eq=False)
class Shaped(CellMove):
    """What tcgen05.ld and tcgen05.st have in common: the lanes and columns that one instruction accesses.

    shape  "32x32b": 32 lanes, a column in each register; "16x32bx2": 16 lanes, the upper half of the threads other
           columns of them; "16x64b", "16x128b" and "16x256b": 16 lanes, whose columns neighbouring threads share
    packed elements of 16 bits have a cell each: a register has those of two neighbouring columns
    """

    shape: str = "32x32b"
    packed: bool = False

    target: ClassVar[int] = 100
    only: ClassVar[tuple[int, ...]] = (100, 103)
    isa: ClassVar[tuple[int, int]] = (8, 6)

    def __post_init__(self) -> None:
        known = [s.name for s in SHAPES] + [SPLIT]
        if self.shape not in known:
            raise ValueError(f"tcgen05.ld and tcgen05.st have the shapes {or_of(known)}, not {self.shape!r}")

    @property
    def _of(self) -> AccessShape | None:
        return next((s for s in SHAPES if s.name == self.shape), None)

    @property
    def counts(self) -> tuple[int, ...]:  # type: ignore[override]
        most = 128 if self._of is None else self._of.most
        return tuple(1 << i for i in range(most.bit_length()))

    @property
    def windows(self) -> int:  # type: ignore[override]
        return 2 if self._of is None else 1

    @property
    def per_register(self) -> int:
        return 2 if self.packed else 1

    def access(self, count: Leaf, apart: Leaf = 0) -> Layout:
        if self._of is None:
            return split(apart, count, self.packed)
        return packed(self._of.repeated(count)) if self.packed else self._of.repeated(count)

    def _named(self, opcode: str) -> str:
        return opcode + (f".{self.shape}" if self.shape != "32x32b" else "") + (".packed" if self.packed else "")

    def repetition(self, registers: Sequence[str]) -> int:
        """How often an instruction with so many registers repeats."""
        return len(registers) // (1 if self._of is None else self._of.once[1].size)


@dataclass(frozen=True, eq=False)
class Tcgen05Ld(Shaped, CellLoad):
    """tcgen05.ld: each warp of a warpgroup has what its lanes hold.

    shape  "32x32b": each thread has the row of its lane; others as the page of fragments shows
    """

    source: ClassVar[str] = "PTX ISA, tcgen05.ld; tcgen05.wait"

    @property
    def label(self) -> str:
        return self._named("tcgen05.ld")

    def statement(self, registers: Sequence[str], address: str, apart: int = 0) -> str:
        held, more = ", ".join(registers), f", {apart}" if self.windows > 1 else ""
        form = f"{self.shape}.x{self.repetition(registers)}{'.pack::16b' if self.packed else ''}"
        return f"tcgen05.ld.sync.aligned.{form}.b32 {{{held}}}, {address}{more};"

    def complete(self) -> str:
        return "tcgen05.wait::ld.sync.aligned;"
