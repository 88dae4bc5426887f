"""Permutation: a tensor of up to five dims with its axes in another order in memory.

The order is the problem's: x lies in any order of its axes, y in their own; dims that are not needed are 1. Where the
axis that is contiguous stays so, rows of it are copied in vectors. Where another takes its place, warps load tiles of
these two along one and store them along the other, as in a transpose: lanes give each other what they store by
shuffles, or through shared memory, or load what they store. Searched are the tile, who holds it, and which way.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

from tinygpu.language import Choice, Dim, E, Input, Machine, Output, Param, Require, Route, Tracer, UnknownLayout
from tinygpu.machines.transpose import held
from tinygpu.ptx import isa

KINDS = ("f32", "f16", "bf16", "s32", "s8", "e4m3")


class Permute(Machine):
    """y = x, whose axes lie in another order"""

    a, b, c, d, e = Dim(), Dim(), Dim(), Dim(), Dim()
    x = Input(KINDS, a, b, c, d, e, majors=("row", *list(permutations((a, b, c, d, e)))[1:]))
    y = Output({kind: (kind,) for kind in KINDS}, a, b, c, d, e, follows=x)

    across_x, across_y = Param(4, 8, 16, 32), Param(4, 8, 16, 32)  # lanes side by side along x's rows, and y's
    vx, vy, warps = Param(1, 2, 4, 8, 16), Param(1, 2, 4, 8, 16), Param(1, 2, 4, 8)
    layout = UnknownLayout()
    ld, st = isa.LdGlobal(vx), isa.StGlobal(vy)
    exchange = Choice("none", isa.ShflIdx(), Route(isa.LdShared(1), isa.StShared(vx)))
    whole = Require(
        (across_y * vy % (32 // across_x) == 0) & (across_x * vx % (32 // across_y) == 0),
        "a warp's part is whole passes of its lanes, both ways",
    )

    def program(self, p: Tracer) -> None:
        first = self.x.contiguous
        beside = 3 if first == 4 else first  # the other axis of tiles
        bm, bn = self.across_y * self.vy, self.across_x * self.vx  # of a warp's part: along y's rows, and x's
        shape, warps = (bm, bn * self.warps), (self.warps, bn * E(1))
        extents = {4: shape[1], 3: shape[0]} if first == 4 else {4: shape[0], first: shape[1]}
        axes = [(dim, extents.get(axis, 1)) for axis, dim in enumerate((self.a, self.b, self.c, self.d, self.e))]
        rows = held(shape, 1, self.across_x, self.vx, bm, warps)
        columns = rows if first == 4 else held(shape, 0, self.across_y, self.vy, bn, warps)
        with p.grid(*axes) as at, p.role("all", warps=self.warps):
            x, y = (t.tile(*at, shape=tuple(extent for _, extent in axes)) for t in (self.x, self.y))
            for axis in (3, 2, 1, 0):
                x, y = (x, y) if axis == beside else (x.squeeze(axis), y.squeeze(axis))
            x, y = (x, y) if first == 4 else (x.T, y.T)
            tile = p.load(self.ld, x, columns if self.exchange == "none" else rows)
            if self.exchange != "none":
                layout = self.layout if isinstance(self.exchange, Route) else None
                tile = p.relayout(tile, columns, self.exchange, layout=layout)
            p.store(self.st, y, tile)

    @staticmethod
    def reference(x: Any) -> Any:
        return x
