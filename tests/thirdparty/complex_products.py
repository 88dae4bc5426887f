"""Complex matmul on Blackwell, real and imaginary parts apart: three sums in tensor memory, one of two products."""

from typing import Any

from tinygpu.language import TMEM, Dim, Input, Machine, Output, Param, Tracer, blocked
from tinygpu.ptx import isa


class ComplexProduct(Machine):
    """(cr, ci) = (ar + i ai) @ (br + i bi)"""

    m, n, k = Dim(), Dim(), Dim()
    ar, ai, br, bi = Input("bf16", m, k), Input("bf16", m, k), Input("bf16", k, n), Input("bf16", k, n)
    cr, ci = Output("f32", m, n), Output("f32", m, n)

    stages, slots, vector = Param(2, 3, 4), Param(1, 2), Param(1, 2, 4)
    tma, mma, ld, st, sub = isa.TmaLoad(), isa.Tcgen05Mma(64), isa.Tcgen05Ld(), isa.StGlobal(vector), isa.Sub("f32")

    def program(self, p: Tracer) -> None:
        a, b = p.smem("bf16", (128, 32), swizzle=64), p.smem("bf16", (32, 64), swizzle=64)
        c = p.buffer(TMEM, "f32", (128, 64))
        who = blocked((128, 64), threads=128, vector=self.vector, across=1)
        with (
            p.grid((self.m, 128), (self.n, 64), persistent=True) as (i, j),
            p.pipeline("ring", self.stages, ar=a, ai=a, br=b, bi=b) as ring,
            p.pipeline("sums", self.slots, rr=c, ii=c, ri=c) as sums,
        ):
            with p.role("producer", warps=1), p.loop(self.k, step=32) as kk, ring.produce() as s:
                for x, slot in ((self.ar, s.ar), (self.ai, s.ai)):
                    p.copy(self.tma, x.tile(i, kk, shape=(128, 32)), slot)
                for x, slot in ((self.br, s.br), (self.bi, s.bi)):
                    p.copy(self.tma, x.tile(kk, j, shape=(32, 64)), slot)
            with p.role("multiplier", warps=1, first=1), sums.produce() as t:
                for total in (t.rr, t.ii, t.ri):
                    p.clear(total)
                with p.loop(self.k, step=32), ring.consume() as s, p.unroll(32, step=16) as kt:
                    for total, x, y in ((t.rr, s.ar, s.br), (t.ii, s.ai, s.bi), (t.ri, s.ar, s.bi), (t.ri, s.ai, s.br)):
                        p.multiply(self.mma, total, x.window((0, kt), (128, 16)), y.window((kt, 0), (16, 64)))
            with p.role("epilogue", warps=4, first=4), sums.consume() as t:
                real = p.load(self.ld, t.rr, who) - p.load(self.ld, t.ii, who)
                p.store(self.st, self.cr.tile(i, j, shape=(128, 64)), real)
                p.store(self.st, self.ci.tile(i, j, shape=(128, 64)), p.load(self.ld, t.ri, who))

    @staticmethod
    def reference(ar: Any, ai: Any, br: Any, bi: Any) -> Any:
        return {"cr": ar @ br - ai @ bi, "ci": ar @ bi + ai @ br}
