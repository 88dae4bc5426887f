"""Lines beside those that integers name are no numbers: who looks at them and weighs them with nothing shows."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import (
    Dim,
    Input,
    Machine,
    Output,
    Require,
    Tracer,
    ascending,
    blocked,
    integers,
    maximum,
    uniform,
    where,
)
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.inputs import drawn
from tinygpu.ptx.verification.neighbours import has_few_neighbours, has_neighbours
from tinygpu.ptx.verification.trial import draw
from tinygpu.ptx.verification.undeclared import free_floats
from tinygpu.ptx.verification.verify import _unvaried, verify
from tinygpu.ptx.verification.voices import who_is_wrong
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


class Picked(Machine):
    """y[i, j] = x[at[i], j] * w[at[i]], and nothing of z"""

    m, n, v, g = Dim(), Dim(), Dim(), Dim()
    bounds = Dim(follows=lambda g: g + 1)
    at = Input("s32", m, values=integers(0, v))
    offsets, lengths = (
        Input("s32", bounds, values=ascending(0, n, ends=True)),
        Input("s32", g, values=integers(0, g + 1)),
    )
    x, w, z = Input("f32", v, n), Input("f32", v, values=uniform(-1, 1)), Input("e4m3", g, n)
    y = Output("f32", m, n)
    ld, st, mul = isa.LdGlobalReadOnly(1), isa.StGlobal(1), isa.Mul("f32")
    fits = Require(n >= 1, "there is a column")

    def program(self, p: Tracer) -> None:
        who = blocked((8, 32), threads=32)
        with p.grid((self.m, 8), (self.n, 32)) as (i, j), p.role("all", warps=1):
            at = p.load(self.ld, self.at.column(i, 8), who.along(0), fill=-1)
            x = p.load(self.ld, self.x.rows(at).tile(0, j, shape=(8, 32)), who)
            w = p.load(self.ld, self.w.rows(at).tile(0, shape=(8, 1)), who.along(0))
            p.store(self.st, self.y.tile(i, j, shape=(8, 32)), x * w)

    @staticmethod
    def reference(at: Any, offsets: Any, lengths: Any, x: Any, w: Any, z: Any) -> Any:
        return x[at] * w[at][:, None]


def arrays(of: Any, **sizes: int) -> dict[str, Any]:
    problem = Picked.problem(**sizes)
    return drawn(Picked, problem, of, 0, {o.name: o.shape for o in problem.operands})[0]


@pytest.mark.parametrize(("of", "left"), [("neighbours", 0), ("other neighbours", 1)])
def test_every_other_piece_of_what_offsets_cut_is_no_number(of: Any, left: int) -> None:
    found = arrays(of, m=16, n=100, v=11, g=9)
    missing = np.isnan(found["x"].astype(np.float64))
    ends = np.unique([0, *found["offsets"], 100])
    assert len(ends) > 5
    for number, (begin, end) in enumerate(pairwise(ends)):
        inside = missing[1:-1, begin:end]
        assert inside.all() if number % 2 != left else not inside.any()
    assert np.isnan(found["z"].astype(np.float64)).any()
    assert not np.isnan(found["w"]).any()  # it is declared


def test_the_first_and_the_last_line_are_no_numbers_where_integers_are_numbers_of_lines() -> None:
    found = arrays("neighbours", m=40, n=100, v=11, g=9)
    numbers = ~np.isnan(found["x"]).all(axis=1)
    assert numbers.tolist() == [False] + [True] * 9 + [False]
    half = found["at"][:20]
    assert half.min() >= 1
    assert half.max() <= 9
    assert {0, 10} & set(found["at"][20:].tolist())


def test_few_lines_are_no_numbers_one_after_the_other() -> None:
    first, last = (
        ~np.isnan(arrays(of, m=16, n=100, v=3, g=9)["x"]).all(axis=1) for of in ("neighbours", "other neighbours")
    )
    assert first.tolist() == [False, True, True]
    assert last.tolist() == [True, True, False]
    one = arrays("neighbours", m=16, n=100, v=1, g=9)["x"]
    assert not np.isnan(one).all()


def test_who_has_neighbours() -> None:
    wide, narrow = Picked.problem(m=9, n=100, v=11, g=9), Picked.problem(m=9, n=100, v=7, g=9)
    assert has_neighbours(Picked, wide, free_floats(Picked, wide))
    assert not has_neighbours(Picked, wide, frozenset())
    assert not has_few_neighbours(Picked, wide)
    assert has_few_neighbours(Picked, narrow)
    assert has_few_neighbours(Picked, Picked.problem(m=9, n=100, v=11, g=2))


class Named(Machine):
    """y[i] = 1 where at[i] is the number of a class, 0 where it is none: class 0 is one"""

    m, n = Dim(), Dim()
    at, y = Input("s32", m, values=integers(-1, n)), Output("f32", m)
    ld, st, whole, select = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("s32"), isa.Select("f32")
    fits = Require(n >= 1, "there is a class")
    wrong = False

    def program(self, p: Tracer) -> None:
        who = blocked((1,), threads=32, across=1)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            at = p.load(self.ld, self.at.tile(i, shape=(1,)), who.reduced(0))
            p.store(self.st, self.y.tile(i, shape=(1,)), where(at > 0 if self.wrong else at >= 0, 1.0, 0.0))

    @staticmethod
    def reference(at: Any, n: int) -> Any:
        return np.where(at >= 0, 1.0, 0.0)


class ButTheFirst(Named):
    wrong = True


@pytest.mark.parametrize("machine", [Named, ButTheFirst])
def test_rows_of_single_numbers_are_so_many_that_zero_is_among_them(machine: type[Machine]) -> None:
    problem = machine.problem(m=100, n=50000)
    space = build_space(machine, problem, device("a100"))
    kernel = build(space.program({}), problem, {}, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("late",))
    assert found.passed == (machine is Named)
    assert [c.inputs for c in found.checks if not c.passed] == ["random"] * (machine is ButTheFirst)
    assert not found.notes


class Overlap(Machine):
    """y[i, j] = by how much x[i] and z[j] overlap, which lie far from each other where nothing else is declared"""

    m, n = Dim(), Dim()
    x, z, y = Input("f32", m, values=uniform(0, 1)), Input("f32", n, values=uniform(4, 5)), Output("f32", m, n)
    ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32")

    def program(self, p: Tracer) -> None:
        who = blocked((4, 32), threads=32)
        with p.grid((self.m, 4), (self.n, 32)) as (i, j), p.role("all", warps=1):
            x = p.load(self.ld, self.x.column(i, 4), who.along(0))
            p.store(
                self.st,
                self.y.tile(i, j, shape=(4, 32)),
                maximum(x - p.load(self.ld, self.z.row(j, 32), who.along(1)), 0.0),
            )

    @staticmethod
    def reference(x: Any, z: Any) -> Any:
        return np.maximum(x[:, None] - z, 0)


def test_a_reference_that_is_one_number_throughout_is_told() -> None:
    problem = Overlap.problem(m=9, n=70)
    kernel = build(build_space(Overlap, problem, device("a100")).program({}), problem, {}, SolverCache()).kernel
    found = verify(kernel, Overlap, problem, orders=("late",))
    assert found.passed
    assert str(found).splitlines()[-1] == (
        "  NOTE: y is 0 in every element of every run, so that little is judged; "
        "declare values= of the inputs by which it is not"
    )
    trial = draw(Overlap, problem, "integers", 0)
    negative = replace(trial, answers={"y": replace(trial.answers["y"], value=np.full((9, 70), -0.0))})
    assert [sentence[:7] for sentence in _unvaried([negative])] == ["y is 0 "]


class Masked(Machine):
    """y = x up to the diagonal, and 0 behind it, by a product"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)
    ld, st, arithmetic, whole = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32"), isa.arithmetic("s32")

    def program(self, p: Tracer) -> None:
        who = blocked((4, 32), threads=32)
        with p.grid((self.m, 4), (self.n, 32)) as (i, j), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, j, shape=(4, 32)), who)
            seen = p.index(who.along(1), 1) + j <= p.index(who.along(0), 0) + i
            p.store(self.st, self.y.tile(i, j, shape=(4, 32)), x * where(seen, 1.0, 0.0))

    @staticmethod
    def reference(x: Any) -> Any:
        return np.tril(x)


