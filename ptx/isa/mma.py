"""mma.sync: one warp multiplies fragments.

operands   fragments of a (m x k), b (k x n) and c (m x n) in the registers of a warp
legality   which shapes and types exist, and from which target on (`SHAPES`)
meaning    c += a @ b
cost       2 m n k operations of the tensor cores
lowering   `MmaSync.text`; k is contiguous in the registers of both a and b (.row.col)
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, dtype
from tinygpu.language.instruction import Fragment, MatrixMultiply, since
from tinygpu.layouts.layout import Layout


def holders(fragment: Layout) -> dict[tuple[int, int], tuple[int, int]]:
    """Coordinate -> (lane, value) that holds it. Refuses a fragment that gives two holders one coordinate."""
    out: dict[tuple[int, int], tuple[int, int]] = {}
    lanes, values = (mode.coordinates((0, 1)) for mode in fragment.modes)
    for lane, value in itertools.product(range(len(lanes)), range(len(values))):
        row, column = map(int, lanes[lane] + values[value])
        if (row, column) in out:
            raise ValueError(f"lane {lane}, value {value} and {out[row, column]} both hold {(row, column)}")
        out[row, column] = lane, value
    return out


def fragments(m: int, k: int, bits: int) -> tuple[Layout, Layout, Layout]:
    """(lane, value) -> coordinates of a (m, k), b (k, 8) and c (m, 8) of operands of so many bits; m is 8 or 16.

    PTX ISA, matrix fragments of mma.m8n8k* and m16n8k*: lane = 4 g + t. Row g (and g + 8) of A and C, column g of B; t
    counts registers along k, which hold 32 bits, or one f64, and in C pairs of columns.

    >>> print(fragments(16, 16, 16)[0])
    ((4,8),(2,2,2)):((2@1,1@0),(1@1,8@0,8@1))
    """
    per = max(1, 32 // bits)  # elements of k in one register
    quad = 4 * per  # elements of k in four lanes
    tall, deep = m // 8, k // quad
    a = f"((4,8),({per},{tall},{deep})):(({per}@1,1@0),(1@1,8@0,{quad}@1))"
    b = f"((4,8),({per},{deep})):(({per}@0,1@1),(1@0,{quad}@0))"
    c = f"((4,8),(2,{tall})):((2@1,1@0),(1@1,8@0))"
    return Layout.parse(a), Layout.parse(b), Layout.parse(c)


@dataclass(frozen=True, slots=True)
class Shape:
    """One legal combination of m16n8: extents, operand types, accumulator, oldest target and lowest .version."""

    m: int
    n: int
    k: int
    types: tuple[str, ...]
    accumulator: str
    target: int
    isa: tuple[int, int]

    def __post_init__(self) -> None:
        if (self.m, self.n) != (16, 8) or self.k * self.bits not in (128, 256):
            raise ValueError(
                f"{self.text}: a row of A is 16 or 32 bytes, not {self.k * self.bits / 8:g}, and there are 16 of them"
            )
        extents = ((self.m, self.k), (self.k, self.n), (self.m, self.n))
        for name, (rows, columns), held in zip("abc", extents, self.fragments, strict=True):
            if held[0].size != 32 or set(holders(held)) != set(itertools.product(range(rows), range(columns))):
                raise ValueError(
                    f"{self.text}: the fragment of {name} does not cover {rows} x {columns} elements with 32 lanes"
                )

    @property
    def text(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"

    @property
    def bits(self) -> int:
        return dtype(self.types[0]).bits

    @property
    def registers(self) -> tuple[int, int, int]:
        """32-bit registers per lane of a, b and c."""
        return self.m * self.k * self.bits // 1024, self.k * self.n * self.bits // 1024, self.m * self.n // 32

    @property
    def fragments(self) -> tuple[Layout, Layout, Layout]:
        """(lane, value) -> coordinates of a (m, k), b (k, n) and c (m, n)."""
        return fragments(self.m, self.k, self.bits)


# PTX ISA, mma.sync shapes and types; each assembled for its target. The longer k of a type comes first.
SHAPES: tuple[Shape, ...] = (
    Shape(16, 8, 16, ("f16",), "f32", 80, (7, 0)),
    Shape(16, 8, 8, ("f16",), "f32", 75, (6, 5)),
    Shape(16, 8, 16, ("bf16",), "f32", 80, (7, 0)),
    Shape(16, 8, 8, ("bf16",), "f32", 80, (7, 0)),
    Shape(16, 8, 8, ("tf32",), "f32", 80, (7, 0)),
    Shape(16, 8, 4, ("tf32",), "f32", 80, (7, 0)),
    Shape(16, 8, 32, ("s8", "u8"), "s32", 80, (7, 0)),
    Shape(16, 8, 16, ("s8", "u8"), "s32", 80, (7, 0)),
    Shape(16, 8, 32, ("e4m3", "e5m2"), "f32", 89, (8, 4)),
    Shape(16, 8, 16, ("e4m3", "e5m2"), "f32", 89, (8, 7)),
)


@dataclass(frozen=True, eq=False)
class MmaSync(MatrixMultiply):
    """mma.sync.aligned.m16n8kK: the k of 32 bytes per row, or with `short` the one of 16 bytes."""

    short: bool = False
    source: ClassVar[str] = "PTX ISA, mma.sync; fragment layouts of m16n8"

    @property
    def label(self) -> str:
        return "mma.sync.short" if self.short else "mma.sync"

    def variant(self, a: DType, b: DType) -> Shape:
        """The instruction for operands of these types; refuses combinations that do not exist."""
        found = [s for s in SHAPES if a.name in s.types and b.name in s.types]
        if not found:
            raise TypeError(f"mma.sync does not multiply {a} by {b}")
        return found[1 if self.short else 0]

    def shape(self, a: DType, b: DType) -> tuple[int, int, int]:
        v = self.variant(a, b)
        return v.m, v.n, v.k

    def accumulator(self, a: DType, b: DType) -> DType:
        return dtype(self.variant(a, b).accumulator)

    def text(self, a: DType, b: DType) -> str:
        v = self.variant(a, b)
        return f"mma.sync.aligned.{v.text}.row.col.{v.accumulator}.{a}.{b}.{v.accumulator}"

    def fragments(self, a: DType, b: DType) -> tuple[Fragment, Fragment, Fragment]:
        """Fragments of a, b and c."""
        return self.variant(a, b).fragments

    def available(self, *types: DType) -> tuple[int, tuple[int, int]]:
        v = self.variant(*types)
        return v.target, v.isa

    def type_rules(self, a: DType, b: DType) -> tuple[Constraint, ...]:
        """The oldest device that has this combination."""
        v = self.variant(a, b)
        since_then = since(f"mma.sync on {a}", v.target)
        return (self.rule(f"target for {a}", self._cc() >= v.target, since_then, "assembler"),)
