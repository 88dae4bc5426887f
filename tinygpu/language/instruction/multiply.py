"""MatrixMultiply: products of fragments, or of tiles in shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import DType, tf32_read
from tinygpu.expressions import Expr, Operand
from tinygpu.language.data_paths import rows_in_lanes
from tinygpu.language.instruction.base import Instruction, Scope, Unit, and_of
from tinygpu.language.memories import RMEM, SMEM, TMEM, TMEM_LANES, Memory
from tinygpu.language.tile import Tile
from tinygpu.layouts.layout import Layout

# Who holds what of one operand of a matrix instruction: (lane or thread, value) -> coordinates along its two axes, low
# element of the first register first; None for an operand that lies in memory.
Fragment: TypeAlias = Layout | None
COMMIT = "tcgen05 commit"


# Scales of one row that a thread holds side by side: a 32-bit register of them.
WORD_OF_SCALES = 4


@dataclass(frozen=True, slots=True)
class Scales:
    """The scales that an instruction takes beside its factors, one for so many neighbours along k.

    block  neighbours along k that share one
    dtype  of the elements that hold them
    a, b   (lane, value) -> row of a and block; block and column of b: a register of four of one row of an instruction.
           None: they lie in TMEM
    """

    block: int
    dtype: DType
    a: Layout | None = None
    b: Layout | None = None

    @property
    def fragments(self) -> tuple[Layout, Layout] | None:
        """Who holds those of a and of b in registers; None where they lie in TMEM."""
        return None if self.a is None or self.b is None else (self.a, self.b)


@dataclass(frozen=True, eq=False)
class MatrixMultiply(Instruction):
    """c += a @ b on fragments or tiles: a is (m, k), b is (k, n), c is (m, n).

    places  the memories of a, b and c: all RMEM for a warp, at once; b, and perhaps a, in SMEM for a warpgroup, in
            wgmma groups; or b in SMEM, a there or in TMEM, and c in TMEM, issued by a thread, in tcgen05 commits
    share   1/share of the unit works on an instruction, which takes so many times the time of its operations
    ctas    CTAs of a cluster that multiply together: each holds its own rows of a and c, and 1/ctas of the columns of
            b. They are neighbours along the last axis of the grid; the first of them issues for all
    """

    scope: ClassVar[Scope] = "warp"
    unit: ClassVar[Unit] = "tensor"
    places: ClassVar[tuple[Memory, Memory, Memory]] = (RMEM, RMEM, RMEM)
    ctas: ClassVar[int] = 1
    share: ClassVar[int] = 1

    @property
    def rounds_to(self) -> str:
        """NumPy's name of the 16-bit type to which it rounds its sums; "" where they have f32 or more."""
        return ""

    def meaning(self, accumulator: Any, a: Any, b: Any) -> Any:
        """(m, n) the accumulator afterwards, of the tiles before: of an accumulator (m, n), a (m, k) and b (k, n).

        All of them are f64, which holds every element of the narrower types; what is returned is rounded to the
        accumulator's type, once.
        """
        return accumulator + a @ b

    def operand(self, values: Any, kind: DType) -> Any:
        """The numbers that the unit reads of the elements of a or b, in f64: of tf32 its upper 19 bits."""
        return np.asarray(tf32_read(values) if kind.name == "tf32" else values, dtype=np.float64)

    def operand_rules(self, a: Tile, b: Tile) -> tuple[Constraint, ...]:
        """What it asks of operands that lie in memory: layouts, majors."""
        return ()

    def scales(self, a: DType, b: DType) -> Scales | None:
        """The scales of blocks that it takes for these operand types; None where it takes none."""
        return None

    def scale(self, values: Any) -> Any:
        """The numbers that elements of scales stand for, in f64."""
        raise NotImplementedError

    def scales_of(self, held: Any, rows: int) -> Any:
        """(rows, blocks) scales of so many rows of a or columns of b, of what TMEM holds of them: (lanes, bytes)."""
        raise NotImplementedError

    def scale_rows(self, rows: Expr) -> Expr:
        """Rows whose scales cells of TMEM hold for a tile of so many, wherever in them the tile begins."""
        return rows

    def scale_columns(self, rows: int, first: int) -> tuple[int, int]:
        """(columns behind the first, byte of the cell) in TMEM where the scales of block `first` of `rows` rows are."""
        raise NotImplementedError

    def scale_rules(self, rows: Expr, columns: Expr) -> tuple[Constraint, ...]:
        """What it asks of a tile of so many rows of a and columns of b where their scales lie in TMEM."""
        return ()

    def rate(self, a: DType, b: DType) -> tuple[str, str]:
        """The types of factors and sums under which devices have its rate."""
        return a.name, self.accumulator(a, b).name

    def path(self, columns: Operand) -> Layout:
        """(row, column) -> (lane, column of TMEM) of an accumulator there of so many columns: row r in lane r."""
        return rows_in_lanes(TMEM_LANES, columns)

    def type_rules(self, a: DType, b: DType) -> tuple[Constraint, ...]:
        """What it asks of its extents and of devices, for these operand types."""
        return (self.target_rule(),)

    def shape(self, a: DType, b: DType) -> tuple[int, int, int]:
        """(m, n, k) of one instruction for these operand types."""
        raise NotImplementedError

    def fragments(self, a: DType, b: DType) -> tuple[Fragment, Fragment, Fragment]:
        """Fragments of a, b and c; one that is smaller than its operand repeats, along axis 0 first."""
        raise NotImplementedError

    def accumulator(self, a: DType, b: DType) -> DType:
        raise NotImplementedError

    def text(self, a: DType, b: DType) -> str:
        """The opcode with its types."""
        raise NotImplementedError

    def statement(self, a: DType, b: DType, d: str, x: str, y: str, across: tuple[bool, bool] = (False, False)) -> str:
        """PTX of one instruction, d += x @ y.

        d       registers of the accumulator, in braces, in the order of the fragment's values
        x, y    those of a and b; or a register of 64 bits with the descriptor of an operand in SMEM
        across  whether a in SMEM is contiguous along m, and b in SMEM along n
        """
        return f"{self.text(a, b)} {d}, {x}, {y}, {d};"

    def scaled(self, a: DType, b: DType, d: str, x: str, y: str, sx: str, sy: str, first: int) -> str:
        """PTX of one instruction that takes scales, d += (x * scales of x) @ (y * scales of y).

        d, x, y  as of `statement`
        sx, sy   registers of four scales of x and of y
        first    which of the four the first block has
        """
        raise NotImplementedError

    def issue(self, a: DType, b: DType, d: str, x: str, y: str, across: tuple[bool, bool], added: str) -> str:
        """PTX of one instruction into TMEM: d += x @ y, or d = x @ y.

        d      register with the address of the accumulator
        x, y, across  as of `statement`; a in TMEM is a register with its address
        added  predicate: whether something was added up in d before
        """
        raise NotImplementedError

    def issue_scaled(
        self, a: DType, b: DType, d: str, x: str, y: str, across: tuple[bool, bool], added: str, sx: str, sy: str,
        first: int,
    ) -> str:  # fmt: skip
        """PTX of one instruction into TMEM that takes scales there: d += (x * scales of x) @ (y * scales of y).

        sx, sy  registers with the addresses of cells of four scales of x and of y
        first   which of the four the first block has
        """
        raise NotImplementedError

    def descriptor(self, swizzle_bytes: int, apart_bytes: int, across: bool, atom_bytes: int = 16) -> int:
        """The 64 bits that describe an operand in SMEM, less its address: that is added in 16 bytes, in bits 0 to 13.

        swizzle_bytes  32, 64 or 128: width of the swizzle, to which rows are cut
        apart_bytes    from such a piece of all rows to the next
        across         whether it is contiguous along m or n, not k
        atom_bytes     that the swizzle leaves together; given where it is not 16
        """
        raise NotImplementedError

    def unwritten(self) -> str:
        owed = self._owes(MatrixMultiply, "shape", "fragments", "accumulator")
        if self.places[2] is TMEM:
            owed = owed or self._owes(MatrixMultiply, "issue")
        elif type(self).statement is MatrixMultiply.statement:
            owed = owed or self._owes(MatrixMultiply, "text")
        if self.places == (RMEM, RMEM, RMEM) and self.scope == "warp" and not self.asynchronous:
            return owed
        in_groups = self.places[1:] == (SMEM, RMEM) and self.places[0] in (SMEM, RMEM)
        grouped = in_groups and self.scope == "warpgroup" and self.completion == "wgmma group"
        into_cells = self.places[1:] == (SMEM, TMEM) and self.places[0] in (SMEM, TMEM)
        committed = into_cells and self.scope == "thread" and self.completion == COMMIT
        if not grouped and not (committed and self.ctas in (1, 2)):
            places = and_of([f"{name} in {place}" for name, place in zip("abc", self.places, strict=True)])
            return (
                f"is of a {self.scope}, with {places}; a MatrixMultiply is of a warp with all in RMEM, completed at "
                "once, of a warpgroup with b in SMEM, a in SMEM or RMEM and c in RMEM, completed by wgmma group, or of "
                "a thread with b in SMEM, a in SMEM or TMEM and c in TMEM, completed by tcgen05 commit"
            )
        return owed or self._owes(MatrixMultiply, "descriptor")
