"""The predicted time of many points at once is that of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.devices import device
from tinygpu.language import Dim, Input, Machine, Output, Tracer, blocked
from tinygpu.machines.matmul_simt import MatmulSimt
from tinygpu.ptx import isa
from tinygpu.search.predicted import PredictedTime
from tinygpu.search.preference import scored
from tinygpu.spaces.build import build_space


@pytest.mark.end_to_end
@pytest.mark.parametrize("seed", [0, 1])
def test_many_points_are_predicted_as_each_is_alone(seed: int) -> None:
    space = build_space(MatmulSimt, MatmulSimt.problem(m=100, n=200, k=300), device("rtx4090"))
    objective = PredictedTime(space)
    points = list(space.space.sample(40, np.random.default_rng(seed)))
    alone = [objective([point])[0] for point in points]
    for together, one in zip(objective(points), alone, strict=True):
        assert together.failure == one.failure
        assert together.value == (one.value if one.value is None else pytest.approx(one.value, rel=1e-14))


def test_rooflines_of_many_points_are_those_of_their_predictions() -> None:
    space = build_space(MatmulSimt, MatmulSimt.problem(m=100, n=200, k=300), device("rtx4090"))
    objective = PredictedTime(space)
    points = list(space.space.sample(16, np.random.default_rng(2)))
    assert len({space.structure_index(point) for point in points}) > 1
    assert objective.rooflines(points).tolist() == [float(objective.prediction(p).roofline_s) for p in points]


class Fixed(Machine):
    """y = x, by the one candidate that there is"""

    n = Dim()
    x, y = Input("f32", n), Output("f32", n)
    ld, st = isa.LdGlobal(1), isa.StGlobal(1)

    def program(self, p: Tracer) -> None:
        with p.grid((self.n, 32)) as (i,), p.role("all", warps=1):
            x = p.load(self.ld, self.x.tile(i, shape=(32,)), blocked((32,), threads=32))
            p.store(self.st, self.y.tile(i, shape=(32,)), x)

    @staticmethod
    def reference(x: Any) -> Any:
        return x


def test_a_candidate_without_parameters_is_scored() -> None:
    objective = PredictedTime(build_space(Fixed, Fixed.problem(n=1000), device("a100")))
    (found,) = scored(objective, [{}])
    assert found.point == {}
    assert found.score >= float(objective.prediction({}).seconds)  # and what it strains
