"""Attention of few queries over keys and values in pages, which a table lists for each batch: as servers keep them.

As `attention_decoding`, but tile after tile lies where the table says: its page is read when the tile is asked for. A
page is a whole number of tiles, so that no tile lies in two. Pages that are not used, and what lies behind the last key
of the last page, are not read.
"""

from __future__ import annotations

from typing import Any

from tinygpu.language import (
    Dim,
    Input,
    Output,
    Param,
    Plan,
    Require,
    Scalar,
    Step,
    Tracer,
    Workspace,
    between,
    ceil_div,
    integers,
    minimum,
    uniform,
)
from tinygpu.machines.attention import ALIKE, KINDS, Seen
from tinygpu.machines.attention_decoding import AllParts, AttentionDecoding, KeysOfPart, PartsOfKeys


def gathered(pool: Any, table: Any) -> Any:
    """Keys or values of each batch behind one another: (b, h, t, d) of (pages, h, page, d)."""
    b, most = table.shape
    _, h, page, d = pool.shape
    return pool[table].transpose(0, 2, 1, 3, 4).reshape(b, h, most * page, d)


class KeysOfPages(PartsOfKeys):
    """What part c of the keys adds to each row, of keys in pages: sums of values, largest scores, sums of weights"""

    most, pages, page = Dim(), Dim(), Dim(16, 64, 128, 256)
    k = Input(ALIKE, pages, PartsOfKeys.h, page, PartsOfKeys.d, follows=PartsOfKeys.q)
    v = Input(ALIKE, pages, PartsOfKeys.h, page, PartsOfKeys.d, follows=PartsOfKeys.q, values=uniform(-256, 256))
    table = Input("s32", PartsOfKeys.b, most, values=integers(0, pages))
    lengths = Input("s32", PartsOfKeys.b, values=integers(0, most * page + 1))
    whole = Require(page % PartsOfKeys.bn == 0, "a page is a whole number of tiles")

    def program(self, p: Tracer) -> None:
        self.attend(p)

    def keys(self, p: Tracer, at: Any, seen: Seen, j: Any, shape: Any, who: Any = None) -> Any:
        """In the page in which they lie."""
        (z, h, _), number = at, j // self.page
        page, last = self.table[z, number], minimum(seen.end - number * self.page, self.page)
        k, v = (of.at(page, h).segment(0, last).tile(j % self.page, 0, shape=shape) for of in (self.k, self.v))
        return k, v

    @staticmethod
    def reference(q: Any, k: Any, v: Any, table: Any, lengths: Any, scale: Any, c: int, chunk: int) -> Any:
        return KeysOfPart.reference(q, gathered(k, table), gathered(v, table), lengths, scale, c, chunk)


class AttentionPaged(Plan):
    """o = softmax(scale * q @ k.T) @ v, of the first keys of every batch, which lie in pages"""

    b, h, r, d = Dim(), Dim(), Dim(), Dim(64, 128, 256)
    most, pages, page = Dim(), Dim(), Dim(16, 64, 128, 256)
    q = Input(KINDS, b, h, r, d)
    k = Input(ALIKE, pages, h, page, d, follows=q)
    v = Input(ALIKE, pages, h, page, d, follows=q, values=uniform(-256, 256))
    table = Input("s32", b, most, values=integers(0, pages))
    lengths = Input("s32", b, values=integers(0, most * page + 1))
    o = Output(ALIKE, b, h, r, d, follows=q)
    scale = Scalar("f32", values=between(0.05, 0.2))

    chunk = Param(256, 512, 1024, 2048, 4096, 8192)  # whole pages
    c = ceil_div(most * page, chunk)
    partial = Workspace("f32", b, h, c, r, d)
    tops, totals = Workspace("f32", b, h, c, r), Workspace("f32", b, h, c, r)
    each = Step(
        KeysOfPages, q=q, k=k, v=v, table=table, lengths=lengths, scale=scale, o=partial, top=tops, total=totals,
        chunk=chunk,
    )  # fmt: skip
    rest = Step(AllParts, x=partial, top=tops, total=totals, o=o)

    @staticmethod
    def reference(q: Any, k: Any, v: Any, table: Any, lengths: Any, scale: Any) -> Any:
        return AttentionDecoding.reference(q, gathered(k, table), gathered(v, table), lengths, scale)
