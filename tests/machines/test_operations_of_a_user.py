"""What a user would write that no shipped machine does: admitted candidates, verified against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from agreeing import CACHE, check

from tinygpu.devices import device
from tinygpu.language import (
    Dim,
    E,
    InOut,
    Input,
    Layout,
    Machine,
    Output,
    Param,
    Partition,
    Require,
    Scalar,
    blocked,
)
from tinygpu.language.partition import expr
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.spaces.build import build_space


class Saxpy(Machine):
    """y = a x + y, in place"""

    n = Dim()
    a = Scalar("f32")
    x = Input("f32", n)
    y = InOut("f32", n)
    warps, vector = Param(1, 4), Param(1, 2, 4)
    ld, st, fma = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Fma("f32")

    def program(self, p: Any) -> None:
        tile = 32 * self.warps * self.vector
        who = blocked((tile,), threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, tile)) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=(tile,)), who)
            y = p.load(self.ld, self.y.tile(i, shape=(tile,)), who)
            p.store(self.st, self.y.tile(i, shape=(tile,)), p.apply(self.fma, self.a, x, y))

    @staticmethod
    def reference(a: Any, x: Any, y: Any) -> Any:
        return a * x + y


class Softmax(Machine):
    """y = softmax of each row; what lies beyond the row is -infinity"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m, n)
    warps, rows, vector, step = Param(1, 2, 4), Param(1, 2), Param(1, 2, 4), Param(1, 2, 4, 8)
    ld, st, shfl = isa.LdGlobal(vector), isa.StGlobal(vector), isa.ShflBfly()
    larger, add, sub, mul = isa.Max("f32"), isa.Add("f32"), isa.Sub("f32"), isa.Mul("f32")
    ex2, rcp = isa.Ex2("f32"), isa.Rcp("f32")
    whole = Require(n <= 32 * vector * step, "a row fits into one tile")
    exact, approximation = False, 2.0**-20

    def program(self, p: Any) -> None:
        shape = (self.warps * self.rows, 32 * self.vector * self.step)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, 0, shape=shape), who, fill=-math.inf)
            top = p.reduce(self.larger, x, axis=1, by=self.shfl)
            e = p.apply(self.ex2, p.apply(self.mul, p.apply(self.sub, x, top), 1.4426950408889634))
            share = p.apply(self.rcp, p.reduce(self.add, e, axis=1, by=self.shfl))
            p.store(self.st, self.y.tile(i, 0, shape=shape), p.apply(self.mul, e, share))

    @staticmethod
    def reference(x: Any) -> Any:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)


class RowMean(Machine):
    """y[i] = mean of row i: a dim as a number"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", m)
    warps, vector = Param(1, 2), Param(1, 2, 4)
    ld, st, add, div, shfl = isa.LdGlobal(vector), isa.StGlobal(1), isa.Add("f32"), isa.Div("f32"), isa.ShflBfly()
    exact = False

    def program(self, p: Any) -> None:
        shape = (self.warps * 2, 64)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=16)
        with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
            total = p.full(who, "f32")
            with p.loop(self.n, step=64) as j:
                p.apply(self.add, total, p.load(self.ld, self.x.tile(i, j, shape=shape), who), into=total)
            mean = p.apply(self.div, p.reduce(self.add, total, axis=1, by=self.shfl), self.n)
            p.store(self.st, self.y.column(i, shape[0]), mean)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.mean(axis=1)


class ColumnSum(Machine):
    """y[j] = sum of column j"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n)
    y = Output("f32", n)
    warps, vector, rows, lanes = Param(1, 2), Param(1, 2, 4), Param(1, 4), Param(1, 4, 32)
    ld, st, add, shfl = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Add("f32"), isa.ShflBfly()

    def program(self, p: Any) -> None:
        threads = 32 * self.warps
        shape = (threads // self.lanes * self.rows, self.lanes * self.vector)
        who = blocked(shape, threads=threads, vector=self.vector, across=self.lanes)
        with p.grid((self.n, shape[1])) as (j,), p.role("all", warps=self.warps):
            total = p.full(who.along(1), "f32")
            with p.loop(self.m, step=shape[0]) as i:
                part = p.reduce(self.add, p.load(self.ld, self.x.tile(i, j, shape=shape), who), axis=0, by=self.shfl)
                p.apply(self.add, total, part, into=total)
            p.store(self.st, self.y.row(j, shape[1]), total)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.sum(axis=0)


class Outer(Machine):
    """y[i, j] = a[i] * b[j]: both operands broadcast"""

    m, n = Dim(), Dim()
    a = Input("f32", m)
    b = Input("f32", n)
    y = Output("f32", m, n)
    warps, vector = Param(1, 4), Param(1, 2, 4)
    ld_a, ld_b, st, mul = isa.LdGlobal(1), isa.LdGlobal(vector), isa.StGlobal(vector), isa.Mul("f32")

    def program(self, p: Any) -> None:
        shape = (self.warps * 4, 32 * self.vector)
        who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32)
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            a = p.load(self.ld_a, self.a.column(i, shape[0]), who.along(0))
            b = p.load(self.ld_b, self.b.row(j, shape[1]), who.along(1))
            p.store(self.st, self.y.tile(i, j, shape=shape), p.apply(self.mul, a, b, into=p.full(who, "f32")))

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return np.outer(a, b)


