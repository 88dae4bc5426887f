"""Products of a batch of matrices through buffers with three axes: a contraction over one axis of each operand."""

from typing import Any

from tinygpu.language import Choice, Dim, Input, Machine, Output, Param, Route, blocked, register_blocked
from tinygpu.ptx import isa


class Contraction(Machine):
    """c[b, i, j] = sum over k of a[b, i, k] * w[b, k, j]"""

    b, m, n, k = Dim(), Dim(), Dim(), Dim()
    a, w = Input("f32", b, m, k), Input("f32", b, k, n)
    c = Output("f32", b, m, n)

    bm, bn, bk = Param(16, 32), Param(32, 64), Param(4, 8)
    stages, va, vw = Param(1, 2, 3), Param(1, 2), Param(1, 2, 4)
    copy_a = Choice(isa.CpAsync(va), Route(isa.LdGlobal(va), isa.StShared(1)))
    copy_w, get, fma, st = isa.CpAsync(vw), isa.LdShared(1), isa.Fma("f32"), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        rows, columns, tile = (1, self.bm, self.bk), (1, self.bk, self.bn), (self.bm, self.bn)
        who_a = blocked(rows, threads=128, vector=self.va, name="a")
        who_w = blocked(columns, threads=128, vector=self.vw, name="w")
        who = register_blocked(tile, threads=(8, 16), block=(2, 2), name="c")
        with (
            p.grid((self.b, 1), (self.m, self.bm), (self.n, self.bn)) as (z, i, j),
            p.pipeline("ring", self.stages, a=p.smem("f32", rows, pad=1), w=p.smem("f32", columns)) as ring,
            p.role("all", warps=4),
        ):
            with p.loop(self.k, step=self.bk) as kk, ring.produce() as s:
                p.copy(self.copy_a, self.a.tile(z, i, kk, shape=rows), s.a, who_a)
                p.copy(self.copy_w, self.w.tile(z, kk, j, shape=columns), s.w, who_w)
            total = p.full(who, "f32")
            with p.loop(self.k, step=self.bk), ring.consume() as s, p.unroll(self.bk) as kt:
                a = p.load(self.get, s.a.window((0, 0, kt), (1, self.bm, 1)), who.along(0).unsqueeze(0))
                w = p.load(self.get, s.w.window((0, kt, 0), (1, 1, self.bn)), who.along(1).unsqueeze(0))
                p.apply(self.fma, a.squeeze(0), w.squeeze(0), total, into=total)
            p.store(self.st, self.c.tile(z, i, j, shape=(1, *tile)).squeeze(0), total)

    @staticmethod
    def reference(a: Any, w: Any) -> Any:
        return a @ w
