"""Attention over those blocks of keys that a list names for each block of queries."""

import math
from typing import Any

import numpy as np

from tinygpu.language import (
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Tracer,
    UnknownLayout,
    ascending,
    blocked,
    equal,
    exp,
    integers,
    maximum,
    uniform,
    where,
)
from tinygpu.ptx import isa

B = 64  # queries, and keys, of a block
NONE = -1e30  # what no finite score comes near, and is no infinity: a difference of two of them is a number


class BlockAttention(Machine):
    """Causal attention, of which each block of queries sees the blocks of keys in its list; 0 where no score is more
    than minus infinity, or there is none
    """

    h, s, total = Dim(), Dim(), Dim()
    d = Dim(64, 128)
    blocks = Dim(follows=lambda s: (s + B - 1) // B)
    ends = Dim(follows=lambda blocks: blocks + 1)
    first = Input("s32", ends, values=ascending(0, total, ends=True))
    listed = Input("s32", total, values=integers(0, blocks))
    q, k = Input("f16", h, s, d), Input("f16", h, s, d)
    v = Input("f16", h, s, d, values=uniform(-4, 4))  # finite: keys behind a query weigh 0
    o = Output("f16", h, s, d)

    warps, vector = Param(2, 4), Param(4, 8)
    layout_q, layout_k, layout_v = UnknownLayout(), UnknownLayout(), UnknownLayout()
    copy, fragment, mma, st = isa.CpAsync(vector), isa.LdMatrix(), isa.MmaSync(), isa.StGlobal(2)
    single, larger, add, shuffle = isa.LdGlobal(1), isa.Max("f32"), isa.Add("f32"), isa.ShflBfly()
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")
    exact, approximation = False, 2.0**-10

    def program(self, p: Tracer) -> None:
        d, rows, scale = self.d, (B, self.d), 1 / math.sqrt(self.d)
        ts = p.tiled(self.mma, "f16", "f16", (B, B), (self.warps, 1))
        to = p.tiled(self.mma, "f16", "f16", rows, (self.warps, 1))
        who = blocked(rows, threads=32 * self.warps, vector=self.vector, name="rows")
        q, v = p.smem("f16", rows, layout=self.layout_q), p.smem("f16", rows, layout=self.layout_v)
        k = p.smem("f16", (d, B), contiguous=0, layout=self.layout_k)
        with (
            p.grid((self.h, 1), (self.s, B)) as (z, i),
            p.role("all", warps=self.warps),
            p.pipeline("queries", 1, q=q) as queries,
            p.pipeline("keys", 1, k=k, v=v) as keys,
        ):
            with queries.produce() as slot:
                p.copy(self.copy, self.q.at(z).tile(i, 0, shape=rows), slot.q, who)
            out, most = p.full(to.c, "f32"), p.full(ts.c.reduced(1), "f32", NONE)
            total = p.full(ts.c.reduced(1), "f32")
            begin, end = self.first[i // B], self.first[i // B + 1]
            with queries.consume() as mine, p.loop(p.until(end - begin)) as n:
                j = self.listed[begin + n] * B
                with keys.produce() as slot:
                    p.copy(self.copy, self.k.at(z).tile(j, 0, shape=rows).T, slot.k, who.T)
                    p.copy(self.copy, self.v.at(z).tile(j, 0, shape=rows), slot.v, who)
                with keys.consume() as slot:
                    scores = p.full(ts.c, "f32")
                    with p.unroll(d, step=ts.k) as kt:
                        x = p.load(self.fragment, mine.q.window((0, kt), (B, ts.k)), ts.a)
                        y = p.load(self.fragment, slot.k.window((kt, 0), (ts.k, B)), ts.b)
                        p.multiply(self.mma, scores, x, y)
                    row, column = p.index(ts.c.along(0), 0) + i, p.index(ts.c.along(1), 1) + j
                    seen = (column <= row) & (column < self.s)
                    logits = where(seen, scores * scale, NONE)
                    top = maximum(most, p.reduce(self.larger, logits, axis=1, by=self.shuffle))
                    keep, weights = exp(most - top), where(seen, exp(logits - top), 0.0)
                    p.cast(top, "f32", into=most)
                    total *= keep
                    total += p.reduce(self.add, weights, axis=1, by=self.shuffle)
                    out *= keep
                    narrow = p.cast(weights, "f16")
                    with p.unroll(B, step=to.k) as kt:
                        left = p.relayout(narrow.window((0, kt), (B, to.k)), to.a)
                        p.multiply(self.mma, out, left, p.load(self.fragment, slot.v.window((kt, 0), (to.k, d)), to.b))
            out = where(equal(total, 0.0), 0.0, out / total)  # not where(total > 0, ...): a NaN stays one
            p.store(self.st, self.o.at(z).tile(i, 0, shape=rows), p.cast(out, "f16"))

    @staticmethod
    def reference(first: Any, listed: Any, q: Any, k: Any, v: Any) -> Any:
        (h, s, d), out = q.shape, []
        scores = q @ k.swapaxes(1, 2) / math.sqrt(d)
        for row in range(s):
            begin, end = (int(first[row // B + more]) for more in (0, 1))
            keys = [j for n in listed[begin:end] for j in range(int(n) * B, min(int(n) * B + B, row + 1))]
            if not keys:
                out.append(np.zeros((h, d)))
                continue
            most = scores[:, row, keys].max(axis=1, keepdims=True)
            e = np.exp(scores[:, row, keys] - np.where(most == -np.inf, 0.0, most))
            total = e.sum(axis=1, keepdims=True)
            out.append((e.astype(q.dtype)[:, None, :] @ v[:, keys])[:, 0] / np.where(total == 0.0, 1.0, total))
        return np.stack(out, axis=1)
