"""Evidence for the rules of ldmatrix: spellings, twins, pictures and the cards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.dtypes import dtype
from tinygpu.language.matrix_fragments import ADDRESSED, matrix
from tinygpu.language.partition import Partition
from tinygpu.layouts.draw import holder_picture
from tinygpu.layouts.layout import Layout
from tinygpu.ptx.cards.specimen import (
    COLUMNS,
    ROWS,
    TARGETS,
    WRONG_VALUES,
    Card,
    Field,
    Guarantee,
    Specimen,
    Twin,
    Variant,
    smem_operand,
    target_twin,
)
from tinygpu.ptx.isa.ldmatrix import LdMatrix


def variants() -> Iterator[Variant]:
    """Up to eight matrices, plain and transposed, of 8-, 16- and 32-bit elements."""
    for target, _ in TARGETS:
        for count in range(1, 9):
            registers = ", ".join(f"%r{i}" for i in range(count))
            for trans in ("", ".trans"):
                for kind in ("b8", "b16", "b32"):
                    text = f"{LdMatrix.opcode}.x{count}{trans}.shared.{kind} {{{registers}}}, [%s];"
                    yield Variant(text, target, count in LdMatrix.counts and kind == "b16")


def picture(transposed: bool) -> str:
    """Who holds each place of an 8x8 matrix in SMEM."""
    return str(holder_picture(matrix(transposed), (8, 8)))


def _gather(x: Any, transposed: bool = False) -> Any:
    """What each lane receives of one 8x8 matrix that lane l filled with its two elements at l."""
    row, column = places(transposed)
    return np.asarray(x).reshape(8, 8)[row, column]


def places(transposed: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(32, 2) each: row and column in SMEM of the elements of every lane's register."""
    row, column = matrix(transposed).coordinates((0, 1)).reshape(2, 32, 2).transpose(2, 1, 0)
    return row, column


def _specimen(
    title: str,
    suffix: str = "",
    pitch: int = 16,
    kind: str = "f16",
    meaning: Any = None,
    guard: str = "",
    reach: str = "and.b32 %r3, %t, 7;",
) -> Specimen:
    """A warp fills an 8x8 matrix row by row and loads it."""
    per = 4 // dtype(kind).bytes
    lines = [
        "shr.u32 %r1, %t, 2;",
        "and.b32 %r2, %t, 3;",
        "shl.b32 %r2, %r2, 2;",
        f"mad.lo.u32 %r2, %r1, {pitch}, %r2;",
        "add.u32 %r2, %r2, %s;",
        "ld.global.b32 %r0, [%x];",
        "st.shared.b32 [%r2], %r0;",
        "bar.sync 0;",
        reach,
        f"mad.lo.u32 %r3, %r3, {pitch}, %s;",
        *([guard] if guard else []),
        f"ldmatrix.sync.aligned.m8n8.x1{suffix}.shared.b16 {{%r0}}, [%r3];",
        *(["$together:"] if guard else []),
        "st.global.b32 [%out], %r0;",
    ]
    fields = (Field("x", kind, per), Field("out", kind, per, "out"))
    return Specimen(title, "\n".join(lines), fields, meaning or _gather, smem_bytes=8 * 32)


def _across_bytes(x: Any) -> Any:
    """A fragment of 8-bit elements whose four neighbours run down a column of the 8 x 16 bytes."""
    matrix = np.asarray(x).reshape(8, 16)
    return np.array([[matrix[(4 * (lane % 4) + e) % 8, lane // 4] for e in range(4)] for lane in range(32)])


def cards() -> Iterator[Card]:
    """The card of ldmatrix."""
    instruction = LdMatrix()
    side = smem_operand(dtype("f16"))
    fragment = Partition((ROWS, COLUMNS), Layout.parse("((4,8),2):((2@1,1@0),1@1)"))
    rules = (instruction.target_rule(), *instruction.legality(side, fragment))
    together = Guarantee("ldmatrix convergence", "all lanes of the warp execute it together", "emulator")
    good = _specimen("ldmatrix: one matrix")
    transposed = _specimen("ldmatrix: one matrix, transposed", ".trans", meaning=lambda x: _gather(x, True))
    same = _specimen("ldmatrix: rows of 32-bit pieces of s8", kind="s8", meaning=lambda x: x)
    twins = (
        target_twin(instruction, good),
        Twin(
            rules[1].name,
            "emulator",
            good,
            _specimen(
                "ldmatrix: as if lane l held row l mod 8",
                meaning=lambda x: x.reshape(8, 4, 2).transpose(1, 0, 2).reshape(32, 2),
            ),
            WRONG_VALUES,
        ),
        Twin(
            rules[2].name,
            "emulator",
            same,
            _specimen("ldmatrix.trans: columns of s8", ".trans", kind="s8", meaning=_across_bytes),
            WRONG_VALUES,
        ),
        Twin(
            rules[3].name,
            "emulator",
            _specimen("ldmatrix: rows of 32 bytes", pitch=32),
            _specimen("ldmatrix: rows of 20 bytes", pitch=20),
            "it must be a multiple of 16, but the remainder is 4",
        ),
        Twin(
            together.name,
            "emulator",
            good,
            _specimen("ldmatrix: half a warp", guard="setp.ge.u32 %p0, %t, 16;\n@%p0 bra $together;"),
            "ldmatrix",
        ),
    )
    yield Card(
        name="ldmatrix",
        instruction=instruction,
        operands=(
            (
                "rows",
                "SMEM",
                "1, 2 or 4 matrices of 8 rows x 16 bytes",
                "16-bit elements; plain also 8- and 32-bit ones",
            ),
            ("fragment", "RMEM", "1, 2 or 4 registers per lane", "the same"),
        ),
        rules=rules,
        guarantees=(together,),
        meaning="register[m][lane] = matrix[m][lane // 4, 2 * (lane % 4) :][:2]  (.trans: of matrix[m].T)",
        cost="one wavefront per matrix when its eight rows lie in different groups of four banks, up to 8 otherwise",
        example=transposed,
        twins=twins,
        variants=variants,
        pictures=lambda: (
            ("Plain: lane and element (T0:V1) at each place of a matrix in SMEM (16-bit columns)", picture(False)),
            ("With .trans: lane and element at each place of a matrix in SMEM", picture(True)),
            (
                "Rows: lanes 0 to 7 point at the rows of matrix 0, lanes 8 to 15 at those of matrix 1, and so on",
                _rows(),
            ),
        ),
    )


def _rows() -> str:
    """Who points at each row (down) of each matrix (across)."""
    return str(holder_picture(ADDRESSED.project({0: 0, "m": 1}), (8, 4)))
