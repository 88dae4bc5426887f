"""Statements that no run executed are told, and inputs are drawn by which rare ones are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.language import (
    Dim,
    ExchangePlan,
    Input,
    Machine,
    Output,
    Plan,
    Require,
    Step,
    Tracer,
    Workspace,
    blocked,
    maximum,
    one_of,
    uniform,
)
from tinygpu.ptx import isa
from tinygpu.ptx.verification.verify import Verification

TILE = 32
RARELY = one_of(0, 1, weights=(7, 1))


class Growths(Machine):
    """y[i, 0] = how many tiles of x[i] have a number twice as large as all before them, which are more than nothing"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n, values=uniform(-1, 1)), Output("f32", m, 1)
    ld, st, arithmetic, whole = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32"), isa.arithmetic("s32")
    larger, by = isa.Max("f32"), ExchangePlan("shuffles", isa.ShflBfly())
    fits = Require(n >= 1, "there is a number")
    each = 1.0

    def program(self, p: Tracer) -> None:
        who = blocked((1, TILE), threads=32)
        with p.grid((self.m, 1)) as (i,), p.role("all", warps=1):
            most, count = p.full(who.reduced(1), "f32", 4.0), p.full(who.reduced(1), "f32", 0.0)
            with p.loop(self.n, step=TILE) as j:
                x = p.load(self.ld, self.x.tile(i, j, shape=(1, TILE)), who)
                new = p.reduce(self.larger, abs(x), axis=1, by=self.by)
                grew = p.where((new > most * 2.0) & (most > 0.001), p.full(new.partition, "s32", 1), 0)
                with p.when(p.number(grew, RARELY) > 0):
                    count += self.each
                p.where(most > 3.0, new, maximum(new, most), into=most)
            p.store(self.st, self.y.tile(i, 0, shape=(1, 1)), count)

    @staticmethod
    def reference(x: Any) -> Any:
        starts = range(0, x.shape[1], TILE)
        tiles = [np.max(np.abs(x[:, j : j + TILE]), axis=1) for j in starts]
        count, most = 0.0 * tiles[0], tiles[0]
        for new in tiles[1:]:
            count = count + np.where((new > 2 * most) & (most > 0.001), 1.0, 0.0)
            most = np.maximum(most, new)
        return count[:, None]


class CountsTwice(Growths):
    each = 2.0


class InLongRows(Machine):
    """y = x, and something else behind a place that no derived problem reaches"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)
    ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32")

    def program(self, p: Tracer) -> None:
        who = blocked((1, TILE), threads=32)
        with p.grid((self.m, 1), (self.n, TILE)) as (i, j), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, j, shape=(1, TILE)), who)
            with p.when(j > 1 << 20):
                x += 1.0
                x *= 2.0
            p.store(self.st, self.y.tile(i, j, shape=(1, TILE)), x)

    @staticmethod
    def reference(x: Any) -> Any:
        return x


class Twice(Plan):
    """of which both steps have a branch that no run takes"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)
    between = Workspace("f32", m, n)
    first = Step(InLongRows, x=x, y=between)
    second = Step(InLongRows, x=between, y=y)

    @staticmethod
    def reference(x: Any) -> Any:
        return x


def found(machine: Any, **dims: int) -> Verification:
    return tg.verify(tg.emit(tg.space(machine, **dims, device="a100")))


@pytest.mark.parametrize("machine", [Growths, CountsTwice])
def test_a_rare_branch_is_taken_by_numbers_that_rise(machine: type[Machine]) -> None:
    verification = found(machine, m=5, n=300)
    assert not verification.notes
    assert [c.inputs for c in verification.checks if not c.passed] == ["rising"] * (machine is CountsTwice)
    assert [c.inputs for c in verification.checks if "draw" in c.where] == ["rising"]


def test_a_branch_that_no_run_takes_is_told() -> None:
    verification = found(InLongRows, m=5, n=300)
    assert verification.passed
    here, first = "tests/ptx/verification/test_unexecuted.py", 1 + _line_of("x += 1.0")
    assert str(verification).splitlines()[-1] == (
        f"  NOTE: no run executed `%v1 = add.rn.f32 %v1, 1` of {here}:{first}, "
        f"`%v1 = mul.rn.f32 %v1, 2` of {here}:{first + 1}, so that nothing is known of them; "
        "declare values= of the inputs, or take a shape, by which a branch or a loop comes there"
    )


def test_of_a_plan_the_step_is_named() -> None:
    notes = found(Twice, m=5, n=300).notes
    assert [note.partition(" executed ")[0] for note in notes] == ["step first: no run", "step second: no run"]


def _line_of(text: str) -> int:
    with open(__file__) as file:
        return next(number for number, line in enumerate(file) if line.strip() == text)
