"""Gradients of rows: of softmax and its logarithm, of cross entropy, of RMS norm and layer norm.

What a row's gradient needs is a sum over the row or two, and then every element by itself. Rows stay in registers of
those who share them, from a few lanes to a cluster, so that everything is read once and written once; of softmax rows
that leave no room for a second CTA may be read twice, while they are in L2.
Weights of a norm are shared by all rows: a CTA adds up its own rows in registers, and memory adds up the CTAs, in any
order, on top of what is there (gradients accumulate). Searched are who holds a row, how many rows a CTA takes (more of
them leave fewer sums to memory, and fill fewer SMs), and whether the next rows come to shared memory meanwhile.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import (
    Ahead,
    Choice,
    InOut,
    Input,
    Option,
    Output,
    Param,
    Require,
    Scalar,
    Tracer,
    between,
    equal,
    exp,
    integers,
    normal,
    rsqrt,
    uniform,
    where,
)
from tinygpu.machines.rows import ALIKE, KINDS, ClusterRows, Rows
from tinygpu.ptx import isa


class SoftmaxBackward(ClusterRows):
    """dx of y = softmax(x) by rows, y (dy - sum(dy y)); of its logarithm, dy - exp(y) sum(dy)"""

    y = Input(KINDS, Rows.m, Rows.n)
    dy, dx = Input(ALIKE, Rows.m, Rows.n, follows=y), Output(ALIKE, Rows.m, Rows.n, follows=y)
    logarithm, reads = Option(False, True), Choice("once", "twice")
    arithmetic, plus = isa.arithmetic("f32", approximate=True), isa.Add("f32")
    compute, exact, approximation = "f32", False, 2.0**-19

    def program(self, p: Tracer) -> None:
        with self.row(p, held=self.reads == "once") as row:
            y, dy = (row.hold(row.load(self.ld, of, to="f32")) for of in (self.y, self.dy))
            total = row.reduce(self.plus, dy if self.logarithm else dy * y)
            row.store(self.st, self.dx, dy - exp(y) * total if self.logarithm else y * (dy - total))

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
    ld_one, arithmetic = isa.LdGlobalReadOnly(1), isa.arithmetic("f32", approximate=True)
    places = isa.arithmetic("s32")
    compute, exact, approximation = "f32", False, 2.0**-19

    def program(self, p: Tracer) -> None:
        who = self.tile(self.step)
        grid = p.grid((self.m, self.height), (self.n, who.shape[1]))
        with grid as at, p.role("all", warps=self.warps):
            ones = (self.target, self.logsum, self.dloss)
            target, logsum, dloss = (p.load(self.ld_one, t.column(at[0], self.height), who.along(0)) for t in ones)
            x = p.cast(p.load(self.ld, self.x.tile(*at, shape=who.shape), who), "f32")
            right = where(equal(p.index(who.along(1), 1) + at[1], target), dloss, 0.0)
            p.store(self.st, self.dx.tile(*at, shape=who.shape), exp(x - logsum) * dloss - right)

    @staticmethod
    def reference(x: Any, target: Any, logsum: Any, dloss: Any) -> Any:
        right = np.where(np.arange(x.shape[1]) == target[:, None], dloss[:, None], 0.0)
        return np.exp(x.astype(np.float32) - logsum[:, None]) * dloss[:, None] - right


class NormBackward(ClusterRows):
    """dx of a norm's rows; dw, and dshift where there is one, have theirs added"""

    x, eps = Input(KINDS, Rows.m, Rows.n), Scalar("f32", values=between(1e-6, 1e-4))
    dy, w = Input(ALIKE, Rows.m, Rows.n, follows=x), Input(ALIKE, Rows.n, follows=x)
    dx, dw = Output(ALIKE, Rows.m, Rows.n, follows=x), InOut("f32", Rows.n)

    # rows of a CTA, one after another: each a fifth more than the one before, so that some fill SMs of any number
    rounds = Param(1, 2, 3, 4, 6, 8, 10, 13, 16, 19, 23, 27, 32, 38, 45, 54, 64, 76, 91, 108, 128)
    ahead, stages = Choice("no rows", "rows in shared memory"), Param(2, 3, 4)
    copy, ld_row, add = isa.CpAsync(Rows.vector), isa.LdShared(Rows.vector), isa.RedGlobal("add")
    arithmetic, places, plus = isa.arithmetic("f32", approximate=True), isa.arithmetic("s32"), isa.Add("f32")
    whole = Require(Rows.n <= ClusterRows.most, "a row fits into the tiles of a cluster")
    compute, exact, approximation = "f32", False, 2.0**-19
    centred = False
    dshift: Any = None

    def gradients(self, p: Tracer) -> None:
        who, rows = self.tile(self.step), self.height * self.rounds
        by = self.ld if self.ahead == "no rows" else Ahead(self.stages, self.copy, self.ld_row)
        grid = p.grid((self.m, rows), (self.ctas * who.shape[1], who.shape[1]), cluster=(1, self.ctas))
        with grid as (i, j), p.role("all", warps=self.warps):
            w = p.load(self.ld, self.w.row(j, who.shape[1]), who.along(1))
            sums = {tensor: p.full(who, "f32") for tensor in (self.dw, self.dshift) if tensor is not None}
            with p.passes(rows, who, at=(i, j), axis=0) as all_rows:
                x, dy = (all_rows.load(by, of, to="f32") for of in (self.x, self.dy))
                with all_rows.tiles(x, dy) as (at, x, dy):
                    if self.centred:
                        there = p.index(who.along(1), 1) + j < self.n  # nothing lies beyond the row
                        x = where(there, x - self.mean(p, x), 0.0)
                    scale = rsqrt(self.mean(p, x * x) + self.eps)
                    x = x * scale
                    for tensor, total in sums.items():
                        total += dy * x if tensor is self.dw else dy
                    g = dy * w
                    rest = g - x * self.mean(p, g * x)
                    if self.centred:
                        rest = rest - self.mean(p, g)
                    p.store(self.st, self.dx.tile(*at, shape=who.shape), rest * scale)
            for tensor, total in sums.items():  # memory adds up what CTAs have
                p.store(self.add, tensor.row(j, who.shape[1]), p.reduce(self.plus, total, axis=0, by=self.exchange))

    def mean(self, p: Tracer, x: Any) -> Any:
        return p.reduce(self.plus, x, axis=1, by=self.exchange, cluster=1) / self.n

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
