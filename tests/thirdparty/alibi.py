"""Attention with linear biases: scores fall with the distance of key and query, by a slope of the head."""

from typing import Any

import numpy as np

from tinygpu.language import Input, Tracer, uniform
from tinygpu.machines.attention_ampere import AttentionAmpere
from tinygpu.ptx import isa


class Alibi(AttentionAmpere):
    """o = softmax(scale q k^T - slope[h] |i - j|) v of every head: attention with ALiBi, causal or not"""

    slope = Input("f32", AttentionAmpere.h, values=uniform(0.0, 0.5))
    single = isa.LdGlobal(1)

    def seen(self, p: Tracer, at: Any, i: Any, rows: Any) -> Any:
        self.place = at, i
        return super().seen(p, at, i, rows)

    def weights(self, p: Tracer, w: Any, low: Any, total: Any, keys: Any, end: Any, query: Any = None) -> Any:
        (_, h, _), i = self.place
        who = w.partition
        row = p.cast(p.index(who.along(0), 0) + i, "f32")
        column = p.cast(p.index(who.along(1), 1) + keys[0], "f32")
        slope = p.load(self.single, self.slope.row(h, 1), who.reduced(0).reduced(1))
        away = column - row
        w = w - abs(away) * (slope / self.scale)
        return super().weights(p, w, low, total, keys, end, query)

    @staticmethod
    def reference(q: Any, k: Any, v: Any, slope: Any, scale: Any, causal: Any) -> Any:
        w = np.einsum("bhgsd,bhtd->bhgst", q.astype(np.float32), k.astype(np.float32)) * scale
        row, column = np.arange(w.shape[3])[:, None], np.arange(w.shape[4])
        w = w - slope[None, :, None, None, None] * np.abs(column - row)
        if causal:
            w = np.where(column <= row, w, -np.inf)
        e = np.exp(w - w.max(axis=4, keepdims=True))
        weighed = np.einsum("bhgst,bhtd->bhgsd", e.astype(q.dtype).astype(np.float32), v.astype(np.float32))
        return weighed / e.sum(axis=4, keepdims=True)
