"""Rows of networks: activations, rotations, losses, masks, routers, states."""

import math
from typing import Any

import numpy as np

from tinygpu.language import (
    Combine,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Scalar,
    Tracer,
    blocked,
    equal,
    exp,
    gelu,
    integers,
    log,
    maximum,
    minimum,
    normal,
    shifted,
    uniform,
    where,
)
from tinygpu.ptx import isa


class BiasGeluDropout(Machine):
    """y = gelu(x + b) * mask / 0.75, mask of bytes"""

    m, n = Dim(), Dim()
    x, b = Input(("f16", "bf16"), m, n), Input(("f16", "bf16"), n)
    mask = Input("u8", m, n, values=integers(0, 2))
    y = Output("f16", m, n)
    warps, vector = Param(1, 2, 4), Param(1, 2, 4, 8)
    ld, st = isa.LdGlobal(vector), isa.StGlobal(vector)
    arithmetic = isa.arithmetic("f32")
    compute, exact, approximation = "f32", False, 2.0**-10

    def program(self, p: Tracer) -> None:
        shape = (self.warps, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            b = p.load(self.ld, self.b.row(j, shape[1]), who.along(1))
            keep = p.load(self.ld, self.mask.tile(i, j, shape=shape), who)
            p.store(self.st, self.y.tile(i, j, shape=shape), where(p.cast(keep, "f32") > 0.0, gelu(x + b) / 0.75, 0.0))

    @staticmethod
    def reference(x: Any, b: Any, mask: Any) -> Any:
        z = x + b
        return np.where(mask > 0, z * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))) / 0.75, 0)


class PartialRope(Machine):
    """y = x, whose first 2 half elements of each head are rotated: pairs are i and i + half"""

    m, h, t, half, rest = Dim(), Dim(), Dim(), Dim(), Dim()
    d = Dim(follows=lambda half, rest: 2 * half + rest)
    x = Input(("f16", "f32"), m, h, d)
    y = Output({"f16": ("f16",), "f32": ("f32",)}, m, h, d, follows=x)
    cos, sin = Input("f32", t, half), Input("f32", t, half)
    positions = Input("s32", m, values=integers(0, t))
    warps = Param(1, 2, 4)
    ld, st, single = isa.LdGlobal(1), isa.StGlobal(1), isa.LdGlobalReadOnly(1)
    arithmetic, whole, compute = isa.arithmetic("f32"), isa.arithmetic("s32"), "f32"
    exact = False

    def program(self, p: Tracer) -> None:
        shape = (1, self.warps, 32)
        who = blocked(shape, threads=32 * self.warps)
        with p.grid((self.m, 1), (self.h, self.warps), (self.d, 32)) as (i, j, k), p.role("all", warps=self.warps):
            at, column = self.positions[i], p.index(who.along(2), 2) + k
            x, above, below = (
                p.load(self.ld, self.x.tile(i, j, o, shape=shape), who) for o in (k, k + self.half, k - self.half)
            )
            c, s = (self.angles(p, t, at, k, column, who) for t in (self.cos, self.sin))
            turned = where(column < self.half, x * c - above * s, x * c + below * s)
            p.store(self.st, self.y.tile(i, j, k, shape=shape), where(column < 2 * self.half, turned, x))

    def angles(self, p: Tracer, t: Any, at: Any, k: Any, column: Any, who: Any) -> Any:
        first, second = (
            p.load(self.single, t.tile(at, o, shape=(1, 32)).unsqueeze(1), who.along(2)) for o in (k, k - self.half)
        )
        return where(column < self.half, first, second)

    @staticmethod
    def reference(x: Any, cos: Any, sin: Any, positions: Any, half: Any) -> Any:
        c, s = cos[positions][:, None], sin[positions][:, None]
        a, b = x[..., :half], x[..., half : 2 * half]
        return np.concatenate([a * c - b * s, b * c + a * s, x[..., 2 * half :]], axis=2)


