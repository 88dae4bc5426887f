"""What data divide: softmax of segments, runs of equal numbers, blocks of a sparse matrix."""

import math
from itertools import pairwise
from typing import Any

import numpy as np

from tinygpu.language import (
    AccessPattern,
    Dim,
    InOut,
    Input,
    Machine,
    Output,
    Param,
    Tracer,
    UnknownLayout,
    ascending,
    blocked,
    exp,
    integers,
    not_equal,
    where,
)
from tinygpu.ptx import isa


class SegmentSoftmax(Machine):
    """y = softmax of x within each segment of a CSR list"""

    g, n = Dim(), Dim()
    ends = Dim(follows=lambda g: g + 1)
    ptr = Input("s32", ends, values=ascending(0, n, ends=True))
    x, y = Input("f32", n), InOut("f32", n)
    warps = Param(1, 2, 4)
    ld, st, exchange = isa.LdGlobal(1), isa.StGlobal(1), isa.Exchange()
    larger, add, arithmetic = isa.Max("f32"), isa.Add("f32"), isa.arithmetic("f32")
    exact = False

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps,)
        who = blocked(shape, threads=32 * self.warps)
        with p.grid((self.g, 1)) as (i,), p.role("all", warps=self.warps):
            begin, end = self.ptr[i], self.ptr[i + 1]
            x, y = self.x.segment(begin, end), self.y.segment(begin, end)
            top, total = p.full(who, "f32", -math.inf), p.full(who, "f32")
            with p.loop(p.until(end - begin), step=shape[0]) as k:
                p.apply(self.larger, top, p.load(self.ld, x.tile(k, shape=shape), who, fill=-math.inf), into=top)
            largest = p.reduce(self.larger, top, axis=0, by=self.exchange)
            with p.loop(p.until(end - begin), step=shape[0]) as k:
                total += exp(p.load(self.ld, x.tile(k, shape=shape), who, fill=-math.inf) - largest)
            norm = p.reduce(self.add, total, axis=0, by=self.exchange)
            with p.loop(p.until(end - begin), step=shape[0]) as k:
                p.store(
                    self.st, y.tile(k, shape=shape), exp(p.load(self.ld, x.tile(k, shape=shape), who) - largest) / norm
                )

    @staticmethod
    def reference(ptr: Any, x: Any, y: Any) -> Any:
        out = []
        for a, b in pairwise(ptr):
            part = x[int(a) : int(b)]
            if int(b) > int(a):
                e = np.exp(part - part.max())
                out.append(e / e.sum())
        return np.concatenate(out)


class RunLengths(Machine):
    """rank[i] = number of the run of equal numbers that i is in; lengths[r] += elements of run r"""

    n, r = Dim(), Dim()
    x, rank, lengths = Input("s32", n, values=integers(0, 3)), Output("s32", n), InOut("s32", n)
    warps, vector = Param(2, 4), Param(1, 2)
    ld, st, red, exchange = isa.LdGlobal(1), isa.StGlobal(1), isa.RedGlobal("add"), isa.Exchange("shuffles")
    whole, add = isa.arithmetic("s32"), isa.Add("s32")

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps * self.vector,)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, shape[0])) as (i,), p.role("all", warps=self.warps):
            x, before = (p.load(self.ld, self.x.tile(o, shape=shape), who, fill=-1) for o in (i, i - 1))
            at = p.index(who, 0) + i
            begins = where(not_equal(x, before), 1, 0)
            rank = p.scan(self.add, begins, axis=0, by=self.exchange, grid=0) - 1
            p.store(self.st, self.rank.tile(i, shape=shape), rank)
            p.store(
                self.red, self.lengths.rows(where(at < self.n, rank, -1)).tile(0, shape=shape), p.full(who, "s32", 1)
            )

    @staticmethod
    def reference(x: Any, lengths: Any) -> Any:
        begins = np.concatenate([[1], (x[1:] != x[:-1]).astype(np.int64)])
        rank = np.cumsum(begins) - 1
        return {"rank": rank, "lengths": lengths + np.bincount(rank, minlength=len(x))}


class BlockSparse(Machine):
    """y = S @ b: S of 32 x 32 blocks; those of block row i are from ptr[i] to ptr[i + 1], in block column at[e]"""

    rows, columns, blocks, n = Dim(), Dim(), Dim(), Dim()
    ends = Dim(follows=lambda rows: rows + 1)
    m, k = Dim(follows=lambda rows: 32 * rows), Dim(follows=lambda columns: 32 * columns)
    ptr = Input("s32", ends, values=ascending(0, blocks, ends=True))
    at = Input("s32", blocks, values=integers(0, columns))
    s, b = Input("f16", blocks, 32, 32), Input("f16", k, n)
    y = Output("f32", m, n)
    bn, warps, vector = Param(32, 64), Param(1, 2), Param(2, 4, 8)
    across_s, across_b, layout_s, layout_b = AccessPattern(), AccessPattern(), UnknownLayout(), UnknownLayout()
    copy, fragment, mma, st, single = (
        isa.CpAsync(vector),
        isa.LdMatrix(),
        isa.MmaSync(),
        isa.StGlobal(1),
        isa.LdGlobalReadOnly(1),
    )

    def program(self, p: Tracer) -> None:
        t = p.tiled(self.mma, "f16", "f16", (32, self.bn), (1, self.warps))
        threads = 32 * self.warps
        who_s = blocked((32, 32), threads=threads, vector=self.vector, across=self.across_s, name="s")
        who_b = blocked((32, self.bn), threads=threads, vector=self.vector, across=self.across_b, name="b")
        s_stage, b_stage = (
            p.smem("f16", (32, 32), layout=self.layout_s),
            p.smem("f16", (32, self.bn), layout=self.layout_b),
        )
        grid = p.grid((self.rows, 1), (self.n, self.bn))
        with grid as (i, j), p.pipeline("ring", 2, s=s_stage, b=b_stage) as ring, p.role("all", warps=self.warps):
            begin, end = self.ptr[i], self.ptr[i + 1]
            with p.loop(p.until(end - begin)) as e, ring.produce() as f:
                p.copy(self.copy, self.s.at(begin + e).tile(0, 0, shape=(32, 32)), f.s, who_s)
                p.copy(self.copy, self.b.tile(self.at[begin + e] * 32, j, shape=(32, self.bn)), f.b, who_b)
            total = p.full(t.c, "f32")
            with p.loop(p.until(end - begin)), ring.consume() as f, p.unroll(32, step=t.k) as kt:
                a = p.load(self.fragment, f.s.window((0, kt), (32, t.k)), t.a)
                b = p.load(self.fragment, f.b.window((kt, 0), (t.k, self.bn)), t.b)
                p.multiply(self.mma, total, a, b)
            p.store(self.st, self.y.tile(i * 32, j, shape=(32, self.bn)), total)

    @staticmethod
    def reference(ptr: Any, at: Any, s: Any, b: Any, rows: Any) -> Any:
        b = b.reshape(-1, 32, b.shape[1])
        zero = np.zeros((32, b.shape[2]))
        return np.concatenate(
            [sum((s[e] @ b[at[e]] for e in range(int(ptr[i]), int(ptr[i + 1]))), zero) for i in range(rows)]
        )
