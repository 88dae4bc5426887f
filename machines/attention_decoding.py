"""Attention of few queries over many keys, as when a model writes word after word: keys are split among CTAs.

The rows of q that share keys, the heads of a group (times the words that are looked at together), are one tile, so that
keys and values are read once. One tile gives work to few CTAs; so each takes a part of the keys, leaves what it adds up
in a workspace, with its largest scores and sums, and a second kernel combines the parts. Each batch has as many keys as
`lengths` says; rounds behind them are not done. Searched are the keys of a part (more parts fill the GPU, and write and
read more), those of a tile, warps of 16 rows, and how deep the ring is, for bytes have to be under way.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import (
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Plan,
    Scalar,
    Step,
    Tracer,
    Workspace,
    between,
    blocked,
    ceil_div,
    exp2,
    integers,
    maximum,
    minimum,
    uniform,
)
from tinygpu.machines.attention import ALIKE, KINDS, LOG2_E, NOTHING_YET, SMALLEST, Seen
from tinygpu.machines.attention_ampere import AttendsByWarps
from tinygpu.ptx import isa

ROWS = 16  # of a warp


def parts_of(q: Any, k: Any, v: Any, lengths: Any, scale: Any, c: int, chunk: int) -> tuple[Any, Any, Any]:
    """Of c parts of the keys: the weighed sums of values, the largest scores, and the sums of weights."""
    found = []
    for first in range(0, c * chunk, chunk):
        begin = min(first, k.shape[2] - 1)  # of a part behind all keys, none of which it has
        keys, values = (x[:, :, begin : first + chunk].astype(np.float32) for x in (k, v))
        seen = (np.arange(keys.shape[2]) < lengths[:, None] - first)[:, None, None]
        w = np.where(seen, np.einsum("bhrd,bhtd->bhrt", q.astype(np.float32), keys) * scale, NOTHING_YET)
        top = w.max(axis=3, initial=NOTHING_YET)  # of scores of minus infinity alone there is nothing yet
        e = np.where(seen, np.exp(w - top[..., None]), 0)
        o = np.einsum("bhrt,bhtd->bhrd", e.astype(q.dtype).astype(np.float32), values)
        found.append((o, top, e.sum(axis=3)))
    o, top, total = (np.stack(of, axis=2) for of in zip(*found, strict=True))
    return o, top, total


class PartsOfKeys(AttendsByWarps):
    """What parts of keys add to each row: sums of values, largest scores, sums of weights; wherever the keys lie."""

    b, h, r, c, d = Dim(), Dim(), Dim(), Dim(), Dim(64, 128, 256)
    q = Input(KINDS, b, h, r, d)
    lengths: Any  # with the keys
    o = Output("f32", b, h, c, r, d)
    top, total = Output("f32", b, h, c, r), Output("f32", b, h, c, r)

    chunk = Param(128, 256, 512, 1024, 2048, 4096, 8192)
    warps, rows, bn, stages = Param(1, 2, 4), ROWS, Param(16, 32, 64, 128), Param(1, 2, 3, 4)
    st_row, single = isa.StGlobal(1), isa.LdGlobalReadOnly(1)

    def tiles(self, rows: Any) -> tuple[tuple[Any, Any], ...]:
        return (self.b, 1), (self.h, 1), (self.c, 1), (self.r, rows)

    def queries(self, at: Any, i: Any, shape: Any) -> Any:
        return self.q.at(*at[:2]).tile(i, 0, shape=shape)

    def seen(self, p: Tracer, at: Any, i: Any, rows: Any) -> Seen:
        z, _, c = at
        first = c * self.chunk
        end = minimum(self.lengths[z], first + self.chunk)
        return Seen(first, p.until(end - first), end)

    def leave(self, p: Tracer, at: Any, i: Any, o: Any, low: Any, total: Any) -> None:
        p.store(self.st, self.o.at(*at).tile(i, 0, shape=o.shape), o)
        for target, rows in ((self.top, low * (-1 / LOG2_E)), (self.total, total)):
            p.store(self.st_row, target.at(*at).tile(i, shape=o.shape[:1]).unsqueeze(1), rows)


class KeysOfPart(PartsOfKeys):
    """What part c of the keys, `chunk` of them, adds to each row: sums of values, largest scores, sums of weights"""

    t = Dim()
    # values are finite: those of keys behind the last one weigh 0, or are not looked at
    k = Input(ALIKE, PartsOfKeys.b, PartsOfKeys.h, t, PartsOfKeys.d, follows=PartsOfKeys.q)
    v = Input(ALIKE, PartsOfKeys.b, PartsOfKeys.h, t, PartsOfKeys.d, follows=PartsOfKeys.q, values=uniform(-256, 256))
    lengths = Input("s32", PartsOfKeys.b, values=integers(0, t + 1))

    def program(self, p: Tracer) -> None:
        self.attend(p)

    def keys(self, p: Tracer, at: Any, seen: Seen, j: Any, shape: Any, who: Any = None) -> Any:
        k, v = (of.at(*at[:2]).segment(0, seen.end).tile(j, 0, shape=shape) for of in (self.k, self.v))
        return k, v

    @staticmethod
    def reference(q: Any, k: Any, v: Any, lengths: Any, scale: Any, c: int, chunk: int) -> Any:
        return dict(zip(("o", "top", "total"), parts_of(q, k, v, lengths, scale, c, chunk), strict=True))


class AllParts(Machine):
    """o = what all parts of the keys have together, of every row"""

    b, h, r, c, d = Dim(), Dim(), Dim(), Dim(), Dim(64, 128, 256)
    x = Input("f32", b, h, c, r, d)
    top = Input("f32", b, h, c, r, values=uniform(-8, 8))
    total = Input("f32", b, h, c, r, values=between(1, 64))
    o = Output(KINDS, b, h, r, d)

    warps, vector, rows = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 4, 8)
    ld, st, ld_row = isa.LdGlobal(vector), isa.StGlobal(vector), isa.LdGlobal(1)
    arithmetic, plus = isa.arithmetic("f32", approximate=True), isa.Add("f32")
    compute, exact, approximation = "f32", False, 2.0**-10

    def program(self, p: Tracer) -> None:
        shape = self.rows, self.d
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.b, 1), (self.h, 1), (self.r, self.rows)) as (z, h, i), p.role("all", warps=self.warps):
            o, top, total = p.full(who, "f32"), p.full(who.along(0), "f32", NOTHING_YET), p.full(who.along(0), "f32")
            with p.loop(self.c) as c:
                part = p.load(self.ld, self.x.at(z, h, c).tile(i, 0, shape=shape), who)
                highest, weight = (
                    p.load(self.ld_row, of.at(z, h, c).tile(i, shape=shape[:1]).unsqueeze(1), who.along(0))
                    for of in (self.top, self.total)
                )
                new = maximum(top, highest)
                keep, mine = exp2((top - new) * LOG2_E), exp2((highest - new) * LOG2_E)
                o *= keep
                o += part * mine
                total *= keep
                total += weight * mine
                p.apply(self.plus, new, 0.0, into=top)
            p.store(self.st, self.o.at(z, h).tile(i, 0, shape=shape), o / maximum(total, SMALLEST))

    @staticmethod
    def reference(x: Any, top: Any, total: Any) -> Any:
        share = np.exp(top - top.max(axis=2, keepdims=True))
        return (x * share[..., None]).sum(axis=2) / np.maximum((total * share).sum(axis=2), SMALLEST)[..., None]


class AttentionDecoding(Plan):
    """o = softmax(scale * q @ k.T) @ v, of the first keys of every batch, `lengths`, split along them"""

    b, h, r, t, d = Dim(), Dim(), Dim(), Dim(), Dim(64, 128, 256)
    q = Input(KINDS, b, h, r, d)
    k, v = Input(ALIKE, b, h, t, d, follows=q), Input(ALIKE, b, h, t, d, follows=q, values=uniform(-256, 256))
    lengths = Input("s32", b, values=integers(0, t + 1))
    o = Output(ALIKE, b, h, r, d, follows=q)
    scale = Scalar("f32", values=between(0.05, 0.2))

    chunk = Param(128, 256, 512, 1024, 2048, 4096, 8192)
    c = ceil_div(t, chunk)
    partial = Workspace("f32", b, h, c, r, d)
    tops, totals = Workspace("f32", b, h, c, r), Workspace("f32", b, h, c, r)
    each = Step(
        KeysOfPart, q=q, k=k, v=v, lengths=lengths, scale=scale, o=partial, top=tops, total=totals, chunk=chunk
    )
    rest = Step(AllParts, x=partial, top=tops, total=totals, o=o)

    @staticmethod
    def reference(q: Any, k: Any, v: Any, lengths: Any, scale: Any) -> Any:
        o, _, total = parts_of(q, k, v, lengths, scale, 1, k.shape[2])
        return o[:, :, 0] / np.maximum(total[:, :, 0], SMALLEST)[..., None]
