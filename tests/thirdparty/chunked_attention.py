"""Linear attention on tensor cores, chunk after chunk: scores within a chunk, and a state from all before it."""

from typing import Any

import numpy as np

from tinygpu.language import AccessPattern, Dim, Input, Machine, Output, Param, Tracer, UnknownLayout, blocked, where
from tinygpu.ptx import isa


class ChunkedAttention(Machine):
    """o[t] = q[t] S[t], S[t] = S[t - 1] + k[t]^T v[t]: a state of fragments, an operand by way of SMEM"""

    b, t = Dim(), Dim()
    d, e = Dim(32, 64), Dim(32, 64)
    q, k, v = Input("f16", b, t, d), Input("f16", b, t, d), Input("f16", b, t, e)
    o, s = Output("f32", b, t, e), Output("f32", b, d, e)

    chunk, vector, stages = Param(16, 32), Param(4, 8), Param(1, 2)
    across_k, across_v = AccessPattern(), AccessPattern()
    layout_q, layout_k, layout_v, layout_s = (UnknownLayout() for _ in range(4))
    copy, fragment, mma, put, st = isa.CpAsync(vector), isa.LdMatrix(), isa.MmaSync(), isa.StShared(1), isa.StGlobal(1)
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")
    exact = False  # scores and states are rounded to f16

    def program(self, p: Tracer) -> None:
        c, d, e = self.chunk, self.d, self.e
        qk, ov, kv = (p.tiled(self.mma, "f16", "f16", shape, (1, 1)) for shape in ((c, c), (c, e), (d, e)))
        who_k = blocked((c, d), threads=32, vector=self.vector, across=self.across_k, name="k")
        who_v = blocked((c, e), threads=32, vector=self.vector, across=self.across_v, name="v")
        q, k = (p.smem("f16", (c, d), layout=layout) for layout in (self.layout_q, self.layout_k))
        v, held = p.smem("f16", (c, e), layout=self.layout_v), p.smem("f16", (d, e), layout=self.layout_s)
        with (
            p.grid((self.b, 1)) as (z,), p.role("all", warps=1),
            p.pipeline("ring", self.stages, q=q, k=k, v=v) as ring, p.pipeline("state", 1, s=held) as states,
        ):  # fmt: skip
            state = p.full(kv.c, "f32")
            with p.loop(self.t, step=c) as t, ring.produce() as s:
                for x, slot, who in ((self.q, s.q, who_k), (self.k, s.k, who_k), (self.v, s.v, who_v)):
                    p.copy(self.copy, x.at(z).tile(t, 0, shape=who.shape), slot, who)
            with p.loop(self.t, step=c) as t, ring.consume() as s:
                scores, out = p.full(qk.c, "f32"), p.full(ov.c, "f32")
                with p.unroll(d, step=qk.k) as kt:
                    left = p.load(self.fragment, s.q.window((0, kt), (c, qk.k)), qk.a)
                    p.multiply(self.mma, scores, left, p.load(self.fragment, s.k.window((0, kt), (c, qk.k)), qk.b.T).T)
                row, column = p.index(qk.c.along(0), 0), p.index(qk.c.along(1), 1)
                weights = p.cast(where(column <= row, scores, 0.0), "f16")
                with p.unroll(c, step=ov.k) as kt:
                    left = p.relayout(weights.window((0, kt), (c, ov.k)), ov.a)
                    p.multiply(self.mma, out, left, p.load(self.fragment, s.v.window((kt, 0), (ov.k, e)), ov.b))
                with states.produce() as h:
                    p.store(self.put, h.s, p.cast(state, "f16"))
                with states.consume() as h, p.unroll(d, step=ov.k) as kt:
                    left = p.load(self.fragment, s.q.window((0, kt), (c, ov.k)), ov.a)
                    p.multiply(self.mma, out, left, p.load(self.fragment, h.s.window((kt, 0), (ov.k, e)), ov.b))
                with p.unroll(c, step=kv.k) as kt:
                    left = p.load(self.fragment, s.k.window((kt, 0), (kv.k, d)), kv.a.T).T
                    p.multiply(self.mma, state, left, p.load(self.fragment, s.v.window((kt, 0), (kv.k, e)), kv.b))
                p.store(self.st, self.o.at(z).tile(t, 0, shape=(c, e)), out)
            p.store(self.st, self.s.at(z).tile(0, 0, shape=(d, e)), state)

    @staticmethod
    def reference(q: Any, k: Any, v: Any, chunk: Any) -> Any:
        out, state = [], 0.0 * (np.swapaxes(k[:, :1], 1, 2) @ v[:, :1])
        for at in range(0, q.shape[1], chunk):
            a, b, c = (x[:, at : at + chunk] for x in (q, k, v))
            scores = a @ np.swapaxes(b, 1, 2)
            below = np.arange(a.shape[1])[:, None] >= np.arange(a.shape[1])
            out.append(np.where(below, scores, 0.0).astype(q.dtype) @ c + a @ state.astype(q.dtype))
            state = state + np.swapaxes(b, 1, 2) @ c
        return {"o": np.concatenate(out, axis=1), "s": state}
