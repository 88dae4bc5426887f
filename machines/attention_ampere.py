"""Attention on tensor cores as of Ampere: the first product's sums are the second one's left operand, in registers.

Tiles of keys and values come by cp.async through a ring; queries stay in shared memory. Each warp has rows of its own,
so that nothing but the columns of one row, held by four lanes, meets. Searched are the rows of a tile and how many keys
come at a time (more share each load of a fragment, and take registers), warps, and how keys and values come: both of a
round in a ring, which runs ahead, or each in one slot, as in FlashAttention-2: the values of a round while its keys are
multiplied, and the keys of the next one while its values are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tinygpu.language import AccessPattern, Choice, Param, Require, Tracer, UnknownLayout, blocked
from tinygpu.machines.attention import Attends, Attention
from tinygpu.ptx import isa


class AttendsByWarps(Attends):
    """The program, wherever queries and keys lie."""

    q: Any
    d: Any
    warps: Any  # of a CTA
    rows: Any  # of a warp
    bn: Any  # keys of a tile
    stages: Any
    waits: Any = "for both"
    vector, across = Param(8), AccessPattern(2, 4, 8, 16)
    layout_q, layout_k, layout_v = UnknownLayout(), UnknownLayout(), UnknownLayout()
    copy, fragment, mma = isa.CpAsync(vector), isa.LdMatrix(), isa.MmaSync()

    def attend(self, p: Tracer) -> None:
        kind, bm, bn, d = self.q.dtype, self.rows * self.warps, self.bn, self.d
        scores = p.tiled(self.mma, kind, kind, (bm, bn), (self.warps, 1))
        out = p.tiled(self.mma, kind, kind, (bm, d), (self.warps, 1))
        who_q, who_k = (
            blocked((rows, d), threads=32 * self.warps, vector=self.vector, across=self.across) for rows in (bm, bn)
        )
        queries = p.smem(kind, (bm, d), layout=self.layout_q)
        keys = p.smem(kind, (d, bn), contiguous=0, layout=self.layout_k)
        values = p.smem(kind, (bn, d), layout=self.layout_v)
        with (
            p.grid(*self.tiles(bm)) as (*at, i),
            p.pipeline("once", 1, q=queries) as once,
            self.rings(p, keys, values) as (ring_k, ring_v),
            p.role("all", warps=self.warps),
        ):
            seen = self.seen(p, at, i, bm)

            def keys_from(j: Any) -> Any:
                return self.keys(p, at, seen, seen.first + j, (bn, d), who_k)

            with once.produce() as a:
                p.copy(self.copy, self.queries(at, i, (bm, d)), a.q, who_q)
            if ring_k is not ring_v:
                with ring_k.produce() as f:
                    p.copy(self.copy, keys_from(0)[0].T, f.k, who_k.T)
            with once.consume() as a:
                o, low, total = self.begin(p, scores.c, out.c)

                def scored(f: Any) -> Any:
                    w = p.full(scores.c, "f32")
                    with p.unroll(d, step=scores.k) as kk:
                        left = p.load(self.fragment, a.q.window((0, kk), (bm, scores.k)), scores.a)
                        right = p.load(self.fragment, f.k.window((kk, 0), (scores.k, bn)), scores.b)
                        p.multiply(self.mma, w, left, right)
                    return w

                def add(f: Any, w: Any, j: Any) -> None:
                    nonlocal o
                    weights, keep = self.weights(p, w, low, total, (seen.first + j, bn), seen.end, seen.query)
                    o *= keep
                    weights = p.cast(weights, kind)
                    with p.unroll(bn, step=out.k) as kk:
                        left = p.relayout(weights.window((0, kk), (bm, out.k)), out.a)  # nothing moves
                        right = p.load(self.fragment, f.v.window((kk, 0), (out.k, d)), out.b)
                        p.multiply(self.mma, o, left, right)

                if ring_k is ring_v:
                    with p.loop(seen.count, step=bn) as j, ring_k.produce() as f:
                        k, v = keys_from(j)
                        p.copy(self.copy, k.T, f.k, who_k.T)
                        p.copy(self.copy, v, f.v, who_k)
                    with p.loop(seen.count, step=bn) as j, ring_k.consume() as f:
                        add(f, scored(f), j)
                else:
                    with p.loop(seen.count, step=bn) as j:
                        with ring_k.consume() as f:
                            with ring_v.produce() as s:
                                p.copy(self.copy, keys_from(j)[1], s.v, who_k)
                            w = scored(f)
                        with ring_v.consume() as f:
                            with ring_k.produce() as s:
                                p.copy(self.copy, keys_from(j + bn)[0].T, s.k, who_k.T)
                            add(f, w, j)
                    with ring_k.consume():
                        pass  # those behind the last ones, of which nothing is read
            self.leave(p, at, i, o, low, total)

    @contextmanager
    def rings(self, p: Tracer, keys: Any, values: Any) -> Iterator[tuple[Any, Any]]:
        """Where keys and values lie: one pipeline, or one for each."""
        if self.waits == "for both":
            with p.pipeline("ring", self.stages, k=keys, v=values) as ring:
                yield ring, ring
        else:
            with p.pipeline("ring_k", 1, k=keys) as ring_k, p.pipeline("ring_v", 1, v=values) as ring_v:
                yield ring_k, ring_v


class AttentionAmpere(AttendsByWarps, Attention):
    """o = softmax(scale * q @ k.T) @ v of every head, causal or not: mma.sync, fed by cp.async"""

    warps, rows, bn, stages = Param(4, 8), Param(16, 32), Param(16, 32, 48, 64, 80, 96, 112, 128), Param(1, 2, 3)
    waits = Choice("for both", "for each")  # of keys and values
    one_slot = Require(
        stages == 1, "keys and values have one slot each", only=(waits, "for each"), kind="dominance",
        why="what does not run ahead is the same kernel, whatever the stages",
    )  # fmt: skip

    def program(self, p: Tracer) -> None:
        self.attend(p)
