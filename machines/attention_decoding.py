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
    AccessPattern,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Plan,
    Scalar,
    Step,
    Tracer,
    UnknownLayout,
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
from tinygpu.machines.attention import ALIKE, KINDS, LOG2_E, NOTHING_YET, OnlineSoftmax
from tinygpu.ptx import isa

ROWS = 16  # of a warp
SMALLEST = 1e-30  # what is divided by where there are no keys


def parts_of(q: Any, k: Any, v: Any, lengths: Any, scale: Any, c: int, chunk: int) -> tuple[Any, Any, Any]:
    """Of c parts of the keys: the weighed sums of values, the largest scores, and the sums of weights."""
    end, more = c * chunk, max(0, c * chunk - k.shape[2])
    k, v = (np.pad(x[:, :, :end].astype(np.float32), ((0, 0), (0, 0), (0, more), (0, 0))) for x in (k, v))
    seen = (np.arange(end) < lengths[:, None])[:, None, None]
    w = np.where(seen, np.einsum("bhrd,bhtd->bhrt", q.astype(np.float32), k) * scale, NOTHING_YET)
    w = w.reshape(*w.shape[:3], c, chunk)
    top = w.max(axis=4)
    e = np.where(seen.reshape(-1, 1, 1, c, chunk), np.exp(w - top[..., None]), 0)
    o = np.einsum("bhrcj,bhcjd->bhcrd", e.astype(q.dtype).astype(np.float32), v.reshape(*v.shape[:2], c, chunk, -1))
    return o, top.transpose(0, 1, 3, 2), e.sum(axis=4).transpose(0, 1, 3, 2)


class PartsOfKeys(OnlineSoftmax):
    """What parts of keys add to each row: sums of values, largest scores, sums of weights; wherever the keys lie."""

    b, h, r, c, d = Dim(), Dim(), Dim(), Dim(), Dim(64, 128, 256)
    q = Input(KINDS, b, h, r, d)
    lengths: Any  # with the keys
    o = Output("f32", b, h, c, r, d)
    top, total = Output("f32", b, h, c, r), Output("f32", b, h, c, r)

    chunk = Param(128, 256, 512, 1024, 2048, 4096, 8192)
    warps, bn, stages = Param(1, 2, 4), Param(16, 32, 64, 128), Param(1, 2, 3, 4)
    vector, across = Param(8), AccessPattern(4, 8, 16)
    layout_q, layout_k, layout_v = UnknownLayout(), UnknownLayout(), UnknownLayout()
    copy, fragment, mma = isa.CpAsync(vector), isa.LdMatrix(), isa.MmaSync()
    st_row, single = isa.StGlobal(1), isa.LdGlobalReadOnly(1)

    def keys(self, z: Any, h: Any, j: Any, end: Any) -> tuple[Any, Any]:
        """The tiles of keys and values from j on, of which those from the end on are not there."""
        raise NotImplementedError

    def attend(self, p: Tracer) -> None:
        """The program, wherever the keys lie."""
        kind, bm, bn, d = self.q.dtype, ROWS * self.warps, self.bn, self.d
        scores = p.tiled(self.mma, kind, kind, (bm, bn), (self.warps, 1))
        out = p.tiled(self.mma, kind, kind, (bm, d), (self.warps, 1))
        who_q, who_k = (
            blocked((rows, d), threads=32 * self.warps, vector=self.vector, across=self.across) for rows in (bm, bn)
        )
        queries = p.smem(kind, (bm, d), layout=self.layout_q)
        keys = p.smem(kind, (d, bn), contiguous=0, layout=self.layout_k)
        values = p.smem(kind, (bn, d), layout=self.layout_v)
        with (
            p.grid((self.b, 1), (self.h, 1), (self.c, 1), (self.r, bm)) as (z, h, c, i),
            p.pipeline("once", 1, q=queries) as once,
            p.pipeline("ring", self.stages, k=keys, v=values) as ring,
            p.role("all", warps=self.warps),
        ):
            begin = c * self.chunk
            end = minimum(self.lengths[z], begin + self.chunk)
            with once.produce() as a:
                p.copy(self.copy, self.q.at(z, h).tile(i, 0, shape=(bm, d)), a.q, who_q)
            with once.consume() as a:
                o, low, total = self.begin(p, scores.c, out.c)
                with p.loop(p.until(end - begin), step=bn) as j, ring.produce() as f:
                    k, v = self.keys(z, h, begin + j, end)
                    p.copy(self.copy, k.T, f.k, who_k.T)
                    p.copy(self.copy, v, f.v, who_k)
                with p.loop(p.until(end - begin), step=bn) as j, ring.consume() as f:
                    w = p.full(scores.c, "f32")
                    with p.unroll(d, step=scores.k) as kk:
                        left = p.load(self.fragment, a.q.window((0, kk), (bm, scores.k)), scores.a)
                        right = p.load(self.fragment, f.k.window((kk, 0), (scores.k, bn)), scores.b)
                        p.multiply(self.mma, w, left, right)
                    weights, keep = self.weights(p, w, low, total, (begin + j, bn), end)
                    o *= keep
                    weights = p.cast(weights, kind)
                    with p.unroll(bn, step=out.k) as kk:
                        left = p.relayout(weights.window((0, kk), (bm, out.k)), out.a)  # nothing moves
                        right = p.load(self.fragment, f.v.window((kk, 0), (out.k, d)), out.b)
                        p.multiply(self.mma, o, left, right)
            p.store(self.st, self.o.at(z, h, c).tile(i, 0, shape=(bm, d)), o)
            for target, rows in ((self.top, low * (-1 / LOG2_E)), (self.total, total)):
                p.store(self.st_row, target.at(z, h, c).tile(i, shape=(bm,)).unsqueeze(1), rows)


class KeysOfPart(PartsOfKeys):
    """What part c of the keys, `chunk` of them, adds to each row: sums of values, largest scores, sums of weights"""

    t = Dim()
    k = Input(ALIKE, PartsOfKeys.b, PartsOfKeys.h, t, PartsOfKeys.d, follows=PartsOfKeys.q)
    v = Input(ALIKE, PartsOfKeys.b, PartsOfKeys.h, t, PartsOfKeys.d, follows=PartsOfKeys.q)
    lengths = Input("s32", PartsOfKeys.b, values=integers(0, t + 1))

    def program(self, p: Tracer) -> None:
        self.attend(p)

    def keys(self, z: Any, h: Any, j: Any, end: Any) -> tuple[Any, Any]:
        """The tiles of keys and values from j on, up to the end."""
        k, v = (of.at(z, h).segment(0, end).tile(j, 0, shape=(self.bn, self.d)) for of in (self.k, self.v))
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
    k, v = Input(ALIKE, b, h, t, d, follows=q), Input(ALIKE, b, h, t, d, follows=q)
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
