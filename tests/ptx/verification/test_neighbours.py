"""Lines beside those that integers name are no numbers: who looks at them and weighs them with nothing shows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tinygpu.language import Dim, Input, Machine, Output, Require, Tracer, ascending, blocked, integers, uniform
from tinygpu.ptx import isa
from tinygpu.ptx.verification.inputs import drawn, free_floats
from tinygpu.ptx.verification.neighbours import has_few_neighbours, has_neighbours


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
