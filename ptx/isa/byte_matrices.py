"""ldmatrix and stmatrix on bytes: how lanes hold their matrices. No instruction here issues these forms yet.

A matrix has rows of 16 bytes in SMEM, each at an address that a lane gives. Axis 0 is the row, axis 1 the byte in it, m
the number of the matrix; a lane's values are bytes, low ones of its first register first.
"""

from __future__ import annotations

from dataclasses import dataclass

from tinygpu.layouts.layout import Layout


@dataclass(frozen=True, slots=True)
class ByteMatrix:
    """One form.

    text       the instruction as PTX writes it, with its greatest count
    rows       rows of one matrix
    held       (lane, byte) -> row, byte of the row, matrix
    addressed  (lane, nothing) -> row and matrix whose address the lane gives
    """

    text: str
    rows: int
    held: Layout
    addressed: Layout


# PTX ISA, ldmatrix: .m16n16 and .m8n16; stmatrix: .m16n8.
BYTE_MATRICES = (
    ByteMatrix(
        "ldmatrix.m16n16.x2.trans.b8",
        16,
        Layout.parse("((4,8),(4,2,2)):((4@0,1@1),(1@0,8@1,1@m))"),
        Layout.parse("((16,2),1):((1@0,1@m),0)"),
    ),
    ByteMatrix(
        "ldmatrix.m8n16.x4.b8x16.b6x16_p32",
        8,
        Layout.parse("((4,8),(4,4)):((4@1,1@0),(1@1,1@m))"),
        Layout.parse("((8,4),1):((1@0,1@m),0)"),
    ),
    ByteMatrix(
        "stmatrix.m16n8.x4.trans.b8",
        8,
        Layout.parse("((4,8),(2,2,4)):((2@0,1@1),(1@0,8@1,1@m))"),
        Layout.parse("((8,4),1):((1@0,1@m),0)"),
    ),
)
