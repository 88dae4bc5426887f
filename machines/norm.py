"""Layer norm and RMS norm of rows, with a residual that is added first, and an affine map behind.

A row stays in the registers of those who hold it, from one warp to the CTAs of a cluster: it is read once, its mean and
variance are found in two passes over registers (numbers far from zero cancel less than in one), and it is written once.
Rows that registers cannot hold, or that leave no room for a second CTA, are read again for each pass, while they are in
L2. Searched are who holds a row, how much of it at a time, how many rows a CTA has, and how warps exchange their sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import (
    Choice,
    Dim,
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
    minimum,
    rsqrt,
)
from tinygpu.ptx import isa

KINDS = ("f32", "f16", "bf16")
ALIKE: dict[str, tuple[str, ...]] = {kind: (kind,) for kind in KINDS}


class Norm(Machine):
    """What both have: y = (x + r - mean) / deviation * w + shift, and s = x + r where there is a residual r"""

    m, n = Dim(), Dim()
    x = Input(KINDS, m, n)
    r, w, shift = Input(ALIKE, m, n, follows=x), Input(ALIKE, n, follows=x), Input(ALIKE, n, follows=x)
    y, s = Output(ALIKE, m, n, follows=x), Output(ALIKE, m, n, follows=x)
    eps = Scalar("f32", values=between(1e-6, 1e-4))
    residual, affine = Option(False, True), Option(True, False)

    warps, across = Param(1, 2, 4, 8, 16), Param(4, 8, 16, 32, 64, 128, 256, 512)
    vector, step, rows = Param(1, 2, 4, 8), Param(1, 2, 4, 8, 16), Param(1, 2)
    ctas = Param(1, 2, 4, 8)  # of a cluster, that share a row
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Exchange("shuffles", "pairs")
    arithmetic, places = isa.arithmetic("f32", approximate=True), isa.arithmetic("s32")
    plus = isa.Add("f32")
    reads = Choice("once", "again")

    lanes = Require(across <= 32 * warps, "the threads along a row are threads of the CTA")
    whole = Require(n <= ctas * across * vector * step, "a row fits into the tiles of a cluster", only=(reads, "once"))
    full = Require(
        (ctas == 1) | ((across == 32 * warps) & (rows == 1)), "only whole CTAs share a row", kind="dominance",
        why="CTAs that have rows of their own need not meet",
    )  # fmt: skip
    compute, exact, approximation = "f32", False, 2.0**-19
    centred = False

    @classmethod
    def uses_tensor(cls, name: str, options: dict[str, Any]) -> bool:
        has = {"r": options["residual"], "s": options["residual"], "w": options["affine"]}
        return bool(has.get(name, name != "shift" or (options["affine"] and cls.centred)))

    def row(self, p: Tracer, i: Any, j: Any, who: Any) -> Any:
        """A tile of rows, the residual added."""
        x = p.cast(p.load(self.ld, self.x.tile(i, j, shape=who.shape), who), "f32")
        return x + p.load(self.ld, self.r.tile(i, j, shape=who.shape), who) if self.residual else x

    def keep(self, p: Tracer, i: Any, j: Any, x: Any) -> None:
        if self.residual:
            p.store(self.st, self.s.tile(i, j, shape=x.shape), x)

    def around(self, p: Tracer, x: Any, mean: Any, j: Any) -> Any:
        """x beside its mean; nothing lies beyond the row."""
        return p.where(p.index(x.partition.along(1), 1) + j < self.n, x - mean, 0.0)

    def leave(self, p: Tracer, i: Any, j: Any, y: Any) -> None:
        if self.affine:
            y = y * p.load(self.ld, self.w.row(j, y.shape[1]), y.partition.along(1))
        if self.affine and self.centred:
            y = y + p.load(self.ld, self.shift.row(j, y.shape[1]), y.partition.along(1))
        p.store(self.st, self.y.tile(i, j, shape=y.shape), y)

    def mean(self, p: Tracer, x: Any) -> Any:
        return p.reduce(self.plus, x, axis=1, by=self.exchange, cluster=1) / self.n

    def normalise(self, p: Tracer) -> None:
        shape = (32 * self.warps // self.across * self.rows, self.across * self.vector * self.step)
        part = (shape[0], self.across * self.vector * minimum(self.step, 4))  # takes few registers beside the row's
        who, of_part = (
            blocked(s, threads=32 * self.warps, vector=self.vector, across=self.across) for s in (shape, part)
        )
        cut = (self.n, shape[1]) if self.reads == "once" else (self.ctas * shape[1], shape[1])
        with p.grid((self.m, shape[0]), cut, cluster=(1, self.ctas)) as (i, first), p.role("all", warps=self.warps):
            if self.reads == "once":
                x = self.row(p, i, first, who)
                self.keep(p, i, first, x)
                x = self.around(p, x, self.mean(p, x), first) if self.centred else x
                squares = p.full(of_part, "f32")
                with p.unroll(shape[1], step=part[1]) as c:
                    piece = x.window((0, c), part)
                    squares += piece * piece
                scale = rsqrt(self.mean(p, squares) + self.eps)
                with p.unroll(shape[1], step=part[1]) as c:
                    self.leave(p, i, first + c, x.window((0, c), part) * scale)
                return
            mean: Any = 0.0
            if self.centred:
                total = p.full(who, "f32")
                with p.loop(self.n, step=self.ctas * shape[1]) as j:
                    total += self.row(p, i, first + j, who)
                mean = self.mean(p, total)
            squares = p.full(who, "f32")
            with p.loop(self.n, step=self.ctas * shape[1]) as j:
                x = self.row(p, i, first + j, who)
                self.keep(p, i, first + j, x)
                x = self.around(p, x, mean, first + j) if self.centred else x
                squares += x * x
            scale = rsqrt(self.mean(p, squares) + self.eps)
            with p.loop(self.n, step=self.ctas * shape[1]) as j:
                x = self.row(p, i, first + j, who)
                self.leave(p, i, first + j, (x - mean if self.centred else x) * scale)

    @classmethod
    def normal(cls, x: Any, eps: Any, r: Any, w: Any, shift: Any) -> Any:
        s = x.astype(np.float32) if r is None else x.astype(np.float32) + r.astype(np.float32)
        y = s - s.sum(axis=1, keepdims=True) / s.shape[1] if cls.centred else s
        y = y / np.sqrt((y * y).sum(axis=1, keepdims=True) / y.shape[1] + eps)
        y = y if w is None else y * w
        y = y if shift is None else y + shift
        return {"y": y} if r is None else {"y": y, "s": s}


class RmsNorm(Norm):
    """y = x / sqrt(mean(x^2) + eps) * w, of x + r where there is a residual"""

    def program(self, p: Tracer) -> None:
        self.normalise(p)

    @staticmethod
    def reference(
        x: Any, eps: Any, residual: bool, affine: bool, r: Any = None, w: Any = None, shift: Any = None
    ) -> Any:
        return RmsNorm.normal(x, eps, r, w, shift)


class LayerNorm(Norm):
    """y = (x - mean(x)) / sqrt(var(x) + eps) * w + shift, of x + r where there is a residual"""

    centred = True

    def program(self, p: Tracer) -> None:
        self.normalise(p)

    @staticmethod
    def reference(
        x: Any, eps: Any, residual: bool, affine: bool, r: Any = None, w: Any = None, shift: Any = None
    ) -> Any:
        return LayerNorm.normal(x, eps, r, w, shift)
