"""A median filter: windows whose edge is the nearest pixel, and a sorting network of which one place is read."""

from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, Param, Tracer, blocked, maximum, minimum
from tinygpu.ptx import isa

Network: TypeAlias = tuple[tuple[int, int], ...]
# Pairs of places, the smaller of two values first; then the median of nine is in place 4 (Paeth, Graphics Gems).
NETWORK: Network = (
    (1, 2), (4, 5), (7, 8), (0, 1), (3, 4), (6, 7), (1, 2), (4, 5), (7, 8), (0, 3),
    (5, 8), (4, 7), (3, 6), (1, 4), (2, 5), (4, 7), (4, 2), (6, 4), (4, 2),
)  # fmt: skip


def needed(network: Network, place: int) -> Iterator[tuple[int, int, bool, bool]]:
    """Each pair with which of its two results lead to a place: what nobody uses is not written."""
    live, steps = {place}, []
    for a, b in reversed(network):
        if {a, b} & live:
            steps.append((a, b, a in live, b in live))
            live |= {a, b}
    return reversed(steps)


class Median(Machine):
    """y = the median of each 3 x 3 window of an image"""

    h, w = Dim(), Dim()
    size = Dim(follows=lambda h, w: h * w)
    network = NETWORK
    x, y = Input("u8", size), Output("u8", h, w)  # rows that ids name are single pixels

    warps, rows = Param(1, 2, 4), Param(1, 2, 4)
    ld, st, whole = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("s32")
    widen, narrow = isa.Cvt("u8", "s32"), isa.Cvt("s32", "u8")

    def program(self, p: Tracer) -> None:
        shape = (self.warps * self.rows, 32)
        who = blocked(shape, threads=32 * self.warps, across=32)
        with p.grid((self.h, shape[0]), (self.w, 32)) as (i, j), p.role("all", warps=self.warps):
            row, column = p.index(who.along(0), 0) + i, p.index(who.along(1), 1) + j
            v: list[Any] = []
            for down in (-1, 0, 1):
                for right in (-1, 0, 1):
                    r = minimum(maximum(row + down, 0), self.h - 1)
                    c = minimum(maximum(column + right, 0), self.w - 1)
                    x = p.load(self.ld, self.x.rows(r * self.w + c).tile(0, 0, shape=shape), who)
                    v.append(p.cast(x, "s32"))
            for a, b, least, most in needed(self.network, 4):
                v[a], v[b] = minimum(v[a], v[b]) if least else None, maximum(v[a], v[b]) if most else None
            p.store(self.st, self.y.tile(i, j, shape=shape), p.cast(v[4], "u8"))

    @staticmethod
    def reference(x: Any, h: Any, w: Any) -> Any:
        wide = np.pad(x.reshape(h, w), ((1, 1), (1, 1)), mode="edge")
        return np.sort(np.stack([wide[a : a + h, b : b + w] for a in range(3) for b in range(3)]), axis=0)[4]
