"""Embedding: rows of a table by their numbers, y[i] = table[ids[i]].

A CTA takes some ids and a stretch of their rows: the lanes that lie side by side along a row load its id once, and
then the row in vectors, so that each warp instruction touches whole sectors of as many rows as it has ids. Nothing is
computed, so all that is searched is how wide a row lies across lanes, how much of it each thread has under way, and
whether it is read as data that nobody writes.
"""

from __future__ import annotations

from typing import Any

from tinygpu.language import Choice, Dim, Input, Machine, Output, Param, Require, Tracer, blocked, integers
from tinygpu.ptx import isa

KINDS = ("f32", "f16", "bf16", "e4m3", "s8")
ALIKE: dict[str, tuple[str, ...]] = {kind: (kind,) for kind in KINDS}


class Embedding(Machine):
    """y[i] = table[ids[i]]"""

    m, n, v = Dim(), Dim(), Dim()
    table = Input(KINDS, v, n)
    ids = Input(("s32", "u32"), m, values=integers(0, v))
    y = Output(ALIKE, m, n, follows=table)

    warps, across = Param(1, 2, 4, 8), Param(1, 2, 4, 8, 16, 32, 64, 128, 256)
    vector, step, rows = Param(1, 2, 4, 8, 16), Param(1, 2, 4), Param(1, 2, 4)
    ld = Choice(isa.LdGlobalReadOnly(vector), isa.LdGlobal(vector))
    st, ld_id = isa.StGlobal(vector), isa.LdGlobalReadOnly(1)

    lanes = Require(across <= 32 * warps, "the threads along a row are threads of the CTA")

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps // self.across * self.rows, self.across * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            ids = p.load(self.ld_id, self.ids.column(i, shape[0]), who.along(0))
            row = p.load(self.ld, self.table.rows(ids).tile(0, j, shape=shape), who)
            p.store(self.st, self.y.tile(i, j, shape=shape), row)

    @staticmethod
    def reference(table: Any, ids: Any) -> Any:
        return table[ids]
