"""Rings that the CTAs of a cluster fill for each other, read by threads, by wgmma, and by both."""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import SMEM, Choice, Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa

TILE = 64


def _stages(p: Any) -> dict[str, Any]:
    return {name: p.smem("f16", (TILE, TILE), swizzle=128) for name in ("a", "b")}


class Product(Machine):
    """c = a @ b: both operands straight from the ring (wgmma), or as fragments of threads (ldmatrix, mma.sync)"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = Input("f16", m, k), Input("f16", k, n)
    c = Output("f32", m, n)

    stages, cluster_m, cluster_n = Param(1, 2, 3), Param(1, 2), Param(1, 2)
    tma, ld_matrix, st = isa.TmaLoad(), isa.LdMatrix(), isa.StGlobal(2)
    product: Any = Choice(isa.Wgmma(TILE), isa.MmaSync())

    def program(self, p: Any) -> None:
        whole = SMEM in self.product.places
        t = p.tiled(self.product, self.a.dtype, self.b.dtype, (TILE, TILE), (1, 1) if whole else (4, 1))
        with (
            p.grid((self.m, TILE), (self.n, TILE), cluster=(self.cluster_m, self.cluster_n)) as (i, j),
            p.pipeline("ring", self.stages, **_stages(p)) as ring,
        ):
            with p.role("producer", warps=1, first=4), p.loop(self.k, step=TILE) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(TILE, TILE)), s.a, multicast=1)
                p.copy(self.tma, self.b.tile(kk, j, shape=(TILE, TILE)), s.b, multicast=0)
            with p.role("consumer", warps=4):
                acc = p.full(t.c, "f32")
                with p.loop(self.k, step=TILE), ring.consume() as s, p.unroll(TILE, step=t.k) as kt:
                    a, b = s.a.window((0, kt), (TILE, t.k)), s.b.window((kt, 0), (t.k, TILE))
                    if not whole:
                        a, b = p.load(self.ld_matrix, a, t.a), p.load(self.ld_matrix, b, t.b)
                    p.multiply(self.product, acc, a, b)
                p.store(self.st, self.c.tile(i, j, shape=(TILE, TILE)), acc)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b


class ProductAndFold(Machine):
    """c = a @ b by wgmma, while threads add up the tiles of a row of a as they pass: d[:, j] = sum of a[:, kk]"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = Input("f16", m, k), Input("f16", k, n)
    c, d = Output("f32", m, n), Output("f32", m, n)

    stages, cluster_m, cluster_n = Param(1, 2, 3), Param(1, 2), Param(1, 2)
    tma, wgmma, ld, st, st_row = isa.TmaLoad(), isa.Wgmma(TILE), isa.LdShared(1), isa.StGlobal(2), isa.StGlobal(1)
    widen, add = isa.Cvt("f16", "f32"), isa.Add("f32")

    def program(self, p: Any) -> None:
        t = p.tiled(self.wgmma, self.a.dtype, self.b.dtype, (TILE, TILE), (1, 1))
        rows = blocked((TILE, TILE), threads=128, across=32)
        with (
            p.grid((self.m, TILE), (self.n, TILE), cluster=(self.cluster_m, self.cluster_n)) as (i, j),
            p.pipeline("ring", self.stages, **_stages(p)) as ring,
        ):
            with p.role("producer", warps=1, first=4), p.loop(self.k, step=TILE) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(TILE, TILE)), s.a, multicast=1)
                p.copy(self.tma, self.b.tile(kk, j, shape=(TILE, TILE)), s.b, multicast=0)
            with p.role("consumer", warps=4):
                acc, total = p.full(t.c, "f32"), p.full(rows, "f32")
                with p.loop(self.k, step=TILE), ring.consume() as s:
                    with p.unroll(TILE, step=t.k) as kt:
                        p.multiply(self.wgmma, acc, s.a.window((0, kt), (TILE, t.k)), s.b.window((kt, 0), (t.k, TILE)))
                    p.apply(self.add, total, p.apply(self.widen, p.load(self.ld, s.a, rows)), into=total)
                p.store(self.st, self.c.tile(i, j, shape=(TILE, TILE)), acc)
                p.store(self.st_row, self.d.tile(i, j, shape=(TILE, TILE)), total)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        rounds = -(-a.shape[1] // TILE)
        whole = np.pad(a, ((0, 0), (0, rounds * TILE - a.shape[1])))
        folded = whole.reshape(len(a), rounds, TILE).sum(axis=1)
        return {"c": a @ b, "d": np.tile(folded, (1, -(-b.shape[1] // TILE)))[:, : b.shape[1]]}
