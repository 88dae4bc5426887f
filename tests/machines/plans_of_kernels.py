"""Plans of the tests: split-K with a kernel that combines, softmax in three passes, column sums in two."""

import math
from typing import Any

import numpy as np

from tinygpu.language import (
    Dim,
    Input,
    Machine,
    Option,
    Output,
    Param,
    Plan,
    Require,
    Route,
    Scalar,
    Step,
    Workspace,
    blocked,
    ceil_div,
    register_blocked,
    symbol,
)
from tinygpu.ptx import isa

LOG2_E = 1.4426950408889634


class PartialProducts(Machine):
    """c[z] = a @ b over the part z of k, of `chunk` terms"""

    m, n, k, parts = Dim(), Dim(), Dim(), Dim()
    a, b = Input("f32", m, k), Input("f32", k, n)
    c = Output("f32", parts, m, n)

    bm, bn, bk, chunk = Param(16, 32), Param(32, 64), Param(4, 8), Param(16, 32, 64, 128)
    stages, va, vb = Param(1, 2, 3), Param(1, 2), Param(1, 2, 4)
    copy_a, copy_b = isa.CpAsync(va), Route(isa.LdGlobal(vb), isa.StShared(1))
    get, fma, st = isa.LdShared(1), isa.Fma("f32"), isa.StGlobal(1)
    whole_rounds = Require(chunk % bk == 0, "a part is a whole number of rounds")

    def program(self, p: Any) -> None:
        rows, columns, tile = (self.bm, self.bk), (self.bk, self.bn), (self.bm, self.bn)
        who_a = blocked(rows, threads=128, vector=self.va, name="a")
        who_b = blocked(columns, threads=128, vector=self.vb, name="b")
        who = register_blocked(tile, threads=(8, 16), block=(2, 2), name="c")
        with (
            p.grid((self.parts, 1), (self.m, self.bm), (self.n, self.bn)) as (z, i, j),
            p.pipeline("ring", self.stages, a=p.smem("f32", rows, pad=1), b=p.smem("f32", columns)) as ring,
            p.role("all", warps=4),
        ):
            with p.loop(self.chunk, step=self.bk) as kk, ring.produce() as s:
                at = z * self.chunk + kk
                p.copy(self.copy_a, self.a.tile(i, at, shape=rows), s.a, who_a)
                p.copy(self.copy_b, self.b.tile(at, j, shape=columns), s.b, who_b)
            total = p.full(who, "f32")
            with p.loop(self.chunk, step=self.bk), ring.consume() as s, p.unroll(self.bk) as kt:
                a = p.load(self.get, s.a.window((0, kt), (self.bm, 1)), who.along(0))
                b = p.load(self.get, s.b.window((kt, 0), (1, self.bn)), who.along(1))
                p.apply(self.fma, a, b, total, into=total)
            p.store(self.st, self.c.tile(z, i, j, shape=(1, *tile)).squeeze(0), total)

    @staticmethod
    def reference(a: Any, b: Any, parts: int, chunk: int) -> Any:
        return np.stack([a[:, z * chunk : (z + 1) * chunk] @ b[z * chunk : (z + 1) * chunk] for z in range(parts)])


class Combined(Machine):
    """y = activation(scale * sum of the parts of x)"""

    parts, m, n = Dim(), Dim(), Dim()
    x, y = Input("f32", parts, m, n), Output("f32", m, n)
    scale = Scalar("f32")
    activation = Option("none", "relu")

    warps, vector, rows = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2)
    ld, st = isa.LdGlobal(vector), isa.StGlobal(vector)
    add, mul, larger = isa.Add("f32"), isa.Mul("f32"), isa.Max("f32")

    def program(self, p: Any) -> None:
        shape = (self.warps * self.rows, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32)
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(self.parts) as z:
                part = p.load(self.ld, self.x.tile(z, i, j, shape=(1, *shape)).squeeze(0), who)
                p.apply(self.add, total, part, into=total)
            y = p.apply(self.mul, total, self.scale)
            if self.activation == "relu":
                y = p.apply(self.larger, y, 0.0)
            p.store(self.st, self.y.tile(i, j, shape=shape), y)

    @staticmethod
    def reference(x: Any, scale: Any, activation: str) -> Any:
        y = x.sum(axis=0) * scale
        return np.maximum(y, 0) if activation == "relu" else y