class WeightedCrossEntropy(Machine):
    """loss[i] = weight[target] * (log sum exp x[i] - x[i, target]), 0 where the target is ignored (-1)"""

    m, n = Dim(), Dim()
    x = Input(("f32", "bf16"), m, n, values=shifted(normal(0, 4), by=50))
    target = Input("s32", m, values=integers(-1, n))
    weight = Input("f32", n, values=uniform(0.5, 2))
    loss = Output("f32", m)
    warps, vector = Param(1, 2, 4), Param(1, 2, 4)
    ld, single, st, exchange = isa.LdGlobal(vector), isa.LdGlobalReadOnly(1), isa.StGlobal(1), isa.Exchange()
    arithmetic, whole, larger, add = isa.arithmetic("f32"), isa.arithmetic("s32"), isa.Max("f32"), isa.Add("f32")
    compute, exact = "f32", False

    def program(self, p: Tracer) -> None:
        shape = (1, 32 * self.warps * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=self.warps):
            top, total = p.full(who, "f32", -1e30), p.full(who, "f32")
            picked = p.full(who, "f32")
            at = p.load(self.single, self.target.column(i, 1), who.reduced(1))
            with p.loop(self.n, step=shape[1]) as j:
                x = p.cast(p.load(self.ld, self.x.tile(i, j, shape=shape), who, fill=-math.inf), "f32")
                new = maximum(top, x)
                p.cast(total * exp(top - new) + exp(x - new), "f32", into=total)
                p.cast(new, "f32", into=top)
                picked += where(equal(p.index(who.along(1), 1) + j, at), x, 0.0)
            largest = p.reduce(self.larger, top, axis=1, by=self.exchange)
            total = p.reduce(self.add, total * exp(top - largest), axis=1, by=self.exchange)
            chosen = p.reduce(self.add, picked, axis=1, by=self.exchange)
            w = p.load(self.single, self.weight.rows(at).tile(0, shape=(1,)).unsqueeze(1), who.reduced(1))
            loss = where(at >= 0, w * (log(total) + largest - chosen), 0.0)
            p.store(self.st, self.loss.column(i, 1), loss)

    @staticmethod
    def reference(x: Any, target: Any, weight: Any) -> Any:
        top = x.max(axis=1)
        lse = np.log(np.exp(x - top[:, None]).sum(axis=1)) + top
        at = np.maximum(target, 0)
        return np.where(target >= 0, weight[at] * (lse - x[np.arange(len(x)), at]), 0.0)


class TrilNormalise(Machine):
    """y[b] = lower triangle of x[b], each row over the sum of its absolute values plus 1e-6"""

    b, n = Dim(), Dim()
    x, y = Input("f32", b, n, n), Output("f32", b, n, n)
    warps, vector = Param(1, 2, 4), Param(1, 2, 4)
    ld, st, exchange, add = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Exchange(), isa.Add("f32")
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")
    exact = False

    def program(self, p: Tracer) -> None:
        shape = (1, 1, 32 * self.warps * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.b, 1), (self.n, 1)) as (z, i), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(minimum(self.n, i + 1), step=shape[2]) as j:
                x = p.load(self.ld, self.x.tile(z, i, j, shape=shape), who)
                total += where(p.index(who, 2) + j <= i, abs(x), 0.0)
            norm = p.reduce(self.add, total, axis=2, by=self.exchange) + 1e-6
            with p.loop(self.n, step=shape[2]) as j:
                x = p.load(self.ld, self.x.tile(z, i, j, shape=shape), who)
                p.store(self.st, self.y.tile(z, i, j, shape=shape), where(p.index(who, 2) + j <= i, x / norm, 0.0))

    @staticmethod
    def reference(x: Any) -> Any:
        lower = np.tril(x)
        return np.where(np.tril(np.ones(x.shape)) > 0, lower / (np.abs(lower).sum(axis=2, keepdims=True) + 1e-6), 0)


