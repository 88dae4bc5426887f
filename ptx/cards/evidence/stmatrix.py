"""Evidence for the rules of stmatrix: spellings, twins, pictures and the cards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tinygpu.dtypes import dtype
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
from tinygpu.ptx.cards.specimen import Card, Field, Guarantee, Specimen, Twin, Variant, target_twin
from tinygpu.ptx.isa.stmatrix import StMatrix


def variants() -> Iterator[Variant]:
    """Up to eight matrices, plain and transposed, of 8-, 16- and 32-bit elements."""
    return tried(StMatrix(), lambda ending, registers: f"stmatrix.sync.aligned.m8n8{ending} [%s], {{{registers}}};")


def _laid_out(x: Any, transposed: bool = False) -> Any:
    """What lane l finds in row l / 4, pair l % 4 of the matrix that the lanes' registers x made."""
    out = np.zeros((8, 8), np.asarray(x).dtype)
    row, column = places(transposed)
    out[row, column] = x
    return out.reshape(32, 2)


def _across_bytes(x: Any) -> Any:
    """The same of 8-bit elements, had the four of a register run down a column of the 8 x 16 bytes."""
    matrix = np.zeros((8, 16), np.asarray(x).dtype)
    for lane in range(32):
        for e in range(4):
            matrix[(4 * (lane % 4) + e) % 8, lane // 4 + 8 * (lane % 4 // 2)] = x[lane, e]
    return matrix.reshape(32, 4)


def _specimen(
    title: str,
    transposed: bool = False,
    pitch: int = 16,
    kind: str = "f16",
    meaning: Any = None,
    guard: str = "",
    ready: str = "bar.sync 0;",
    threads: int = 32,
) -> Specimen:
    """The first warp stores an 8x8 matrix; 32 threads, the last of the CTA, read it row by row."""
    per = 4 // dtype(kind).bytes
    others = threads - 32
    lines = [
        "ld.global.b32 %r0, [%x];",
        *([f"setp.ge.u32 %p1, %t, {others};", "@%p1 bra $stored;"] if others else []),
        *to_row(pitch),
        guard,
        f"{StMatrix().text(1, transposed)} [%r3], {{%r0}};",
        "$together:" if guard else "",
        "$stored:" if others else "",
        ready,
        f"sub.u32 %r5, %t, {others};" if others else "mov.u32 %r5, %t;",
        *(["@!%p1 bra $read;"] if others else []),
        *to_pair("%r5", pitch),
        "ld.shared.b32 %r0, [%r2];",
        "$read:" if others else "",
        "st.global.b32 [%out], %r0;",
    ]
    fields = (Field("x", kind, per), Field("out", kind, per, "out"))
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, fields, meaning or _laid_out, 90, (7, 8), threads, 8 * 32)


def _by_another_warp(title: str, ready: str) -> Specimen:
    return _specimen(title, ready=ready, threads=64, meaning=lambda x: np.concatenate([x[:32], _laid_out(x[:32])]))


def _as_if(x: Any) -> Any:
    return x.reshape(4, 8, 2).transpose(1, 0, 2).reshape(32, 2)


def cards() -> Iterator[Card]:
    """The card of stmatrix."""
    instruction = StMatrix()
    meets = Guarantee("stmatrix visibility", "other warps read behind a barrier", "emulator")
    seen = Twin(
        meets.name,
        "emulator",
        _by_another_warp("stmatrix: another warp reads", "bar.sync 0;"),
        _by_another_warp("stmatrix: another warp reads at once", ""),
        "no barrier orders the two",
    )
    yield Card(
        name="stmatrix",
        instruction=instruction,
        operands=(
            ("fragment", "RMEM", "1, 2 or 4 registers per lane", KINDS),
            ("rows", "SMEM", "1, 2 or 4 matrices of 8 rows x 16 bytes", "the same"),
        ),
        rules=rules_of(instruction),
        guarantees=(convergence(instruction), meets),
        meaning="matrix[m][lane // 4, 2 * (lane % 4) :][:2] = register[m][lane]  (.trans: of matrix[m].T)",
        cost=COST,
        example=_specimen("stmatrix: one matrix, transposed", True, meaning=lambda x: _laid_out(x, True)),
        twins=(
            target_twin(instruction, _specimen("stmatrix: one matrix"), "requires .target sm_90 or higher"),
            *refused(instruction, _specimen, _as_if, _across_bytes),
            seen,
        ),
        variants=variants,
        pictures=pictures,
    )
