"""mma.sync with block scales: factors of 8 or 4 bits, of which so many neighbours along k share a scale.

operands   fragments of a (m x k), b (k x n) and c (m x n) in the registers of a warp, as of mma.sync; and words of four
           scales: of rows of a, and of columns of b
legality   which types, blocks and scales go with each other (`FORMS`); consumer Blackwell alone
meaning    c += (a * scales of a) @ (b * scales of b)
cost       2 m n k operations of the tensor cores
lowering   `MmaScaled.scaled`: a selector names the first byte of the words that one instruction reads
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from tinygpu.dtypes import DType, dtype
from tinygpu.language.instruction import Fragment, MatrixMultiply, Scales
from tinygpu.layouts.layout import Layout
from tinygpu.ptx.isa.mma import fragments


@dataclass(frozen=True, slots=True)
class Form:
    """Operands of one `.kind`.

    block    neighbours along k that share a scale
    types    of a and of b, which may differ
    k        extent along k of one instruction
    vector   scales of a row that it reads, as `.scale_vec` counts them
    scale    type of the scales in PTX, and of the elements that hold them: launches have no ue8m0, so codes are u8
    """

    kind: str
    block: int
    types: tuple[str, ...]
    k: int
    vector: int
    scale: str
    held: str


# PTX ISA, mma.sync with .block_scale; each assembled for sm_120f.
FORMS: tuple[Form, ...] = (
    Form("mxf8f6f4", 32, ("e4m3", "e5m2"), 32, 1, "ue8m0", "u8"),
    Form("mxf4nvf4", 32, ("e2m1",), 64, 2, "ue8m0", "u8"),
    Form("mxf4nvf4", 16, ("e2m1",), 64, 4, "ue4m3", "e4m3"),
)
# (lane, value) -> row (column) and block along k of the words of four scales of 16 rows of a, of 8 columns of b. With
# selector 0, lane 4 g has those of row g, lane 4 g + 1 those of row g + 8; lane 4 g those of column g.
SCALES_A, SCALES_B = Layout.parse("((2,2,8),4):((8@0,0,1@0),1@1)"), Layout.parse("((4,8),4):((0,1@1),1@0)")


@dataclass(frozen=True, eq=False)
class MmaScaled(MatrixMultiply):
    """mma.sync.aligned.kind::K.block_scale.m16n8kN, `block` elements along k to a scale: 32 (mx) or 16 (nvfp4)."""

    block: int = 32
    target: ClassVar[int] = 120
    only: ClassVar[tuple[int, ...]] = (120, 121)
    isa: ClassVar[tuple[int, int]] = (8, 8)
    source: ClassVar[str] = "PTX ISA, mma.sync with .block_scale; fragment layouts of m16n8"

    def __post_init__(self) -> None:
        blocks = sorted({form.block for form in FORMS})
        if self.block not in blocks:
            known = " or ".join(map(str, blocks))
            raise ValueError(f"mma.sync has blocks of {known} elements to a scale, not {self.block}")

    @property
    def label(self) -> str:
        return "mma.sync.block_scale"

    def form(self, a: DType, b: DType) -> Form:
        """The form for operands of these types. Raises TypeError where there is none."""
        for form in FORMS:
            if form.block == self.block and a.name in form.types and b.name in form.types:
                return form
        raise TypeError(f"mma.sync with a scale for {self.block} elements does not multiply {a} by {b}")

    def shape(self, a: DType, b: DType) -> tuple[int, int, int]:
        return 16, 8, self.form(a, b).k

    def accumulator(self, a: DType, b: DType) -> DType:
        return dtype("f32")

    def fragments(self, a: DType, b: DType) -> tuple[Fragment, Fragment, Fragment]:
        return fragments(16, self.form(a, b).k, a.bits)

    def scales(self, a: DType, b: DType) -> Scales:
        return Scales(self.block, dtype(self.form(a, b).held), SCALES_A, SCALES_B)

    def scale(self, values: Any) -> Any:
        """The numbers that elements stand for, in f64: codes of ue8m0 are powers of two, e4m3 is itself."""
        codes = np.asarray(values)
        return np.ldexp(1.0, codes.astype(np.int32) - 127) if codes.dtype == np.uint8 else codes.astype(np.float64)

    def rate(self, a: DType, b: DType) -> tuple[str, str]:
        """Sums in f32 of scaled fp8 have the rate of those in f16 (`tensor_rate_note` of the RTX 5090)."""
        return a.name, "f32" if a.bits == 4 else "f16"

    def text(self, a: DType, b: DType) -> str:
        form = self.form(a, b)
        kind = f"kind::{form.kind}.block_scale.scale_vec::{form.vector}X"
        return f"mma.sync.aligned.{kind}.m16n8k{form.k}.row.col.f32.{a}.{b}.f32.{form.scale}"

    def scaled(self, a: DType, b: DType, d: str, x: str, y: str, sx: str, sy: str, first: int) -> str:
        return f"{self.text(a, b)} {d}, {x}, {y}, {d}, {sx}, {{{first}, 0}}, {sy}, {{{first}, 0}};"
