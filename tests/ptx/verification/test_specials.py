"""Special values among inputs: in lines of their own, many in every tensor, infinities where there are few rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinygpu.dtypes import dtype
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.language.problem import Operand, Problem
from tinygpu.ptx import isa
from tinygpu.ptx.verification.specials import has_few_specials, with_specials


def special(array: Any, drawn: Any) -> Any:
    """Where an array has special values."""
    return np.argwhere(~((array == drawn) & np.isfinite(array)))


@given(st.lists(st.integers(1, 40), min_size=1, max_size=5), st.booleans(), st.integers(0, 9))
def test_no_line_has_two_special_values_and_long_tensors_have_them_all(
    shape: list[int], others: bool, seed: int
) -> None:
    operands = tuple(Operand(n, dtype("f32"), tuple(shape), "row", shape[-1], 16, "in") for n in ("a", "b"))
    drawn = {o.name: np.full(shape, 0.5, np.float32) for o in operands}
    made = with_specials(np.random.default_rng(seed), Problem((), operands, ()), drawn, {}, others)
    for name, array in made.items():
        places = special(array, drawn[name])
        assert [extent - 1 for extent in shape] in places.tolist()
        for axis in range(len(shape)) if len(shape) > 1 else ():
            lines = {tuple(np.delete(place, axis)) for place in places}
            assert len(lines) == len(places)
        rows = min(sorted(shape)[-2:])
        assert len(places) == (min(rows, 10) if others else min(max(rows // 2, 1) + 1, rows, 11))
        if len(shape) > 1 and not others and rows > 1:  # a large one begins a line, and one ends all
            assert (array[..., 0] == 1000).any() or shape[-1] not in sorted(shape)[-2:]
        if others:
            assert np.isneginf(array).any()
            assert np.isnan(array).any() == (rows > 1)
            assert np.isposinf(array).any() == (rows > 2)


class Rows(Machine):
    """y = x"""

    m, n = Dim(), Dim()
    x, y = Input("f32", m, n), Output("f32", m, n)
    warps = Param(1)
    ld, st = isa.LdGlobal(1), isa.StGlobal(1)

    def program(self, p: Any) -> None:
        who = blocked((1, 32), threads=32)
        with p.grid((self.m, 1), (self.n, 32)) as (i, j), p.role("all", warps=1):
            p.store(self.st, self.y.tile(i, j, shape=(1, 32)), p.load(self.ld, self.x.tile(i, j, shape=(1, 32)), who))

    @staticmethod
    def reference(x: Any) -> Any:
        return x


SIZES = [(1, 64, True), (2, 64, True), (7, 64, True), (8, 64, False), (2, 3, False)]


@pytest.mark.parametrize(("m", "n", "few"), SIZES)
def test_tensors_of_few_rows_have_other_special_values_in_another_run(m: int, n: int, few: bool) -> None:
    assert has_few_specials(Rows, Rows.problem(m=m, n=n)) is few