class SplitMatmul(Plan):
    """c = activation(scale * (a @ b)): the parts of k side by side, then their sum"""

    m, n, k = Dim(), Dim(), Dim()
    a, b, c = Input("f32", m, k), Input("f32", k, n), Output("f32", m, n)
    scale, activation = Scalar("f32"), Option("none", "relu")

    chunk = Param(16, 32, 64, 128)
    partial = Workspace("f32", ceil_div(k, chunk), m, n)
    products = Step(PartialProducts, a=a, b=b, c=partial, chunk=chunk, bm=16)
    combine = Step(Combined, x=partial, y=c, scale=scale, activation=activation)

    @staticmethod
    def reference(a: Any, b: Any, scale: Any, activation: str) -> Any:
        c = scale * (a @ b)
        return np.maximum(c, 0) if activation == "relu" else c


class PartialSoftmax(Machine):
    """Of part p of each row: its maximum, and the sum of exp(x - maximum)"""

    m, n, parts = Dim(), Dim(), Dim()
    x = Input("f32", m, n)
    top, total = Output("f32", m, parts), Output("f32", m, parts)

    width = Param(32, 64, 128, 256)
    warps, rows, vector = Param(1, 2), Param(1, 2), Param(1, 2, 4)
    ld, st, shfl = isa.LdGlobal(vector), isa.StGlobal(1), isa.ShflBfly()
    larger, add, sub, mul, ex2 = isa.Max("f32"), isa.Add("f32"), isa.Sub("f32"), isa.Mul("f32"), isa.Ex2("f32")
    exact, approximation = False, 2.0**-20

    def program(self, p: Any) -> None:
        shape = (self.warps * self.rows, self.width)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32)
        with p.grid((self.m, shape[0]), (self.parts, 1)) as (i, part), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, part * self.width, shape=shape), who, fill=-math.inf)
            top = p.reduce(self.larger, x, axis=1, by=self.shfl)
            e = p.apply(self.ex2, p.apply(self.mul, p.apply(self.sub, x, top), LOG2_E))
            p.store(self.st, self.top.tile(i, part, shape=(shape[0], 1)), top)
            p.store(self.st, self.total.tile(i, part, shape=(shape[0], 1)), p.reduce(self.add, e, axis=1, by=self.shfl))

    @staticmethod
    def reference(x: Any, parts: int, width: int) -> Any:
        pieces = [x[:, p * width : (p + 1) * width] for p in range(parts)]
        tops = [piece.max(axis=1, keepdims=True) for piece in pieces]
        sums = [np.exp(piece - top).sum(axis=1) for piece, top in zip(pieces, tops, strict=True)]
        return {"top": np.concatenate(tops, axis=1), "total": np.stack(sums, axis=1)}


class CombinedSoftmax(Machine):
    """Of each row: the largest of the maxima, and the sum of the totals, scaled to it"""

    m, parts = Dim(), Dim()
    tops, totals = Input("f32", m, parts), Input("f32", m, parts)
    top, total = Output("f32", m), Output("f32", m)

    warps, rows, step = Param(1, 2), Param(1, 2), Param(1, 2, 8, 32, 128)
    ld, st, shfl = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly()
    larger, add, sub, mul, ex2 = isa.Max("f32"), isa.Add("f32"), isa.Sub("f32"), isa.Mul("f32"), isa.Ex2("f32")
    whole = Require(parts <= 32 * step, "the parts of a row fit into one tile")
    exact, approximation = False, 2.0**-20

    def program(self, p: Any) -> None:
        shape = (self.warps * self.rows, 32 * self.step)
        who = blocked(shape, threads=32 * self.warps, across=32)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            tops = p.load(self.ld, self.tops.tile(i, 0, shape=shape), who, fill=-math.inf)
            totals = p.load(self.ld, self.totals.tile(i, 0, shape=shape), who)
            top = p.reduce(self.larger, tops, axis=1, by=self.shfl)
            scale = p.apply(self.ex2, p.apply(self.mul, p.apply(self.sub, tops, top), LOG2_E))
            p.store(self.st, self.top.column(i, shape[0]), top)
            total = p.reduce(self.add, p.apply(self.mul, totals, scale), axis=1, by=self.shfl)
            p.store(self.st, self.total.column(i, shape[0]), total)

    @staticmethod
    def reference(tops: Any, totals: Any) -> Any:
        top = tops.max(axis=1)
        return {"top": top, "total": (totals * np.exp(tops - tops.max(axis=1, keepdims=True))).sum(axis=1)}