class MoERouter(Machine):
    """the two largest of x[i] over e experts, first of equals first, and their softmax weights"""

    m, e = Dim(), Dim()
    x = Input(("f32", "bf16"), m, e, values=uniform(-8, 8))
    first, second = Output("s32", m), Output("s32", m)
    w1, w2 = Output("f32", m), Output("f32", m)
    warps, lanes = Param(1, 2, 4), Param(8, 32)
    ld, st, shuffle = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly()
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")
    compute, exact = "f32", False

    def better(self, p: Tracer, left: Any, right: Any) -> Any:
        (x, i), (y, j) = left, right
        return maximum(x, y), where(x > y, i, where(equal(x, y), minimum(i, j), j))

    def program(self, p: Tracer) -> None:
        rows = 32 * self.warps // self.lanes
        shape = (rows, self.lanes)
        who = blocked(shape, threads=32 * self.warps, across=self.lanes)
        with p.grid((self.m, rows)) as (i,), p.role("all", warps=self.warps):
            # of each lane its two largest
            a, b = p.full(who, "f32", -math.inf), p.full(who, "f32", -math.inf)
            at_a, at_b = p.full(who, "s32", 1 << 30), p.full(who, "s32", 1 << 30)
            with p.loop(self.e, step=self.lanes) as j:
                x = p.cast(p.load(self.ld, self.x.tile(i, j, shape=shape), who, fill=-math.inf), "f32")
                at = p.index(who, 1) + j
                top = x > a
                second, place = where(top, a, where(x > b, x, b)), where(top, at_a, where(x > b, at, at_b))
                p.where(top, x, a, into=a)
                p.where(top, at, at_a, into=at_a)
                p.cast(second, "f32", into=b)
                p.cast(place, "s32", into=at_b)
            best, where_best = p.reduce(Combine(self.better), (a, at_a), axis=1, by=self.shuffle)
            mine = equal(at_a, where_best)
            left, at_left = where(mine, b, a), where(mine, at_b, at_a)
            next, where_next = p.reduce(Combine(self.better), (left, at_left), axis=1, by=self.shuffle)
            w = exp(next - best)
            for out, value in (
                (self.first, where_best),
                (self.second, where_next),
                (self.w1, 1.0 / (1.0 + w)),
                (self.w2, w / (1.0 + w)),
            ):
                p.store(self.st, out.column(i, rows), value)

    @staticmethod
    def reference(x: Any) -> Any:
        order = np.argsort(-x, axis=1, kind="stable")[:, :2]
        if x.shape[1] == 1:
            order = np.concatenate([order, np.full((len(x), 1), 1 << 30)], axis=1)
        top = np.concatenate([x, np.full((len(x), 1), -np.inf)], axis=1)
        rows = np.arange(len(x))
        a, b = top[rows, order[:, 0]], top[rows, np.minimum(order[:, 1], x.shape[1])]
        w = np.exp(b - a)
        return {"first": order[:, 0], "second": order[:, 1], "w1": 1 / (1 + w), "w2": w / (1 + w)}


class LinearAttention(Machine):
    """o[h, t] = q[h, t] S[h, t], S[h, t] = decay S[h, t - 1] + k[h, t]^T v[h, t]: one CTA per head, 32 x 32 state"""

    h, t = Dim(), Dim()
    decay = Scalar("f32", values=uniform(0.5, 1))
    q, k, v, o = Input("f32", h, t, 32), Input("f32", h, t, 32), Input("f32", h, t, 32), Output("f32", h, t, 32)
    warps = Param(1, 2, 4)
    ld, st, exchange, add = isa.LdGlobalReadOnly(1), isa.StGlobal(1), isa.Exchange(), isa.Add("f32")
    arithmetic = isa.arithmetic("f32")
    exact = False

    def program(self, p: Tracer) -> None:
        who = blocked((32, 32), threads=32 * self.warps)
        with p.grid((self.h, 1)) as (h,), p.role("all", warps=self.warps):
            state = p.full(who, "f32")
            with p.loop(self.t) as t:
                q, k = (p.load(self.ld, x.at(h).tile(t, 0, shape=(1, 32)).T, who.along(0)) for x in (self.q, self.k))
                v = p.load(self.ld, self.v.at(h).tile(t, 0, shape=(1, 32)), who.along(1))
                p.cast(state * self.decay + k * v, "f32", into=state)
                p.store(
                    self.st,
                    self.o.at(h).tile(t, 0, shape=(1, 32)),
                    p.reduce(self.add, q * state, axis=0, by=self.exchange),
                )

    @staticmethod
    def reference(q: Any, k: Any, v: Any, decay: Any) -> Any:
        state, out = np.zeros((len(q), 32, 32)), []
        for t in range(q.shape[1]):
            state = decay * state + k[:, t, :, None] * v[:, t, None, :]
            out.append((q[:, t, :, None] * state).sum(axis=1))
        return np.stack(out, axis=1)


class ComplexMul(Machine):
    """y = a * conj(b) of complex numbers as (n, 2)"""

    n = Dim()
    a, b, y = Input("f32", n, 2), Input("f32", n, 2), Output("f32", n, 2)
    warps, rows = Param(1, 2, 4), Param(1, 2, 4)
    ld, st, arithmetic = isa.LdGlobal(2), isa.StGlobal(1), isa.arithmetic("f32")

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps * self.rows, 2)
        who = blocked(shape, threads=32 * self.warps, vector=2, across=1)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            a, b = (p.load(self.ld, t.tile(i, 0, shape=shape), who) for t in (self.a, self.b))
            (ar, ai), (br, bi) = ([t.window((0, e), (shape[0], 1)) for e in (0, 1)] for t in (a, b))
            for e, part in enumerate((ar * br + ai * bi, ai * br - ar * bi)):
                p.store(self.st, self.y.tile(i, e, shape=(shape[0], 1)), part)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return np.stack([a[:, 0] * b[:, 0] + a[:, 1] * b[:, 1], a[:, 1] * b[:, 0] - a[:, 0] * b[:, 1]], axis=1)
