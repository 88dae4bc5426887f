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
    Input,
    OfRow,
    Output,
    Param,
    Passes,
    Tracer,
    equal,
    exp,
    integers,
    log,
    maximum,
    normal,
    shifted,
    where,
)
from tinygpu.machines.rows import KINDS, ClusterRows, Rows
from tinygpu.ptx import isa

LOWEST = -3.0e38  # below every logit; of two infinities there is no difference


class CrossEntropy(ClusterRows):
    """loss[i] = logsum[i] - x[i, target[i]], and logsum[i] = log(sum(exp(x[i])))"""

    x = Input(KINDS, Rows.m, Rows.n, values=shifted(normal(0, 4), by=100))
    target = Input("s32", Rows.m, values=integers(0, Rows.n))
    loss, logsum = Output("f32", Rows.m), Output("f32", Rows.m)

    across, reads, together = Param(8, 16, 32, 64, 128, 256, 512), Choice("the row", "in rounds"), 2
    ld_target, plus, larger = isa.LdGlobalReadOnly(1), isa.Add("f32"), isa.Max("f32")
    arithmetic, places = isa.arithmetic("f32", approximate=True), isa.arithmetic("s32")
    compute, exact, approximation = "f32", False, 2.0**-17

    def program(self, p: Tracer) -> None:
        with self.row(p, held=self.reads == "the row") as row:
            target = p.load(self.ld_target, self.target.column(row.at[0], self.height), row.part.along(0))
            x = row.hold(row.load(self.ld, self.x, fill=-math.inf, to="f32"))
            right = where(equal(row.index, target), x, 0.0)
            if self.reads == "the row":
                found, most = row.reduce(self.plus, right), row.reduce(self.larger, x)
                total = row.reduce(self.plus, exp(x - most))
            else:
                most, total, found = self.in_rounds(p, row, x, right)
            more = log(total)
            self.leave(p, row, logsum=most + more, loss=most - found + more)

    def in_rounds(self, p: Tracer, row: Passes, x: OfRow, right: OfRow) -> tuple[Any, Any, Any]:
        """The largest element, the sum beside it, and what is found, by one pass."""
        found, apart = p.full(row.part, "f32"), (row.part.shape[1] // self.vector, self.vector)
        loads: Any = found.split(1, apart).partition
        top, total = p.full(loads.reduced(2), "f32", LOWEST), p.full(loads.reduced(2), "f32")
        with row.tiles(x, right) as (_, here, more):
            found += more
            here = here.split(1, apart)  # neighbours of one load share a largest and a sum
            largest = p.reduce(self.larger, here, axis=2)
            new = maximum(top, largest)
            p.apply(self.plus, total * exp(top - new), p.reduce(self.plus, exp(here - new), axis=2), into=total)
            p.apply(self.larger, top, largest, into=top)
        top, total = row.meet(Combine(self.beside), (top, total))
        return top.squeeze(2), total.squeeze(2), row.meet(self.plus, found)

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