class Normalised(Machine):
    """y = exp(x - top) / total, row by row"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)
    top, total = Input("f32", m), Input("f32", m)

    warps, vector, rows = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 4)
    ld, ld_one, st = isa.LdGlobal(vector), isa.LdGlobal(1), isa.StGlobal(vector)
    sub, mul, div, ex2 = isa.Sub("f32"), isa.Mul("f32"), isa.Div("f32"), isa.Ex2("f32")
    exact, approximation = False, 2.0**-20

    def program(self, p: Any) -> None:
        shape = (self.warps * self.rows, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32)
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            top = p.load(self.ld_one, self.top.column(i, shape[0]), who.along(0))
            total = p.load(self.ld_one, self.total.column(i, shape[0]), who.along(0), fill=1.0)
            e = p.apply(self.ex2, p.apply(self.mul, p.apply(self.sub, x, top), LOG2_E))
            p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(self.div, e, total))

    @staticmethod
    def reference(x: Any, top: Any, total: Any) -> Any:
        return np.exp(x - top[:, None]) / total[:, None]


class SoftmaxInPasses(Plan):
    """y = softmax of each row: parts of rows, then the rows' maxima and sums, then the quotients"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)

    width = Param(32, 64, 128, 256)  # columns of a part
    tops, totals = Workspace("f32", m, ceil_div(n, width)), Workspace("f32", m, ceil_div(n, width))
    top, total = Workspace("f32", m), Workspace("f32", m)
    parts = Step(PartialSoftmax, x=x, top=tops, total=totals, width=width)
    rows = Step(CombinedSoftmax, tops=tops, totals=totals, top=top, total=total)
    normalise = Step(Normalised, x=x, top=top, total=total, y=y)
    exact, approximation = False, 2.0**-18

    @staticmethod
    def reference(x: Any) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)


class SoftmaxOfOwnWidth(SoftmaxInPasses):
    """y = softmax of each row: how wide a part is, is the first step's own, and sizes follow from it"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)
    width = None

    parts_of_a_row = ceil_div(n, symbol("parts.width"))
    tops, totals = Workspace("f32", m, parts_of_a_row), Workspace("f32", m, parts_of_a_row)
    top, total = Workspace("f32", m), Workspace("f32", m)
    parts = Step(PartialSoftmax, x=x, top=tops, total=totals)
    rows = Step(CombinedSoftmax, tops=tops, totals=totals, top=top, total=total)
    normalise = Step(Normalised, x=x, top=top, total=total, y=y)
    as_many = Require(symbol("parts.warps") <= symbol("normalise.warps"), "the last step has no fewer warps")


class PartialColumnSums(Machine):
    """y[p, j] = sum of column j over the rows of part p"""

    m, n, parts = Dim(), Dim(), Dim()
    x, y = Input(("f32", "f16"), m, n), Output("f32", parts, n)

    height = Param(16, 32, 64, 256)
    warps, vector, rows = Param(1, 2, 4), Param(1, 2, 4), Param(1, 2, 4)
    ld, st, add = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Add("f32")
    whole_rounds = Require(height % rows == 0, "a part is a whole number of rounds")

    def program(self, p: Any) -> None:
        shape = (self.rows, 32 * self.warps * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32 * self.warps)
        with p.grid((self.parts, 1), (self.n, shape[1])) as (part, j), p.role("all", warps=self.warps):
            total = p.full(who.along(1), "f32")
            with p.loop(self.height, step=self.rows) as i, p.unroll(self.rows) as r:
                window = self.x.tile(part * self.height + i + r, j, shape=(1, shape[1]))
                x = p.load(self.ld, window, who.along(1))
                x = x if self.x.dtype.name == "f32" else p.apply(isa.Cvt(self.x.dtype.name, "f32"), x)
                p.apply(self.add, total, x, into=total)
            p.store(self.st, self.y.tile(part, j, shape=(1, shape[1])), total)

    @staticmethod
    def reference(x: Any, parts: int, height: int) -> Any:
        return np.stack([x[p * height : (p + 1) * height].sum(axis=0) for p in range(parts)])


class ColumnSums(Plan):
    """y[j] = sum of column j, the rows in parts of `height`, and the same machine once more over what is left"""

    m, n = Dim(), Dim()
    x, y = Input(("f32", "f16"), m, n), Output("f32", 1, n)

    height = Param(16, 32, 64)
    partial = Workspace("f32", ceil_div(m, height), n)
    parts = Step(PartialColumnSums, x=x, y=partial, height=height)
    total = Step(PartialColumnSums, x=partial, y=y, height=256)
    enough = Require(ceil_div(m, height) <= 256, "the second pass sums all parts at once")

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=0, keepdims=True)
