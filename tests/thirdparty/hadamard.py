"""Walsh-Hadamard transforms: butterflies of elements whose places differ in one bit."""

from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, Param, Tracer, blocked, equal, where
from tinygpu.ptx import isa


class Hadamard(Machine):
    """y = the Walsh-Hadamard transform of every row of x"""

    m = Dim()
    n = Dim(2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
    x, y = Input("f32", m, n), Output("f32", m, n)

    warps, vector = Param(1, 2, 4, 8), Param(1, 2, 4)
    ld, st = isa.LdGlobal(vector), isa.StGlobal(vector)
    add, arithmetic, whole = isa.Add("f32"), isa.arithmetic("f32"), isa.arithmetic("s32")
    exchange = isa.Exchange("shuffles", "pairs")

    def program(self, p: Tracer) -> None:
        shape = (1, self.n)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, 0, shape=shape), who)
            place = p.index(who, 1)
            j = 1
            while j < self.n:
                bits = (self.n // (2 * j), 2, j)
                first = equal(place & j, 0)
                total = p.reduce(self.add, x.split(1, bits), axis=2, by=self.exchange)
                apart = p.reduce(self.add, where(first, x, -x).split(1, bits), axis=2, by=self.exchange)
                x = where(first.split(1, bits), total, apart).merge(1, 2, 3)
                j *= 2
            p.store(self.st, self.y.tile(i, 0, shape=shape), x)

    @staticmethod
    def reference(x: Any) -> Any:
        h = np.ones((1, 1))
        while len(h) < x.shape[1]:
            h = np.block([[h, h], [h, -h]])
        return x @ h
