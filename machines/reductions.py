"""Reductions of rows and of columns, of a whole tensor, and the place of the largest of each row.

Every element is read once and combined in registers with those that its thread had before; only at the end of a row
or a column those who share it meet, lanes by shuffles and warps through a little shared memory. Sums are of f32
whatever the type of the tensor. Searched are who shares a row or a column, and how much of it is under way at a time:
few long rows want a whole CTA each, or a cluster, many short ones a few lanes. A whole tensor is two kernels: parts
side by side, as many as keep the device busy, and one CTA for what they left.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from tinygpu.language import (
    Choice,
    Combine,
    Dim,
    Input,
    Machine,
    Option,
    Output,
    Param,
    Plan,
    Require,
    Step,
    Tracer,
    Workspace,
    blocked,
    ceil_div,
    equal,
    minimum,
    sqrt,
    uniform,
    where,
)
from tinygpu.ptx import isa

KINDS = ("f32", "f16", "bf16")
SUMS: dict[str, tuple[str, ...]] = {"f32": ("f32",), "f16": ("f16", "f32"), "bf16": ("bf16", "f32")}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "max": np.max,
    "mean": np.mean,
    "norm": lambda x, axis: np.sqrt(np.sum(x * x, axis=axis)),
}


class Reduction(Machine):
    """What all have: an operation, those who share a row, and how a thread goes along it"""

    operation = Option("sum", "max", "mean", "norm")
    warps, across = Param(1, 2, 4, 8, 16), Param(4, 8, 16, 32, 64, 128, 256, 512)
    vector, step = Param(1, 2, 4, 8), Param(1, 2, 4, 8)
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(1), isa.Exchange("shuffles", "pairs")
    arithmetic, plus, larger = isa.arithmetic("f32"), isa.Add("f32"), isa.Max("f32")
    lanes = Require(across <= 32 * warps, "the threads side by side are threads of the CTA")

    @classmethod
    def precision(cls, options: dict[str, Any]) -> tuple[bool, float]:
        return options["operation"] in ("sum", "max"), 0.0  # the others divide, or take a root

    def reduced(self, p: Tracer, tiles: Any, who: Any, axis: int, squared: bool, **over: int) -> Any:
        """All tiles of a loop as one: `tiles` is the loop, and what of x it reads at a place."""
        loop, tile = tiles
        largest = self.operation == "max"
        nothing = -math.inf if largest else 0.0
        total = p.full(who, "f32", nothing)
        with loop as at:
            x = p.cast(p.load(self.ld, tile(at), who, fill=nothing), "f32")
            if largest:
                p.apply(self.larger, total, x, into=total)
            else:
                total += x * x if squared else x
        return p.reduce(self.larger if largest else self.plus, total, axis=axis, by=self.exchange, **over)

    def finished(self, total: Any, count: Any) -> Any:
        if self.operation == "mean":
            return total / count
        return sqrt(total) if self.operation == "norm" else total


class RowReduction(Reduction):
    """y[i] = the sum of row i of x, its largest element, its mean, or its Euclidean norm"""

    m, n = Dim(), Dim()
    x = Input(KINDS, m, n)
    y = Output(SUMS, m, follows=x)
    ctas = Param(1, 2, 4, 8)  # of a cluster, that share a row
    full = Require(
        (ctas == 1) | (Reduction.across == 32 * Reduction.warps), "only whole CTAs share a row", kind="dominance",
        why="CTAs that have rows of their own need not meet",
    )  # fmt: skip

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps // self.across, self.across * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        cut = self.ctas * shape[1], shape[1]
        with p.grid((self.m, shape[0]), cut, cluster=(1, self.ctas)) as (i, first), p.role("all", warps=self.warps):
            tiles = p.loop(self.n, step=cut[0]), lambda j: self.x.tile(i, first + j, shape=shape)
            y = self.finished(self.reduced(p, tiles, who, 1, self.operation == "norm", cluster=1), self.n)
            with p.when(first < 1):
                p.store(self.st, self.y.column(i, shape[0]), p.cast(y, self.y.dtype))

    @staticmethod
    def reference(x: Any, operation: str) -> Any:
        return FUNCTIONS[operation](x, axis=1)


class ColumnReduction(Reduction):
    """y[j] = the sum of column j of x, its largest element, its mean, or its Euclidean norm"""

    m, n = Dim(), Dim()
    x = Input(KINDS, m, n)
    y = Output(SUMS, n, follows=x)

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps // self.across * self.step, self.across * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        with p.grid((self.n, shape[1])) as (j,), p.role("all", warps=self.warps):
            tiles = p.loop(self.m, step=shape[0]), lambda i: self.x.tile(i, j, shape=shape)
            y = self.finished(self.reduced(p, tiles, who, 0, self.operation == "norm"), self.m)
            p.store(self.st, self.y.row(j, shape[1]), p.cast(y, self.y.dtype))

    @staticmethod
    def reference(x: Any, operation: str) -> Any:
        return FUNCTIONS[operation](x, axis=0)


class ArgMax(Machine):
    """y[i] = the place of the largest element of row i of x, the first of equals; of numbers, not NaN"""

    m, n = Dim(), Dim()
    x = Input(KINDS, m, n, values=uniform(-100, 100))
    y = Output("s32", m)

    warps, across = Param(1, 2, 4, 8, 16), Param(4, 8, 16, 32, 64, 128, 256, 512)
    vector, step = Param(1, 2, 4, 8), Param(1, 2, 4, 8)
    ld, st, exchange = isa.LdGlobal(vector), isa.StGlobal(1), isa.Exchange("shuffles", "pairs")
    arithmetic, places = isa.arithmetic("f32"), isa.arithmetic("s32")
    larger, lower = isa.Max("f32"), isa.Min("s32")
    reads = Choice("the row", "in rounds")  # of a row in registers the largest comes first, and then where it stands
    ctas = Param(1, 2, 4, 8)  # of a cluster, that share a row
    lanes = Require(across <= 32 * warps, "the threads along a row are threads of the CTA")
    whole = Require(n <= ctas * across * vector * step, "a row fits into a cluster's tiles", only=(reads, "the row"))
    full = Require(
        (ctas == 1) | (across == 32 * warps), "only whole CTAs share a row", kind="dominance",
        why="CTAs that have rows of their own need not meet",
    )  # fmt: skip

    def better(self, p: Tracer, left: Any, right: Any) -> Any:
        (x, i), (y, j) = left, right
        return p.apply(self.larger, x, y), where(x > y, i, where(equal(x, y), minimum(i, j), j))

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps // self.across, self.across * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        across = {"axis": 1, "by": self.exchange, "cluster": 1}
        cut = self.ctas * shape[1], shape[1]
        with p.grid((self.m, shape[0]), cut, cluster=(1, self.ctas)) as (i, first), p.role("all", warps=self.warps):
            if self.reads == "the row":
                x = p.cast(p.load(self.ld, self.x.tile(i, first, shape=shape), who, fill=-math.inf), "f32")
                most = p.reduce(self.larger, x, **across)
                place = where(equal(x, most), p.index(who, 1) + first, 2**31 - 1)
                found = p.reduce(self.lower, place, **across)
            else:
                top, at = p.full(who, "f32", -math.inf), p.full(who, "s32")
                with p.loop(self.n, step=cut[0]) as j:
                    x = p.load(self.ld, self.x.tile(i, first + j, shape=shape), who, fill=-math.inf)
                    x = p.cast(x, "f32")
                    place = where(x > top, p.index(who, 1) + (first + j), at)  # an equal one comes later: no change
                    p.apply(self.larger, top, x, into=top)
                    p.apply(self.lower, place, place, into=at)
                _, found = p.reduce(Combine(self.better), (top, at), **across)
            with p.when(first < 1):
                p.store(self.st, self.y.column(i, shape[0]), found)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.argmax(axis=1).astype(np.int32)


class Parts(Reduction):
    """y[z] = what part z of x, of `chunk` elements, has together"""

    n, parts = Dim(), Dim()
    x = Input(KINDS, n)
    y = Output("f32", parts)
    chunk = Param(1024, 4096, 16384, 65536, 262144)
    rounds = Require(chunk % (32 * Reduction.warps * Reduction.vector * Reduction.step) == 0, "a part is whole rounds")
    wide = Require(Reduction.across == 32 * Reduction.warps, "all threads of a CTA share a part")

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps * self.vector * self.step,)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((self.parts, 1)) as (z,), p.role("all", warps=self.warps):
            tiles = p.loop(self.chunk, step=shape[0]), lambda j: self.x.tile(z * self.chunk + j, shape=shape)
            p.store(self.st, self.y.tile(z, shape=(1,)), self.reduced(p, tiles, who, 0, self.operation == "norm"))

    @staticmethod
    def reference(x: Any, operation: str, parts: int, chunk: int) -> Any:
        of = partial(np.max, initial=-np.inf) if operation == "max" else np.sum  # a part may have no elements
        squared = x * x if operation == "norm" else x
        return np.stack([of(squared[z * chunk : (z + 1) * chunk]) for z in range(parts)])


class Rest(Reduction):
    """y = what all parts have together, of `count` elements: by one CTA"""

    parts, count = Dim(), Dim()
    x, y = Input("f32", parts), Output("f32", 1)
    wide = Require(Reduction.across == 32 * Reduction.warps, "all threads of the CTA share the parts")

    def program(self, p: Tracer) -> None:
        shape = (32 * self.warps * self.vector * self.step,)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector)
        with p.grid((1, 1)) as (i,), p.role("all", warps=self.warps):
            tiles = p.loop(self.parts, step=shape[0]), lambda j: self.x.tile(j, shape=shape)
            y = self.finished(self.reduced(p, tiles, who, 0, False), self.count)
            p.store(self.st, self.y.tile(i, shape=(1,)), y)

    @staticmethod
    def reference(x: Any, operation: str, count: int) -> Any:
        total = np.max(x, axis=0) if operation == "max" else np.sum(x, axis=0)
        if operation == "mean":
            total = total / count
        return (np.sqrt(total) if operation == "norm" else total).reshape(1)


class TensorReduction(Plan):
    """y = the sum of all elements of x, the largest, their mean, or their Euclidean norm"""

    n = Dim()
    x, y = Input(KINDS, n), Output("f32", 1)
    operation = Option("sum", "max", "mean", "norm")
    chunk = Param(1024, 4096, 16384, 65536, 262144)
    partial = Workspace("f32", ceil_div(n, chunk))
    parts = Step(Parts, x=x, y=partial, operation=operation, chunk=chunk)
    rest = Step(Rest, x=partial, y=y, operation=operation, count=n)

    @classmethod
    def precision(cls, options: dict[str, Any]) -> tuple[bool, float]:
        return Reduction.precision(options)

    @staticmethod
    def reference(x: Any, operation: str) -> Any:
        return FUNCTIONS[operation](x, axis=0).reshape(1)
