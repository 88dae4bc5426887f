"""fp8 with scales of blocks on Hopper: what wgmma adds up over a block is scaled, and added in single precision."""

from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, Param, Tracer, between
from tinygpu.ptx import isa

BLOCK = 128


class ScaledFp8(Machine):
    """c[i, j] = sum over blocks q along k of sa[i, q] sb[j // 128, q] (a[i, q] . b[j, q])"""

    m, n, k = Dim(), Dim(), Dim()
    blocks_k = Dim(follows=lambda k: (k + BLOCK - 1) // BLOCK)
    blocks_n = Dim(follows=lambda n: (n + BLOCK - 1) // BLOCK)
    a, b = Input("e4m3", m, k), Input("e4m3", n, k)
    sa = Input("f32", m, blocks_k, values=between(2.0**-6, 2))
    sb = Input("f32", blocks_n, blocks_k, values=between(2.0**-6, 2))
    c = Output("bf16", m, n)

    groups, bn, stages, vector = Param(1, 2), Param(32, 64), Param(2, 3, 4), Param(1, 2)
    tma, wgmma, ld, st = isa.TmaLoad(), isa.Wgmma(bn), isa.LdGlobal(1), isa.StGlobal(vector)
    arithmetic, compute, contract, exact = isa.arithmetic("f32"), "f32", True, False

    def program(self, p: Tracer) -> None:
        bm, bn, bk = 64 * self.groups, self.bn, BLOCK
        t = p.tiled(self.wgmma, "e4m3", "e4m3", (bm, bn), (self.groups, 1))
        a, b = p.smem("e4m3", (bm, bk), swizzle=128), p.smem("e4m3", (bk, bn), contiguous=0, swizzle=128)
        with p.grid((self.m, bm), (self.n, bn)) as (i, j), p.pipeline("ring", self.stages, a=a, b=b) as ring:
            with p.role("consumer", warps=4 * self.groups):
                total = p.full(t.c, "f32")
                with p.loop(self.k, step=bk) as kk:
                    part = p.full(t.c, "f32")
                    with ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                        p.multiply(self.wgmma, part, s.a.window((0, kt), (bm, t.k)), s.b.window((kt, 0), (t.k, bn)))
                    sa = p.load(self.ld, self.sa.tile(i, kk // bk, shape=(bm, 1)), t.c.along(0))
                    one = t.c.reduced(0).reduced(1)
                    sb = p.load(self.ld, self.sb.tile(j // BLOCK, kk // bk, shape=(1, 1)), one)
                    total += part * (sa * sb)
                p.store(self.st, self.c.tile(i, j, shape=(bm, bn)), total)
            with p.role("producer", warps=1, first=4 * self.groups), p.loop(self.k, step=bk) as kk, ring.produce() as s:
                p.copy(self.tma, self.a.tile(i, kk, shape=(bm, bk)), s.a)
                p.copy(self.tma, self.b.tile(j, kk, shape=(bn, bk)).T, s.b)

    @staticmethod
    def reference(a: Any, b: Any, sa: Any, sb: Any) -> Any:
        total = 0.0
        for q in range(sa.shape[1]):
            of = slice(q * BLOCK, (q + 1) * BLOCK)
            total = total + a[:, of] @ b[:, of].T * (sa[:, q, None] * np.repeat(sb[:, q], BLOCK)[: len(b)])
        return total
