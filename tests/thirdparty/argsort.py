"""Rows in order, with where they were and what goes with them: a sorting network whose pairs are tuples."""

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
    Require,
    Tracer,
    blocked,
    equal,
    integers,
    where,
)
from tinygpu.ptx import isa

WIDTH = 64


class Argsort(Machine):
    """Keys of each row of up to 64 in order, where they were, and what goes with them; of equals the first is first"""

    m, n = Dim(), Dim()
    key, payload = Input("f32", m, n, values=integers(-20, 20)), Input("f32", m, n)
    keys, order, carried = Output("f32", m, n), Output("s32", m, n), Output("f32", m, n)
    fits = Require(n <= WIDTH, "a row has up to 64 keys")

    warps, rows = Param(1, 2, 4), Param(1, 2)
    ld, st, shuffle = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly()
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")

    def in_order(self, one: Any, other: Any) -> Any:
        return (one[0] < other[0]) | (equal(one[0], other[0]) & (one[1] < other[1]))

    def lower(self, p: Tracer, left: Any, right: Any) -> Any:
        first = self.in_order(left, right)
        return tuple(where(first, a, b) for a, b in zip(left, right, strict=True))

    def upper(self, p: Tracer, left: Any, right: Any) -> Any:
        first = self.in_order(left, right)
        return tuple(where(first, b, a) for a, b in zip(left, right, strict=True))

    def program(self, p: Tracer) -> None:
        shape = (self.warps * self.rows, WIDTH)
        who = blocked(shape, threads=32 * self.warps, across=32)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            place = p.index(who, 1)
            key = p.load(self.ld, self.key.tile(i, 0, shape=shape), who, fill=math.inf)
            values = key, place, p.load(self.ld, self.payload.tile(i, 0, shape=shape), who)
            for k, j in ((k, j) for k in (2, 4, 8, 16, 32, 64) for j in (32, 16, 8, 4, 2, 1) if j < k):
                bits = (WIDTH // (2 * j), 2, j)
                pairs, at = tuple(v.split(1, bits) for v in values), place.split(1, bits)
                low, high = (p.reduce(Combine(c), pairs, axis=2, by=self.shuffle) for c in (self.lower, self.upper))
                falls = equal(at & j, 0) ^ equal(at & k, 0)
                values = tuple(where(falls, a, b).merge(1, 2, 3) for a, b in zip(high, low, strict=True))
            for out, value in zip((self.keys, self.order, self.carried), values, strict=True):
                p.store(self.st, out.tile(i, 0, shape=shape), value)

    @staticmethod
    def reference(key: Any, payload: Any) -> Any:
        order = np.argsort(key, axis=1, kind="stable")
        keys, carried = (np.take_along_axis(values, order, axis=1) for values in (key, payload))
        return {"keys": keys, "order": order, "carried": carried}
