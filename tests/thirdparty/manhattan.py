"""Distances between rows, without tensor cores."""

from typing import Any

import numpy as np

from tinygpu.language import (
    AccessPattern,
    Choice,
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Route,
    Tracer,
    UnknownLayout,
    blocked,
    register_blocked,
)
from tinygpu.ptx import isa


class Manhattan(Machine):
    """d[i, j] = sum over k of |a[i, k] - b[j, k]|"""

    m, n, k = Dim(), Dim(), Dim()
    a, b = Input("f32", m, k), Input("f32", n, k)
    d = Output("f32", m, n)

    bm, bn, bk = Param(32, 64), Param(32, 64), Param(8, 16)
    threads_m, threads_n = Param(8, 16), Param(8, 16)
    vm, vn, vector, stages = Param(1, 4), Param(1, 4), Param(1, 4), Param(1, 2, 3)
    across = AccessPattern(1, 2, 4, 8, 16)
    layout_a, layout_b = UnknownLayout(), UnknownLayout()

    copy = Choice(isa.CpAsync(vector), Route(isa.LdGlobal(vector), isa.StShared(1)))
    get, st, arithmetic = isa.LdShared(1), isa.StGlobal(vn), isa.arithmetic("f32")

    def program(self, p: Tracer) -> None:
        threads = self.threads_m * self.threads_n
        rows, columns = (self.bm, self.bk), (self.bn, self.bk)
        who_a = blocked(rows, threads=threads, vector=self.vector, across=self.across, name="a")
        who_b = blocked(columns, threads=threads, vector=self.vector, across=self.across, name="b")
        who = register_blocked(
            (self.bm, self.bn), threads=(self.threads_m, self.threads_n), block=(self.vm, self.vn), name="d"
        )
        a, b = p.smem("f32", rows, layout=self.layout_a), p.smem("f32", columns, layout=self.layout_b)
        with (
            p.grid((self.m, self.bm), (self.n, self.bn)) as (i, j),
            p.pipeline("ring", self.stages, a=a, b=b) as ring,
            p.role("all", warps=threads // 32),
        ):
            with p.loop(self.k, step=self.bk) as kk, ring.produce() as slot:
                p.copy(self.copy, self.a.tile(i, kk, shape=rows), slot.a, who_a)
                p.copy(self.copy, self.b.tile(j, kk, shape=columns), slot.b, who_b)
            total = p.full(who, "f32")
            with p.loop(self.k, step=self.bk), ring.consume() as slot, p.unroll(self.bk) as kt:
                a = p.load(self.get, slot.a.window((0, kt), (self.bm, 1)), who.along(0))
                b = p.load(self.get, slot.b.window((0, kt), (self.bn, 1)), who.along(1).T)
                total += abs(a - b.T)
            p.store(self.st, self.d.tile(i, j, shape=(self.bm, self.bn)), total)

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return np.abs(a[:, None, :] - b[None, :, :]).sum(axis=2)
