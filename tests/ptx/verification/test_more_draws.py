"""Random numbers are drawn again while an output is one and the same number in all runs: what is rare is seen then."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Tracer, blocked, maximum, minimum, uniform
from tinygpu.ptx import isa
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import Verification, verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


class Shared(Machine):
    """y[i, j] = the area that boxes (x, y, x2, y2) share, of which few have an area at all"""

    m, n = Dim(), Dim()
    a, b = Input("f32", m, 4, values=uniform(0, 1)), Input("f32", n, 4, values=uniform(0, 1))
    y = Output("f32", m, n)
    ld, st, arithmetic = isa.LdGlobal(1), isa.StGlobal(1), isa.arithmetic("f32")

    def program(self, p: Tracer) -> None:
        who = blocked((4, 32), threads=32, across=32)
        with p.grid((self.m, 4), (self.n, 32)) as (i, j), p.role("all", warps=1):
            a = [p.load(self.ld, self.a.tile(i, c, shape=(4, 1)), who.along(0)) for c in range(4)]
            b = [p.load(self.ld, self.b.tile(j, c, shape=(32, 1)).T, who.along(1)) for c in range(4)]
            wide, high = (maximum(minimum(a[c + 2], b[c + 2]) - maximum(a[c], b[c]), 0.0) for c in (0, 1))
            p.store(self.st, self.y.tile(i, j, shape=(4, 32)), self.of(wide * high))

    def of(self, area: Any) -> Any:
        return area

    @staticmethod
    def reference(a: Any, b: Any) -> Any:
        a, b = a[:, None], b[None]
        sides = np.maximum(np.minimum(a[..., 2:], b[..., 2:]) - np.maximum(a[..., :2], b[..., :2]), 0.0)
        return sides[..., 0] * sides[..., 1]


class Twice(Shared):
    """twice the area"""

    def of(self, area: Any) -> Any:
        return area + area


def verified(machine: type[Machine], **more: Any) -> Verification:
    problem = machine.problem(m=5, n=41)
    kernel = build(build_space(machine, problem, device("a100")).program({}), problem, {}, SolverCache()).kernel
    return verify(kernel, machine, problem, orders=("late",), **more)


def test_what_few_draws_show_is_judged() -> None:
    found = verified(Shared)
    assert found.passed
    assert not found.notes
    draws = [check.where for check in found.checks if check.where.startswith("draw")]
    assert draws == [f"draw {number + 2}" for number in range(len(draws))]
    assert draws
    wrong = verified(Twice)
    assert [check.where for check in wrong.checks if not check.passed] == [draws[-1]]


@pytest.mark.parametrize("more", [{"only": 0}, {"random_inputs": False}])
def test_who_asks_for_less_gets_less(more: dict[str, Any]) -> None:
    found = verified(Twice, **more)
    assert found.passed
    assert len(found.notes) == 1
