"""Transpose: warps load rows of x and store rows of y; in between, lanes give each other what they store."""

from __future__ import annotations

from typing import Any

from tinygpu.language import (
    Choice,
    Dim,
    E,
    Expr,
    Input,
    Layout,
    Machine,
    Output,
    Param,
    Partition,
    Require,
    Route,
    Tracer,
    UnknownLayout,
)
from tinygpu.ptx import isa

KINDS = ("f32", "f16", "bf16", "s32", "s8", "e4m3")


def held(shape: Any, axis: int, across: Expr, vector: Expr, beside: Expr, warps: Any) -> Partition:
    """Each warp's lanes hold vectors along an axis, as long a row as its part has, and then the rows beside it."""
    tall = 32 // across
    lanes = [(across, vector * E(axis)), (tall, E(1 - axis))]
    return Partition(shape, Layout.of([*lanes, warps], [(vector, E(axis)), (beside // tall, tall * E(1 - axis))]))


class MatrixTranspose(Machine):
    """y = x.T: lanes exchange values by shuffles or through shared memory, or load what they store"""

    m, n = Dim(), Dim()
    x = Input(KINDS, m, n)
    y = Output({kind: (kind,) for kind in KINDS}, n, m, follows=x)

    across_x, across_y = Param(4, 8, 16, 32), Param(4, 8, 16, 32)  # lanes side by side along a row of x, and of y
    vx, vy = Param(1, 2, 4, 8, 16), Param(1, 2, 4, 8, 16)  # neighbours of one load, and of one store
    warps = Param(1, 2, 4, 8)  # side by side along a row of x
    layout = UnknownLayout()

    ld, st = isa.LdGlobal(vx), isa.StGlobal(vy)
    exchange = Choice(isa.ShflIdx(), Route(isa.LdShared(1), isa.StShared(vx)), "none")

    whole = Require(
        (across_y * vy % (32 // across_x) == 0) & (across_x * vx % (32 // across_y) == 0),
        "a warp's part is whole passes of its lanes, both ways",
    )
    small = Require(
        across_x * vx * across_y * vy <= 1024, "a lane has at most 32 elements", kind="dominance",
        why="a warp has whole sectors of both sides with fewer, and more of them exchange values in more rounds",
    )  # fmt: skip

    def program(self, p: Tracer) -> None:
        bm, bn = self.across_y * self.vy, self.across_x * self.vx  # of a warp's part: a row of y by a row of x
        shape = (bm, bn * self.warps)
        warps = (self.warps, bn * E(1))
        rows = held(shape, 1, self.across_x, self.vx, bm, warps)
        columns = held(shape, 0, self.across_y, self.vy, bn, warps)
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            tile = p.load(self.ld, self.x.tile(i, j, shape=shape), columns if self.exchange == "none" else rows)
            if self.exchange != "none":
                layout = self.layout if isinstance(self.exchange, Route) else None
                tile = p.relayout(tile, columns, self.exchange, layout=layout)
            p.store(self.st, self.y.tile(j, i, shape=shape[::-1]), tile.T)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.T