def test_what_makes_no_number_of_nothing_is_told() -> None:
    problem = Masked.problem(m=30, n=40)
    space = build_space(Masked, problem, device("a100"))
    program = space.program({})
    built = build(program, problem, {}, SolverCache())
    wrong, why = who_is_wrong(program, built.layouts.swizzles, built.kernel, Masked, problem).splitlines()
    assert re.fullmatch(
        r"the program itself is wrong, run as it is written on m=.*: y\[.*\] is nan, wanted 0 .*", wrong
    ), wrong
    assert why == (
        "a number overflows on the way there, as an exponential does from which the largest of its line is not"
        " subtracted; or an infinity or a NaN among the inputs is multiplied by 0 (a weight, a mask, the fill of what"
        " lies beyond a tensor), and the reference leaves it out: choose by where or fill= instead of multiplying, let"
        " the reference multiply too, as with np.pad, or declare values= of inputs that are finite"
    )


class Weighed(Masked):
    """The same, chosen here and weighed there"""

    def program(self, p: Tracer) -> None:
        who = blocked((4, 32), threads=32)
        with p.grid((self.m, 4), (self.n, 32)) as (i, j), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, j, shape=(4, 32)), who)
            seen = p.index(who.along(1), 1) + j <= p.index(who.along(0), 0) + i
            p.store(self.st, self.y.tile(i, j, shape=(4, 32)), where(seen, x, 0.0))

    @staticmethod
    def reference(x: Any) -> Any:
        return x * np.tril(np.ones(x.shape))


