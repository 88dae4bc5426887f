"""tcgen05.mma.ws: b stays in the tensor cores, so that few rows of a may be multiplied without idle lanes.

operands   a (m x k) and b (k x n) in SMEM, in the layouts of TMA; c (m x n) in TMEM: of 128 rows one in each lane, of
           64 the right half of the columns in lanes 64 to 127, below the left one, of 32 a quarter in each 32 lanes
legality   32, 64 or 128 rows by 64, 128 or 256 columns; types, majors and steps as of tcgen05.mma
meaning    c += a @ b; c = a @ b where nothing was added up yet
cost       2 m n k operations of the tensor cores, as if there were 128 rows: no source says that it is faster
lowering   `Tcgen05Mma.issue`; no mask of zero columns is offered, and b is not kept from one product to the next

Products with block scales and products of pairs of CTAs have no such form.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType
from tinygpu.expressions import Operand, any_of, expr
from tinygpu.language.instruction.base import or_of
from tinygpu.layouts import E, Layout
from tinygpu.layouts.leaf import Leaf
from tinygpu.layouts.step import Step
from tinygpu.ptx.isa.tcgen05_mma import Kind, Tcgen05Mma

LANES = 128
ROWS = (32, 64, 128)
# PTX ISA, table 39, of .ws.
COLUMNS = (64, 128, 256)


@dataclass(frozen=True, eq=False)
class Tcgen05MmaWs(Tcgen05Mma):
    """tcgen05.mma.ws.cta_group::1 of m rows with both operands in SMEM; K is 32 bytes of the operands' type.

    n  columns of one instruction
    m  rows: 32, 64 or 128
    """

    m: int = 32

    def __post_init__(self) -> None:
        if self.m not in ROWS:
            raise ValueError(f"tcgen05.mma.ws has {or_of(ROWS)} rows, not {self.m}")

    @property
    def rows(self) -> int:  # type: ignore[override]
        return self.m

    @property
    def share(self) -> int:  # type: ignore[override]
        return LANES // self.m

    @property
    def label(self) -> str:
        return "tcgen05.mma.ws"

    def path(self, columns: Operand) -> Layout:
        """PTX ISA, tcgen05 data path layouts D, E and G: columns in as many parts as its rows go into the lanes."""
        parts = LANES // self.m
        if parts == 1:
            return super().path(columns)
        across: list[tuple[Leaf, Leaf | Step]] = [(expr(columns) // parts, E("column")), (parts, self.m * E("lane"))]
        return Layout.of([(self.m, E("lane"))], across)

    def text(self, a: DType, b: DType) -> str:
        return f"tcgen05.mma.ws.cta_group::1.kind::{self.kind(a, b).name}"

    def columns_rule(self, a: DType, kind: Kind) -> Constraint:
        legal = any_of([expr(self.n) == few for few in COLUMNS])
        return self.rule(f"columns for {a}", legal, f"an instruction has {or_of(COLUMNS)} columns", "emulator")
