"""Numbers that rise along every axis: those of which nothing is declared, and those between declared ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.distributions import Distribution
from tinygpu.language import Dim, Input, Machine, Output, Tracer, blocked
from tinygpu.ptx import isa
from tinygpu.ptx.verification.rising import with_rising

KINDS = ("f32", "f16", "bf16", "tf32", "f64", "e4m3")


class Copied(Machine):
    """y = x, of any type"""

    m, n = Dim(), Dim()
    x = Input(KINDS, m, n)
    y = Output({kind: (kind,) for kind in KINDS}, m, n, follows=x)
    ld, st = isa.LdGlobal(1), isa.StGlobal(1)

    def program(self, p: Tracer) -> None:
        with p.grid((self.m, 1), (self.n, 32)) as (i, j), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, j, shape=(1, 32)), blocked((1, 32), threads=32))
            p.store(self.st, self.y.tile(i, j, shape=(1, 32)), x)

    @staticmethod
    def reference(x: Any) -> Any:
        return x


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "tf32", "f64", "e4m3"])
def test_numbers_rise_along_every_axis(kind: str) -> None:
    problem = Copied.problem(m=40, n=300, dtypes={"x": kind})
    operand = problem.operand("x")
    drawn = np.random.default_rng(0).uniform(0.5, 1, operand.shape).astype(operand.dtype.numpy)
    risen = with_rising(problem, {"x": drawn}, {})["x"]
    assert risen.dtype == drawn.dtype
    wide = np.abs(risen.astype(np.float64))
    assert (np.diff(wide[:, ::100], axis=1) > 0).all()
    assert (np.diff(wide[::20], axis=0) > 0).all()
    assert 500 * wide[0, 0] < wide[-1, -1] < np.inf


@pytest.mark.parametrize("law", [Distribution("uniform", *ends) for ends in ((-3, 5), (2, 5), (-256, 256))], ids=str)
def test_declared_numbers_rise_within_their_ends(law: Distribution) -> None:
    problem = Copied.problem(m=7, n=300)
    drawn = law.draw(np.random.default_rng(0), (7, 300)).astype(np.float32)
    risen = with_rising(problem, {"x": drawn}, {"x": law})["x"]
    nearest = 0 if law.low <= 0 else law.low
    assert law.low <= risen.min() <= risen.max() <= law.high
    assert risen[-1, -1] == drawn[-1, -1]
    assert (np.abs(risen - nearest) <= np.abs(drawn - nearest)).all()
    assert np.abs(risen[0, 0] - nearest) <= np.abs(drawn[0, 0] - nearest) / 1000


def test_listed_and_whole_numbers_stay_as_they_are() -> None:
    problem = Copied.problem(m=7, n=300)
    drawn = np.ones((7, 300), np.float32)
    for law in (Distribution("listed", 0, 1, listed=(0.0, 1.0)), Distribution("integers", 0, 9)):
        assert with_rising(problem, {"x": drawn}, {"x": law})["x"] is drawn
