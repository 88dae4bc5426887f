"""Losses of rows that are read once: random candidates, sizes that nothing divides, logits far from zero."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.machines.cross_entropy import CrossEntropy
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

SIZES = ((1, 1), (3, 7), (17, 129), (5, 1000), (2, 4097), (9, 64))


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.sampled(8)
def test_random_candidates_are_right(seed: int, draw_candidate: Any) -> None:
    m, n = SIZES[seed % len(SIZES)]
    problem = CrossEntropy.problem(m=m, n=n, dtypes={"x": ("f32", "f16", "bf16")[seed // 2 % 3]})
    space = build_space(CrossEntropy, problem, device(("a100", "h100", "rtx5090")[seed % 3]))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, CrossEntropy, problem, orders=("random",))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.end_to_end
def test_large_logits_and_those_that_are_minus_infinity_have_a_loss() -> None:
    x = np.full((4, 70), -np.inf, np.float32)
    x[0, 3], x[1, :], x[2, 69], x[2, 0], x[3, 5] = 1000, -1e30, 1e4, 1e4, -1e4
    target = np.array([3, 1, 69, 5], np.int32)
    space = tg.space(CrossEntropy, m=4, n=70, device="a100")
    for seed in range(2):
        loss, logsum = tg.emulate(tg.emit(space, **space.sample(1, seed)[0]), x, target)
        np.testing.assert_allclose(loss, [0, np.log(70), np.log(2), 0], atol=1e-5)
        np.testing.assert_allclose(logsum, [1000, -1e30, 1e4 + np.log(2), -1e4], rtol=1e-6)
