"""wgmma: a warpgroup multiplies tiles in SMEM into its registers.

operands   a (64 x k) and b (k x n) in SMEM, in the layouts of TMA; c (64 x n) in the registers of 128 threads
legality   which n and types exist; majors; operands swizzled, 32, 64 or 128 bytes wide; steps along k of 32 bytes
meaning    c += a @ b
cost       2 m n k operations of the tensor cores; 32 bytes of each row of a and b from SMEM
lowering   `Wgmma.text`, matrix descriptors made of the operands' places, fences and groups by the pipeline
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import Operand, all_of, any_of, expr
from tinygpu.language.instruction import Completion, Fragment, MatrixMultiply, Scope
from tinygpu.language.memories import RMEM, SMEM, Memory
from tinygpu.language.tile import Tile
from tinygpu.layouts.layout import Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import E

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
K_BYTES = 32
ROWS = 64
MOST_COLUMNS = 256
# PTX ISA, wgmma register fragment D, eight columns of it: each warp has 16 rows, held as by mma.sync.
ACCUMULATORS = Layout.parse("((4,8,4),(2,2)):((2@1,1@0,16@0),(1@1,8@0))")

# PTX ISA, matrix descriptor of wgmma: code of the swizzle, by its width in bytes.
SWIZZLES = {128: 1, 64: 2, 32: 3}
# Operands of different signs are younger than the instruction (each assembled).
MIXED_SIGNS_ISA = (8, 4)


def accumulators(columns: Leaf) -> Layout:
    """(thread of the warpgroup, value) -> row and column of c with so many columns.

    >>> print(accumulators(64))
    ((4,8,4),(2,2,8)):((2@1,1@0,16@0),(1@1,8@0,8@1))
    """
    return Layout.of(ACCUMULATORS[0].steps, [*ACCUMULATORS[1].steps, (columns // 8, 8 * E(1))])


@dataclass(frozen=True, eq=False)
class Wgmma(MatrixMultiply):
    """wgmma.mma_async.m64nNkK with both operands in SMEM; K is 32 bytes of the operands' type.

    n  columns of one instruction
    """

    n: Operand = 128

    target: ClassVar[int] = 90
    only: ClassVar[tuple[int, ...]] = (90,)
    isa: ClassVar[tuple[int, int]] = (8, 0)
    scope: ClassVar[Scope] = "warpgroup"
    completion: ClassVar[Completion] = "wgmma group"
    proxy: ClassVar[Any] = "async"
    places: ClassVar[tuple[Memory, Memory, Memory]] = (SMEM, SMEM, RMEM)
    source: ClassVar[str] = "PTX ISA, wgmma.mma_async; asynchronous warpgroup matrix instructions"

    @property
    def label(self) -> str:
        return "wgmma"

    def shape(self, a: DType, b: DType) -> Any:
        return ROWS, self.n, K_BYTES * 8 // a.bits

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

    def descriptor(self, swizzle_bytes: int, apart_bytes: int, across: bool) -> int:
        """PTX ISA, matrix descriptor of wgmma: offsets in 16 bytes; the swizzle in bits 62 and 63.

        The stride between groups of eight rows follows from the swizzle. The leading offset is that between swizzle
        widths along m or n, and not used along k.
        """
        leading = apart_bytes // 16 if across else 1
        return SWIZZLES[swizzle_bytes] << 62 | (8 * swizzle_bytes // 16) << 32 | leading << 16

    def fragments(self, a: DType, b: DType) -> tuple[Fragment, Fragment, Fragment]:
        """That of c, which repeats along n; a and b lie in memory."""
        return None, None, ACCUMULATORS

    def target_rule_for(self, a: DType, b: DType) -> Constraint:
        """Columns that exist for these types."""
        n = expr(self.n)
        legal = all_of([n % 8 == 0, n >= 8, n <= MOST_COLUMNS])
        sentence = f"an instruction has 8 to {MOST_COLUMNS} columns, in steps of 8"
        if self.accumulator(a, b).name == "s32":
            legal = legal & any_of([n % 16 == 0, n == 8, n == 24])
            sentence += "; on integers beyond 32 in steps of 16"
        return self.rule(f"columns for {a}", legal, sentence, "assembler")

    def operand_rules(self, a: Tile, b: Tile) -> tuple[Constraint, ...]:
        """Layouts and majors of operands in SMEM."""
        out = []
        for name, tile, k_axis in (("a", a, 1), ("b", b, 0)):
            buffer = tile.buffer
            if buffer is None:
                continue
            if buffer.swizzle_bytes is None:
                raise ValueError(
                    f"{buffer.name} is an operand of wgmma: give the width of its swizzle, swizzle=32, 64 or 128"
                )
            step = buffer.dtype.bits * tile.shape[k_axis] // 8
            out.append(
                self.rule(
                    f"step of {name}",
                    all_of([step == K_BYTES]),
                    f"each instruction multiplies {K_BYTES} bytes along k of operand {name}",
                    "emulator",
                )
            )
            if buffer.contiguous == k_axis:
                continue
            out.append(
                self.rule(
                    f"major of {name}",
                    all_of([expr(buffer.dtype.bits) == 16]),
                    f"operand {name} is contiguous along k, unless its elements have 16 bits (they have "
                    f"{buffer.dtype.bits})",
                    "assembler",
                )
            )
            if name == "b":
                columns = expr(self.n) * buffer.dtype.bits // 8
                # Rows are whole widths, so where there is one instruction along n this holds by itself.
                whole = [columns % buffer.swizzle_bytes == 0, buffer.swizzle_bytes % columns == 0]
                out.append(
                    self.rule(
                        "swizzle of b",
                        any_of(whole),
                        "where operand b is contiguous along n, the columns of an instruction are whole widths of its "
                        "swizzle, or whole instructions make one",
                        "emulator",
                    )
                )
        return tuple(out)
