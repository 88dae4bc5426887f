"""Attention of sequences of any lengths, which lie one behind the other: offsets say where each begins, as in
FlashAttention's varlen.

The programs are those of `attention_ampere` and `attention_hopper`, of windows that begin where data say and end with
their sequence. The grid has as many tiles for each sequence as the longest one; those behind the last query of a
shorter one have no rounds. Causal means that the last query of a sequence sees all keys, each before it one key less.
Sequences are drawn with any lengths, none and the longest among them; times are predicted for those of even lengths.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from tinygpu.language import Dim, Input, Output, Require, Tracer, ascending, maximum, minimum, normal, uniform
from tinygpu.machines.attention import ALIKE, KINDS, SMALLEST, Attention, Seen
from tinygpu.machines.attention_ampere import AttentionAmpere
from tinygpu.machines.attention_hopper import AttentionHopper
from tinygpu.ptx import isa


def attended(q: Any, k: Any, v: Any, scale: Any, causal: bool) -> Any:
    """(h, g, s, d) of one sequence: of (h, g, s, d), (h, t, d) and (h, t, d); zeros where nothing is seen."""
    s, t = q.shape[2], k.shape[1]
    w = np.einsum("hgsd,htd->hgst", q.astype(np.float32), k.astype(np.float32)) * scale
    seen = np.arange(t) <= np.arange(s)[:, None] + (t - s if causal else t)
    top = np.where(seen, w, -1e30).max(axis=3, keepdims=True, initial=-1e30)
    e = np.exp(np.where(seen, w - top, -np.inf))
    weighed = np.einsum("hgst,htd->hgsd", e.astype(q.dtype).astype(np.float32), v.astype(np.float32))
    return weighed / np.maximum(e.sum(axis=3, keepdims=True), SMALLEST)


class Ragged(Attention):
    """Queries: b sequences in s rows, of which none has more than the longest; keys are with those that derive."""

    h, g, s, d = Attention.h, Attention.g, Attention.s, Attention.d
    longest, ends = Dim(), Dim(follows=lambda b: b + 1)
    q = Input(KINDS, h, g, s, d)
    first_q = Input("s32", ends, values=ascending(0, s, ends=True, apart=longest))
    o = Output(ALIKE, h, g, s, d, follows=q)
    single = isa.LdGlobalReadOnly(1)
    fits = Require(longest <= s, "no sequence has more queries than all together")

    def tiles(self, rows: Any) -> tuple[tuple[Any, Any], ...]:
        return (self.b, 1), (self.h, 1), (self.g, 1), (self.longest, rows)

    def queries(self, at: Any, i: Any, shape: Any) -> Any:
        return self.rows_of(self.q, at, i, shape)

    def rows_of(self, of: Any, at: Any, i: Any, shape: Any) -> Any:
        """The rows of a sequence in q or o."""
        z, h, g = at
        return of.at(h, g).segment(self.first_q[z], self.first_q[z + 1]).tile(i, 0, shape=shape)

    def keys_of(self, z: Any) -> Any:
        """How many keys a sequence has."""
        raise NotImplementedError

    def seen(self, p: Tracer, at: Any, i: Any, rows: Any) -> Seen:
        z, _, _ = at
        queries, keys = self.first_q[z + 1] - self.first_q[z], self.keys_of(z)
        there = minimum(maximum(queries - i, 0), 1)  # no rounds behind the last query
        if not self.causal:
            return Seen(0, p.until(keys * there), keys)
        behind = keys - queries
        return Seen(0, p.until(minimum(keys, maximum(behind + i + rows, 0)) * there), keys, behind + i)

    def leave(self, p: Tracer, at: Any, i: Any, o: Any, low: Any, total: Any) -> None:
        p.store(self.st, self.rows_of(self.o, at, i, o.shape), o * (1.0 / maximum(total, SMALLEST)))


class Sequences(Ragged):
    """Keys: those of all sequences in t rows."""

    k = Input(ALIKE, Attention.h, Attention.t, Attention.d, follows=Ragged.q)
    v = Input(ALIKE, Attention.h, Attention.t, Attention.d, follows=Ragged.q, values=uniform(-256, 256))
    first_q, o = Ragged.first_q, Ragged.o
    first_k = Input("s32", Ragged.ends, values=ascending(0, Attention.t, ends=True))

    def keys_of(self, z: Any) -> Any:
        return self.first_k[z + 1] - self.first_k[z]

    def keys(self, p: Tracer, at: Any, seen: Seen, j: Any, shape: Any, who: Any = None) -> Any:
        z, h, _ = at
        first, end = self.first_k[z], self.first_k[z + 1]
        return tuple(of.at(h).segment(first, end).tile(j, 0, shape=shape) for of in (self.k, self.v))

    @staticmethod
    def reference(  # type: ignore[override]  # other operands
        q: Any, k: Any, v: Any, first_q: Any, first_k: Any, scale: Any, causal: bool
    ) -> Any:
        parts = [
            attended(q[:, :, a:b], k[:, c:d], v[:, c:d], scale, causal)
            for a, b, c, d in zip(first_q, first_q[1:], first_k, first_k[1:], strict=False)
        ]
        return np.concatenate(parts, axis=2)


class AttentionVarlenAmpere(Sequences, AttentionAmpere):
    """o = softmax(scale * q @ k.T) @ v of every sequence and head, causal or not: mma.sync, fed by cp.async"""


class AttentionVarlenHopper(Sequences, AttentionHopper):
    """o = softmax(scale * q @ k.T) @ v of every sequence and head, causal or not: TMA and wgmma, by roles

    TMA brings whole tiles, also of a sequence that ends in one: what it brings of the next one has weights of 0. So the
    values of v are numbers, without NaN and infinities, as in FlashAttention-3.
    """

    v = Input(ALIKE, Attention.h, Attention.t, Attention.d, follows=Sequences.q, values=normal(0, 1))
    first_q, first_k, o = Sequences.first_q, Sequences.first_k, Sequences.o  # behind v, as they were
    registers: ClassVar = {1: (40, 232), 2: (40, 232), 3: (32, 160)}  # offsets take some of the first

    def queries(self, at: Any, i: Any, shape: Any) -> Any:
        z, h, g = at
        return self.q.at(h, g).tile(self.first_q[z] + i, 0, shape=shape)

    def keys(self, p: Tracer, at: Any, seen: Seen, j: Any, shape: Any, who: Any = None) -> Any:
        z, h, _ = at
        return tuple(of.at(h).tile(self.first_k[z] + j, 0, shape=shape) for of in (self.k, self.v))

    def seen(self, p: Tracer, at: Any, i: Any, rows: Any) -> Seen:
        """At least one tile, so that there is something to begin with; of no keys its weights are 0."""
        seen = super().seen(p, at, i, rows)
        return replace(seen, count=p.until(maximum(seen.count, 1)))
