"""Machines whose warps fill rings of tensor memory: for a product, or for other warps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tinygpu.language import TMEM, Choice, Dim, Input, Machine, Output, Param, Tracer, blocked
from tinygpu.ptx import isa

KINDS = ("f16", "bf16")


class Negated(Machine):
    """c = (-a) @ b: warps store -a into tensor memory, from where it is multiplied"""

    m, n, k = Dim(), Dim(), Dim()
    a = Input(KINDS, m, k)
    b = Input({kind: (kind,) for kind in KINDS}, k, n, follows=a)
    c = Output("f32", m, n)
    bn, bk, stages, slots = Param(32, 64), Param(32, 64), Param(1, 2, 3), Param(1, 2)
    tma, mma, put, get = isa.TmaLoad(), isa.Tcgen05MmaCells(bn), isa.Tcgen05St(), isa.Tcgen05Ld()
    ld, st = isa.LdGlobal(1), isa.StGlobal(1)
    conversions, compute = isa.arithmetic("f32"), "f32"
    sums_slots: Any = 2
    swizzle: Any = 64

    def program(self, p: Tracer) -> None:
        kind, bn, bk, part = self.a.dtype, self.bn, self.bk, self.bn // self.mma.ctas
        who = blocked((128, bk), threads=128, vector=2, across=1, name="a")
        rows = blocked((128, bn), threads=128, vector=1, across=1, name="c")
        with (
            self.tiles(p) as (i, j),
            p.pipeline("ring", self.stages, b=p.smem(kind, (bk, part), swizzle=self.swizzle)) as ring,
            p.pipeline("left", self.slots, a=p.buffer(TMEM, kind, (128, bk))) as left,
            p.pipeline("sums", self.sums_slots, c=p.buffer(TMEM, "f32", (128, bn))) as sums,
        ):
            with p.role("producer", warps=1), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.tma, self.b.tile(kk, self.columns(p, j), shape=(bk, part)), s.b)
            with p.role("multiplier", warps=1, first=1), sums.produce() as t:
                p.clear(t.c)
                with p.loop(self.k, step=bk), ring.consume() as s, left.consume() as f, p.unroll(bk, step=16) as kt:
                    p.multiply(self.mma, t.c, f.a.window((0, kt), (128, 16)), s.b.window((kt, 0), (16, part)))
            with p.role("filler", warps=4, first=4), p.loop(self.k, step=bk) as kk:
                self.fill(p, p.load(self.ld, self.a.tile(i, kk, shape=(128, bk)), who), left)
            with p.role("epilogue", warps=4, first=8), sums.consume() as t:
                p.store(self.st, self.c.tile(i, j, shape=(128, bn)), p.load(self.get, t.c, rows))

    def tiles(self, p: Tracer) -> Any:
        return p.grid((self.m, 128), (self.n, self.bn), persistent=True)

    def columns(self, p: Tracer, j: Any) -> Any:
        """Where what a CTA brings of b's columns begins."""
        return j

    def fill(self, p: Tracer, value: Any, left: Any) -> None:
        with left.produce() as f:
            p.store(self.put, f.a, p.cast(value * -1.0, self.a.dtype))

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return -a.astype("f4") @ b.astype("f4")


