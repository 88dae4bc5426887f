"""What ldmatrix and stmatrix share: spellings, places of a matrix, kernels around one of them, and what both refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tinygpu.constraints.constraint import Constraint
from tinygpu.dtypes import dtype
from tinygpu.language.instruction import Instruction, MatrixLoad, MatrixStore
from tinygpu.language.matrix_fragments import matrix
from tinygpu.language.partition import Partition
from tinygpu.layouts.draw import holder_picture
from tinygpu.layouts.layout import Layout
from tinygpu.ptx.cards.specimen import (
    COLUMNS,
    ROWS,
    TARGETS,
    WRONG_VALUES,
    Guarantee,
    Specimen,
    Twin,
    Variant,
    exists_on,
    smem_operand,
)

KINDS = "16-bit elements; plain also 8- and 32-bit ones"
COST = "one wavefront per matrix when its eight rows lie in different groups of four banks, up to 8 otherwise"


def tried(instruction: MatrixLoad | MatrixStore, line: Callable[[str, str], str]) -> Iterator[Variant]:
    """Up to eight matrices, plain and transposed, of 8-, 16- and 32-bit elements.

    line  from what the opcode ends in and the registers to the statement
    """
    for target, _ in TARGETS:
        for count in range(1, 9):
            registers = ", ".join(f"%r{i}" for i in range(count))
            for trans in ("", ".trans"):
                for kind in ("b8", "b16", "b32"):
                    legal = exists_on(instruction, target) and count in instruction.counts and kind == "b16"
                    yield Variant(line(f".x{count}{trans}.shared.{kind}", registers), target, legal)


def pictures() -> tuple[tuple[str, str], ...]:
    return (
        ("Plain: lane and element (T0:V1) at each place of a matrix in SMEM (16-bit columns)", picture(False)),
        ("With .trans: lane and element at each place of a matrix in SMEM", picture(True)),
    )


def picture(transposed: bool) -> str:
    """Who holds each place of an 8x8 matrix in SMEM."""
    return str(holder_picture(matrix(transposed), (8, 8)))


def places(transposed: bool) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(32, 2) each: row and column in SMEM of the elements of every lane's register."""
    row, column = matrix(transposed).coordinates((0, 1)).reshape(2, 32, 2).transpose(2, 1, 0)
    return row, column


def to_pair(thread: str, pitch: int) -> tuple[str, ...]:
    """%r2 is the address of a thread's pair of a matrix in rows: row t / 4, pair t % 4."""
    return (
        f"shr.u32 %r1, {thread}, 2;",
        f"and.b32 %r2, {thread}, 3;",
        "shl.b32 %r2, %r2, 2;",
        f"mad.lo.u32 %r2, %r1, {pitch}, %r2;",
        "add.u32 %r2, %r2, %s;",
    )


def to_row(pitch: int) -> tuple[str, ...]:
    """%r3 is the address of the row that a lane points at."""
    return "and.b32 %r3, %t, 7;", f"mad.lo.u32 %r3, %r3, {pitch}, %s;"


def rules_of(instruction: MatrixLoad | MatrixStore) -> tuple[Constraint, ...]:
    """Target, fragment, elements, pitch."""
    fragment = Partition((ROWS, COLUMNS), Layout.parse("((4,8),2):((2@1,1@0),1@1)"))
    return instruction.target_rule(), *instruction.legality(smem_operand(dtype("f16")), fragment)


def convergence(instruction: Instruction) -> Guarantee:
    return Guarantee(f"{instruction.label} convergence", "all lanes of the warp execute it together", "emulator")


def refused(
    instruction: MatrixLoad | MatrixStore, made: Callable[..., Specimen], as_if: Callable[[Any], Any],
    across_bytes: Callable[[Any], Any],
) -> tuple[Twin, ...]:
    """What both refuse, or do wrongly.

    made          a kernel around one of them: made(title, transposed=, pitch=, kind=, meaning=, guard=)
    as_if         its meaning if lane l held row l mod 8
    across_bytes  and if four 8-bit elements of a register ran down a column
    """
    _, fragment, elements, pitch = (rule.name for rule in rules_of(instruction))
    label, good = instruction.label, made(f"{instruction.label}: one matrix")
    half = "setp.ge.u32 %p0, %t, 16;\n@%p0 bra $together;"
    held = made(f"{label}: as if lane l held row l mod 8", meaning=as_if)
    bytewise = made(f"{label}: rows of 32-bit pieces of s8", kind="s8", meaning=lambda x: x)
    turned = made(f"{label}.trans: columns of s8", transposed=True, kind="s8", meaning=across_bytes)
    wide, narrow = (made(f"{label}: rows of {size} bytes", pitch=size) for size in (32, 20))
    return (
        Twin(fragment, "emulator", good, held, WRONG_VALUES),
        Twin(elements, "emulator", bytewise, turned, WRONG_VALUES),
        Twin(pitch, "emulator", wide, narrow, "it must be a multiple of 16, but the remainder is 4"),
        Twin(convergence(instruction).name, "emulator", good, made(f"{label}: half a warp", guard=half), label),
    )
