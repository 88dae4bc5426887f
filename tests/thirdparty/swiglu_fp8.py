"""An activation and its quantisation, with a scale for each row."""

from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, Param, Require, Tracer, blocked, maximum, silu
from tinygpu.ptx import isa


class SwigluFp8(Machine):
    """y = silu(gate) * up of every row, divided by its largest over 448, in e4m3, and that scale"""

    m, n = Dim(), Dim()
    gate = Input(("bf16", "f16"), m, n)
    up = Input({"bf16": ("bf16",), "f16": ("f16",)}, m, n, follows=gate)
    y, scale = Output("e4m3", m, n), Output("f32", m)

    warps, vector, step = Param(1, 2, 4, 8), Param(1, 2, 4, 8), Param(1, 2, 4, 8)
    ld, st, st_scale = isa.LdGlobal(vector), isa.StGlobal(vector), isa.StGlobal(1)
    arithmetic, larger, exchange = isa.arithmetic("f32"), isa.Max("f32"), isa.Exchange()
    compute, exact = "f32", False
    whole = Require(n <= 32 * warps * vector * step, "a row fits into the tile of its CTA")

    def program(self, p: Tracer) -> None:
        shape = (1, 32 * self.warps * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=self.warps):
            gate, up = (p.load(self.ld, t.tile(i, 0, shape=shape), who) for t in (self.gate, self.up))
            y = silu(gate) * up
            most = maximum(p.reduce(self.larger, abs(y), axis=1, by=self.exchange), 1e-12)
            scale = most / 448.0
            p.store(self.st, self.y.tile(i, 0, shape=shape), y / scale)
            p.store(self.st_scale, self.scale.column(i, 1), scale)

    @staticmethod
    def reference(gate: Any, up: Any) -> Any:
        y = silu(gate) * up
        scale = np.maximum(np.abs(y).max(axis=1, keepdims=True), 1e-12) / 448
        return {"y": y / scale, "scale": scale[:, 0]}
