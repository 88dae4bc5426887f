"""Products beyond one matmul: of batches, and gated: random candidates, odd sizes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.machines.batched_matmul import BatchedMatmul
from tinygpu.machines.gated_matmul import GatedMatmul
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space


def batches(rng: random.Random, seed: int) -> Any:
    kind = ("f16", "bf16", "tf32", "e4m3", "s8")[seed % 5]
    dims = {"batch": rng.randint(1, 4), "m": rng.randint(1, 70), "n": rng.randint(1, 70), "k": rng.randint(1, 90)}
    majors = {"a": rng.choice(("row", "batch.k.m")), "b": rng.choice(("row", "batch.n.k"))}
    return BatchedMatmul.problem(**dims, dtypes={"a": kind}, majors=majors)


def gates(rng: random.Random, seed: int) -> Any:
    kind = ("f16", "bf16", "tf32", "e4m3", "e5m2")[seed % 5]
    dims = {"m": rng.randint(1, 70), "n": rng.randint(1, 70), "k": rng.randint(1, 90)}
    majors = {w: rng.choice(("row", "col")) for w in ("w1", "w3")}
    return GatedMatmul.problem(**dims, dtypes={"x": kind}, majors=majors)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("posed", [batches, gates])
@pytest.mark.sampled(32)
@pytest.mark.end_to_end
def test_random_candidates_are_right(posed: Any, seed: int, draw_candidate: Any) -> None:
    machine = {"batches": BatchedMatmul, "gates": GatedMatmul}[posed.__name__]
    problem = posed(random.Random(seed), seed)
    space = build_space(machine, problem, device(("h100", "rtx4090", "rtx5090")[seed % 3]))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("random",))
    assert found.passed, f"{problem} {point}\n{found}"
