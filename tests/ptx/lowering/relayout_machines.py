"""Machines whose values change holders: accumulators that become rows, and accumulators that become operands."""

from __future__ import annotations

from typing import Any

from tinygpu.language import (
    Choice,
    Dim,
    E,
    Input,
    Layout,
    Machine,
    Output,
    Param,
    Partition,
    Require,
    Route,
    UnknownLayout,
    blocked,
    register_blocked,
)
from tinygpu.ptx import isa


class RowsOfProducts(Machine):
    """c = a @ b: accumulators are given to lanes that store whole vectors of rows, each warp those of its part"""

    m, n, k = Dim(), Dim(), Dim()
    a = Input(("f16", "bf16"), m, k)
    b = Input({"f16": ("f16",), "bf16": ("bf16",)}, k, n, follows=a)
    c = Output({"f16": ("f16", "f32"), "bf16": ("bf16", "f32")}, m, n, follows=a)

    bm, bn = Param(32, 64, 96), Param(32, 64, 96)
    warps_m, warps_n = Param(1, 2), Param(1, 2)
    vc, across = Param(1, 2, 4, 8), Param(1, 2, 4, 8, 16)  # neighbours of a lane, and lanes side by side
    layout_a, layout_b, layout_c = UnknownLayout(), UnknownLayout(), UnknownLayout()
    copy, fragment, mma = isa.CpAsync(8), isa.LdMatrix(), isa.MmaSync()
    way: Any = Choice(isa.ShflIdx(), Route(isa.LdShared(vc), isa.StShared(2)))
    st = isa.StGlobal(vc)
    whole_rows = Require(bn // warps_n % (vc * across) == 0, "a warp's rows are whole passes of its lanes")
    whole_columns = Require(bm // warps_m % (32 // across) == 0, "a warp's columns are whole passes of its lanes")

    def program(self, p: Any) -> None:
        bm, bn, bk, warps = self.bm, self.bn, 32, self.warps_m * self.warps_n
        kind, result = self.a.dtype, self.c.dtype
        t = p.tiled(self.mma, kind, kind, (bm, bn), (self.warps_m, self.warps_n))
        who_a = blocked((bm, bk), threads=32 * warps, vector=8, name="a")
        who_b = blocked((bk, bn), threads=32 * warps, vector=8, name="b")
        tall, wide = 32 // self.across, self.vc * self.across
        lanes = [(self.across, self.vc * E(1)), (tall, E(0))]
        parts = [(self.warps_m, (bm // self.warps_m) * E(0)), (self.warps_n, (bn // self.warps_n) * E(1))]
        passes = [(bn // self.warps_n // wide, wide * E(1)), (bm // self.warps_m // tall, tall * E(0))]
        rows = Partition((bm, bn), Layout.of([*lanes, *parts], [(self.vc, E(1)), *passes]))
        a_stage = p.smem(kind, (bm, bk), layout=self.layout_a)
        b_stage = p.smem(kind, (bk, bn), layout=self.layout_b)
        with p.grid((self.m, bm), (self.n, bn)) as (i, j):
            with p.pipeline("ring", 2, a=a_stage, b=b_stage) as ring, p.role("all", warps=warps):
                with p.loop(self.k, step=bk) as kk, ring.produce() as s:
                    p.copy(self.copy, self.a.tile(i, kk, shape=(bm, bk)), s.a, who_a)
                    p.copy(self.copy, self.b.tile(kk, j, shape=(bk, bn)), s.b, who_b)
                acc = p.full(t.c, "f32")
                with p.loop(self.k, step=bk), ring.consume() as s, p.unroll(bk, step=t.k) as kt:
                    fa = p.load(self.fragment, s.a.window((0, kt), (bm, t.k)), t.a)
                    fb = p.load(self.fragment, s.b.window((kt, 0), (t.k, bn)), t.b)
                    p.multiply(self.mma, acc, fa, fb)
            with p.role("all", warps=warps):
                out = p.apply(isa.Cvt("f32", result.name), acc) if result.name != "f32" else acc
                through = {"layout": self.layout_c} if isinstance(self.way, Route) else {}
                p.store(self.st, self.c.tile(i, j, shape=(bm, bn)), p.relayout(out, rows, self.way, **through))

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return a @ b


class TwoProducts(Machine):
    """o = (q @ k.T) @ v: the accumulators of one product are the left operand of the next"""

    m, n, d = Dim(), Dim(), Dim()
    q = Input(("f16", "tf32", "s8"), m, d)
    k = Input({"f16": ("f16",), "tf32": ("tf32",), "s8": ("s8",)}, n, d, follows=q)
    v = Input({"f16": ("f16",), "tf32": ("tf32",), "s8": ("s8",)}, n, d, follows=q)
    o = Output({"f16": ("f32",), "tf32": ("f32",), "s8": ("s32",)}, m, d, follows=q)

    warps = Param(1, 2)
    mma, ld, st = isa.MmaSync(), isa.LdGlobal(1), isa.StGlobal(2)
    way: Any = Choice(isa.ShflIdx(), Route(isa.LdShared(1), isa.StShared(2)))
    layout_s = UnknownLayout()
    depth_is_32 = Require(d == 32, "the depth is 32")
    approximation = 2.0**-9  # weights are rounded

    def program(self, p: Any) -> None:
        kind, bm, depth = self.q.dtype, self.warps * 16, 32
        _, _, step = self.mma.shape(kind, kind)
        s = p.tiled(self.mma, kind, kind, (bm, step), (self.warps, 1))
        t = p.tiled(self.mma, kind, kind, (bm, depth), (self.warps, 1))
        total = self.mma.accumulator(kind, kind)
        with p.grid((self.m, bm)) as (i,), p.role("all", warps=self.warps):
            out = p.full(t.c, total)
            with p.loop(self.n, step=step) as j:
                scores = p.full(s.c, total)
                for at in range(0, depth, step):
                    queries = p.load(self.ld, self.q.tile(i, at, shape=(bm, step)), s.a)
                    keys = p.load(self.ld, self.k.tile(j, at, shape=(step, step)), s.b.T)
                    p.multiply(self.mma, scores, queries, keys.T)
                weights = self.weights(p, scores, kind.name)
                through = {"layout": self.layout_s} if isinstance(self.way, Route) else {}
                share = p.relayout(weights, t.a, self.way, **through)
                values = p.load(self.ld, self.v.tile(j, 0, shape=(step, depth)), t.b)
                p.multiply(self.mma, out, share, values)
            p.store(self.st, self.o.tile(i, 0, shape=(bm, depth)), out)

    def weights(self, p: Any, scores: Any, kind: str) -> Any:
        """In the type of the operands."""
        if kind == "s8":
            small = p.apply(isa.And("s32"), scores, 3)
            return p.apply(isa.Cvt("s32", "s8"), small)
        return p.apply(isa.Cvt("f32", kind), scores)

    @staticmethod
    def reference(q: Any, k: Any, v: Any) -> Any:
        weights = q @ k.T
        if weights.dtype.kind == "i":
            weights = weights & 3
        return weights @ v


class BesideAnotherRole(Machine):
    """y = x + x: one role brings tiles, another gives their values to other holders; more threads than a tile needs"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)

    keepers, stages = Param(2, 3, 4), Param(1, 2)
    tma, st, get, add = isa.TmaLoad(), isa.StGlobal(4), isa.LdShared(1), isa.Add("f32")
    way: Any = Choice(isa.ShflIdx(), Route(isa.LdShared(4), isa.StShared(1)))

    def program(self, p: Any) -> None:
        shape = (32, 16)
        columns = register_blocked(shape, threads=(4, 16), block=(4, 1))
        rows = blocked(shape, threads=64, vector=4, across=4)
        with (
            p.grid((self.m, 32)) as (i,),
            p.pipeline("ring", self.stages, x=p.smem("f32", shape, swizzle=64)) as ring,
        ):
            with p.role("bring", warps=1), p.loop(self.n, step=16) as j, ring.produce() as s:
                p.copy(self.tma, self.x.tile(i, j, shape=shape), s.x)
            with p.role("keep", warps=self.keepers, first=1), p.loop(self.n, step=16) as j, ring.consume() as s:
                value = p.load(self.get, s.x, columns)
                other = p.relayout(p.apply(self.add, value, value), rows, self.way)
                p.store(self.st, self.y.tile(i, j, shape=shape), other)

    @staticmethod
    def reference(x: Any) -> Any:
        return x + x
