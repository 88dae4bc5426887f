"""Integers of which no two are the same: permutations, and rows that a kernel writes once each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.distributions import Distribution
from tinygpu.language import Dim, InOut, Input, Machine, Output, Param, blocked, integers
from tinygpu.ptx import isa


@pytest.mark.parametrize("shape", [(1,), (2,), (5,), (2, 3), (7, 1, 4)])
@pytest.mark.parametrize("more", [0, 1, 1000, 2**31 - 100])
def test_all_numbers_of_a_draw_are_different_and_both_ends_are_there(shape: tuple[int, ...], more: int) -> None:
    count = int(np.prod(shape))
    of = Distribution("integers", 3, 3 + count - 1 + more, distinct=True)
    for seed in range(20):
        found = of.draw(np.random.default_rng(seed), shape)
        assert found.shape == shape
        assert len(np.unique(found)) == count
        assert of.low <= found.min() <= found.max() <= of.high
        assert count == 1 or {of.low, of.high} <= set(found.ravel())
        assert not of.fault(found.astype(np.int64))


def test_too_few_numbers_and_repeated_ones_are_told() -> None:
    few = Distribution("integers", 0, 3, distinct=True)
    with pytest.raises(ValueError, match=r"^5 numbers from 0 to 3 are not all different: there are 4$"):
        few.draw(np.random.default_rng(0), (5,))
    repeated = few.fault(np.array([[1, 0], [3, 1]]))
    assert repeated == "[0, 0] is 1, and so is another one; no two may be the same"


@pytest.mark.parametrize("shape", [(1,), (2,), (5,), (2, 3), (40,)])
@pytest.mark.parametrize(("low", "high"), [(-1, 0), (-1, 3), (-3, 100), (-1, 2**31 - 2), (-4, -2)])
def test_numbers_below_zero_name_no_row_and_are_there_again(shape: tuple[int, ...], low: int, high: int) -> None:
    count, of = int(np.prod(shape)), Distribution("integers", low, high, distinct=True)
    drawn = [of.draw(np.random.default_rng(seed), shape) for seed in range(40)]
    for found in drawn:
        rows = found[found >= 0]
        assert found.shape == shape
        assert len(np.unique(rows)) == len(rows)
        assert low <= found.min() <= found.max() <= high
        assert not of.fault(found.astype(np.int64))
    seen = np.concatenate([found.ravel() for found in drawn])
    assert {low, high} <= set(seen)
    assert count < 3 or any(np.unique(found[found < 0]).size < (found < 0).sum() for found in drawn)
    repeated = of.fault(np.array([-2, 0, -2, 0])) if low < -1 and high >= 0 else ""
    assert repeated in ("", "[1] is 0, and so is another one; no two may be the same")


class Unpermute(Machine):
    """y[at[i]] = x[i]"""

    m, n = Dim(), Dim()
    at = Input("s32", m, values=integers(0, m, distinct=True))
    x, y = Input("f32", m, n), Output("f32", m, n)

    warps = Param(1, 2)
    ld, st = isa.LdGlobal(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        shape = (4 * self.warps, 32)
        who = blocked(shape, threads=32 * self.warps)
        with p.grid((self.m, shape[0]), (self.n, 32)) as (i, j), p.role("all", warps=self.warps):
            at = p.load(self.ld, self.at.column(i, shape[0]), who.along(0), fill=-1)
            x = p.load(self.ld, self.x.tile(i, j, shape=shape), who)
            p.store(self.st, self.y.rows(at).tile(0, j, shape=shape), x)

    @staticmethod
    def reference(at: Any, x: Any) -> Any:
        y = np.zeros_like(x)
        y[at] = x
        return y


class Promised(Unpermute):
    at = Input("s32", Unpermute.m, values=integers(0, Unpermute.m))  # rows may be named twice


def test_rows_that_are_each_written_once_are_verified() -> None:
    for machine, passes in ((Unpermute, True), (Promised, False)):
        found = tg.verify(tg.emit(tg.space(machine, m=67, n=37, device="a100")))
        assert found.passed == passes, str(found)


class Appended(Unpermute):
    """Rows of x go to those of y that `at` names; -1: nowhere"""

    s = Dim()
    at = Input("s32", Unpermute.m, values=integers(-1, s, distinct=True))
    y = InOut("f32", s, Unpermute.n)

    @staticmethod
    def reference(at: Any, x: Any, y: Any) -> Any:
        y = y.copy()
        y[at[at >= 0]] = x[at >= 0]
        return y


def test_more_elements_than_rows_are_verified_where_some_go_nowhere() -> None:
    for rows in (70, 5):
        kernel = tg.emit(tg.space(Appended, m=67, n=37, s=rows, device="a100"))
        assert (found := tg.verify(kernel)).passed, str(found)
    at, x, y = np.array([-1, 3, -1, -1, 0], np.int32), np.ones((5, 3), np.float32), np.zeros((4, 3), np.float32)
    kernel = tg.emit(tg.space(Appended, m=5, n=3, s=4, device="a100"))
    assert np.array_equal(tg.emulate(kernel, x, at, y)[:, 0], [1, 0, 0, 1])


def test_as_many_numbers_as_elements_are_demanded_of_dims() -> None:
    class Scattered(Unpermute):
        s = Dim()
        at = Input("s32", Unpermute.m, values=integers(0, s, distinct=True))
        x = Input("f32", Unpermute.m, Unpermute.n)
        y = Output("f32", s, Unpermute.n)

    assert tg.space(Scattered, m=5, n=9, s=5, device="a100").size == 2
    with pytest.raises(Exception, match=r"integers\(0, s, distinct=True\) has a number for each element of at"):
        tg.emit(tg.space(Scattered, m=5, n=9, s=4, device="a100"))
