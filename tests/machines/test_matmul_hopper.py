"""matmul_hopper: published configurations are in its space, its schedules are right, what TMA cannot take is said."""

from __future__ import annotations

import itertools
from functools import cache
from typing import Any

import pytest

from tinygpu.devices import device
from tinygpu.language import Problem
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import MachineSpace, build_space

H100 = device("h100")
TILE = {"bm": 128, "bn": 256, "bk": 64, "stages": 3, "cluster_m": 2, "cluster_n": 1, "raster": 8, "swizzle": 128}
IDLE = {"split_k": 1, "stream_k": 0, "vr": 1, "outs": 1}


@cache
def space_of(problem: Problem) -> MachineSpace:
    return build_space(MatmulHopper, problem, H100)


def made(problem: Problem, **point: Any) -> Any:
    space = space_of(problem)
    full = {"schedule": "cooperative", "store": "staged", **TILE, **IDLE, "swizzle_c": 128, "piece": 64, **point}
    if full["store"] == "direct":
        # What the staging buffer is like is no parameter of this structure: each stands at its first value.
        full |= {"swizzle_c": 32, "piece": 16, "outs": 1}
    assert full in space.space, dict(full)
    return build(space.program(full), problem, full, SolverCache()).kernel


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "point",
    [
        {"schedule": "cooperative", "store": "direct", "stages": 4},  # 128 x 256 x 64, two consumers, pairs of CTAs
        {"schedule": "cooperative", "store": "staged", "stages": 3},
        {"schedule": "cooperative", "bm": 256, "bn": 128, "stages": 3},
        {"schedule": "pingpong", "store": "staged", "bm": 64, "bn": 256, "stages": 3},
        {"schedule": "pingpong", "store": "direct", "bm": 128, "bn": 128, "stages": 4},
        {"schedule": "cooperative", "bn": 128, "stages": 4, "cluster_m": 1, "cluster_n": 2},
    ],
)
def test_what_the_best_published_kernels_choose_is_in_the_space(point: dict[str, Any]) -> None:
    kernel = made(MatmulHopper.problem(m=4096, n=4096, k=4096), **point)
    assembly = assemble(kernel.ptx, kernel.architecture)
    assert kernel.architecture == "sm_90a"
    assert assembly.spill_store_bytes == 0
    assert "wgmma" not in " ".join(assembly.warnings)  # neither serialised nor given waits of the assembler's own


@pytest.mark.end_to_end
@pytest.mark.sampled(18)
@pytest.mark.parametrize("schedule", ["single", "cooperative", "pingpong"])
@pytest.mark.parametrize("store", ["stmatrix", "staged", "direct"])
@pytest.mark.parametrize("clusters", [(1, 1), (2, 1), (1, 2), (2, 2)])
def test_every_schedule_is_right(schedule: str, store: str, clusters: tuple[int, int]) -> None:
    """Tiles that clusters do not divide, a remainder along each dim, loops of fewer and more rounds than stages."""
    problem = MatmulHopper.problem(m=328, n=200, k=104)
    point = {"schedule": schedule, "store": store, "bm": 128, "bn": 64, "bk": 32, "stages": 2, "swizzle": 64}
    kernel = made(problem, cluster_m=clusters[0], cluster_n=clusters[1], **point)
    found = verify(kernel, MatmulHopper, problem, orders=("random",), thorough=True)
    assert found.passed, str(found)


@pytest.mark.end_to_end
@pytest.mark.sampled(5)
@pytest.mark.parametrize("schedule", ["single", "cooperative", "pingpong"])
@pytest.mark.parametrize(("split_k", "clusters"), [(2, (2, 1)), (3, (1, 1)), (4, (1, 2))])
def test_ctas_that_share_tiles_are_right(schedule: str, split_k: int, clusters: tuple[int, int]) -> None:
    """Rounds that parts do not divide; roles that take turns at the parts of tiles."""
    problem = MatmulHopper.problem(m=328, n=136, k=424, options={"with_bias": True, "activation": "relu"})
    point = {"schedule": schedule, "bm": 128, "bn": 64, "bk": 32, "stages": 2, "swizzle": 64, "split_k": split_k}
    kernel = made(problem, cluster_m=clusters[0], cluster_n=clusters[1], **point)
    assert kernel.slices == split_k
    found = verify(kernel, MatmulHopper, problem, orders=("random",))
    assert found.passed, str(found)


@pytest.mark.end_to_end
@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("schedule", "kind", "result"),
    [
        ("single", "tf32", "f32"),
        ("cooperative", "e4m3", "bf16"),
        ("cooperative", "e5m2", "f16"),
        ("pingpong", "s8", "s32"),
    ],
)
def test_an_a_that_wgmma_cannot_read_passes_through_registers(schedule: str, kind: str, result: str) -> None:
    """Contiguous along m, of elements that have not 16 bits."""
    dtypes = {"a": kind, "b": kind, "c": result}
    problem = MatmulHopper.problem(m=208, n=72, k=176, dtypes=dtypes, majors={"a": "col", "b": "col"})
    point = {"schedule": schedule, "store": "direct", "bm": 128, "bn": 64, "bk": 64, "stages": 2, "swizzle": 64}
    kernel = made(problem, **point)
    assert "wgmma" not in " ".join(assemble(kernel.ptx, kernel.architecture).warnings)
    found = verify(kernel, MatmulHopper, problem, orders=("random",))
    assert found.passed, str(found)


def test_tiles_are_shared_only_where_there_are_few() -> None:
    """4 tiles of 128 x 128 on 132 SMs may be shared by 16 CTAs each; 1024 tiles have one CTA each."""
    for size, most in ((256, 16), (4096, 1)):
        space = build_space(MatmulHopper, MatmulHopper.problem(m=size, n=size, k=4096), H100)
        point = {"schedule": "cooperative", "store": "direct", **TILE, **IDLE, "bn": 128, "swizzle_c": 32, "piece": 16}
        found = [n for n in (1, 2, 3, 4, 6, 8, 16) if point | {"split_k": n} in space.space]
        assert max(found) == most


@pytest.mark.end_to_end
@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("majors", "swizzle"),
    [
        *itertools.product([("row", "col"), ("row", "row"), ("col", "col")], [64, 128]),
        (("col", "row"), 128),
    ],
)
def test_both_majors_of_both_operands_in_every_swizzle(majors: tuple[str, str], swizzle: int) -> None:
    """Of rows along k that are as long as the swizzle is wide: a wider one is taken where it is legal."""
    problem = MatmulHopper.problem(m=192, n=136, k=72, majors={"a": majors[0], "b": majors[1]})
    bk = swizzle // 2
    kernel = made(problem, schedule="single", store="direct", bm=64, bn=64, bk=bk, swizzle=swizzle, cluster_m=1)
    found = verify(kernel, MatmulHopper, problem, orders=("early",))
    assert found.passed, str(found)


@pytest.mark.parametrize(
    ("problem", "sentence"),
    [
        (
            {"m": 128, "n": 128, "k": 100},
            "the pointer and the rows of a are multiples of 16 bytes",
        ),
        (
            {"m": 128, "n": 128, "k": 128, "dtypes": {"a": "e4m3", "b": "e4m3", "c": "bf16"}},
            "operand b is contiguous along k, unless its elements have 16 bits (they have 8)",
        ),
    ],
)
def test_what_tma_and_wgmma_cannot_take_is_said(problem: dict[str, Any], sentence: str) -> None:
    space = build_space(MatmulHopper, MatmulHopper.problem(**problem), H100)
    assert space.space.size == 0
    assert sentence in str(space.space.conflict())
