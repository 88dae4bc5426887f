"""Operands that tensor cores read in shared memory, as wgmma and tcgen05.mma do: tiles with rows cut to a swizzle.

Both instructions name such an operand by a descriptor, multiply 32 bytes of it along k at a time, and take it
contiguous along k or, of some widths, along m or n. What differs is stated by the class: which, and who judges that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType
from tinygpu.expressions import Operand, all_of, any_of, expr
from tinygpu.language.instruction import CHUNK_BYTES, MatrixMultiply
from tinygpu.language.instruction.base import or_of
from tinygpu.language.memories import SMEM
from tinygpu.language.tile import Tile

K_BYTES = 32
MOST_COLUMNS = 256


@dataclass(frozen=True, eq=False)
class SharedOperands(MatrixMultiply):
    """A product whose b, and perhaps a, is read in SMEM under a swizzle of 32, 64 or 128 bytes.

    n         columns of one instruction
    rows      of one instruction, in each CTA
    across    bits of elements that may be contiguous along m or n
    majors    who refuses others
    swizzles  code of a swizzle in a descriptor, by its width in bytes
    paired    code of the one of 128 bytes that leaves 32 together
    constant  bits of every descriptor: the code of the swizzle stands above bit `code_at`
    """

    n: Operand = 128

    rows: ClassVar[int]
    across: ClassVar[tuple[int, ...]]
    majors: ClassVar[Literal["assembler", "emulator"]]
    swizzles: ClassVar[dict[int, int]]
    code_at: ClassVar[int]
    constant: ClassVar[int] = 0
    paired: ClassVar[int] = 0

    def shape(self, a: DType, b: DType) -> tuple[int, Operand, int]:  # type: ignore[override]
        return self.rows, self.n, K_BYTES * 8 // a.bits

    def atom(self, kind: DType, across: bool) -> int:
        """Bytes that the swizzle of an operand leaves together, contiguous along m or n (`across`) or along k."""
        return CHUNK_BYTES

    def descriptor(self, swizzle_bytes: int, apart_bytes: int, across: bool, atom_bytes: int = CHUNK_BYTES) -> int:
        """PTX ISA, matrix descriptors of wgmma and of tcgen05: offsets in 16 bytes, and the swizzle.

        The stride between groups of eight rows, or of four where 32 bytes stay together, follows from the swizzle. The
        leading offset is that between swizzle widths along m or n, and not used along k.
        """
        leading = apart_bytes // 16 if across else 1
        pairs = atom_bytes > CHUNK_BYTES
        stride = (4 if pairs else 8) * swizzle_bytes // 16
        code = self.paired if pairs else self.swizzles[swizzle_bytes]
        return code << self.code_at | self.constant | stride << 32 | leading << 16

    def operand_rules(self, a: Tile, b: Tile) -> tuple[Constraint, ...]:
        """Layouts and majors of operands in SMEM."""
        found = (("a", a, 1), ("b", b, 0))
        return tuple(rule for name, tile, k_axis in found for rule in self.rules_of(name, tile, k_axis))

    def rules_of(self, name: str, tile: Tile, k_axis: int) -> Iterator[Constraint]:
        """Those of one operand, "a" or "b", whose axis `k_axis` is k; none where it lies elsewhere."""
        buffer = tile.buffer
        if buffer is None or buffer.memory is not SMEM:
            return
        width, bits, held = buffer.swizzle_bytes, buffer.dtype.bits, buffer.element_bits
        if width is None:
            raise ValueError(
                f"{buffer.name} is an operand of {self.label}: give the width of its swizzle, swizzle=32, 64 or 128"
            )
        across = buffer.contiguous != k_axis
        if buffer.atom_bytes != (wanted := self.atom(tile.dtype, across)):
            lies = f"{buffer.name} has {tile.dtype} along {('n' if name == 'b' else 'm') if across else 'k'}"
            raise ValueError(
                f"{lies}, and {self.label} reads them under a swizzle that leaves {wanted} bytes together, not "
                f"{buffer.atom_bytes}: give its buffer atom={wanted}"
            )
        yield self.rule(
            f"step of {name}",
            all_of([held * tile.shape[k_axis] // 8 == K_BYTES]),
            f"each instruction multiplies {K_BYTES} bytes along k of operand {name}",
        )
        if not across:
            return
        yield self.rule(
            f"major of {name}",
            any_of([expr(bits) == allowed for allowed in self.across]),
            f"operand {name} is contiguous along k, unless its elements have {or_of(self.across)} bits "
            f"(they have {bits})",
            self.majors,
        )
        if name == "b":
            # Rows are whole widths, so where there is one instruction along n this holds by itself.
            columns = expr(self.n) // self.ctas * bits // 8
            yield self.rule(
                "swizzle of b",
                any_of([columns % width == 0, width % columns == 0]),
                "where operand b is contiguous along n, the columns of an instruction are whole widths of its swizzle, "
                "or whole instructions make one",
            )
