"""A matrix of narrow weights times a vector: random candidates, odd sizes, every type."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.machines.matvec import Matvec
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


def matvecs(rng: random.Random, seed: int) -> Any:
    kind = ("s8", "e4m3", "s4", "u4", "e2m1", "e5m2", "f16", "bf16")[seed % 8]
    dims = {"m": rng.randint(1, 200), "k": 2 * rng.randint(1, 1500)}
    dtypes = {"w": kind, "x": rng.choice(("f16", "bf16", "f32"))}
    return Matvec.problem(**dims, dtypes=dtypes, options={"scaled": rng.random() < 0.7})


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sampled(8)
def test_random_candidates_are_right(seed: int, draw_candidate: Any) -> None:
    problem = matvecs(random.Random(seed), seed)
    space = build_space(Matvec, problem, device(("h100", "rtx4090", "rtx5090")[seed % 3]))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, Matvec, problem, orders=("random",))
    assert found.passed, f"{problem} {point}\n{found}"