class Stencil(Machine):
    """y = x and its four neighbours: windows that begin before the tensor and end behind it"""

    m, n = Dim(), Dim()
    x = Input("f32", m, n, majors=("row", "col"))
    y = Output("f32", m, n)
    warps, vector = Param(1, 4), Param(1, 2, 4)
    ld, near, st, add = isa.LdGlobal(vector), isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32")

    def program(self, p: Any) -> None:
        shape = (self.warps, 128)
        who = blocked(shape, threads=32 * self.warps, across=32)
        with p.grid((self.m, shape[0]), (self.n, shape[1])) as (i, j), p.role("all", warps=self.warps):
            total = p.load(self.near, self.x.tile(i, j, shape=shape), who)
            for down, right in ((-1, 0), (1, 0), (0, -1), (0, 1)):
                moved = p.load(self.near, self.x.tile(i + down, j + right, shape=shape), who)
                total = p.apply(self.add, total, moved)
            p.store(self.st, self.y.tile(i, j, shape=shape), total)

    @staticmethod
    def reference(x: Any) -> Any:
        wide = np.pad(x, 1)
        return x + wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:]


class ShiftedVectors(Machine):
    """y[i] = x[i + 2]: vectors of four would begin between vectors"""

    n = Dim()
    x = Input("f32", n)
    y = Output("f32", n)
    warps, vector = Param(1, 2), Param(1, 2, 4)
    ld, st = isa.LdGlobal(vector), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        tile = 128 * self.warps
        who = blocked((tile,), threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, tile)) as (i,), p.role("all", warps=self.warps):
            p.store(self.st, self.y.tile(i, shape=(tile,)), p.load(self.ld, self.x.tile(i + 2, shape=(tile,)), who))

    @staticmethod
    def reference(x: Any) -> Any:
        return np.concatenate([x[2:], [0, 0]])[: len(x)]


class Halves(Machine):
    """y = max(x + 1, 0) * 2 in 16-bit arithmetic, with constants"""

    n = Dim()
    x = Input(("f16", "bf16"), n)
    y = Output({"f16": ("f16",), "bf16": ("bf16",)}, n, follows=x)
    warps, vector = Param(1, 4), Param(1, 2, 4, 8)
    ld, st = isa.LdGlobal(vector), isa.StGlobal(vector)
    approximation = 2.0**-6  # three roundings to at least 8 bits

    def program(self, p: Any) -> None:
        tile, kind = 32 * self.warps * self.vector, self.x.dtype.name
        who = blocked((tile,), threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, tile)) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=(tile,)), who, fill=-math.inf)
            y = p.apply(isa.Max(kind), p.apply(isa.Add(kind), x, 1.0), 0.0)
            p.store(self.st, self.y.tile(i, shape=(tile,)), p.apply(isa.Mul(kind), y, 2.0))

    @staticmethod
    def reference(x: Any) -> Any:
        return np.maximum(x + 1, 0) * 2


class Quantise(Machine):
    """Two outputs: f32 to s8, saturated, and s8 to f32"""

    n = Dim()
    x = Input("f32", n)
    w = Input("s8", n)
    y = Output("s8", n)
    z = Output("f32", n)
    warps, vector = Param(1, 4), Param(1, 2, 4)
    ld, st, mul = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Mul("f32")
    round_, narrow = isa.Cvt("f32", "s32"), isa.Cvt("s32", "s8")
    wide, real = isa.Cvt("s8", "s32"), isa.Cvt("s32", "f32")

    def program(self, p: Any) -> None:
        tile = 32 * self.warps * self.vector
        who = blocked((tile,), threads=32 * self.warps, vector=self.vector)
        with p.grid((self.n, tile)) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=(tile,)), who)
            w = p.load(self.ld, self.w.tile(i, shape=(tile,)), who)
            small = p.apply(self.narrow, p.apply(self.round_, p.apply(self.mul, x, 100.0)))
            p.store(self.st, self.y.tile(i, shape=(tile,)), small)
            p.store(self.st, self.z.tile(i, shape=(tile,)), p.apply(self.real, p.apply(self.wide, w)))

    @staticmethod
    def reference(x: Any, w: Any) -> Any:
        return {"y": np.clip(np.rint(x * 100), -128, 127), "z": w}