class Signs(Masked):
    """y = 1 where x is above 0, else 0; what is no number is not above 0"""

    def program(self, p: Tracer) -> None:
        who = blocked((4, 32), threads=32)
        with p.grid((self.m, 4), (self.n, 32)) as (i, j), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, j, shape=(4, 32)), who)
            p.store(self.st, self.y.tile(i, j, shape=(4, 32)), where(x > 0.0, p.full(who, "f32", 1.0), 0.0))

    @staticmethod
    def reference(x: Any) -> Any:
        return np.where(x <= 0, 0.0, 1.0)


LEFT_OUT = (
    "of random numbers without NaN and infinities it is right: the reference has a NaN there, as where it multiplies an"
    " infinity or a NaN by 0 (a weight, a mask), and the program leaves that out; let the reference leave it out too,"
    " as by np.where, or declare values= of inputs that are finite. Or the program chooses by a comparison, which is"
    " false of a NaN: turn it round, as where(equal(sum, 0), 0, x / sum) for where(sum > 0, x / sum, 0)"
)
NOT_MEANT = (
    "of random numbers without NaN, infinities and extremes it is right: where such are not meant, declare values= of"
    " the inputs, as uniform(-1, 1)"
)


@pytest.mark.parametrize(("machine", "why"), [(Weighed, LEFT_OUT), (Signs, NOT_MEANT)])
def test_what_is_right_of_numbers_alone_is_told(machine: type[Machine], why: str) -> None:
    problem = machine.problem(m=30, n=40)
    program = build_space(machine, problem, device("a100")).program({})
    built = build(program, problem, {}, SolverCache())
    wrong, said = who_is_wrong(program, built.layouts.swizzles, built.kernel, machine, problem).splitlines()
    assert wrong.startswith("the program itself is wrong, run as it is written on m="), wrong
    assert said == why
