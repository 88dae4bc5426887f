"""y = a * x + b in f16, two values at a time, by instructions that the library does not have."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from tinygpu.language import Dim, Elementwise, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa


@dataclass(frozen=True, eq=False)
class FmaPair(Elementwise):
    """d = a * b + c of two f16 values in one register, each rounded once."""

    operands = ("f16x2", "f16x2", "f16x2")
    result = "f16x2"
    unit = "fma"
    flops = 2
    template = "fma.rn.f16x2 {d}, {a}, {b}, {c};"
    source = "PTX ISA, half precision fma"

    def meaning(self, *values: Any) -> Any:
        a, b, c = (np.asarray(v, np.float64) for v in values)
        return (a * b + c).astype(np.float16)


@dataclass(frozen=True, eq=False)
class MaxPair(Elementwise):
    """d = the larger of a and b, of two f16 values in one register; a NaN stays one."""

    operands = ("f16x2", "f16x2")
    result = "f16x2"
    template = "max.NaN.f16x2 {d}, {a}, {b};"
    source = "PTX ISA, half precision max"

    def meaning(self, *values: Any) -> Any:
        return np.maximum(*values)


class ScaleShift(Machine):
    """y = max(a[j] * x[i, j] + b[i], 0): a row of factors and a column of terms, in f16"""

    m, n = Dim(), Dim()
    a, b = Input("f16", n), Input("f16", m)
    x, y = Input("f16", m, n), Output("f16", m, n)

    warps, vector, rows = Param(1, 2, 4), Param(1, 2, 4, 8), Param(1, 2)
    across = Param(32, 64)
    ld, ld_one, st = isa.LdGlobalReadOnly(vector), isa.LdGlobalReadOnly(1), isa.StGlobal(vector)
    fma, top = FmaPair(), MaxPair()

    def program(self, p: Any) -> None:
        threads = 32 * self.warps
        shape = (threads // self.across * self.rows, self.across * self.vector)
        who = blocked(shape, threads=threads, vector=self.vector, across=self.across)
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            a = p.load(self.ld, self.a.row(j, shape[1]), who.along(1))
            b = p.load(self.ld_one, self.b.column(i, shape[0]), who.along(0))
            p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(self.top, p.apply(self.fma, a, x, b), 0.0))

    @staticmethod
    def reference(a: Any, b: Any, x: Any) -> Any:
        return np.maximum(a * x + b[:, None], 0)
