"""Evidence for the rules of stmatrix: spellings, twins, pictures and the cards."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tinygpu.dtypes import dtype
from tinygpu.language.partition import Partition
from tinygpu.layouts.layout import Layout
from tinygpu.ptx.cards.evidence.ldmatrix import picture, places
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
    exists_on,
    smem_operand,
    target_twin,
)
from tinygpu.ptx.isa.stmatrix import StMatrix


def variants() -> Iterator[Variant]:
    """Up to eight matrices, plain and transposed, of 8-, 16- and 32-bit elements."""
    instruction = StMatrix()
    for target, _ in TARGETS:
        for count in range(1, 9):
            registers = ", ".join(f"%r{i}" for i in range(count))
            for transposed in (False, True):
                for kind in ("b8", "b16", "b32"):
                    text = f"{instruction.text(count, transposed).replace('b16', kind)} [%s], {{{registers}}};"
                    legal = exists_on(instruction, target) and count in StMatrix.counts and kind == "b16"
                    yield Variant(text, target, legal)


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
        "and.b32 %r3, %t, 7;",
        f"mad.lo.u32 %r3, %r3, {pitch}, %s;",
        guard,
        f"{StMatrix().text(1, transposed)} [%r3], {{%r0}};",
        "$together:" if guard else "",
        "$stored:" if others else "",
        ready,
        f"sub.u32 %r5, %t, {others};" if others else "mov.u32 %r5, %t;",
        *(["@!%p1 bra $read;"] if others else []),
        "shr.u32 %r1, %r5, 2;",
        "and.b32 %r2, %r5, 3;",
        "shl.b32 %r2, %r2, 2;",
        f"mad.lo.u32 %r2, %r1, {pitch}, %r2;",
        "add.u32 %r2, %r2, %s;",
        "ld.shared.b32 %r0, [%r2];",
        "$read:" if others else "",
        "st.global.b32 [%out], %r0;",
    ]
    fields = (Field("x", kind, per), Field("out", kind, per, "out"))
    body = "\n".join(line for line in lines if line)
    return Specimen(title, body, fields, meaning or _laid_out, 90, (7, 8), threads, 8 * 32)


def _by_another_warp(title: str, ready: str) -> Specimen:
    return _specimen(title, ready=ready, threads=64, meaning=lambda x: np.concatenate([x[:32], _laid_out(x[:32])]))


def cards() -> Iterator[Card]:
    """The card of stmatrix."""
    instruction = StMatrix()
    side = smem_operand(dtype("f16"))
    fragment = Partition((ROWS, COLUMNS), Layout.parse("((4,8),2):((2@1,1@0),1@1)"))
    rules = (instruction.target_rule(), *instruction.legality(side, fragment))
    together = Guarantee("stmatrix convergence", "all lanes of the warp execute it together", "emulator")
    meets = Guarantee("stmatrix visibility", "other warps read behind a barrier", "emulator")
    good = _specimen("stmatrix: one matrix")
    transposed = _specimen("stmatrix: one matrix, transposed", True, meaning=lambda x: _laid_out(x, True))
    half = "setp.ge.u32 %p0, %t, 16;\n@%p0 bra $together;"
    twins = (
        target_twin(instruction, good, "requires .target sm_90 or higher"),
        Twin(
            rules[1].name,
            "emulator",
            good,
            _specimen(
                "stmatrix: as if lane l held row l mod 8",
                meaning=lambda x: x.reshape(4, 8, 2).transpose(1, 0, 2).reshape(32, 2),
            ),
            WRONG_VALUES,
        ),
        Twin(
            rules[2].name,
            "emulator",
            _specimen("stmatrix: rows of 32-bit pieces of s8", kind="s8", meaning=lambda x: x),
            _specimen("stmatrix.trans: columns of s8", True, kind="s8", meaning=_across_bytes),
            WRONG_VALUES,
        ),
        Twin(
            rules[3].name,
            "emulator",
            _specimen("stmatrix: rows of 32 bytes", pitch=32),
            _specimen("stmatrix: rows of 20 bytes", pitch=20),
            "it must be a multiple of 16, but the remainder is 4",
        ),
        Twin(together.name, "emulator", good, _specimen("stmatrix: half a warp", guard=half), "stmatrix"),
        Twin(
            meets.name,
            "emulator",
            _by_another_warp("stmatrix: another warp reads", "bar.sync 0;"),
            _by_another_warp("stmatrix: another warp reads at once", ""),
            "no barrier orders the two",
        ),
    )
    yield Card(
        name="stmatrix",
        instruction=instruction,
        operands=(
            ("fragment", "RMEM", "1, 2 or 4 registers per lane", "16-bit elements; plain also 8- and 32-bit ones"),
            ("rows", "SMEM", "1, 2 or 4 matrices of 8 rows x 16 bytes", "the same"),
        ),
        rules=rules,
        guarantees=(together, meets),
        meaning="matrix[m][lane // 4, 2 * (lane % 4) :][:2] = register[m][lane]  (.trans: of matrix[m].T)",
        cost="one wavefront per matrix when its eight rows lie in different groups of four banks, up to 8 otherwise",
        example=transposed,
        twins=twins,
        variants=variants,
        pictures=lambda: (
            ("Plain: lane and element (T0:V1) at each place of a matrix in SMEM (16-bit columns)", picture(False)),
            ("With .trans: lane and element at each place of a matrix in SMEM", picture(True)),
        ),
    )
