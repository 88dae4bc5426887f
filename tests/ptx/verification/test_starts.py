"""Programs that start, fill or mask with finite numbers: lines lie beyond these."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.language import Dim, Input, Machine, Output, Param, Tracer, blocked, where
from tinygpu.ptx import isa
from tinygpu.ptx.verification.inputs import drawn

NAMES = ("x", "shift", "y")


class Least(Machine):
    """y = the least of x[i, j] + shift[j] of each row, 0 where x is beyond 1e30"""

    m, n = Dim(), Dim()
    x, shift, y = Input(("f32", "f16"), m, n), Input("f32", n), Output("f32", m)
    vector = Param(1)
    ld, st, shuffle, less = isa.LdGlobal(vector), isa.StGlobal(1), isa.ShflBfly(), isa.Min("f32")
    arithmetic, whole = isa.arithmetic("f32"), isa.arithmetic("s32")
    compute, exact = "f32", False
    start, fill, mask = math.inf, math.inf, math.inf

    def program(self, p: Tracer) -> None:
        who = blocked((4, 64), threads=128, across=32)
        with p.grid((self.m, 4)) as (i,), p.role("all", warps=4):
            least = p.full(who, "f32", self.start)
            with p.loop(self.n, step=64) as j:
                x = p.cast(p.load(self.ld, self.x.tile(i, j, shape=(4, 64)), who, fill=self.fill), "f32")
                shift = p.load(self.ld, self.shift.row(j, 64), who.along(1))
                there = p.index(who, 1) + j < self.n
                p.apply(self.less, least, where(there, x + shift, self.mask), into=least)
            p.store(self.st, self.y.column(i, 4), p.reduce(self.less, least, axis=1, by=self.shuffle))

    @staticmethod
    def reference(x: Any, shift: Any) -> Any:
        return (x + shift).min(axis=1)


class FromThousand(Least):
    start = 1000.0


class MaskedByThousands(Least):
    mask = 50_000.0


class FromFarAway(Least):
    """which no number of single precision that is added to another comes near"""

    start = 2.0**100


class OfVectors(Least):
    """y = the least of shift alone: x weighs nothing"""

    start = 1000.0

    @staticmethod
    def reference(x: Any, shift: Any) -> Any:
        return np.minimum((x + shift).min(axis=1), 1000.0)


def runs(machine: type[Machine], kind: str = "f32", m: int = 9) -> tuple[bool, dict[str, bool]]:
    """Whether a kernel passes, and of the runs beyond a number whether they did."""
    found = tg.verify(tg.emit(tg.space(machine, m=m, n=100, dtypes={"x": kind}, device="a100")))
    return found.passed, {c.inputs: c.passed for c in found.checks if "beyond" in c.inputs}


@pytest.mark.parametrize("kind", ["f32", "f16"])
@pytest.mark.parametrize("machine", [FromThousand, MaskedByThousands])
def test_a_least_number_that_starts_too_low_is_found(machine: type[Machine], kind: str) -> None:
    passed, found = runs(machine, kind)
    assert not passed
    assert set(found) == {"beyond", "other beyond"}
    assert not found["other beyond"]  # of one line all is beyond
    assert not found["beyond"]


@pytest.mark.parametrize("machine", [Least, FromFarAway])
def test_right_machines_start_with_infinity_and_have_no_such_run(machine: type[Machine]) -> None:
    assert runs(machine) == (True, {})


def test_a_reference_may_mean_the_number() -> None:
    assert runs(OfVectors) == (True, {"beyond": True, "other beyond": True})


def test_half_of_the_lines_lie_beyond_and_vectors_in_another_run() -> None:
    problem = Least.problem(m=9, n=100)
    shapes = {o.name: o.shape for o in problem.operands}

    def arrays(kind: Any, number: float) -> dict[str, Any]:
        return drawn(Least, problem, kind, 0, shapes, numbers=(number,))[0]

    plain = drawn(Least, problem, "random", 0, shapes)[0]
    for number in (1000.0, -60.0):
        lines, vectors = arrays("beyond", number), arrays("other beyond", number)
        side = math.copysign(1.0, number)
        assert (side * lines["x"][::2] >= abs(number) + 239).all()
        assert np.array_equal(lines["x"][1::2], plain["x"][1::2])
        assert np.array_equal(lines["shift"], plain["shift"])
        assert (side * vectors["shift"] >= abs(number) + 239).all()
        assert np.array_equal(vectors["x"], plain["x"])


def test_types_that_end_before_have_no_lines_there() -> None:
    problem = Least.problem(m=9, n=100, dtypes={"x": "f16"})
    shapes = {o.name: o.shape for o in problem.operands}
    near = drawn(Least, problem, "beyond", 0, shapes, numbers=(-60_000.0,))[0]["x"]
    assert (near[::2] == -65504).all()
    plain = drawn(Least, problem, "random", 0, shapes)[0]["x"]
    far = drawn(Least, problem, "beyond", 0, shapes, numbers=(-65_400.0,))[0]["x"]
    assert np.array_equal(far, plain)
