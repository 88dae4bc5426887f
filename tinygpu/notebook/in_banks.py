"""A buffer in shared memory as a picture: which piece of which row lies in which banks."""

from __future__ import annotations

from tinygpu.layouts.draw import BANKS
from tinygpu.layouts.picture import Picture
from tinygpu.solver.smem_layout import SmemLayout

_LINE_BYTES = BANKS * 4
# Lines of 128 bytes that are shown of a buffer: as many as the widest swizzle's period.
_LINES = 8


def in_banks(name: str, layout: SmemLayout) -> Picture:
    """The first lines of a buffer in shared memory: which piece of which row lies where, as row:piece.

    >>> print(in_banks("t", SmemLayout(2, 64, 64)))
    t: 2 x 64 B, pitch 64 B; pieces of 16 B, as row:piece
          0  16  32  48  64  80  96 112
    0 B 0:0 0:1 0:2 0:3 1:0 1:1 1:2 1:3
    """
    piece = max(4, min(16, layout.vector_bytes))
    per_line = _LINE_BYTES // piece
    lines = min(_LINES, -(-layout.size_bytes // _LINE_BYTES))
    held: dict[int, tuple[int, int]] = {}
    for row in range(min(layout.rows, lines * _LINE_BYTES // layout.pitch_bytes + 1)):
        flips = sum(mask for bit, mask in layout.xor if row >> bit & 1)
        for column in range(0, layout.row_bytes, piece):
            held[(row * layout.pitch_bytes + (column ^ flips)) // piece] = (row, column // piece)
    places = [[held.get(line * per_line + at) for at in range(per_line)] for line in range(lines)]
    shape = f"{layout.rows} x {layout.row_bytes} B, pitch {layout.pitch_bytes} B"
    return Picture(
        f"{name}: {shape}; pieces of {piece} B, as row:piece",
        tuple(str(at * piece) for at in range(per_line)),
        tuple(f"{line * _LINE_BYTES} B" for line in range(lines)),
        tuple(tuple("" if p is None else f"{p[0]}:{p[1]}" for p in line) for line in places),
        tuple(tuple(0 if p is None else p[1] for p in line) for line in places),
    )
