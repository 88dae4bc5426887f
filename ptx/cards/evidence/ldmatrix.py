"""Evidence for the rules of ldmatrix: spellings, twins, pictures and the cards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.language.matrix_fragments import ADDRESSED
from tinygpu.layouts.draw import holder_picture
from tinygpu.ptx.cards.evidence.matrix_kernels import (
    COST,
    KINDS,
    convergence,
    pictures,
    places,
    refused,
    rules_of,
    to_pair,
    to_row,
    tried,
)
from tinygpu.ptx.cards.specimen import Card, Field, Specimen, Variant, target_twin
from tinygpu.ptx.isa.ldmatrix import LdMatrix


def variants() -> Iterator[Variant]:
    """Up to eight matrices, plain and transposed, of 8-, 16- and 32-bit elements."""
    return tried(LdMatrix(), lambda ending, registers: f"{LdMatrix.opcode}{ending} {{{registers}}}, [%s];")


def _received(x: Any, transposed: bool = False) -> Any:
    """What each lane receives of one 8x8 matrix that lane l filled with its two elements at l."""
    row, column = places(transposed)
    return np.asarray(x).reshape(8, 8)[row, column]


def _specimen(
    title: str, transposed: bool = False, pitch: int = 16, kind: str = "f16", meaning: Any = None, guard: str = ""
) -> Specimen:
    """A warp fills an 8x8 matrix row by row and loads it."""
    per = 4 // dtype(kind).bytes
    lines = (
        *to_pair("%t", pitch),
        "ld.global.b32 %r0, [%x];",
        "st.shared.b32 [%r2], %r0;",
        "bar.sync 0;",
        *to_row(pitch),
        guard,
        f"{LdMatrix.opcode}.x1{'.trans' if transposed else ''}.shared.b16 {{%r0}}, [%r3];",
        "$together:" if guard else "",
        "st.global.b32 [%out], %r0;",
    )
    fields = (Field("x", kind, per), Field("out", kind, per, "out"))
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, fields, meaning or _received, smem_bytes=8 * 32)


def _across_bytes(x: Any) -> Any:
    """A fragment of 8-bit elements whose four neighbours run down a column of the 8 x 16 bytes."""
    matrix = np.asarray(x).reshape(8, 16)
    return np.array([[matrix[(4 * (lane % 4) + e) % 8, lane // 4] for e in range(4)] for lane in range(32)])


def _as_if(x: Any) -> Any:
    return x.reshape(8, 4, 2).transpose(1, 0, 2).reshape(32, 2)


def cards() -> Iterator[Card]:
    """The card of ldmatrix."""
    instruction = LdMatrix()
    yield Card(
        name="ldmatrix",
        instruction=instruction,
        operands=(
            ("rows", "SMEM", "1, 2 or 4 matrices of 8 rows x 16 bytes", KINDS),
            ("fragment", "RMEM", "1, 2 or 4 registers per lane", "the same"),
        ),
        rules=rules_of(instruction),
        guarantees=(convergence(instruction),),
        meaning="register[m][lane] = matrix[m][lane // 4, 2 * (lane % 4) :][:2]  (.trans: of matrix[m].T)",
        cost=COST,
        example=_specimen("ldmatrix: one matrix, transposed", True, meaning=lambda x: _received(x, True)),
        twins=(
            target_twin(instruction, _specimen("ldmatrix: one matrix")),
            *refused(instruction, _specimen, _as_if, _across_bytes),
        ),
        variants=variants,
        pictures=lambda: (
            *pictures(),
            (
                "Rows: lanes 0 to 7 point at the rows of matrix 0, lanes 8 to 15 at those of matrix 1, and so on",
                _rows(),
            ),
        ),
    )


def _rows() -> str:
    """Who points at each row (down) of each matrix (across)."""
    return str(holder_picture(ADDRESSED.project({0: 0, "m": 1}), (8, 4)))
