"""Every combination of types that a machine that ships takes has a space: nothing of it is told to be impossible."""

from __future__ import annotations

import numpy as np
import pytest

from tinygpu.api.machines import SHIPPED, family
from tinygpu.devices import device
from tinygpu.language.machine import Machine
from tinygpu.language.problem import ProblemError
from tinygpu.spaces.build import build_space
from tinygpu.testing.draws import SeededDraw, draw_problem

QUICK = ("matvec", "matmul_simt")
DRAWS = 120


@pytest.mark.end_to_end
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in SHIPPED])
def test_every_type_on_offer_has_a_space(name: str) -> None:
    (machine,) = family(name).machines
    assert issubclass(machine, Machine)
    seen = set()
    for seed in range(DRAWS):
        try:
            problem = draw_problem(machine, SeededDraw(np.random.default_rng(seed)))
        except ProblemError:
            continue
        kinds = tuple(o.dtype.name for o in problem.operands)
        if kinds not in seen:
            seen.add(kinds)
            build_space(machine, problem, device("h100"))
    assert seen
