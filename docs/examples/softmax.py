"""Softmax of rows, written as a machine, and searched for an A100.

    python docs/examples/softmax.py
    tinygpu tune docs/examples/softmax.py:Softmax --shape m=4096,n=1000 --device h100
    tinygpu check docs/examples/softmax.py:Softmax
"""

import math

import numpy as np

import tinygpu as tg
from tinygpu.language import Dim, Input, Machine, Output, Param, Require, Tracer, blocked, exp, reciprocal
from tinygpu.ptx import isa


class Softmax(Machine):
    """y = softmax of each row of x; a row stays in the registers of one warp, or of several"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)

    warps, together = Param(1, 2, 4, 8, 16), Param(1, 4, 16)  # of them, so many share a row
    rows, vector, step = Param(1, 2), Param(1, 2, 4), Param(1, 2, 4, 8, 16, 32)
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Exchange("shuffles", "pairs")
    larger, add, arithmetic = isa.Max("f32"), isa.Add("f32"), isa.arithmetic("f32")

    whole = Require(n <= 32 * together * vector * step, "a row fits into one tile")
    exact, approximation = False, 2.0**-20

    def program(self, p: Tracer):
        shape = (self.warps // self.together * self.rows, 32 * self.together * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32 * self.together)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, 0, shape=shape), who, fill=-math.inf)  # nothing lies beyond the row
            e = exp(x - p.reduce(self.larger, x, axis=1, by=self.exchange))
            total = p.reduce(self.add, e, axis=1, by=self.exchange)
            p.store(self.st, self.y.tile(i, 0, shape=shape), e * reciprocal(total))

    @staticmethod
    def reference(x):
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)


if __name__ == "__main__":
    best = tg.tune(Softmax, m=4096, n=1000, device="a100")
    print(best)

    x = np.random.default_rng(0).normal(size=(3, 1000)).astype(np.float32)
    kernel = tg.emit(tg.space(Softmax, m=3, n=1000, device="a100"), best.point)
    print("emulated:", "right" if np.allclose(tg.emulate(kernel, x), Softmax.reference(x)) else "wrong")
