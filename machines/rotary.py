"""Rotary embedding: pairs of elements of every head are turned by an angle that the token's position says.

A CTA takes some tokens and some of their heads. Cosines and sines of a token are the same for all heads: each thread
looks up those of its pairs once, and keeps them in registers while heads pass by. A pair is the elements i and i + d/2
of a head, which is given as its two halves (the bytes are those of a head of d), or two neighbours. Neighbours are
loaded together, and a choice by position puts the results side by side again.
Searched are how wide a head lies across lanes, how many heads a CTA takes and how many at a time, and the vectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Machine, Option, Output, Param, Require, Tracer, blocked, equal, integers
from tinygpu.ptx import isa

KINDS = ("f32", "f16", "bf16")
ALIKE: dict[str, tuple[str, ...]] = {kind: (kind,) for kind in KINDS}


class Turned(Machine):
    """What both have: operands, who holds the pairs of a head, the loop over a CTA's heads"""

    m, h, t, half = Dim(), Dim(), Dim(), Dim()
    cos = Input(KINDS, t, half)
    sin, positions = Input(ALIKE, t, half, follows=cos), Input(("s32", "u32"), m, values=integers(0, t))
    backward = Option(False, True)  # of gradients, which are turned the other way

    warps, across, rows = Param(1, 2, 4, 8), Param(1, 2, 4, 8, 16, 32, 64), Param(1, 2)
    vector, rounds, together = Param(1, 2, 4, 8), Param(1, 2, 4, 8), Param(1, 2, 4)  # pairs; heads: one after another
    ld, st, ld_one = isa.LdGlobal(vector), isa.StGlobal(vector), isa.LdGlobalReadOnly(1)
    arithmetic, places, compute, contract = isa.arithmetic("f32"), isa.arithmetic("s32"), "f32", True
    lanes = Require(across <= 32 * warps, "the threads along a head are threads of the CTA")

    def turn(self, p: Tracer, pair: Callable[..., None]) -> None:
        """All heads of a tile of tokens: pair(p, token, head, first pair, who, cosines, sines)."""
        shape = (32 * self.warps // self.across * self.rows, self.across * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        heads = self.rounds * self.together
        with (
            p.grid((self.m, shape[0]), (self.h, heads), (self.half, shape[1])) as (i, head, j),
            p.role("all", warps=self.warps),
        ):
            at = p.load(self.ld_one, self.positions.column(i, shape[0]), who.along(0))
            cos, sin = (p.load(self.ld, t.rows(at).tile(0, j, shape=shape), who) for t in (self.cos, self.sin))
            cos, sin = p.cast(cos, "f32"), p.cast(sin, "f32")
            sin = -sin if self.backward else sin
            with p.loop(heads, step=self.together) as r, p.unroll(self.together) as one:
                pair(p, i, head + r + one, j, who, cos, sin)

    @staticmethod
    def turned(a: Any, b: Any, cos: Any, sin: Any, positions: Any, backward: bool) -> tuple[Any, Any]:
        cos, sin = cos[positions][:, None], sin[positions][:, None] * (-1 if backward else 1)
        return a * cos - b * sin, b * cos + a * sin


class Rotary(Turned):
    """y = x, where the elements i of the two halves of each head, a and b, are (a cos - b sin, b cos + a sin)"""

    x = Input(KINDS, Turned.m, Turned.h, 2, Turned.half)
    y = Output(ALIKE, Turned.m, Turned.h, 2, Turned.half, follows=x)

    def program(self, p: Tracer) -> None:
        self.turn(p, self.pair)

    def pair(self, p: Tracer, i: Any, head: Any, j: Any, who: Any, cos: Any, sin: Any) -> None:
        shape = (who.shape[0], 1, 1, who.shape[1])
        x, y = ([t.tile(i, head, k, j, shape=shape).squeeze(2).squeeze(1) for k in (0, 1)] for t in (self.x, self.y))
        a, b = (p.load(self.ld, side, who) for side in x)
        p.store(self.st, y[0], a * cos - b * sin)
        p.store(self.st, y[1], b * cos + a * sin)

    @staticmethod
    def reference(x: Any, cos: Any, sin: Any, positions: Any, backward: bool) -> Any:
        return np.stack(Turned.turned(x[:, :, 0], x[:, :, 1], cos, sin, positions, backward), axis=2)


class RotaryNeighbours(Turned):
    """y = x, where the neighbours of each pair of a head, a and b, are (a cos - b sin, b cos + a sin)"""

    d = Dim(follows=lambda half: 2 * half)
    x = Input(KINDS, Turned.m, Turned.h, d)
    y = Output(ALIKE, Turned.m, Turned.h, d, follows=x)
    ld_pairs, st_pairs = isa.LdGlobal(2 * Turned.vector), isa.StGlobal(2 * Turned.vector)

    def program(self, p: Tracer) -> None:
        self.turn(p, self.pair)

    def pair(self, p: Tracer, i: Any, head: Any, j: Any, who: Any, cos: Any, sin: Any) -> None:
        rows, columns = who.shape
        x, y = (t.tile(i, head, 2 * j, shape=(rows, 1, 2 * columns)).squeeze(1) for t in (self.x, self.y))
        wide = blocked((rows, 2 * columns), threads=32 * self.warps, vector=2 * self.vector, across=self.across)
        both = p.load(self.ld_pairs, x, wide).split(1, (columns, 2))
        products = both * cos.unsqueeze(2), both * sin.unsqueeze(2)
        of_cos, of_sin = ([v.window((0, 0, k), (rows, columns, 1)) for k in (0, 1)] for v in products)
        first = equal(p.index(products[0].partition, 2), 0)
        p.store(self.st_pairs, y, p.where(first, of_cos[0] - of_sin[1], of_cos[1] + of_sin[0]).merge(1, 2))

    @staticmethod
    def reference(x: Any, cos: Any, sin: Any, positions: Any, backward: bool) -> Any:
        turned = Turned.turned(x[:, :, ::2], x[:, :, 1::2], cos, sin, positions, backward)
        return np.stack(turned, axis=3).reshape(x.shape)
