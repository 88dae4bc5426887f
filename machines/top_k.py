"""The k largest of each row, with their places: the largest first, and of equals the first.

Round by round those who share a row find the largest element behind the last that was found: smaller, or as large and
farther on. So nothing is marked, moved or sorted, and a round is a reduction: lanes meet by shuffles, warps through a
little shared memory. A row stays in registers, or, where they cannot hold it, is read in every round, mostly from L2:
k is small (experts of a router, candidates of a sampler). Searched are who shares a row, how much of it at a time, and
which way.
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
    Output,
    Require,
    Tracer,
    equal,
    minimum,
    uniform,
    where,
)
from tinygpu.machines.rows import ALIKE, KINDS, Rows
from tinygpu.ptx import isa


class TopK(Rows):
    """y[i] = the k largest elements of row i of x, and places[i] = where they are; of numbers above -infinity"""

    k, x = Dim(), Input(KINDS, Rows.m, Rows.n, values=uniform(-100, 100))
    y, places = Output(ALIKE, Rows.m, k, follows=x), Output("s32", Rows.m, k)

    reads, st = Choice("once", "in every round"), isa.StGlobal(1)
    arithmetic, whole_numbers = isa.arithmetic("f32"), isa.arithmetic("s32")
    larger, lower = isa.Max("f32"), isa.Min("s32")
    enough = Require(k <= Rows.n, "a row has k elements")
    whole = Require(
        Rows.n <= Rows.across * Rows.vector * Rows.step, "a row fits into one tile", only=(reads, "once")
    )  # fmt: skip

    def better(self, p: Tracer, left: Any, right: Any) -> Any:
        (x, i), (y, j) = left, right
        return p.apply(self.larger, x, y), where(x > y, i, where(equal(x, y), minimum(i, j), j))

    def program(self, p: Tracer) -> None:
        who = self.tile(self.step)
        with p.grid((self.m, self.height)) as (i,), p.role("all", warps=self.warps):
            last, at = p.full(who.reduced(1), "f32", math.inf), p.full(who.reduced(1), "s32", -1)
            held = self.row(p, i, 0, who) if self.reads == "once" else None
            with p.loop(self.k) as t:
                if held is not None:
                    found = self.behind(p, held, p.index(who, 1), last, at)
                else:
                    found = p.full(who, "f32", -math.inf), p.full(who, "s32")
                    with p.loop(self.n, step=who.shape[1]) as j:
                        place = p.index(who, 1) + j
                        x, place = self.behind(p, self.row(p, i, j, who), place, last, at)
                        place = where(x > found[0], place, found[1])  # an equal one comes later, and does not count
                        p.apply(self.larger, found[0], x, into=found[0])
                        p.apply(self.lower, place, place, into=found[1])
                value, place = p.reduce(Combine(self.better), found, axis=1, by=self.exchange)
                p.apply(self.larger, value, value, into=last)
                p.apply(self.lower, place, place, into=at)
                p.store(self.st, self.y.tile(i, t, shape=(self.height, 1)), p.cast(value, self.y.dtype))
                p.store(self.st, self.places.tile(i, t, shape=(self.height, 1)), place)

    def row(self, p: Tracer, i: Any, j: Any, who: Any) -> Any:
        return p.cast(p.load(self.ld, self.x.tile(i, j, shape=who.shape), who, fill=-math.inf), "f32")

    def behind(self, p: Tracer, x: Any, place: Any, last: Any, at: Any) -> Any:
        """What was not found yet, and its places."""
        left = (x < last) | (equal(x, last) & (place > at))
        return where(left, x, -math.inf), place

    @staticmethod
    def reference(x: Any, k: int) -> Any:
        places = np.argsort(-x, axis=1, kind="stable")[:, :k]
        return {"y": np.take_along_axis(x, places, axis=1), "places": places.astype(np.int32)}
