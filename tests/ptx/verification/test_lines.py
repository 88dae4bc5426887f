"""Mistakes that numbers in [-1, 1) hide in long rows: verification has lines, and places, that show them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.language import (
    Dim,
    Input,
    Machine,
    Output,
    Param,
    Scalar,
    Tracer,
    between,
    blocked,
    equal,
    integers,
    maximum,
    one_of,
    rsqrt,
    sqrt,
    uniform,
    where,
)
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.inputs import drawn
from tinygpu.ptx.verification.lines import has_few_lines, has_lines
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

LONG = 4096


class Norm(Machine):
    """y = x / sqrt(mean(x^2) + eps), in rows so long that rounding may explain one element of them"""

    m, n = Dim(), Dim(LONG)
    eps = Scalar("f32", values=between(1e-6, 1e-4))
    x, y = Input("f16", m, n), Output("f16", m, n)

    warps = Param(8)
    ld, st, add, exchange = isa.LdGlobal(8), isa.StGlobal(8), isa.Add("f32"), isa.Exchange("shuffles")
    arithmetic, less = isa.arithmetic("f32"), isa.Compare("s32", "<")
    compute, exact = "f32", False

    def program(self, p: Tracer) -> None:
        who = blocked((1, LONG), threads=256, vector=8)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=self.warps):
            x = p.cast(p.load(self.ld, self.x.tile(i, 0, shape=(1, LONG)), who), "f32")
            p.store(self.st, self.y.tile(i, 0, shape=(1, LONG)), self.normed(p, x, who))

    def mean(self, p: Tracer, x: Any) -> Any:
        return p.reduce(self.add, x * x, axis=1, by=self.exchange) / self.n

    def normed(self, p: Tracer, x: Any, who: Any) -> Any:
        return x * rsqrt(self.mean(p, x) + self.eps)

    @staticmethod
    def reference(eps: Any, x: Any) -> Any:
        return x / np.sqrt((x * x).mean(axis=1, keepdims=True) + eps)


class NoEpsilon(Norm):
    def normed(self, p: Tracer, x: Any, who: Any) -> Any:
        return x * rsqrt(self.mean(p, x) + self.eps * 0.0)


class EpsilonOutside(Norm):
    def normed(self, p: Tracer, x: Any, who: Any) -> Any:
        return x / (sqrt(self.mean(p, x)) + self.eps)


class LastLeftOut(Norm):
    def normed(self, p: Tracer, x: Any, who: Any) -> Any:
        inside = p.index(who, 1) < self.n - 1
        return x * rsqrt(self.mean(p, p.where(inside, x, 0.0)) + self.eps)


class RowMax(Machine):
    """y = the largest of each row of x, in rows that end within a tile"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m)

    vector = Param(1)
    ld, st, shuffle, larger = isa.LdGlobal(vector), isa.StGlobal(1), isa.ShflBfly(), isa.Max("f32")
    fill, start = -math.inf, -math.inf

    def program(self, p: Tracer) -> None:
        who = blocked((4, 64), threads=128, across=32)
        with p.grid((self.m, 4)) as (i,), p.role("all", warps=4):
            top = p.full(who, "f32", self.start)
            with p.loop(self.n, step=64) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=(4, 64)), who, fill=self.fill)
                p.apply(self.larger, top, x, into=top)
            p.store(self.st, self.y.column(i, 4), p.reduce(self.larger, top, axis=1, by=self.shuffle))

    @staticmethod
    def reference(x: Any) -> Any:
        return x.max(axis=1)


class FilledByZero(RowMax):
    fill = 0.0


class FromMinusHundred(RowMax):
    start = -100.0


def verdict(machine: type[Machine], **dims: int) -> tuple[bool, list[str]]:
    """Whether a kernel passes, and the inputs of the runs that it fails."""
    found = tg.verify(tg.emit(tg.space(machine, **dims, device="h100")))
    return found.passed, [check.inputs for check in found.checks if not check.passed]


@pytest.mark.parametrize(
    ("machine", "by"),
    [(Norm, ""), (NoEpsilon, "lines"), (EpsilonOutside, "lines"), (LastLeftOut, "specials")],
)
def test_long_rows_hide_no_epsilon_and_no_last_element(machine: type[Machine], by: str) -> None:
    passed, failing = verdict(machine, m=2)
    assert passed == (not by)
    assert by in failing or not by


