"""What goes on from step to step in time: selective scans, and convolutions behind a state."""

from typing import Any

import numpy as np

from tinygpu.language import Combine, Dim, Input, Machine, Output, Param, Tracer, blocked, exp, silu, uniform
from tinygpu.ptx import isa


class SelectiveScan(Machine):
    """h[t] = exp(delta[t] a) h[t - 1] + delta[t] b[t] x[t], y[t] = sum over the state of c[t] h[t]"""

    z, t, d = Dim(), Dim(), Dim()
    x = Input(("f32", "bf16"), z, t, d)
    delta = Input("f32", z, t, d, values=uniform(0, 1))
    a = Input("f32", d, 16, values=uniform(-2, 0))
    b, c = Input("f32", z, t, 16), Input("f32", z, t, 16)
    y = Output({"f32": ("f32",), "bf16": ("bf16",)}, z, t, d, follows=x)

    warps, steps, channels = Param(1, 2, 4), Param(8, 16, 32), Param(4, 8, 16)
    vector = Param(1, 2, 4)
    ld, single, st = isa.LdGlobal(vector), isa.LdGlobal(1), isa.StGlobal(1)
    exchange = isa.Exchange("shuffles", "pairs")
    arithmetic, add, compute, exact = isa.arithmetic("f32"), isa.Add("f32"), "f32", False

    def merge(self, p: Tracer, left: Any, right: Any) -> Any:
        (a, x), (b, y) = left, right
        return a * b, x * b + y

    def program(self, p: Tracer) -> None:
        steps, channels = self.steps, self.channels
        shape = (steps, channels, 16)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.z, 1), (self.d, channels)) as (z, d), p.role("all", warps=self.warps):
            a = p.load(self.ld, self.a.tile(d, 0, shape=(channels, 16)).unsqueeze(0), who.reduced(0))
            before = p.full(who.reduced(0), "f32", 1.0), p.full(who.reduced(0), "f32")
            with p.loop(self.t, step=steps) as t:
                x, delta = (
                    p.load(self.single, v.at(z).tile(t, d, shape=(steps, channels)).unsqueeze(2), who.reduced(2))
                    for v in (self.x, self.delta)
                )
                b, c = (
                    p.load(self.ld, v.at(z).tile(t, 0, shape=(steps, 16)).unsqueeze(1), who.reduced(1))
                    for v in (self.b, self.c)
                )
                _, h = p.scan(
                    Combine(self.merge), (exp(delta * a), delta * x * b), axis=0, by=self.exchange, carry=before
                )
                y = p.reduce(self.add, h * c, axis=2, by=self.exchange)
                p.store(self.st, self.y.at(z).tile(t, d, shape=(steps, channels)), y.squeeze(2))

    @staticmethod
    def reference(x: Any, delta: Any, a: Any, b: Any, c: Any) -> Any:
        keep = np.exp(delta[..., None] * a)
        new = (delta * x)[..., None] * b[:, :, None]
        h, y = new[:, 0], []
        for t in range(x.shape[1]):
            h = new[:, t] if t == 0 else keep[:, t] * h + new[:, t]
            y.append((h * c[:, t, None]).sum(axis=-1))
        return np.stack(y, axis=1)


class CausalConv(Machine):
    """y[b, t, d] = silu(bias[d] + sum of w[d, k] x[b, t - 3 + k, d]), behind three steps of a state"""

    b, t, d = Dim(), Dim(), Dim()
    x = Input(("bf16", "f16", "f32"), b, t, d)
    state = Input({k: (k,) for k in ("bf16", "f16", "f32")}, b, 3, d, follows=x)
    w, bias = Input("f32", d, 4), Input("f32", d)
    y = Output({k: (k,) for k in ("bf16", "f16", "f32")}, b, t, d, follows=x)

    warps, rows, vector = Param(1, 2, 4), Param(1, 2, 4, 8), Param(1, 2, 4, 8)
    ld, single, st = isa.LdGlobal(vector), isa.LdGlobal(1), isa.StGlobal(vector)
    arithmetic, compute, exact = isa.arithmetic("f32"), "f32", False

    def program(self, p: Tracer) -> None:
        shape = (self.warps * self.rows, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        grid = p.grid((self.b, 1), (self.t, shape[0]), (self.d, shape[1]))
        with grid as (z, t, d), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            total += p.load(self.single, self.bias.row(d, shape[1]), who.along(1))
            for k in range(4):
                w = p.load(self.single, self.w.tile(d, k, shape=(shape[1], 1)).T, who.along(1))
                x = p.load(self.ld, self.x.at(z).tile(t + (k - 3), d, shape=shape), who)
                x = x + p.load(self.ld, self.state.at(z).tile(t + k, d, shape=shape), who)  # the state has three rows
                total += w * x
            p.store(self.st, self.y.at(z).tile(t, d, shape=shape), silu(total))

    @staticmethod
    def reference(x: Any, state: Any, w: Any, bias: Any) -> Any:
        whole = np.concatenate([state, x], axis=1)
        t = x.shape[1]
        return silu(bias + sum(w[:, k] * whole[:, k : k + t] for k in range(4)))
