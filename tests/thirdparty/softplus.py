"""log(1 + exp(x)), element by element, by an instruction that the library does not have."""

from typing import Any

import numpy as np

from tinygpu.language import Dim, Elementwise, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa


class Log1pExp(Elementwise):
    """d = log(1 + exp(a)), as max(a, 0) + ln 2 * lg2(1 + ex2(-|a| / ln 2)): nothing overflows."""

    operands = ("f32",)
    result = "f32"
    unit = "sfu"
    source = "PTX ISA, ex2.approx and lg2.approx"
    template = (
        "{{ .reg .f32 t, top; abs.f32 t, {a}; mul.rn.f32 t, t, 0fBFB8AA3B; ex2.approx.ftz.f32 t, t; "
        "add.rn.f32 t, t, 0f3F800000; lg2.approx.f32 t, t; max.f32 top, {a}, 0f00000000; "
        "fma.rn.f32 {d}, t, 0f3F317218, top; }}"
    )

    def meaning(self, *values: Any) -> Any:
        (a,) = values
        return np.log1p(np.exp(-np.abs(a))) + np.maximum(a, 0)


class Softplus(Machine):
    """y = log(1 + exp(x)), element by element"""

    n = Dim()
    x = Input(("f32", "f16", "bf16"), n)
    y = Output({"f32": ("f32",), "f16": ("f16", "f32"), "bf16": ("bf16",)}, n, follows=x)

    warps, vector, rows = Param(1, 2, 4, 8), Param(1, 2, 4, 8), Param(1, 2, 4)
    ld, st, softplus = isa.LdGlobalReadOnly(vector), isa.StGlobal(vector), Log1pExp()

    exact = False
    approximation = 2.0**-20

    def program(self, p: Any) -> None:
        threads = 32 * self.warps
        tile = threads * self.vector * self.rows
        who = blocked((tile,), threads=threads, vector=self.vector)
        with p.grid((self.n, tile)) as (i,), p.role("all", warps=self.warps):
            value = p.load(self.ld, self.x.tile(i, shape=(tile,)), who)
            if self.x.dtype.name != "f32":
                value = p.apply(isa.Cvt(self.x.dtype.name, "f32"), value)
            value = p.apply(self.softplus, value)
            if self.y.dtype.name != "f32":
                value = p.apply(isa.Cvt("f32", self.y.dtype.name), value)
            p.store(self.st, self.y.tile(i, shape=(tile,)), value)

    @staticmethod
    def reference(x: Any) -> Any:
        return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)
