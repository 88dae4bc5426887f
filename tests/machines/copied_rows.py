"""Machines whose left operand is copied from shared to tensor memory once, and multiplied several times."""

from __future__ import annotations

from typing import Any

from tinygpu.language import TMEM, Dim, Input, Machine, Output, Param, Tracer, blocked
from tinygpu.ptx import isa

KINDS = ("f16", "bf16", "tf32", "e4m3")
K = 64


class Held(Machine):
    """c = a @ b along 64 of k: rows of a go to tensor memory once, and are multiplied by tile after tile of b"""

    m, n = Dim(), Dim()
    a = Input(KINDS, m, K)
    b = Input({kind: (kind,) for kind in KINDS}, K, n, follows=a, majors=("col",))
    c = Output("f32", m, n)
    bn, stages, slots, width = Param(32, 64), Param(1, 3), Param(1, 2), Param(32, 64, 128)
    tma, cp, mma = isa.TmaLoad(), isa.Tcgen05CpRows(), isa.Tcgen05MmaCells(bn)
    get, st = isa.Tcgen05Ld(), isa.StGlobal(1)
    cluster, shared = 1, None

    def program(self, p: Tracer) -> None:
        kind, bn, ctas = self.a.dtype, self.bn, self.mma.ctas
        part, step = bn // ctas, 256 // kind.bits
        rows = blocked((128, bn), threads=128, vector=1, across=1, name="c")
        with (
            p.grid((self.m, 128), persistent=True, cluster=self.cluster) as (i,),
            p.pipeline("brought", self.slots, a=p.smem(kind, (128, K), swizzle=self.width)) as brought,
            p.pipeline("ring", self.stages, b=p.smem(kind, (K, part), swizzle=64, contiguous=0)) as ring,
            p.pipeline("left", self.slots, a=p.buffer(TMEM, kind, (128, K))) as left,
            p.pipeline("sums", 2, c=p.buffer(TMEM, "f32", (128, bn))) as sums,
        ):
            with p.role("producer", warps=1):
                with brought.produce() as s:
                    p.copy(self.tma, self.a.tile(i, 0, shape=(128, K)), s.a)
                with p.loop(self.n, step=bn) as j, ring.produce() as s:
                    p.copy(self.tma, self.b.tile(0, self.columns(p, j), shape=(K, part)), s.b, multicast=self.shared)
            with p.role("copier", warps=1, first=1), brought.consume() as s, left.produce() as f:
                self.copy_rows(p, s.a, f.a)
            with (
                p.role("multiplier", warps=1, first=2), left.consume() as f,
                p.loop(self.n, step=bn), ring.consume() as s, sums.produce() as t,
            ):  # fmt: skip
                p.clear(t.c)
                with p.unroll(K, step=step) as kt:
                    p.multiply(self.mma, t.c, f.a.window((0, kt), (128, step)), s.b.window((kt, 0), (step, part)))
            with p.role("epilogue", warps=4, first=4), p.loop(self.n, step=bn) as j, sums.consume() as t:
                p.store(self.st, self.c.tile(i, j, shape=(128, bn)), p.load(self.get, t.c, rows))

    def copy_rows(self, p: Tracer, rows: Any, cells: Any) -> None:
        p.copy(self.cp, rows, cells)

    def columns(self, p: Tracer, j: Any) -> Any:
        """Where what a CTA brings of b's columns begins."""
        return j

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a.astype("f4") @ b.astype("f4")


class HeldInParts(Held):
    """The same, of which parts of the columns are copied one by one"""

    part = Param(8, 16, 32, 64)

    def copy_rows(self, p: Tracer, rows: Any, cells: Any) -> None:
        with p.unroll(K, step=self.part) as at:
            p.copy(self.cp, rows.window((0, at), (128, self.part)), cells.window((0, at), (128, self.part)))


class HeldByPairs(Held):
    """The same by pairs of CTAs: each has 128 rows of a, and brings half of the columns of b that both multiply"""

    cp, mma, cluster = isa.Tcgen05CpRowsPair(), isa.Tcgen05MmaCellsPair(Held.bn), 2

    def columns(self, p: Tracer, j: Any) -> Any:
        return j + p.rank(0) % 2 * (self.bn // 2)


class HeldInClusters(Held):
    """The same in clusters of two CTAs, each of which multiplies by itself what one of them brings of b for both"""

    cluster, shared = 2, 0
