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
    Option,
    Output,
    Param,
    Passes,
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
from tinygpu.machines.rows import KINDS, ClusterRows, Rows, Threads
from tinygpu.ptx import isa

SUMS: dict[str, tuple[str, ...]] = {"f32": ("f32",), "f16": ("f16", "f32"), "bf16": ("bf16", "f32")}
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": np.sum,
    "max": np.max,
    "mean": np.mean,
    "norm": lambda x, axis: np.sqrt(np.sum(x * x, axis=axis)),
}


class Reduction(Threads):
    """What all have: an operation, and a pass that carries it out"""

    operation, step, st = Option("sum", "max", "mean", "norm"), Param(1, 2, 4, 8), isa.StGlobal(1)
    arithmetic, plus, larger = isa.arithmetic("f32"), isa.Add("f32"), isa.Max("f32")

    @classmethod
    def precision(cls, options: dict[str, Any]) -> tuple[bool, float]:
        return options["operation"] in ("sum", "max"), 0.0  # the others divide, or take a root

    def reduced(self, row: Passes, of: Any, squared: bool) -> Any:
        """All elements along the axis together, before what comes last."""
        largest = self.operation == "max"
        x = row.load(self.ld, of, fill=-math.inf if largest else 0.0, to="f32")
        return row.reduce(self.larger if largest else self.plus, x * x if squared else x)

    def finished(self, total: Any, count: Any) -> Any:
        if self.operation == "mean":
            return total / count
        return sqrt(total) if self.operation == "norm" else total


class RowReduction(Reduction, ClusterRows):
    """y[i] = the sum of row i of x, its largest element, its mean, or its Euclidean norm"""

    x = Input(KINDS, Rows.m, Rows.n)
    y = Output(SUMS, Rows.m, follows=x)

    def program(self, p: Tracer) -> None:
        with self.row(p, held=False) as row:
            y = self.finished(self.reduced(row, self.x, self.operation == "norm"), self.n)
            self.leave(p, row, y=p.cast(y, self.y.dtype))

    @staticmethod
    def reference(x: Any, operation: str) -> Any:
        return FUNCTIONS[operation](x, axis=1)


class ColumnReduction(Reduction, Rows):
    """y[j] = the sum of column j of x, its largest element, its mean, or its Euclidean norm"""

    x = Input(KINDS, Rows.m, Rows.n)
    y = Output(SUMS, Rows.n, follows=x)

    def program(self, p: Tracer) -> None:
        shape = (self.height * self.step, self.across * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=self.across)
        with p.grid((self.n, shape[1])) as (j,), p.role("all", warps=self.warps):
            with p.passes(self.m, who, at=(0, j), axis=0, by=self.exchange) as column:
                y = self.finished(self.reduced(column, self.x, self.operation == "norm"), self.m)
            p.store(self.st, self.y.row(j, shape[1]), p.cast(y, self.y.dtype))

    @staticmethod
    def reference(x: Any, operation: str) -> Any:
        return FUNCTIONS[operation](x, axis=0)


class ArgMax(ClusterRows):
    """y[i] = the place of the largest element of row i of x, the first of equals; of numbers, not NaN"""

    x = Input(KINDS, Rows.m, Rows.n, values=uniform(-100, 100))
    y = Output("s32", Rows.m)

    step, reads = Param(1, 2, 4, 8), Choice("the row", "in rounds")  # held, the largest comes before where it stands
    arithmetic, places = isa.arithmetic("f32"), isa.arithmetic("s32")
    larger, lower = isa.Max("f32"), isa.Min("s32")

    def better(self, p: Tracer, left: Any, right: Any) -> Any:
        (x, i), (y, j) = left, right
        return p.apply(self.larger, x, y), where(x > y, i, where(equal(x, y), minimum(i, j), j))

    def program(self, p: Tracer) -> None:
        with self.row(p, held=self.reads == "the row") as row:
            x = row.hold(row.load(self.ld, self.x, fill=-math.inf, to="f32"))
            if self.reads == "the row":
                most = row.reduce(self.larger, x)
                found = row.reduce(self.lower, where(equal(x, most), row.index, 2**31 - 1))
            else:
                top, at = p.full(row.part, "f32", -math.inf), p.full(row.part, "s32")
                with row.tiles(x, row.index) as (_, here, place):
                    place = where(here > top, place, at)  # an equal one comes later: no change
                    p.apply(self.larger, top, here, into=top)
                    p.apply(self.lower, place, place, into=at)
                _, found = row.meet(Combine(self.better), (top, at))
            self.leave(p, row, y=found)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.argmax(axis=1).astype(np.int32)


class Parts(Reduction):
    """y[z] = what part z of x, of `chunk` elements, has together"""

    n, parts = Dim(), Dim()
    x = Input(KINDS, n)
    y = Output("f32", parts)
    chunk = Param(1024, 4096, 16384, 65536, 262144)
    rounds = Require(chunk % (32 * Threads.warps * Threads.vector * Reduction.step) == 0, "a part is whole rounds")
    wide = Require(Threads.across == 32 * Threads.warps, "all threads of a CTA share a part")

    def program(self, p: Tracer) -> None:
        who = blocked((32 * self.warps * self.vector * self.step,), threads=32 * self.warps, vector=self.vector)
        with p.grid((self.parts, 1)) as (z,), p.role("all", warps=self.warps):
            chunk = p.passes(self.chunk, who, at=(z * self.chunk,), axis=0, by=self.exchange)
            with chunk as part:
                y = self.reduced(part, self.x, self.operation == "norm")
            p.store(self.st, self.y.tile(z, shape=(1,)), y)

    @staticmethod
    def reference(x: Any, operation: str, parts: int, chunk: int) -> Any:
        of = partial(np.max, initial=-np.inf) if operation == "max" else np.sum  # a part may have no elements
        squared = x * x if operation == "norm" else x
        return np.stack([of(squared[z * chunk : (z + 1) * chunk]) for z in range(parts)])


class Rest(Reduction):
    """y = what all parts have together, of `count` elements: by one CTA"""

    parts, count = Dim(), Dim()
    x, y = Input("f32", parts), Output("f32", 1)
    wide = Require(Threads.across == 32 * Threads.warps, "all threads of the CTA share the parts")

    def program(self, p: Tracer) -> None:
        who = blocked((32 * self.warps * self.vector * self.step,), threads=32 * self.warps, vector=self.vector)
        with p.grid((1, 1)) as (i,), p.role("all", warps=self.warps):
            with p.passes(self.parts, who, at=(0,), axis=0, by=self.exchange) as all_parts:
                y = self.finished(self.reduced(all_parts, self.x, False), self.count)
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