@pytest.mark.parametrize(
    ("machine", "by"),
    [(RowMax, []), (FilledByZero, ["signs", "lines"]), (FromMinusHundred, ["lines", "beyond"])],
)
def test_a_row_below_zero_shows_what_a_maximum_begins_with(machine: type[Machine], by: list[str]) -> None:
    passed, failing = verdict(machine, m=8, n=1000)
    assert passed == (not by)
    assert failing == by


def test_lines_are_below_zero_next_to_it_as_drawn_and_zero() -> None:
    problem = Norm.problem(m=5)
    x = drawn(Norm, problem, "lines", 0, {"x": (5, LONG), "y": (5, LONG)})[0]["x"].astype(np.float64)
    plain = drawn(Norm, problem, "random", 0, {"x": (5, LONG), "y": (5, LONG)})[0]["x"].astype(np.float64)
    assert -240.25 <= x[0].min() < x[0].max() <= -239.75  # two numbers of half precision on each side
    assert -240.25 <= x[4].min() < x[4].max() <= -239.75
    assert 0 < np.abs(x[1]).max() <= 2.0**-10
    assert np.array_equal(x[2], plain[2])
    assert not x[3].any()


def test_what_has_declared_values_keeps_them() -> None:
    class Declared(RowMax):
        x = Input("f32", RowMax.m, RowMax.n, values=uniform(2, 3))

    class Signed(RowMax):
        x = Input("f32", RowMax.m, RowMax.n, values=integers(-1, 8))

    class Listed(RowMax):
        x = Input("f32", RowMax.m, RowMax.n, values=one_of(3, 9, 5))

    class Different(RowMax):
        x = Input("f32", RowMax.m, RowMax.n, values=integers(0, 1 << 20, distinct=True))

    def lines(machine: Any) -> list[list[float]]:
        assert has_lines(machine, machine.problem(m=4, n=9))
        x = drawn(machine, machine.problem(m=4, n=9), "lines", 0, {"x": (4, 9), "y": (4,)})[0]["x"]
        assert ((x >= low) & (x <= high)).all()
        return [sorted(set(line.tolist())) for line in x]

    low, high = 2, 3
    least, most, as_drawn, other = lines(Declared)
    assert (least, most) == ([2.0], [3.0])
    assert len(as_drawn) > 2  # zero is no such number
    assert len(other) > 2
    low, high = -1, 7
    assert lines(Signed)[3] == [0.0]
    low, high = 3, 9
    assert lines(Listed)[:2] == [[3.0], [9.0]]
    assert not has_lines(Different, Different.problem(m=4, n=9))


class Unit(Machine):
    """y = x / max(|x|, eps), of rows"""

    m, n = Dim(), Dim()
    eps = Scalar("f32", values=between(1e-8, 1e-6))
    x, y = Input("f32", m, n), Output("f32", m, n)

    ld, st, add, shuffle = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32"), isa.ShflBfly()
    arithmetic, exact = isa.arithmetic("f32"), False

    def program(self, p: Tracer) -> None:
        who = blocked((1, 128), threads=32)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, 0, shape=(1, 128)), who)
            norm = sqrt(p.reduce(self.add, x * x, axis=1, by=self.shuffle))
            p.store(self.st, self.y.tile(i, 0, shape=(1, 128)), x / self.least(norm))

    def least(self, norm: Any) -> Any:
        return maximum(norm, self.eps)

    @staticmethod
    def reference(eps: Any, x: Any) -> Any:
        return x / np.maximum(np.sqrt((x * x).sum(axis=1, keepdims=True)), eps)


class Unguarded(Unit):
    def least(self, norm: Any) -> Any:
        return norm + 0.0 * self.eps


def test_two_rows_have_a_line_of_zeros_in_another_run() -> None:
    for machine, passes in ((Unit, True), (Unguarded, False)):
        found = tg.verify(tg.emit(tg.space(machine, m=5, n=100, device="a100")))
        assert found.passed == passes, str(found)
        assert found.problem.dim["m"] == 2
        assert [c.inputs for c in found.checks if not c.passed] == ["other lines"] * (not passes)


def test_lines_are_few_where_there_are_fewer_than_kinds() -> None:
    assert [has_few_lines(Unit, Unit.problem(m=m, n=9)) for m in (1, 2, 3, 4, 5)] == [True, True, True, False, False]
    shapes = {"x": (2, 128), "y": (2, 128)}
    plain, x = (drawn(Unit, Unit.problem(m=2, n=128), of, 0, shapes)[0]["x"] for of in ("random", "other lines"))
    assert np.array_equal(x[0], plain[0])
    assert not x[1].any()


