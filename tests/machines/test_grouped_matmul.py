"""Rows that are multiplied group by group: groups of any length, random candidates, what is predicted."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.language import Machine
from tinygpu.machines.grouped_matmul import GroupedMatmul
from tinygpu.machines.grouped_matmul_hopper import GroupedMatmulHopper
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

AMPERE = {"bm": 16, "bn": 32, "bk": 32, "warps_m": 1, "warps_n": 1, "stages": 2, "looked_at": 1, "raster": 4}
HOPPER = {"bm": 64, "bn": 32, "bk": 32, "groups": 1, "stages": 2, "looked_at": 1, "raster": 4}

# Lengths of the groups: with tiles of 16 or 64 rows, none, one, primes, a whole tile, and one row more than that.
LENGTHS = {
    "any length": (0, 1, 13, 0, 64, 17, 16, 65),
    "one group": (67,),
    "all rows in the first": (64, 0, 0),
    "all rows in the last": (0, 0, 0, 64),
    "all rows in one between": (0, 129, 0),
    "many more groups than rows": tuple(int(e in (0, 31, 32, 69)) for e in range(70)),
    "a tile begins with every group": (16, 16, 64, 16),
}


def multiplied(machine: type[Machine], name: str, lengths: tuple[int, ...], **point: Any) -> None:
    """Two products of groups of these lengths, exactly: of whole numbers."""
    rng = np.random.default_rng(sum(lengths))
    m, n, k, experts = sum(lengths), 40, 48, len(lengths)
    kernel = tg.emit(tg.space(machine, m=m, n=n, k=k, experts=experts, device=name), **point)
    x = rng.integers(-3, 4, (m, k)).astype(np.float16)
    w = rng.integers(-3, 4, (experts, k, n)).astype(np.float16)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    expert = np.repeat(np.arange(experts), lengths)
    right = np.stack([row.astype(np.float32) @ w[e].astype(np.float32) for row, e in zip(x, expert, strict=True)])
    np.testing.assert_array_equal(tg.emulate(kernel, offsets, x, w), right.astype(np.float16))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=list(LENGTHS))
@pytest.mark.end_to_end
def test_groups_of_any_length_are_right(lengths: tuple[int, ...]) -> None:
    multiplied(GroupedMatmul, "a100", lengths, **AMPERE)
    multiplied(GroupedMatmulHopper, "h100", lengths, **HOPPER)


def on_mma(rng: random.Random, seed: int) -> tuple[Any, str]:
    kind = ("f16", "bf16", "tf32", "e4m3", "s8", "e5m2")[seed % 6]
    dims = {"m": rng.randint(1, 90), "n": rng.randint(1, 70), "k": rng.randint(1, 90)}
    majors = {"x": rng.choice(("row", "col")), "w": rng.choice(("row", "experts.n.k"))}
    posed = GroupedMatmul.problem(**dims, experts=rng.choice((1, 2, 5, 40)), dtypes={"x": kind}, majors=majors)
    return posed, ("h100", "rtx4090", "rtx5090")[seed % 3]


def on_wgmma(rng: random.Random, seed: int) -> tuple[Any, str]:
    kind = ("f16", "bf16", "e4m3", "s8")[seed % 4]
    dims = {"m": rng.randint(1, 90), "n": 16 * rng.randint(1, 5), "k": 16 * rng.randint(1, 7)}
    major = "experts.n.k" if seed % 4 > 1 else rng.choice(("row", "experts.n.k"))
    posed = GroupedMatmulHopper.problem(
        **dims, experts=rng.choice((1, 2, 5)), dtypes={"x": kind}, majors={"w": major}
    )
    return posed, "h100"


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("draw", [on_mma, on_wgmma])
@pytest.mark.sampled(96)
@pytest.mark.end_to_end
def test_random_candidates_are_right(draw: Any, seed: int, draw_candidate: Any) -> None:
    problem, name = draw(random.Random(seed), seed)
    machine = {on_mma: GroupedMatmul, on_wgmma: GroupedMatmulHopper}[draw]
    space = build_space(machine, problem, device(name))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("random",))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.parametrize(("machine", "point"), [(GroupedMatmul, AMPERE), (GroupedMatmulHopper, HOPPER)])
def test_predictions_take_what_is_declared_of_the_groups(machine: type[Machine], point: dict[str, Any]) -> None:
    found = {}
    for m, experts in ((4096, 8), (4096, 64), (4, 512)):
        problem = machine.problem(m=m, n=256, k=512, experts=experts)
        space = build_space(machine, problem, device("h100"))
        values = {**space.environment, **problem.environment(), **point, "vx": 8, "vw": 8, "vy": 2}
        values |= {"across_x": 4, "across_w": 4, "swizzle": 64, "prefetch": 0}
        found[m, experts] = space.counts(0).demand(values, space.device)
    bm, columns = point["bm"], 256 // point["bn"]
    # every group has half a tile that is empty; rows that are fewer than groups have one each
    assert int(found[4096, 8].ctas) == (4096 // bm + 4) * columns
    assert int(found[4096, 64].ctas) == (4096 // bm + 32) * columns
    assert int(found[4, 512].ctas) == 4 * columns
    assert {int(d.iterations) for d in found.values()} == {512 // point["bk"]}
    assert {int(d.useful_tensor_flops) for d in found.values()} == {2 * 4096 * 256 * 512, 2 * 4 * 256 * 512}
    # every matrix is read that a tile may be of, and no more
    x, y, w = (2 * rows * columns for rows, columns in ((4096, 512), (4096, 256), (512, 256)))
    assert int(found[4096, 8].compulsory_dram_bytes) == x + y + 8 * w + 4 * 9
    assert int(found[4, 512].compulsory_dram_bytes) == (x + y) // 1024 + 4 * w + 4 * 513
