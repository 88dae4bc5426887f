"""Images and parameters of their channels: group norm over two axes of a tensor of four."""

from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Output, Param, Scalar, between, blocked, rsqrt
from tinygpu.ptx import isa


class GroupNorm(Machine):
    """y = (x - mean) / sqrt(var + eps) * w + b, of groups of k channels of s pixels; w and b are of channels"""

    n, g, k, s = Dim(), Dim(), Dim(), Dim()
    eps = Scalar("f32", values=between(1e-6, 1e-4))
    x = Input(("f32", "f16"), n, g, k, s)
    w, b = Input("f32", g, k), Input("f32", g, k)
    y = Output({"f32": ("f32",), "f16": ("f16",)}, n, g, k, s, follows=x)

    warps, vector, step, rows = Param(1, 2, 4, 8), Param(1, 2, 4, 8), Param(1, 2, 4), Param(1, 2, 4)
    ld, single, st = isa.LdGlobal(vector), isa.LdGlobal(1), isa.StGlobal(vector)
    add, exchange, arithmetic = isa.Add("f32"), isa.Exchange(), isa.arithmetic("f32")
    compute, exact = "f32", False

    def program(self, p: Any) -> None:
        shape = (1, 1, self.rows, 32 * self.warps * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        channels = who.reduced(3).squeeze(3).squeeze(0).squeeze(0)
        around = (self.k, self.rows), (self.s, shape[3])
        with p.grid((self.n, 1), (self.g, 1)) as (z, g), p.role("all", warps=self.warps):
            total, squares = p.full(who, "f32"), p.full(who, "f32")
            with p.loops(*around) as (c, j):
                x = p.cast(p.load(self.ld, self.x.tile(z, g, c, j, shape=shape), who), "f32")
                total += x
                squares += x * x
            mean, square = (self.all(p, t) / (self.k * self.s) for t in (total, squares))
            scale = rsqrt(square - mean * mean + self.eps)
            with p.loops(*around) as (c, j):
                x = p.load(self.ld, self.x.tile(z, g, c, j, shape=shape), who)
                w, b = (p.load(self.single, t.at(g).tile(c, shape=(self.rows,)), channels) for t in (self.w, self.b))
                w, b = (t.unsqueeze(1).unsqueeze(0).unsqueeze(0) for t in (w, b))
                p.store(self.st, self.y.tile(z, g, c, j, shape=shape), (x - mean) * scale * w + b)

    def all(self, p: Any, tile: Any) -> Any:
        rows = p.reduce(self.add, tile, axis=2, by=self.exchange)
        return p.reduce(self.add, rows, axis=3, by=self.exchange)

    @staticmethod
    def reference(eps: Any, x: Any, w: Any, b: Any) -> Any:
        mean = x.mean(axis=(2, 3), keepdims=True)
        var = ((x - mean) ** 2).mean(axis=(2, 3), keepdims=True)
        return (x - mean) / np.sqrt(var + eps) * w[None, :, :, None] + b[None, :, :, None]