class Centred(Unit):
    """y = (x - mean) / sqrt(var + eps), of rows"""

    square_first = False
    eps = Scalar("f32", values=between(1e-6, 1e-4))
    less = isa.Compare("s32", "<")

    def program(self, p: Tracer) -> None:
        who = blocked((1, 256), threads=32)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, 0, shape=(1, 256)), who)
            there = p.index(who, 1) < self.n
            mean = p.reduce(self.add, x, axis=1, by=self.shuffle) / self.n
            square = x * x - mean * mean if self.square_first else (x - mean) * (x - mean)
            var = p.reduce(self.add, p.where(there, square, 0.0), axis=1, by=self.shuffle) / self.n
            p.store(self.st, self.y.tile(i, 0, shape=(1, 256)), (x - mean) * rsqrt(var + self.eps))

    @staticmethod
    def reference(eps: Any, x: Any) -> Any:
        off = x - x.mean(axis=1, keepdims=True)
        return off / np.sqrt((off * off).mean(axis=1, keepdims=True) + eps)


class SquaresFirst(Centred):
    """whose variance is a difference of large numbers"""

    square_first = True


@pytest.mark.parametrize(("machine", "by"), [(Centred, []), (SquaresFirst, ["lines"])])
def test_lines_far_from_zero_have_small_variances(machine: type[Machine], by: list[str]) -> None:
    passed, failing = verdict(machine, m=8, n=200)
    assert passed == (not by)
    assert failing == by


class Farthest(Machine):
    """y[i] = the least |a[i, j] - b[i, j]|, which is nowhere more than 600"""

    m, n = Dim(), Dim()
    a, b = Input("f32", m, n, values=uniform(-300, 300)), Input("f32", m, n, values=uniform(-300, 300))
    y = Output("f32", m)
    ld, st, shuffle, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly(), isa.arithmetic("f32")
    less = isa.Min("f32")
    start = 600.0

    def program(self, p: Tracer) -> None:
        who = blocked((4, 64), threads=128, across=32)
        with p.grid((self.m, 4)) as (i,), p.role("all", warps=4):
            least = p.full(who, "f32", self.start)
            with p.loop(self.n, step=64) as j:
                a = p.load(self.ld, self.a.tile(i, j, shape=(4, 64)), who, fill=1e9)
                b = p.load(self.ld, self.b.tile(i, j, shape=(4, 64)), who)
                p.apply(self.less, least, abs(a - b), into=least)
            p.store(self.st, self.y.column(i, 4), p.reduce(self.less, least, axis=1, by=self.shuffle))

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        return np.abs(a - b).min(axis=1)


class From400(Farthest):
    start = 400.0


def test_lines_at_opposite_ends_of_two_tensors_meet() -> None:
    assert verdict(Farthest, m=37, n=1000) == (True, [])
    assert verdict(From400, m=37, n=1000) == (False, ["lines"])


def test_among_many_lines_each_kind_of_one_tensor_meets_each_of_another() -> None:
    shapes = {"a": (16, 9), "b": (16, 9), "y": (16,)}
    found = drawn(Farthest, Farthest.problem(m=16, n=9), "lines", 0, shapes)[0]

    def kind(line: Any) -> str:
        ends = {-300.0: "least", 300.0: "most", 0.0: "zero"}
        return ends.get(float(line[0]), "drawn") if len(set(line.tolist())) == 1 else "drawn"

    pairs = {(kind(a), kind(b)) for a, b in zip(found["a"], found["b"], strict=True)}
    assert len(pairs) == 16


class Flagged(Machine):
    """y[i] = how many flags of x[i] are set, and what stands where none is, or all are"""

    m, n = Dim(), Dim()
    x, y = Input("u8", m, n, values=integers(0, 2)), Output("s32", m)
    ld, st, shuffle, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.ShflBfly(), isa.arithmetic("s32")
    more, wide = isa.Add("s32"), isa.Cvt("u8", "s32")
    wrong_at: Any = None

    def program(self, p: Tracer) -> None:
        who = blocked((4, 64), threads=128, across=32)
        with p.grid((self.m, 4)) as (i,), p.role("all", warps=4):
            count = p.full(who, "s32", 0)
            with p.loop(self.n, step=64) as j:
                count += p.cast(p.load(self.ld, self.x.tile(i, j, shape=(4, 64)), who), "s32")
            found = p.reduce(self.more, count, axis=1, by=self.shuffle)
            if self.wrong_at is not None:
                end = self.n if self.wrong_at == "all" else 0
                found = p.where(equal(found, end), -1, found)
            p.store(self.st, self.y.column(i, 4), found)

    @staticmethod
    def reference(x: Any) -> Any:
        return x.astype(np.int64).sum(axis=1)


