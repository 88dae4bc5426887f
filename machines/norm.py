"""Layer norm and RMS norm of rows, with a residual that is added first, and an affine map behind.

A row stays in the registers of those who hold it, from one warp to the CTAs of a cluster: it is read once, its mean and
variance are found in two passes over registers (numbers far from zero cancel less than in one), and it is written once.
Searched are who holds a row, how many rows a CTA has, and how warps exchange their sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import (
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

    lanes = Require(across <= 32 * warps, "the threads along a row are threads of the CTA")
    whole = Require(n <= ctas * across * vector * step, "a row fits into the tiles of a cluster")
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

    def normalise(self, p: Tracer) -> None:
        shape = (32 * self.warps // self.across * self.rows, self.across * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        grid = p.grid((self.m, shape[0]), (self.n, shape[1]), cluster=(1, self.ctas))
        across = {"axis": 1, "by": self.exchange, "cluster": 1}
        with grid as (i, j), p.role("all", warps=self.warps):
            x = p.cast(p.load(self.ld, self.x.tile(i, j, shape=shape), who), "f32")
            if self.residual:
                x = x + p.load(self.ld, self.r.tile(i, j, shape=shape), who)
                p.store(self.st, self.s.tile(i, j, shape=shape), x)
            if self.centred:
                x = x - p.reduce(self.plus, x, **across) / self.n
                x = p.where(p.index(who.along(1), 1) + j < self.n, x, 0.0)  # nothing lies beyond the row
            square = p.reduce(self.plus, x * x, **across) / self.n
            y = x * rsqrt(square + self.eps)
            if self.affine:
                y = y * p.load(self.ld, self.w.row(j, shape[1]), who.along(1))
            if self.affine and self.centred:
                y = y + p.load(self.ld, self.shift.row(j, shape[1]), who.along(1))
            p.store(self.st, self.y.tile(i, j, shape=shape), y)

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
