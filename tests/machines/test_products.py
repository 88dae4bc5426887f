"""Products beyond one matmul: of batches, and gated: random candidates, odd sizes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.machines.batched_matmul import BatchedMatmul
from tinygpu.machines.batched_matmul_hopper import BatchedMatmulHopper
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


def batches_by_tma(rng: random.Random, seed: int) -> Any:
    """Rows of whole 16 bytes, as TMA reads them; m and n of any size where they are not along a row."""
    kind = ("f16", "bf16", "tf32", "e4m3", "s8")[seed % 5]
    whole = {"f16": 8, "bf16": 8, "tf32": 4}.get(kind, 16)
    a, b = "row", "batch.n.k"  # other types than of 16 bits are read along k alone
    if whole == 8:
        a, b = rng.choice((a, "batch.k.m")), rng.choice((b, "row"))
    dims = {"batch": rng.randint(1, 4), "m": rng.choice((1, 61, 65, 130)), "n": rng.choice((1, 17, 33, 97, 129))}
    dims["m"] += -dims["m"] % whole if a != "row" else 0
    dims["n"] += -dims["n"] % whole if b == "row" else 0
    dims["k"] = whole * rng.choice((1, 5, 13))
    return BatchedMatmulHopper.problem(**dims, dtypes={"a": kind}, majors={"a": a, "b": b})


def gates(rng: random.Random, seed: int) -> Any:
    kind = ("f16", "bf16", "tf32", "e4m3", "e5m2")[seed % 5]
    dims = {"m": rng.randint(1, 70), "n": rng.randint(1, 70), "k": rng.randint(1, 90)}
    majors = {w: rng.choice(("row", "col")) for w in ("w1", "w3")}
    return GatedMatmul.problem(**dims, dtypes={"x": kind}, majors=majors)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("posed", [batches, batches_by_tma, gates])
@pytest.mark.sampled(32)
@pytest.mark.end_to_end
def test_random_candidates_are_right(posed: Any, seed: int, draw_candidate: Any) -> None:
    machine = {"batches": BatchedMatmul, "gates": GatedMatmul}.get(posed.__name__, BatchedMatmulHopper)
    problem = posed(random.Random(seed), seed)
    gpu = "h100" if machine is BatchedMatmulHopper else ("h100", "rtx4090", "rtx5090")[seed % 3]
    space = build_space(machine, problem, device(gpu))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("random",))
    assert found.passed, f"{problem} {point}\n{found}"
