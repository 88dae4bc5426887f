"""Cross entropy: the loss of each row of logits against the class that is right, with the log-softmax behind it.

loss = log(sum(exp(x))) - x[target]; the first of the two is left for the gradient. The logits of the vocabulary are
read once: for the neighbours of one load a thread keeps the largest element that it saw and the sum of what the others
are beside it, and rescales the sum once for all of them; threads put theirs together as pairs. The logit of the target
is found by its position as it passes. A row that registers hold is read whole, and its largest comes first. Searched
are which way, who holds a row, from a few lanes to a CTA, how much of it at a time, and how warps meet.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tinygpu.language import (
    Choice,
    Combine,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Require,
    Tracer,
    blocked,
    equal,
    exp,
    integers,
    log,
    maximum,
    minimum,
    normal,
    shifted,
)
from tinygpu.ptx import isa

LOWEST = -3.0e38  # below every logit; of two infinities there is no difference


class CrossEntropy(Machine):
    """loss[i] = logsum[i] - x[i, target[i]], and logsum[i] = log(sum(exp(x[i])))"""

    m, n = Dim(), Dim()
    x = Input(("f32", "f16", "bf16"), m, n, values=shifted(normal(0, 4), by=100))
    target = Input("s32", m, values=integers(0, n))
    loss, logsum = Output("f32", m), Output("f32", m)

    warps, across = Param(1, 2, 4, 8, 16), Param(8, 16, 32, 64, 128, 256, 512)
    vector, step = Param(1, 2, 4, 8), Param(1, 2, 4, 8, 16)
    reads = Choice("the row", "in rounds")  # of a row in registers the largest comes first, all of it under way
    ld, st, ld_target = isa.LdGlobal(vector), isa.StGlobal(1), isa.LdGlobalReadOnly(1)
    exchange, arithmetic = isa.Exchange("shuffles", "pairs"), isa.arithmetic("f32", approximate=True)
    places, plus = isa.arithmetic("s32"), isa.Add("f32")
    larger: Any = isa.Max("f32")

    lanes = Require(across <= 32 * warps, "the threads along a row are threads of the CTA")
    ctas = Param(1, 2, 4, 8)  # of a cluster, that share a row
    whole = Require(n <= ctas * across * vector * step, "a row fits into a cluster's tiles", only=(reads, "the row"))
    full = Require(
        (ctas == 1) | (across == 32 * warps), "only whole CTAs share a row", kind="dominance",
        why="CTAs that have rows of their own need not meet",
    )  # fmt: skip
    compute, exact, approximation = "f32", False, 2.0**-17

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps // self.across, self.across * self.vector * self.step)
        apart = (shape[1] // self.vector, self.vector)  # neighbours of one load: they share a largest and a sum
        part = (shape[0], self.across * self.vector * minimum(self.step, 2))  # takes few registers beside the row's
        who, of_part = (
            blocked(s, threads=32 * self.warps, vector=self.vector, across=self.across) for s in (shape, part)
        )
        across, cut = {"axis": 1, "by": self.exchange, "cluster": 1}, (self.ctas * shape[1], shape[1])
        with p.grid((self.m, shape[0]), cut, cluster=(1, self.ctas)) as (i, first), p.role("all", warps=self.warps):
            if self.reads == "the row":
                target = p.load(self.ld_target, self.target.column(i, shape[0]), of_part.along(0))
                x = p.cast(p.load(self.ld, self.x.tile(i, first, shape=shape), who, fill=-math.inf), "f32")
                tops, right = p.full(of_part, "f32", -math.inf), p.full(of_part, "f32")
                with p.unroll(shape[1], step=part[1]) as c:
                    piece, place = x.window((0, c), part), p.index(of_part.along(1), 1) + (first + c)
                    p.apply(self.larger, tops, piece, into=tops)
                    right += p.where(equal(place, target), piece, 0.0)
                found = p.reduce(self.plus, right, **across)
                most, sums = p.reduce(self.larger, tops, **across), p.full(of_part, "f32")
                with p.unroll(shape[1], step=part[1]) as c:
                    sums += exp(x.window((0, c), part) - most)
                total = p.reduce(self.plus, sums, **across)
                self.left(p, (i, first), shape[0], most, log(total), found)
                return
            target = p.load(self.ld_target, self.target.column(i, shape[0]), who.along(0))
            right = p.full(who, "f32")
            shared: Any = right.split(1, apart).partition
            top, total = p.full(shared.reduced(2), "f32", LOWEST), p.full(shared.reduced(2), "f32")
            with p.loop(self.n, step=cut[0]) as j:
                x = p.cast(p.load(self.ld, self.x.tile(i, first + j, shape=shape), who, fill=-math.inf), "f32")
                here = p.where(equal(p.index(who.along(1), 1) + (first + j), target), x, 0.0)
                p.apply(self.plus, right, here, into=right)
                x = x.split(1, apart)
                largest = p.reduce(self.larger, x, axis=2)
                new = maximum(top, largest)
                p.apply(self.plus, total * exp(top - new), p.reduce(self.plus, exp(x - new), axis=2), into=total)
                p.apply(self.larger, top, largest, into=top)
            top, total = p.reduce(Combine(self.beside), (top, total), **across)
            most, more = top.squeeze(2), log(total.squeeze(2))
            found = p.reduce(self.plus, right, **across)
            self.left(p, (i, first), shape[0], most, more, found)

    def left(self, p: Tracer, at: Any, rows: Any, most: Any, more: Any, found: Any) -> None:
        """What the first CTA of a cluster says of its rows."""
        with p.when(at[1] < 1):
            p.store(self.st, self.logsum.column(at[0], rows), most + more)
            p.store(self.st, self.loss.column(at[0], rows), most - found + more)

    def beside(self, p: Tracer, left: Any, right: Any) -> Any:
        (a, of_a), (b, of_b) = left, right
        top = maximum(a, b)
        return top, of_a * exp(a - top) + of_b * exp(b - top)

    @staticmethod
    def reference(x: Any, target: Any) -> Any:
        x = x.astype(np.float32)
        top = x.max(axis=1)
        more = np.log(np.exp(x - top[:, None]).sum(axis=1))
        return {"loss": top - x[np.arange(len(x)), target] + more, "logsum": top + more}
