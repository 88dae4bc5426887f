"""Softmax of rows: they stay in registers, of one warp or of many, of one CTA or of a cluster, or are read three times.

A row is passed over for its largest element, for the sum of exponentials, and for the result. Lanes that share it meet
by shuffles, warps of the CTA through a little shared memory, and CTAs of a cluster through each other's. Searched are
who holds a row (few long ones want many SMs each), how much of it at a time, and whether registers hold it or every
pass reads it again: what was read last is still in L2.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygpu.language import Choice, Input, Option, Output, Tracer, exp, log
from tinygpu.machines.rows import ALIKE, KINDS, ClusterRows
from tinygpu.ptx import isa


class Softmax(ClusterRows):
    """y = softmax of each row of x, or its logarithm"""

    x = Input(KINDS, ClusterRows.m, ClusterRows.n)
    y = Output(ALIKE, ClusterRows.m, ClusterRows.n, follows=x)
    logarithm = Option(False, True)

    reads = Choice("once", "three times")
    arithmetic, larger, plus = isa.arithmetic("f32", approximate=True), isa.Max("f32"), isa.Add("f32")
    compute, exact, approximation = "f32", False, 2.0**-19

    def program(self, p: Tracer) -> None:
        with self.row(p, held=self.reads == "once") as row:
            x = row.hold(row.load(self.ld, self.x, fill=-math.inf, to="f32"))
            top = row.reduce(self.larger, x)
            e = row.hold(exp(x - top))
            total = row.reduce(self.plus, e)
            row.store(self.st, self.y, x - (top + log(total)) if self.logarithm else e / total)

    @staticmethod
    def reference(x: Any, logarithm: bool) -> Any:
        x = x.astype(np.float32)
        shifted = x - x.max(axis=1, keepdims=True)
        e = np.exp(shifted)
        return shifted - np.log(e.sum(axis=1, keepdims=True)) if logarithm else e / e.sum(axis=1, keepdims=True)
