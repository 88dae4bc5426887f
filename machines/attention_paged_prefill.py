"""Attention of many queries over keys and values in pages, which a table lists for each sequence: prompts of a server.

As `attention_varlen`, but each row of keys lies where the table says. The threads that copy a row by cp.async look up
its page themselves, so that tiles of keys need not fit into pages: those of 16 keys take tiles of 64. What lies behind
the last key of a sequence is not read.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tinygpu.language import Dim, Input, Tracer, integers, uniform
from tinygpu.machines.attention import ALIKE, Attention, Seen
from tinygpu.machines.attention_ampere import AttentionAmpere
from tinygpu.machines.attention_varlen import Ragged, attended


class Pages(Ragged):
    """Keys: rows of pages; `table` lists the pages of each sequence, and `lengths` says how many keys it has."""

    listed, pages, page = Dim(), Dim(), Dim(16, 32, 64, 128, 256)
    t, slots = Dim(follows=lambda listed, page: listed * page), Dim(follows=lambda pages, page: pages * page)
    k = Input(ALIKE, Attention.h, slots, Attention.d, follows=Ragged.q)
    v = Input(ALIKE, Attention.h, slots, Attention.d, follows=Ragged.q, values=uniform(-256, 256))
    first_q, o = Ragged.first_q, Ragged.o
    lengths = Input("s32", Attention.b, values=integers(0, t + 1))
    table = Input("s32", Attention.b, listed, values=integers(0, pages))

    def keys_of(self, z: Any) -> Any:
        return self.lengths[z]

    def keys(self, p: Tracer, at: Any, seen: Seen, j: Any, shape: Any, who: Any = None) -> Any:
        """Rows of keys and values, by the page in which each lies; those behind the last one are nowhere."""
        (z, h, _), held, rows = at, who.along(0).squeeze(1), int(self.page)
        key, inside = p.index(held, 0) + j, rows.bit_length() - 1
        page = p.load(self.single, self.table.at(z).rows(key >> inside).tile(0, shape=shape[:1]), held)
        slot = p.where(key < seen.end, (page << inside) + (key & (rows - 1)), -1)
        return tuple(of.at(h).rows(slot).tile(0, 0, shape=shape) for of in (self.k, self.v))

    @staticmethod
    def reference(  # type: ignore[override]  # other operands
        q: Any, k: Any, v: Any, first_q: Any, lengths: Any, table: Any, scale: Any, causal: bool, page: int
    ) -> Any:
        parts = []
        for a, b, n, pages in zip(first_q, first_q[1:], lengths, table, strict=False):
            slots = (pages[:, None] * page + np.arange(page)).reshape(-1)[: int(n)]
            parts.append(attended(q[:, :, a:b], k[:, slots], v[:, slots], scale, causal))
        return np.concatenate(parts, axis=2)


class AttentionPagedPrefill(Pages, AttentionAmpere):
    """o = softmax(scale * q @ k.T) @ v of every sequence and head, of keys in pages, causal or not: mma.sync"""
