"""Layer norm and RMS norm of rows, with a residual that is added first, and an affine map behind.

Mean and variance are found in two passes: numbers far from zero cancel less than in one. A row is read once where it
stays in the registers of those who share it, from one warp to the CTAs of a cluster. Where they cannot hold it, or
leave no room for a second CTA, every pass reads it again, while it is in L2. Searched are which way, who shares a row,
how much of it each has at a time, how many rows a CTA has, and how warps exchange their sums.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import Choice, Input, Option, Output, Param, Require, Scalar, Tracer, between, rsqrt
from tinygpu.machines.rows import ALIKE, KINDS, ClusterRows, Rows
from tinygpu.ptx import isa


class RmsNorm(ClusterRows):
    """y = x / sqrt(mean(x^2) + eps) * w, of x + r where there is a residual"""

    x, eps = Input(KINDS, Rows.m, Rows.n), Scalar("f32", values=between(1e-6, 1e-4))
    r, w = Input(ALIKE, Rows.m, Rows.n, follows=x), Input(ALIKE, Rows.n, follows=x)
    y, s = Output(ALIKE, Rows.m, Rows.n, follows=x), Output(ALIKE, Rows.m, Rows.n, follows=x)
    residual, affine = Option(False, True), Option(True, False)

    rows, reads = Param(1, 2), Choice("once", "again")
    arithmetic, places, plus = isa.arithmetic("f32", approximate=True), isa.arithmetic("s32"), isa.Add("f32")
    alone = Require(
        (ClusterRows.ctas == 1) | (rows == 1), "CTAs that share a row have one", kind="dominance",
        why="those that have rows of their own need not meet",
    )  # fmt: skip
    compute, exact, approximation = "f32", False, 2.0**-19
    centred, together = False, 4
    shift: Any = None

    @classmethod
    def uses_tensor(cls, name: str, options: dict[str, Any]) -> bool:
        needs = {"r": "residual", "s": "residual", "w": "affine", "shift": "affine"}
        return name not in needs or bool(options[needs[name]])

    @property
    def height(self) -> Any:
        return super().height * self.rows

    def program(self, p: Tracer) -> None:
        with self.row(p, held=self.reads == "once") as row:
            x = row.load(self.ld, self.x, to="f32")
            if self.residual:
                x = row.hold(x + row.load(self.ld, self.r))
                row.store(self.st, self.s, x)
            x = row.hold(x)
            if self.centred:
                x = row.hold(x - row.reduce(self.plus, x) / self.n)
            y = x * rsqrt(row.reduce(self.plus, x * x, inside=self.centred) / self.n + self.eps)
            if self.affine:
                y = y * row.load(self.ld, self.w)
            if self.affine and self.shift is not None:
                y = y + row.load(self.ld, self.shift)
            row.store(self.st, self.y, y)

    @staticmethod
    def reference(x: Any, eps: Any, residual: bool, affine: bool, r: Any = None, w: Any = 1) -> Any:
        s = x.astype(np.float32) + (r.astype(np.float32) if residual else 0)
        y = s / np.sqrt((s * s).sum(axis=1, keepdims=True) / s.shape[1] + eps) * w
        return {"y": y, "s": s} if residual else {"y": y}


class LayerNorm(RmsNorm):
    """y = (x - mean(x)) / sqrt(var(x) + eps) * w + shift, of x + r where there is a residual"""

    centred, shift = True, Input(ALIKE, Rows.n, follows=RmsNorm.x)

    @staticmethod
    def reference(x: Any, eps: Any, residual: bool, affine: bool, r: Any = None, w: Any = 1, shift: Any = 0) -> Any:
        s = x.astype(np.float32) + (r.astype(np.float32) if residual else 0)
        y = RmsNorm.reference(s - s.sum(axis=1, keepdims=True) / s.shape[1], eps, False, affine, w=w)["y"] + shift
        return {"y": y, "s": s} if residual else {"y": y}
