"""tcgen05.mma with block scales: factors of which so many neighbours along k share a scale, in tensor memory.

operands   a (128 x k) and b (k x n) in SMEM, in the layouts of TMA; c (128 x n) in TMEM; scales of rows of a and of
           columns of b in TMEM, as tcgen05.cp leaves chunks of them
legality   which types and blocks go with each other (`FORMS`); tiles of whole chunks of 128 rows or columns
meaning    c += (a * scales of a) @ (b * scales of b); without c where nothing was added up yet
cost       2 m n k operations of the tensor cores; 32 bytes of each row of a and b from SMEM
lowering   `Tcgen05MmaScaled.issue_scaled`: the address of a cell of four scales, and in the instruction descriptor
           which of them come first
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, dtype
from tinygpu.expressions import Expr, Operand, all_of, ceil_div, expr
from tinygpu.language.instruction import WORD_OF_SCALES, Scales
from tinygpu.ptx.isa.tcgen05_mma import BYTES, Kind, Tcgen05Mma

# Rows of a, or columns of b, of which a chunk has the scales: four times the lanes of a warp.
CHUNK = 128
LANES = 32


@dataclass(frozen=True, slots=True)
class Form:
    """Scales of one `.kind`.

    block  neighbours along k that share one
    code   of their type in the instruction descriptor
    held   type of the elements that hold them: launches have no ue8m0, so codes are u8; ue4m3 are e4m3 from 0 on
    """

    kind: Kind
    block: int
    code: int
    held: str


# Of types that several take the first: mxf4 multiplies e2m1 twice as fast as mxf8f6f4, where it would be padded.
# PTX ISA, tcgen05.mma with .block_scale: kinds (table 38), instruction descriptor (table 44), scale sizes (table 56).
FORMS: tuple[Form, ...] = (
    Form(Kind("mxf4", {"e2m1": 1}, 4, "f32", 0, (100, 103)), 32, 1, "u8"),
    Form(Kind("mxf8f6f4", BYTES, 8, "f32", 0, (100, 103)), 32, 1, "u8"),
    Form(Kind("mxf4nvf4", {"e2m1": 1}, 4, "f32", 0, (100, 103)), 16, 0, "e4m3"),
)


@dataclass(frozen=True, eq=False)
class Tcgen05MmaScaled(Tcgen05Mma):
    """tcgen05.mma.cta_group::1.kind::K.block_scale of 128 rows; K is 32 bytes of the operands' type.

    n      columns of one instruction
    block  neighbours along k that share a scale: 32 (mxfp8 and mxfp4), 16 (nvfp4)
    """

    block: int = 32
    isa: ClassVar[tuple[int, int]] = (8, 8)
    source: ClassVar[str] = "PTX ISA, tcgen05.mma with .block_scale; instruction descriptor; matrix descriptor"

    def __post_init__(self) -> None:
        if self.half:
            raise ValueError("tcgen05.mma with scales adds up in f32: leave half= out")
        blocks = sorted({form.block for form in FORMS})
        if self.block not in blocks:
            known = " or ".join(map(str, blocks))
            raise ValueError(f"tcgen05.mma has blocks of {known} elements to a scale, not {self.block}")

    @property
    def label(self) -> str:
        return "tcgen05.mma.block_scale"

    def form(self, a: DType, b: DType) -> Form:
        """The form for operands of these types. Raises TypeError where there is none."""
        for form in FORMS:
            if form.block == self.block and a.name in form.kind.codes and b.name in form.kind.codes:
                return form
        raise TypeError(f"tcgen05.mma with a scale for {self.block} elements does not multiply {a} by {b}")

    def kind(self, a: DType, b: DType) -> Kind:
        return self.form(a, b).kind

    def scales(self, a: DType, b: DType) -> Scales:
        return Scales(self.block, dtype(self.form(a, b).held))

    def scale(self, values: Any) -> Any:
        """The numbers that elements stand for, in f64: codes of ue8m0 are powers of two."""
        held = np.asarray(values)
        return np.ldexp(1.0, held.astype(np.int32) - 127) if held.dtype.kind == "u" else held.astype(np.float64)

    def scales_of(self, held: Any, rows: int) -> Any:
        """(rows, blocks): a cell of lane r has scales of four blocks of row r; rows from 32 on are columns further."""
        cells = np.asarray(held).reshape(LANES, -1, rows // LANES, WORD_OF_SCALES)
        return cells.transpose(2, 0, 1, 3).reshape(rows, -1)

    def scale_columns(self, rows: int, first: int) -> tuple[int, int]:
        """(columns behind the first, byte in the cell) of the scales of block `first` of so many rows."""
        return first // WORD_OF_SCALES * (rows // LANES), first % WORD_OF_SCALES

    def chunks(self, rows: Operand) -> Expr:
        """Chunks that a tile of so many rows of a, or columns of b, reaches into, whichever tile of these it is.

        Where tiles are multiples of 32, 64 or 128 rows, the last of them in a chunk begins at row 96, 64 or 0.
        """
        odd, half = expr(rows) // LANES % 2, expr(rows) // (2 * LANES) % 2
        begins = 3 * LANES * odd + 2 * LANES * half * (1 - odd)
        return ceil_div(expr(rows) + begins, CHUNK)

    def scale_rows(self, rows: Expr) -> Expr:
        return self.chunks(rows) * CHUNK

    def scale_rules(self, rows: Expr, columns: Expr) -> tuple[Constraint, ...]:
        """Scales come in chunks; tiles and instructions along n begin at columns of scales of their own."""
        whole = all_of([rows % CHUNK == 0, columns % LANES == 0, expr(self.n) % LANES == 0])
        sentence = f"scales come in chunks of {CHUNK} rows: tiles have whole ones of a, and {LANES} columns of b"
        return (self.rule("chunks of scales", whole, sentence),)

    def text(self, a: DType, b: DType) -> str:
        return f"tcgen05.mma.cta_group::{self.ctas}.kind::{self.kind(a, b).name}.block_scale.block{self.block}"

    def descriptor_word(self, a: DType, b: DType, across: tuple[bool, bool], first: int) -> int:
        """PTX ISA, instruction descriptors of kinds with scales: types, majors, extents, type of scales, the first in a
        cell.
        """
        form, n = self.form(a, b), int(expr(self.n))
        types = form.kind.codes[a.name] << 7 | form.kind.codes[b.name] << 10 | form.code << 23
        extents = n >> 3 << 17 | self.rows * self.ctas >> 7 << 27
        return types | across[0] << 15 | across[1] << 16 | extents | first << 4 | first << 29

    def issue_scaled(
        self, a: DType, b: DType, d: str, x: str, y: str, across: tuple[bool, bool], added: str, sx: str, sy: str,
        first: int,
    ) -> str:  # fmt: skip
        word = self.descriptor_word(a, b, across, first)
        return f"{self.text(a, b)} [{d}], {x}, {y}, {word:#010x}, [{sx}], [{sy}], {added};"


@dataclass(frozen=True, eq=False)
class Tcgen05MmaScaledPair(Tcgen05MmaScaled):
    """tcgen05.mma.cta_group::2.kind::K.block_scale of 256 rows: two CTAs multiply together, and each reads half of b.

    One thread of the first CTA issues it for both. They are neighbours along the last axis of the grid. Each has the
    scales of its own rows of a, and those of all columns of b.

    n      columns of one instruction, half of them in each CTA's part of b
    block  neighbours along k that share a scale: 32 (mxfp8 and mxfp4), 16 (nvfp4)
    """

    ctas: ClassVar[int] = 2

    @property
    def label(self) -> str:
        return "tcgen05.mma.block_scale.pair"
