"""wgmma: a warpgroup multiplies tiles in SMEM into its registers.

operands   a (64 x k) and b (k x n) in SMEM, in the layouts of TMA; c (64 x n) in the registers of 128 threads
legality   which n and types exist; majors; operands swizzled, 32, 64 or 128 bytes wide; steps along k of 32 bytes
meaning    c += a @ b
cost       2 m n k operations of the tensor cores; 32 bytes of each row of a and b from SMEM
lowering   `Wgmma.text`, matrix descriptors made of the operands' places, fences and groups by the pipeline
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import all_of, any_of, expr
from tinygpu.language.instruction import Completion, Fragment, Scope
from tinygpu.language.memories import RMEM, SMEM, Memory
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import E
from tinygpu.ptx.isa.shared_operands import MOST_COLUMNS, SharedOperands

# PTX ISA, wgmma.mma_async: operand types that go together, and their accumulator.
TYPES: dict[str, tuple[tuple[str, ...], str]] = {
    "f16": (("f16",), "f32"),
    "bf16": (("bf16",), "f32"),
    "tf32": (("tf32",), "f32"),
    "e4m3": (("e4m3", "e5m2"), "f32"),
    "e5m2": (("e4m3", "e5m2"), "f32"),
    "s8": (("s8", "u8"), "s32"),
    "u8": (("s8", "u8"), "s32"),
}
ROWS = 64
# PTX ISA, wgmma register fragment D, eight columns of it: each warp has 16 rows, held as by mma.sync.
ACCUMULATORS = Layout.parse("((4,8,4),(2,2)):((2@1,1@0,16@0),(1@1,8@0))")

# Operands of different signs are younger than the instruction (each assembled).
MIXED_SIGNS_ISA = (8, 4)


def accumulators(columns: Leaf) -> Layout:
    """(thread of the warpgroup, value) -> row and column of c with so many columns.

    >>> print(accumulators(64))
    ((4,8,4),(2,2,8)):((2@1,1@0,16@0),(1@1,8@0,8@1))
    """
    return Layout.of(ACCUMULATORS[0].steps, [*ACCUMULATORS[1].steps, (columns // 8, 8 * E(1))])


@dataclass(frozen=True, eq=False)
class Wgmma(SharedOperands):
    """wgmma.mma_async.m64nNkK with both operands in SMEM; K is 32 bytes of the operands' type.

    n  columns of one instruction
    """

    target: ClassVar[int] = 90
    only: ClassVar[tuple[int, ...]] = (90,)
    isa: ClassVar[tuple[int, int]] = (8, 0)
    scope: ClassVar[Scope] = "warpgroup"
    completion: ClassVar[Completion] = "wgmma group"
    proxy: ClassVar[Any] = "async"
    places: ClassVar[tuple[Memory, Memory, Memory]] = (SMEM, SMEM, RMEM)
    rows: ClassVar[int] = ROWS
    across: ClassVar[tuple[int, ...]] = (16,)
    majors: ClassVar[Literal["assembler", "emulator"]] = "assembler"
    # PTX ISA, matrix descriptor of wgmma: code of the swizzle, by its width in bytes, in bits 62 and 63.
    swizzles: ClassVar[dict[int, int]] = {128: 1, 64: 2, 32: 3}
    code_at: ClassVar[int] = 62
    source: ClassVar[str] = "PTX ISA, wgmma.mma_async; asynchronous warpgroup matrix instructions"

    @property
    def label(self) -> str:
        return "wgmma"

    def accumulator(self, a: DType, b: DType) -> DType:
        known = TYPES.get(a.name)
        if known is None or b.name not in known[0]:
            raise TypeError(f"wgmma does not multiply {a} by {b}")
        return dtype(known[1])

    def text(self, a: DType, b: DType) -> str:
        m, n, k = self.shape(a, b)
        return f"wgmma.mma_async.sync.aligned.m{m}n{int(expr(n))}k{k}.{self.accumulator(a, b)}.{a}.{b}"

    def flags(self, a: DType, transposed: tuple[bool, bool] = (False, False)) -> str:
        """What follows the operands: signs of floating types, and of 16-bit ones whether a and b are contiguous along
        m and n."""
        signs = ", 1, 1" if a.is_float else ""
        return signs + (f", {int(transposed[0])}, {int(transposed[1])}" if a.bits == 16 else "")

    def available(self, *types: DType) -> tuple[int, tuple[int, int]]:
        a, b = types
        return self.target, self.isa if a.is_float or a == b else MIXED_SIGNS_ISA

    def statement(self, a: DType, b: DType, d: str, x: str, y: str, across: tuple[bool, bool] = (False, False)) -> str:
        return f"{self.text(a, b)} {d}, {x}, {y}, 1{self.flags(a, across)};"

    def fragments(self, a: DType, b: DType) -> tuple[Fragment, Fragment, Fragment]:
        """That of c, which repeats along n; a and b lie in memory."""
        return None, None, ACCUMULATORS

    def type_rules(self, a: DType, b: DType) -> tuple[Constraint, ...]:
        """Columns that exist for these types."""
        n = expr(self.n)
        legal = all_of([n % 8 == 0, n >= 8, n <= MOST_COLUMNS])
        sentence = f"an instruction has 8 to {MOST_COLUMNS} columns, in steps of 8"
        if self.accumulator(a, b).name == "s32":
            legal = legal & any_of([n % 16 == 0, n == 8, n == 24])
            sentence += "; on integers beyond 32 in steps of 16"
        return (self.rule(f"columns for {a}", legal, sentence, "assembler"),)