class NegatedByPairs(Negated):
    """The same by pairs of CTAs: the warps of both store 128 rows of a, which one thread of the first multiplies"""

    mma, swizzle = isa.Tcgen05MmaCellsPair(Negated.bn), Param(32, 64)

    @contextmanager
    def tiles(self, p: Tracer) -> Iterator[Any]:
        with p.grid((self.n, self.bn), (self.m, 128), cluster=(1, 2), persistent=True) as (j, i):
            yield i, j

    def columns(self, p: Tracer, j: Any) -> Any:
        return j + p.rank(1) * (self.bn // 2)


class PassedOn(Machine):
    """y = x: one role stores rows into tensor memory, another loads them from there"""

    m = Dim()
    x, y = Input("f32", m, 32), Output("f32", m, 32)
    slots = Param(1, 2, 3)
    put, get, ld, st = isa.Tcgen05St(), isa.Tcgen05Ld(), isa.LdGlobal(1), isa.StGlobal(1)

    def program(self, p: Tracer) -> None:
        rows = blocked((128, 32), threads=128, vector=1, across=1)
        with (
            p.grid((self.m, 128), persistent=True) as (i,),
            p.pipeline("rows", self.slots, x=p.buffer(TMEM, "f32", (128, 32))) as ring,
        ):
            with p.role("first", warps=4):
                value = p.load(self.ld, self.x.tile(i, 0, shape=(128, 32)), rows)
                with ring.produce() as s:
                    p.store(self.put, s.x, value)
            with p.role("second", warps=4, first=4), ring.consume() as s:
                p.store(self.st, self.y.tile(i, 0, shape=(128, 32)), p.load(self.get, s.x, rows))

    @staticmethod
    def reference(x: Any) -> Any:
        return x


class HandedOn(Machine):
    """y = z = 2 x: one role stores rows into shared memory, from where others take them, by threads or by TMA"""

    m, n = Dim(), Dim()
    x, y, z = Input("f32", m, n), Output("f32", m, n), Output("f32", m, n)
    slots, rows, readers = Param(1, 2, 3), Param(8, 24), Choice(1, 2)
    by_tma = Choice(False, True)
    ld, put, get, st, tma = isa.LdGlobal(4), isa.StShared(4), isa.LdShared(4), isa.StGlobal(4), isa.TmaStore()
    double = isa.Mul("f32")

    def program(self, p: Tracer) -> None:
        shape = (self.rows, 32)
        who = blocked(shape, threads=64, vector=4)
        with (
            p.grid((self.m, self.rows), persistent=True) as (i,),
            p.pipeline("ring", self.slots, t=p.smem("f32", shape, swizzle=128)) as ring,
        ):
            with p.role("first", warps=2), p.loop(self.n, step=32) as j:
                value = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
                with ring.produce() as s:
                    p.store(self.put, s.t, p.apply(self.double, value, 2.0))
            for r in range(self.readers):
                with p.role(f"reader{r}", warps=2, first=2 + 2 * r), p.loop(self.n, step=32) as j, ring.consume() as s:
                    for number, out in enumerate((self.y, self.z)):
                        if number % self.readers == r and self.by_tma and not number:
                            p.copy(self.tma, s.t, out.tile(i, j, shape=shape))
                        elif number % self.readers == r:
                            p.store(self.st, out.tile(i, j, shape=shape), p.load(self.get, s.t, who))

    @staticmethod
    def reference(x: Any) -> Any:
        return {"y": x * 2, "z": x * 2}


class Backwards(PassedOn):
    """y = x: the columns are stored from the last to the first, some at a time"""

    piece = Param(8, 16)

    def program(self, p: Tracer) -> None:
        piece = self.piece
        rows = blocked((128, piece), threads=128, vector=1, across=1)
        with (
            p.grid((self.m, 128), persistent=True) as (i,),
            p.pipeline("rows", self.slots, x=p.buffer(TMEM, "f32", (128, 32))) as ring,
        ):
            with p.role("first", warps=4), ring.produce() as s, p.unroll(32, step=piece) as at:
                value = p.load(self.ld, self.x.tile(i, 32 - piece - at, shape=(128, piece)), rows)
                p.store(self.put, s.x.window((0, 32 - piece - at), (128, piece)), value)
            with p.role("second", warps=4, first=4), ring.consume() as s, p.unroll(32, step=piece) as at:
                value = p.load(self.get, s.x.window((0, at), (128, piece)), rows)
                p.store(self.st, self.y.tile(i, at, shape=(128, piece)), value)


class NegatedInPieces(Negated):
    """The same as Negated, from the last column of a to the first; windows begin at `begins` besides"""

    bk: Any = 64
    begins: Any = 0

    def fill(self, p: Tracer, value: Any, left: Any) -> None:
        negated = p.cast(value * -1.0, self.a.dtype)
        with left.produce() as f, p.unroll(self.bk, step=16) as kt:
            at = self.bk - 16 - kt
            p.store(self.put, f.a.window((0, at + self.begins), (128, 16)), negated.window((0, at), (128, 16)))
