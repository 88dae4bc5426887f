"""What a machine leaves out of its heuristics costs nothing in its predictions."""

from __future__ import annotations

import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Param, blocked
from tinygpu.ptx import isa
from tinygpu.search.predicted import PredictedTime
from tinygpu.spaces.build import build_space


def machine(left_out: str) -> type[Machine]:
    """A copy whose threads stand far apart, which coalescing charges for."""

    class Copy(Machine):
        """y = x, column by column"""

        heuristics = tuple(h for h in Machine.heuristics if h != left_out)
        m, n = Dim(), Dim()
        x, y = Input("f32", m, n), Output("f32", m, n)
        warps = Param(4)
        ld, st = isa.LdGlobal(1), isa.StGlobal(1)

        def program(self, p):  # type: ignore[no-untyped-def]
            who = blocked((self.warps * 32, 8), threads=self.warps * 32, across=1)
            with p.grid((self.m, self.warps * 32), (self.n, 8)) as (i, j), p.role("all", warps=self.warps):
                shape = (self.warps * 32, 8)
                p.store(self.st, self.y.tile(i, j, shape=shape), p.load(self.ld, self.x.tile(i, j, shape=shape), who))

        @staticmethod
        def reference(x):  # type: ignore[no-untyped-def]
            return x

    return Copy


def seconds(left_out: str) -> float:
    made = machine(left_out)
    space = build_space(made, made.problem(m=4096, n=4096), device("a100"))
    return float(PredictedTime(space).prediction(space.space.at(0)).seconds)


@pytest.mark.parametrize("left_out", ["coalescing", "occupancy", "locality", "bank conflicts"])
def test_a_heuristic_that_is_left_out_never_makes_a_prediction_longer(left_out: str) -> None:
    assert seconds(left_out) <= seconds("")


def test_coalescing_is_what_a_scattered_copy_pays_for() -> None:
    assert seconds("") > 2 * seconds("coalescing")
