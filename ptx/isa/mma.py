"""mma.sync: one warp multiplies fragments. Shapes, types and who holds what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, dtype
from tinygpu.language.instruction import Fragment, MatrixMultiply
from tinygpu.language.partition import Mode


@dataclass(frozen=True, slots=True)
class Shape:
    """One legal combination: (m, n, k), operand types, accumulator, oldest target, and the bits of one k element."""

    m: int
    n: int
    k: int
    types: tuple[str, ...]
    accumulator: str
    target: int
    isa: tuple[int, int]

    def __post_init__(self) -> None:
        bits = dtype(self.types[0]).bits
        if self.m == 16 and self.k * bits not in (128, 256):
            raise ValueError(f"m{self.m}n{self.n}k{self.k}: a row of A is 16 or 32 bytes, not {self.k * bits // 8}")

    @property
    def text(self) -> str:
        return f"m{self.m}n{self.n}k{self.k}"


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
        """PTX ISA: lane = 4 * g + t. Row g (and g + 8) of A and C, column g of B; t counts 32-bit pieces along k."""
        v = self.variant(a, b)
        per = 32 // a.bits  # elements of k in one register
        pack = (per,) if per > 1 else ()
        far = 4 * per  # the second 16 bytes of a row
        deep = v.k * a.bits == 256

        def operand(row_axis: int, k_axis: int, halves: bool) -> Fragment:
            values = [Mode.of(p, k_axis, 1) for p in pack]
            if halves:
                values.append(Mode.of(2, row_axis, 8))
            if deep:
                values.append(Mode.of(2, k_axis, far))
            return Fragment((Mode.of(4, k_axis, per), Mode.of(8, row_axis, 1)), tuple(values))

        c = Fragment((Mode.of(4, 1, 2), Mode.of(8, 0, 1)), (Mode.of(2, 1, 1), Mode.of(2, 0, 8)))
        return operand(0, 1, True), operand(1, 0, False), c

    def target_rule_for(self, a: DType, b: DType) -> Constraint:
        """The oldest device that has this combination."""
        v = self.variant(a, b)
        return self.rule(
            f"target for {a}", self._cc() >= v.target, f"mma.sync on {a} exists from sm_{v.target} on", "assembler"
        )