class Integers(Machine):
    """y = max(x - z, -2) + c, in s32"""

    n = Dim()
    c = Scalar("s32")
    x = Input("s32", n)
    z = Input("s32", n)
    y = Output("s32", n)
    warps = Param(1, 4)
    ld, st, add, sub, larger = isa.LdGlobal(4), isa.StGlobal(4), isa.Add("s32"), isa.Sub("s32"), isa.Max("s32")

    def program(self, p: Any) -> None:
        tile = 128 * self.warps
        who = blocked((tile,), threads=32 * self.warps, vector=4)
        with p.grid((self.n, tile)) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=(tile,)), who)
            z = p.load(self.ld, self.z.tile(i, shape=(tile,)), who)
            y = p.apply(self.add, p.apply(self.larger, p.apply(self.sub, x, z), -2), self.c)
            p.store(self.st, self.y.tile(i, shape=(tile,)), y)

    @staticmethod
    def reference(c: Any, x: Any, z: Any) -> Any:
        return np.maximum(x - z, -2) + c


class Batched(Machine):
    """y = x + 1 over three dims, under a partition written by hand"""

    b, m, n = Dim(), Dim(), Dim()
    x = Input("f64", b, m, n)
    y = Output("f64", b, m, n)
    warps, vector = Param(1, 2), Param(1, 2)
    ld, st, add = isa.LdGlobal(vector), isa.StGlobal(vector), isa.Add("f64")

    def program(self, p: Any) -> None:
        shape = (1, self.warps, 32 * self.vector)
        who = Partition(
            tuple(expr(s) for s in shape),
            Layout.of([(32, self.vector * E(2)), (self.warps, E(1))], [(self.vector, E(2))]),
        )
        with (
            p.grid((self.b, 1), (self.m, self.warps), (self.n, 32 * self.vector)) as (k, i, j),
            p.role("all", warps=self.warps),
        ):
            x = p.load(self.ld, self.x.tile(k, i, j, shape=shape), who)
            p.store(self.st, self.y.tile(k, i, j, shape=shape), p.apply(self.add, x, 1.0))

    @staticmethod
    def reference(x: Any) -> Any:
        return x + 1


class TwoPartitions(Machine):
    """y = x + z, loaded under two partitions that agree for some candidates only"""

    n = Dim()
    x = Input("f32", n)
    z = Input("f32", n)
    y = Output("f32", n)
    warps, v, w = Param(1, 2), Param(1, 2), Param(1, 2)
    ld_x, ld_z, st, add = isa.LdGlobal(v), isa.LdGlobal(w), isa.StGlobal(v), isa.Add("f32")

    def program(self, p: Any) -> None:
        tile, threads = 64 * self.warps, 32 * self.warps
        with p.grid((self.n, tile)) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld_x, self.x.tile(i, shape=(tile,)), blocked((tile,), threads=threads, vector=self.v))
            z = p.load(self.ld_z, self.z.tile(i, shape=(tile,)), blocked((tile,), threads=threads, vector=self.w))
            p.store(self.st, self.y.tile(i, shape=(tile,)), p.apply(self.add, x, z))

    @staticmethod
    def reference(x: Any, z: Any) -> Any:
        return x + z


class FixedThreads(Machine):
    """y = -x by 64 threads of a role that may have fewer"""

    n = Dim()
    x = Input("f32", n)
    y = Output("f32", n)
    warps = Param(1, 2, 4)
    ld, st, neg = isa.LdGlobal(1), isa.StGlobal(1), isa.Neg("f32")

    def program(self, p: Any) -> None:
        who = blocked((64,), threads=64)
        with p.grid((self.n, 64)) as (i,), p.role("all", warps=self.warps):
            x = p.load(self.ld, self.x.tile(i, shape=(64,)), who)
            p.store(self.st, self.y.tile(i, shape=(64,)), p.apply(self.neg, x))

    @staticmethod
    def reference(x: Any) -> Any:
        return -x


