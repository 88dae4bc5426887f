"""A sparse matrix times a dense one, added to what is there: rows that ids name, several at a time."""

from itertools import pairwise
from typing import Any

import numpy as np

from tinygpu.language import Dim, InOut, Input, Machine, Param, Scalar, Tracer, ascending, blocked, integers
from tinygpu.ptx import isa


class SparseProduct(Machine):
    """c = alpha a @ b + beta c, of a matrix in CSR: the warps of a CTA share a row, and one of them stores it"""

    m, n, nnz, d = Dim(), Dim(), Dim(), Dim()
    ends = Dim(follows=lambda m: m + 1)
    alpha, beta = Scalar("f32"), Scalar("f32")
    first = Input("s32", ends, values=ascending(0, nnz, ends=True))
    column, value = Input("s32", nnz, values=integers(0, n)), Input("f16", nnz)
    b, c = Input("f16", n, d), InOut("f32", m, d)

    warps, step, vector = Param(1, 2, 4), Param(4, 8, 16), Param(1, 2, 4)
    ld, ld_c, st = isa.LdGlobalReadOnly(vector), isa.LdGlobal(vector), isa.StGlobal(vector)
    single, add, exchange = isa.LdGlobalReadOnly(1), isa.Add("f32"), isa.Exchange("shuffles")
    arithmetic, compute, contract = isa.arithmetic("f32"), "f32", True

    def program(self, p: Tracer) -> None:
        shape = (self.step, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32)
        with p.grid((self.m, 1), (self.d, shape[1])) as (i, j), p.role("all", warps=self.warps):
            begin, end = self.first[i], self.first[i + 1]
            columns, values = self.column.segment(begin, end), self.value.segment(begin, end)
            total = p.full(who, "f32")
            with p.loop(p.until(end - begin), step=self.step) as k:
                columns_k, values_k = (t.tile(k, shape=(self.step,)).unsqueeze(1) for t in (columns, values))
                ids = p.load(self.single, columns_k, who.along(0), fill=-1)  # behind the row's end there is no row of b
                a = p.load(self.single, values_k, who.along(0))
                total += a * p.load(self.ld, self.b.rows(ids).tile(0, j, shape=shape), who)
            found = p.reduce(self.add, total, axis=0, by=self.exchange)
            old = p.load(self.ld_c, self.c.tile(i, j, shape=(1, shape[1])), who.along(1))
            p.store(self.st, self.c.tile(i, j, shape=(1, shape[1])), self.alpha * found + self.beta * old)

    @staticmethod
    def reference(alpha: Any, beta: Any, first: Any, column: Any, value: Any, b: Any, c: Any) -> Any:
        products = value[:, None] * b[column]
        return alpha * np.stack([products[int(s) : int(e)].sum(axis=0) for s, e in pairwise(first)]) + beta * c
