"""A step of an optimiser, in place: parameters of 16 bits, and their moments in f32."""

from typing import Any

import numpy as np

from tinygpu.language import (
    Dim,
    InOut,
    Input,
    Machine,
    Param,
    Scalar,
    Tracer,
    between,
    blocked,
    exp2,
    integers,
    log2,
    sqrt,
    uniform,
)
from tinygpu.ptx import isa


class AdamW(Machine):
    """One step of AdamW, in place: p in bf16, its moments in f32"""

    n = Dim()
    lr, eps = Scalar("f32", values=between(1e-3, 1e-2)), Scalar("f32", values=between(1e-9, 1e-6))
    beta1, beta2 = Scalar("f32", values=uniform(0.8, 0.92)), Scalar("f32", values=uniform(0.95, 0.999))
    decay = Scalar("f32", values=uniform(0, 0.1))
    step = Scalar("s32", values=integers(1, 10000))
    p, g = InOut("bf16", n), Input("bf16", n)
    m, v = InOut("f32", n), InOut("f32", n, values=uniform(0, 1))

    warps, vector = Param(1, 2, 4, 8), Param(1, 2, 4)
    ld, st = isa.LdGlobal(vector), isa.StGlobal(vector)
    arithmetic, compute, exact = isa.arithmetic("f32"), "f32", False
    number = isa.Cvt("s32", "f32")

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps * self.vector,)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            w, g, m, v = (p.load(self.ld, t.tile(i, shape=shape), who) for t in (self.p, self.g, self.m, self.v))
            step = p.cast(p.full(who.reduced(0), "s32", self.step), "f32")
            m = self.beta1 * m + (1 - self.beta1) * g
            v = self.beta2 * v + (1 - self.beta2) * (g * g)
            first = m / (1 - exp2(step * log2(self.beta1)))
            second = v / (1 - exp2(step * log2(self.beta2)))
            w = w - self.lr * (first / (sqrt(second) + self.eps) + self.decay * w)
            p.store(self.st, self.p.tile(i, shape=shape), w)
            p.store(self.st, self.m.tile(i, shape=shape), m)
            p.store(self.st, self.v.tile(i, shape=shape), v)

    @staticmethod
    def reference(
        lr: Any, eps: Any, beta1: Any, beta2: Any, decay: Any, step: Any, p: Any, g: Any, m: Any, v: Any
    ) -> Any:
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g * g
        first, second = m / (1 - beta1**step), v / (1 - beta2**step)
        return {"p": p - lr * (first / (np.sqrt(second) + eps) + decay * p), "m": m, "v": v}
