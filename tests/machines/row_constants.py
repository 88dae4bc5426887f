"""Machines whose rows have constants that tcgen05.cp lays beside the sums: of 128, 64 and 32 rows; and of 64 alone."""

from __future__ import annotations

from typing import Any

from tinygpu.language import TMEM, Choice, Dim, Input, Machine, Output, Param, Tracer
from tinygpu.ptx import isa

K, WORDS = 64, 4
SHAPES = {"128": "128x128b", "64": "64x128b.warpx2::02_13", "32": "32x128b.warpx4"}


class ScaledRows(Machine):
    """c = (a @ b) * scale + offset along 64 of k, both of each row: they lie in its lanes, whichever columns it has"""

    m, n = Dim(), Dim()
    a, b = Input("f16", m, K), Input("f16", K, n, majors=("col",))
    rows_of = Input("f32", m, WORDS)  # scale, offset, and two that nobody reads
    c = Output("f32", m, n)
    bn, stages, slots = Param(64, 128), Param(1, 2), Param(1, 2)
    rows = Choice("32", "64", "128")
    few, some, many = isa.Tcgen05MmaWs(bn, 32), isa.Tcgen05MmaWs(bn, 64), isa.Tcgen05MmaWs(bn, 128)
    to_32, to_64, to_128 = (isa.Tcgen05CpRows(SHAPES[rows]) for rows in ("32", "64", "128"))
    tma, ld, st, usual = isa.TmaLoad(), isa.Tcgen05Ld(), isa.StGlobal(1), isa.arithmetic("f32")

    def program(self, p: Tracer) -> None:
        mma = {"32": self.few, "64": self.some, "128": self.many}[self.rows]
        cp = {"32": self.to_32, "64": self.to_64, "128": self.to_128}[self.rows]
        bm, bn, who = int(self.rows), self.bn, self.ld.held((int(self.rows), 1), cp.path(1))
        sums = p.buffer(TMEM, "f32", (bm, bn), path=mma.path(bn))
        with (
            p.grid((self.m, bm), (self.n, bn), persistent=True) as (i, j),
            p.pipeline("brought", 1, x=p.smem("f32", (bm, WORDS), swizzle=16)) as brought,
            p.pipeline(
                "ring", self.stages, a=p.smem("f16", (bm, K), swizzle=128),
                b=p.smem("f16", (K, bn), swizzle=128, contiguous=0),
            ) as ring,
            p.pipeline("beside", self.slots, x=p.buffer(TMEM, "f32", (bm, WORDS), path=cp.path(WORDS))) as beside,
            p.pipeline("sums", self.slots, c=sums) as made,
        ):  # fmt: skip
            with p.role("producer", warps=1):
                with brought.produce() as s:
                    p.copy(self.tma, self.rows_of.tile(i, 0, shape=(bm, WORDS)), s.x)
                with ring.produce() as s:
                    p.copy(self.tma, self.a.tile(i, 0, shape=(bm, K)), s.a)
                    p.copy(self.tma, self.b.tile(0, j, shape=(K, bn)), s.b)
            with p.role("copier", warps=1, first=1), brought.consume() as s, beside.produce() as t:
                p.copy(cp, s.x, t.x)
            with p.role("multiplier", warps=1, first=2), made.produce() as t:
                p.clear(t.c)
                with ring.consume() as s, p.unroll(K, step=16) as kt:
                    p.multiply(mma, t.c, s.a.window((0, kt), (bm, 16)), s.b.window((kt, 0), (16, bn)))
            with p.role("epilogue", warps=4, first=4), beside.consume() as x, made.consume() as t:
                scale, offset = (p.load(self.ld, x.x.window((0, at), (bm, 1)), who) for at in (0, 1))
                found = p.load(self.ld, t.c, self.ld.held((bm, bn), mma.path(bn)))
                p.store(self.st, self.c.tile(i, j, shape=(bm, bn)), found * scale + offset)

    @staticmethod
    def reference(a: Any, b: Any, rows_of: Any) -> Any:
        return (a.astype("f4") @ b.astype("f4")) * rows_of[:, :1] + rows_of[:, 1:2]


class Neighbours(Machine):
    """y = x of 64 rows: rows of neighbouring warps are the same, and each is stored once"""

    m = Dim()
    x, y = Input("f32", m, WORDS), Output("f32", m, WORDS)
    slots = Param(1, 2)
    tma, cp = isa.TmaLoad(), isa.Tcgen05CpRows("64x128b.warpx2::01_23")
    ld, st = isa.Tcgen05Ld(), isa.StGlobal(1)

    def program(self, p: Tracer) -> None:
        path = self.cp.path(WORDS)
        with (
            p.grid((self.m, 64), persistent=True) as (i,),
            p.pipeline("brought", self.slots, x=p.smem("f32", (64, WORDS), swizzle=16)) as brought,
            p.pipeline("held", self.slots, x=p.buffer(TMEM, "f32", (64, WORDS), path=path)) as held,
        ):
            with p.role("producer", warps=1), brought.produce() as s:
                p.copy(self.tma, self.x.tile(i, 0, shape=(64, WORDS)), s.x)
            with p.role("copier", warps=1, first=1), brought.consume() as s, held.produce() as t:
                p.copy(self.cp, s.x, t.x)
            with p.role("epilogue", warps=4, first=4), held.consume() as t:
                tile = self.y.tile(i, 0, shape=(64, WORDS))
                p.store(self.st, tile, p.load(self.ld, t.x, self.ld.held((64, WORDS), path)))

    @staticmethod
    def reference(x: Any) -> Any:
        return x