@pytest.mark.end_to_end
@pytest.mark.parametrize(
    ("machine", "asked"),
    [
        (Saxpy, {"n": 1001}),
        (Softmax, {"m": 5, "n": 100}),
        (Softmax, {"m": 7, "n": 101}),
        (RowMean, {"m": 5, "n": 99}),
        (ColumnSum, {"m": 70, "n": 45}),
        (Outer, {"m": 5, "n": 77}),
        (Stencil, {"m": 20, "n": 70}),
        (Stencil, {"m": 16, "n": 256, "majors": {"x": "col"}}),
        (ShiftedVectors, {"n": 1024}),
        (ShiftedVectors, {"n": 333}),
        (Halves, {"n": 1001}),
        (Halves, {"n": 1000, "dtypes": {"x": "bf16"}}),
        (Quantise, {"n": 1001}),
        (Integers, {"n": 999}),
        (Batched, {"b": 3, "m": 5, "n": 70}),
        (TwoPartitions, {"n": 1000, "aligns": {"x": 4}}),
        (FixedThreads, {"n": 200}),
    ],
    ids=lambda v: v.__name__ if isinstance(v, type) else "-".join(f"{k}{d}" for k, d in v.items()),
)
def test_an_operation_of_a_user_agrees_with_numpy(machine: type[Machine], asked: dict[str, Any]) -> None:
    check(machine, **asked)


def softmax_without(step: str) -> type[Machine]:
    """Softmax of which one step of the program is forgotten, and none of the reference."""

    class Forgetful(Softmax):
        def program(self, p: Any) -> None:
            shape = (self.warps * self.rows, 32 * self.vector * self.step)
            who = blocked(shape, threads=32 * self.warps, vector=self.vector, across=32)
            with p.grid((self.m, shape[0])) as (i,), p.role("all", warps=self.warps):
                x = p.load(self.ld, self.x.tile(i, 0, shape=shape), who, fill=-math.inf)
                moved = x
                if step != "maximum":
                    moved = p.apply(self.sub, x, p.reduce(self.larger, x, axis=1, by=self.shfl))
                e = p.apply(self.ex2, p.apply(self.mul, moved, 1.4426950408889634))
                combine = self.larger if step == "sum" else self.add
                share = p.apply(self.rcp, p.reduce(combine, e, axis=1, by=self.shfl))
                p.store(self.st, self.y.tile(i, 0, shape=shape), p.apply(self.mul, e, share))

    return Forgetful


@pytest.mark.parametrize(("step", "sizes"), [("maximum", (5, 100)), ("maximum", (1, 30)), ("sum", (7, 101))])
def test_a_softmax_that_forgets_a_step_is_refused(step: str, sizes: tuple[int, int]) -> None:
    """Without the maximum all is well while numbers are small: one input is so large that its exponential overflows."""
    machine = softmax_without(step)
    problem = machine.problem(m=sizes[0], n=sizes[1])
    space = build_space(machine, problem, device("a100"))
    (point,) = space.space.sample(1, np.random.default_rng(0))
    found = verify(build(space.program(point), problem, point, CACHE).kernel, machine, problem, orders=("late",))
    assert not found.passed
    wrong = next(c for c in found.checks if not c.passed)
    assert str(wrong.worst).startswith("y[")
    if step == "maximum":
        assert [c.passed for c in found.checks if c.inputs == "integers"] == [True]
        assert wrong.inputs == "specials"


def test_windows_between_vectors_admit_narrow_vectors_only() -> None:
    space = build_space(ShiftedVectors, ShiftedVectors.problem(n=1024), device("a100"))
    assert {point["vector"] for point in space.space} == {1, 2}
    (reason,) = space.space.explain({"warps": 1, "vector": 4})
    assert reason.sentence.startswith(
        "ld.global start in x (ld.global): the windows of x begin at multiples of the vectors that ld.global moves"
    )


def test_tiles_are_combined_only_where_the_same_threads_hold_them() -> None:
    space = build_space(TwoPartitions, TwoPartitions.problem(n=1000), device("a100"))
    assert {(point["v"], point["w"]) for point in space.space} == {(1, 1), (2, 2)}


def test_a_role_has_the_threads_that_its_partitions_name() -> None:
    space = build_space(FixedThreads, FixedThreads.problem(n=200), device("a100"))
    assert {point["warps"] for point in space.space} == {2, 4}
