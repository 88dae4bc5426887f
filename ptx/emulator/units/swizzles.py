"""Shared-memory swizzles: which byte address a tensor copy or a matrix descriptor really uses for a logical one.

A swizzle exchanges chunks of a 128-byte line, depending on the line's number. It acts on the bits of the shared-memory
address itself, not on an offset within the tile: a tile that does not start at a multiple of the pattern's period gets
the pattern at another phase (PTX ISA, "Swizzling Modes", with the base-offset table).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

LINE_BYTES = 128
LONGEST_PERIOD_BYTES = 1024
"""After so many bytes every pattern repeats."""


@dataclass(frozen=True, slots=True)
class Swizzle:
    """One swizzling mode.

    name          as in TensorMap
    width_bytes   widest inner box dimension; chunks move within this width (0: nothing moves)
    atom_bytes    bytes that stay together
    line_mask     low bits of the line number that choose the exchange
    flip_8b       odd lines also exchange the two 8-byte halves of every 16 bytes
    period_bytes  distance after which the pattern repeats
    mode          .swizzle_mode of tensormap.replace (PTX ISA, table "Tensormap new_val validity")
    atomicity     .swizzle_atomicity of tensormap.replace
    """

    name: str
    width_bytes: int
    atom_bytes: int
    line_mask: int
    flip_8b: bool
    period_bytes: int
    mode: int
    atomicity: int

    def __post_init__(self) -> None:
        if self.period_bytes != LINE_BYTES * (self.line_mask + 1):
            raise ValueError(f"swizzle {self.name} repeats after {self.line_mask + 1} lines of {LINE_BYTES} bytes")

    def apply(self, addresses: NDArray[np.int64]) -> NDArray[np.int64]:
        """The physical shared-memory byte addresses of logical ones; applied twice it gives back the logical ones.

        >>> SWIZZLES["128B"].apply(np.array([0, 128, 144, 1023])).tolist()
        [0, 144, 128, 911]
        """
        if not self.line_mask:
            return addresses
        line = addresses >> 7
        moved = addresses ^ ((line & self.line_mask) * self.atom_bytes)
        return moved ^ ((line & 1) << 3) if self.flip_8b else moved


# PTX ISA, "Swizzling Modes": the tables of each mode and of the swizzle atomicities. The 96-byte mode has the table of
# the 32-byte mode. Which lines the 8-byte flip takes is said as "every alternate shared memory line"; the first line of
# the figure is not flipped.
SWIZZLES: dict[str, Swizzle] = {
    s.name: s
    for s in (
        Swizzle("none", 0, 16, 0, False, 128, 0, 0),
        Swizzle("32B", 32, 16, 1, False, 256, 1, 0),
        Swizzle("64B", 64, 16, 3, False, 512, 2, 0),
        Swizzle("128B", 128, 16, 7, False, 1024, 3, 0),
        Swizzle("128B_ATOM_32B", 128, 32, 3, False, 512, 3, 1),
        Swizzle("128B_ATOM_32B_FLIP_8B", 128, 32, 3, True, 512, 3, 2),
        Swizzle("128B_ATOM_64B", 128, 64, 1, False, 256, 3, 3),
        Swizzle("96B", 96, 16, 1, False, 256, 4, 0),
    )
}
