"""Gradients of rows: of softmax and its logarithm, of cross entropy, of RMS norm and layer norm.

What a row's gradient needs is a sum over the row or two, and then every element by itself. Rows stay in registers of
those who hold them, a few lanes or a whole CTA (up to 8192 elements), so that everything is read once and written once;
of softmax a cluster may hold a row, and rows that leave no room for a second CTA are read twice, while they are in L2.
Weights of a norm are shared by all rows: a CTA adds up its own rows in registers, and memory adds up the CTAs, in any
order, on top of what is there (gradients accumulate). Searched are who holds a row, how many rows a CTA takes (more of
them leave fewer sums to memory, and fill fewer SMs), and whether the next rows come to shared memory meanwhile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import (
    Choice,
    Dim,
    InOut,
    Input,
    Machine,
    Option,
    Output,
    Param,
    Require,
    Scalar,
    Tracer,
    between,
    blocked,
    equal,
    exp,
    integers,
    normal,
    rsqrt,
    uniform,
)
from tinygpu.ptx import isa

KINDS = ("f32", "f16", "bf16")
ALIKE: dict[str, tuple[str, ...]] = {kind: (kind,) for kind in KINDS}


class Rows(Machine):
    """What all have: those who hold a row, and instructions in f32"""

    m, n = Dim(), Dim()
    warps, across = Param(1, 2, 4, 8, 16), Param(4, 8, 16, 32, 64, 128, 256, 512)
    vector, step = Param(1, 2, 4, 8), Param(1, 2, 4, 8, 16)
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Exchange("shuffles", "pairs")
    arithmetic, places = isa.arithmetic("f32", approximate=True), isa.arithmetic("s32")
    plus = isa.Add("f32")
    lanes = Require(across <= 32 * warps, "the threads along a row are threads of the CTA")
    compute, exact, approximation = "f32", False, 2.0**-19

    def held(self) -> tuple[Any, Any]:
        shape = (32 * self.warps // self.across, self.across * self.vector * self.step)
        return shape, blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)

    def rows(self, p: Tracer, i: Any, shape: Any, who: Any, *tensors: Any) -> list[Any]:
        return [p.cast(p.load(self.ld, t.tile(i, 0, shape=shape), who), "f32") for t in tensors]

    def total(self, p: Tracer, x: Any) -> Any:
        return p.reduce(self.plus, x, axis=1, by=self.exchange)


class SoftmaxBackward(Rows):
    """dx of y = softmax(x) by rows, y (dy - sum(dy y)); of its logarithm, dy - exp(y) sum(dy)"""

    y = Input(KINDS, Rows.m, Rows.n)
    dy, dx = Input(ALIKE, Rows.m, Rows.n, follows=y), Output(ALIKE, Rows.m, Rows.n, follows=y)
    logarithm = Option(False, True)
    ctas = Param(1, 2, 4, 8)  # of a cluster, that share a row
    reads = Choice("once", "twice")
    fits: Any = Rows.n <= ctas * Rows.across * Rows.vector * Rows.step
    whole = Require(fits, "a row fits into a cluster's tiles", only=(reads, "once"))
    full = Require(
        (ctas == 1) | (Rows.across == 32 * Rows.warps), "only whole CTAs share a row", kind="dominance",
        why="CTAs that have rows of their own need not meet",
    )  # fmt: skip

    def program(self, p: Tracer) -> None:
        shape, who = self.held()
        across, beside = {"axis": 1, "by": self.exchange, "cluster": 1}, self.ctas * shape[1]
        cut = (self.n if self.reads == "once" else beside, shape[1])
        with p.grid((self.m, shape[0]), cut, cluster=(1, self.ctas)) as (i, first), p.role("all", warps=self.warps):
            if self.reads == "once":
                y, dy = (self.loaded(p, of, i, first) for of in (self.y, self.dy))
                total = p.reduce(self.plus, dy if self.logarithm else dy * y, **across)
                self.leave(p, i, first, y, dy, total)
                return
            sums = p.full(who, "f32")
            with p.loop(self.n, step=beside) as j:
                dy = self.loaded(p, self.dy, i, first + j)
                sums += dy if self.logarithm else dy * self.loaded(p, self.y, i, first + j)
            total = p.reduce(self.plus, sums, **across)
            with p.loop(self.n, step=beside) as j:
                y, dy = (self.loaded(p, of, i, first + j) for of in (self.y, self.dy))
                self.leave(p, i, first + j, y, dy, total)

    def loaded(self, p: Tracer, of: Any, i: Any, j: Any) -> Any:
        shape, who = self.held()
        return p.cast(p.load(self.ld, of.tile(i, j, shape=shape), who), "f32")

    def leave(self, p: Tracer, i: Any, j: Any, y: Any, dy: Any, total: Any) -> None:
        dx = dy - exp(y) * total if self.logarithm else y * (dy - total)
        p.store(self.st, self.dx.tile(i, j, shape=dx.shape), dx)

    @staticmethod
    def reference(y: Any, dy: Any, logarithm: bool) -> Any:
        y, dy = y.astype(np.float32), dy.astype(np.float32)
        if logarithm:
            return dy - np.exp(y) * dy.sum(axis=1, keepdims=True)
        return y * (dy - (dy * y).sum(axis=1, keepdims=True))


class CrossEntropyBackward(Rows):
    """dx = (softmax(x) - 1 at the target) * dloss, from the logits and the logarithm of their sum of exponentials"""

    x = Input(KINDS, Rows.m, Rows.n, values=normal(0, 4))
    target = Input("s32", Rows.m, values=integers(0, Rows.n))
    logsum, dloss = Input("f32", Rows.m, values=uniform(10, 20)), Input("f32", Rows.m)
    dx = Output(ALIKE, Rows.m, Rows.n, follows=x)
    ld_one = isa.LdGlobalReadOnly(1)

    def program(self, p: Tracer) -> None:
        shape, who = self.held()
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            ones = (self.target, self.logsum, self.dloss)
            target, logsum, dloss = (p.load(self.ld_one, t.column(i, shape[0]), who.along(0)) for t in ones)
            x = p.cast(p.load(self.ld, self.x.tile(i, j, shape=shape), who), "f32")
            right = p.where(equal(p.index(who.along(1), 1) + j, target), dloss, 0.0)
            p.store(self.st, self.dx.tile(i, j, shape=shape), exp(x - logsum) * dloss - right)

    @staticmethod
    def reference(x: Any, target: Any, logsum: Any, dloss: Any) -> Any:
        right = np.where(np.arange(x.shape[1]) == target[:, None], dloss[:, None], 0.0)
        return np.exp(x.astype(np.float32) - logsum[:, None]) * dloss[:, None] - right


class NormBackward(Rows):
    """dx of a norm's rows; dw, and dshift where there is one, have theirs added"""

    x = Input(KINDS, Rows.m, Rows.n)
    dy, w = Input(ALIKE, Rows.m, Rows.n, follows=x), Input(ALIKE, Rows.n, follows=x)
    dx, dw = Output(ALIKE, Rows.m, Rows.n, follows=x), InOut("f32", Rows.n)
    eps = Scalar("f32", values=between(1e-6, 1e-4))
    rounds, add, centred = Param(1, 4, 8, 16, 32, 64), isa.RedGlobal("add"), False
    ahead, stages = Choice("no rows", "rows in shared memory"), Param(2, 3, 4)
    copy, ld_row = isa.CpAsync(Rows.vector), isa.LdShared(Rows.vector)
    dshift: Any
    whole = Require(Rows.n <= Rows.across * Rows.vector * Rows.step, "a row fits into one tile")

    def gradients(self, p: Tracer) -> None:
        shape, who = self.held()
        rows, kinds = shape[0] * self.rounds, {"x": self.x.dtype, "dy": self.dy.dtype}
        if self.ahead == "no rows":
            with p.grid((self.m, rows)) as (i,), p.role("all", warps=self.warps):
                w, sums = self.weights(p), self.sums(p, who)
                with p.loop(rows, step=shape[0]) as r:
                    self.row(p, i + r, self.rows(p, i + r, shape, who, self.x, self.dy), w, sums)
                self.left(p, sums)
            return
        ring = p.pipeline("ring", self.stages, **{name: p.smem(kind, shape) for name, kind in kinds.items()})
        with p.grid((self.m, rows)) as (i,), ring as ahead, p.role("all", warps=self.warps):
            with p.loop(rows, step=shape[0]) as r, ahead.produce() as s:
                p.copy(self.copy, self.x.tile(i + r, 0, shape=shape), s.x, who)
                p.copy(self.copy, self.dy.tile(i + r, 0, shape=shape), s.dy, who)
            w, sums = self.weights(p), self.sums(p, who)
            with p.loop(rows, step=shape[0]) as r, ahead.consume() as s:
                self.row(p, i + r, [p.cast(p.load(self.ld_row, t, who), "f32") for t in (s.x, s.dy)], w, sums)
            self.left(p, sums)

    def weights(self, p: Tracer) -> Any:
        """Those of the threads' columns, which all rows of the CTA share."""
        shape, who = self.held()
        return p.load(self.ld, self.w.row(0, shape[1]), who.along(1))

    def sums(self, p: Tracer, who: Any) -> list[Any]:
        """What the CTA adds up of dw, and of dshift."""
        return [p.full(who, "f32") for _ in range(2 if self.centred else 1)]

    def row(self, p: Tracer, at: Any, held: list[Any], w: Any, sums: list[Any]) -> None:
        """dx of the rows at a place."""
        (shape, who), (x, dy) = self.held(), held
        if self.centred:
            x = x - self.total(p, x) / self.n
            x = p.where(p.index(who.along(1), 1) < self.n, x, 0.0)  # nothing lies beyond the row
        scale = rsqrt(self.total(p, x * x) / self.n + self.eps)
        x = x * scale
        for mine, more in zip(sums, (dy * x, dy), strict=False):
            p.apply(self.plus, mine, more, into=mine)
        g = dy * w
        rest = g - x * (self.total(p, g * x) / self.n)
        if self.centred:
            rest = rest - self.total(p, g) / self.n
        p.store(self.st, self.dx.tile(at, 0, shape=shape), rest * scale)

    def left(self, p: Tracer, sums: list[Any]) -> None:
        """Memory adds up what CTAs have."""
        shape, _ = self.held()
        for tensor, each in zip((self.dw, self.dshift) if self.centred else (self.dw,), sums, strict=True):
            total = p.reduce(self.plus, each, axis=0, by=self.exchange)
            p.store(self.add, tensor.row(0, shape[1]), total)

    @classmethod
    def of_rows(cls, x: Any, dy: Any, w: Any, eps: Any) -> tuple[Any, Any]:
        """dx, and what dw has of it."""
        x, dy, n = x.astype(np.float32), dy.astype(np.float32), x.shape[1]
        x = x - x.sum(axis=1, keepdims=True) / n if cls.centred else x
        scale = 1 / np.sqrt((x * x).sum(axis=1, keepdims=True) / n + eps)
        x, g = x * scale, dy * w
        rest = g - x * ((g * x).sum(axis=1, keepdims=True) / n)
        rest = rest - g.sum(axis=1, keepdims=True) / n if cls.centred else rest
        return rest * scale, (dy * x).sum(axis=0)


class RmsNormBackward(NormBackward):
    """dx of y = x / sqrt(mean(x^2) + eps) * w, and dw is added to"""

    def program(self, p: Tracer) -> None:
        self.gradients(p)

    @staticmethod
    def reference(x: Any, dy: Any, w: Any, eps: Any, dw: Any) -> Any:
        dx, more = RmsNormBackward.of_rows(x, dy, w, eps)
        return {"dx": dx, "dw": dw + more}


class LayerNormBackward(NormBackward):
    """dx of y = (x - mean(x)) / sqrt(var(x) + eps) * w + shift, and dw and dshift are added to"""

    dshift, centred = InOut("f32", Rows.n), True

    def program(self, p: Tracer) -> None:
        self.gradients(p)

    @staticmethod
    def reference(x: Any, dy: Any, w: Any, eps: Any, dw: Any, dshift: Any) -> Any:
        dx, more = LayerNormBackward.of_rows(x, dy, w, eps)
        return {"dx": dx, "dw": dw + more, "dshift": dshift + dy.astype(np.float32).sum(axis=0)}