class WrongWhereNone(Flagged):
    wrong_at = "none"


class WrongWhereAll(Flagged):
    wrong_at = "all"


@pytest.mark.parametrize("machine", [Flagged, WrongWhereNone, WrongWhereAll])
def test_integers_have_lines_of_the_least_and_of_the_greatest(machine: type[Machine]) -> None:
    passed, failing = verdict(machine, m=37, n=1000003)
    assert passed == (machine is Flagged)
    assert "lines" in failing or machine is Flagged


def test_undeclared_integers_differ_by_what_their_type_holds() -> None:
    class Difference(Machine):
        """y = max(x - z, -2)"""

        n = Dim()
        x, z, y = Input("s32", n), Input("s32", n), Output("s32", n)
        ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("s32")

        def program(self, p: Tracer) -> None:
            who = blocked((32,), threads=32)
            with p.grid((self.n, 32)) as (i,), p.role("all", warps=1):
                x, z = (p.load(self.ld, t.tile(i, shape=(32,)), who) for t in (self.x, self.z))
                p.store(self.st, self.y.tile(i, shape=(32,)), maximum(x - z, -2))

        @staticmethod
        def reference(x: Any, z: Any) -> Any:
            return np.maximum(x - z, -2)

    assert verdict(Difference, n=300) == (True, [])


class Planes(Machine):
    """y = x less its mean over two axes, over its deviation there"""

    b, c, n = Dim(), Dim(), Dim()
    x, y, guarded = Input("f32", b, c, n), Output("f32", b, c, n), 1.0
    warps = Param(1)
    ld, st, add, by = isa.LdGlobal(1), isa.StGlobal(1), isa.Add("f32"), isa.Exchange("shuffles")
    arithmetic, whole, exact = isa.arithmetic("f32"), isa.arithmetic("s32"), False

    def program(self, p: Tracer) -> None:
        shape = (1, 4, 32)
        who = blocked(shape, threads=32)
        with p.grid((self.b, 1)) as (z,), p.role("all", warps=1):
            tiles = (self.c, 4), (self.n, 32)

            def x(i: Any, j: Any) -> Any:
                return p.load(self.ld, self.x.tile(z, i, j, shape=shape), who)

            def mean(total: Any) -> Any:
                lines = p.reduce(self.add, total, axis=2, by=self.by)
                return p.reduce(self.add, lines, axis=1, by=self.by) / (self.c * self.n)

            total, spread = p.full(who, "f32"), p.full(who, "f32")
            with p.loops(*tiles) as (i, j):
                total += x(i, j)
            middle = mean(total)
            with p.loops(*tiles) as (i, j):
                inside = (p.index(who.along(1), 1) + i < self.c) & (p.index(who.along(2), 2) + j < self.n)
                spread += where(inside, (x(i, j) - middle) ** 2, 0.0)
            scale = rsqrt(mean(spread) + self.guarded * 1e-5)
            with p.loops(*tiles) as (i, j):
                p.store(self.st, self.y.tile(z, i, j, shape=shape), (x(i, j) - middle) * scale)

    @staticmethod
    def reference(x: Any) -> Any:
        mean = x.mean(axis=(1, 2), keepdims=True)
        return (x - mean) / np.sqrt(((x - mean) ** 2).mean(axis=(1, 2), keepdims=True) + 1e-5)


class PlanesWithoutEpsilon(Planes):
    """the same, of constants none"""

    guarded = 0.0


@pytest.mark.parametrize(("machine", "by"), [(Planes, set()), (PlanesWithoutEpsilon, {"blocks"})])
def test_what_is_reduced_over_two_axes_is_constant_once(machine: type[Machine], by: set[str]) -> None:
    """Zeros in the lines of some rows alone leave the planes different numbers."""
    problem = machine.problem(b=3, c=7, n=45)
    space = build_space(machine, problem, device("a100"))
    (point,) = space.space.sample(1, np.random.default_rng(0))
    found = verify(build(space.program(point), problem, point, SolverCache()).kernel, machine, problem)
    assert {c.inputs for c in found.checks if not c.passed} >= by, str(found)
    assert found.passed is not bool(by)
    assert {"blocks", "other blocks"} <= {c.inputs for c in found.checks}
