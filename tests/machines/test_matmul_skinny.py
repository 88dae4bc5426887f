"""matmul_skinny: right with every way to multiply, near the time of b alone, and refused where it is not skinny."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from tinygpu.api.machines import family
from tinygpu.cost.predictor import Prediction
from tinygpu.devices import device
from tinygpu.language import Machine, Problem
from tinygpu.machines.matmul_hopper import MatmulHopper
from tinygpu.machines.matmul_skinny import MatmulSkinny
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.search.predicted import PredictedTime
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces import Part, Space
from tinygpu.spaces.build import MachineSpace, build_space

POINT = {"bm": 8, "bn": 64, "bk": 64, "warps": 4, "stages": 4, "split_k": 3, "swizzle": 64}


@cache
def space_of(problem: Problem, on: str) -> MachineSpace:
    return build_space(MatmulSkinny, problem, device(on))


def made(problem: Problem, on: str = "h100", **point: Any) -> Kernel:
    space = space_of(problem, on)
    full = {**POINT, **point}
    if full.get("product") == "wgmma":  # has no narrower swizzle than the widest that is legal
        full["swizzle"] = max([w for w in (32, 64, 128) if full | {"swizzle": w} in space.space], default=32)
    assert full in space.space, [str(violation) for violation in space.space.explain(full)]
    return build(space.program(full), problem, full, SolverCache()).kernel


def best(machine: type[Machine], problem: Problem, on: str, count: int = 600) -> Prediction:
    """The shortest predicted time among some candidates."""
    space = build_space(machine, problem, device(on))
    points = space.space.sample(min(count, space.space.size), np.random.default_rng(0))
    predicted = PredictedTime(space)
    scores = predicted.score_columns({name: np.array([p[name] for p in points]) for name in points[0]})
    return predicted.prediction(points[int(np.argmin(scores))])


def least(predicted: PredictedTime, without: frozenset[str] = frozenset()) -> float:
    """The shortest predicted time of all candidates, or of those that the space has without some constraints."""
    seconds = np.inf
    for part in predicted.space.space.parts:
        kept = tuple(c for c in part.constraints if c.name not in without)
        space = Space("wider", (Part(part.fixed, part.axes, kept, part.environment),))
        if space.size:
            seconds = min(seconds, float(np.min(predicted.score_columns(space.columns()))))
    return seconds


def drawn(seed: int) -> tuple[str, Problem]:
    """A device and a problem whose columns are about as many as it takes for each SM to have a tile or a few."""
    rng = np.random.default_rng(seed)
    on = str(rng.choice(["h100", "h200", "rtx-5090"]))
    n = 16 * int(device(on).sm_count * 2 * rng.uniform(0.5, 5))
    m, k = int(rng.integers(17, 65)), int(rng.choice([64, 160, 320, 512, 1024, 4096]))
    kind = str(rng.choice(["f16", "bf16", "e4m3", "s8"]))
    dtypes = {"a": kind, "b": kind}
    options: dict[str, Any] = {}
    if kind != "s8" and rng.random() < 0.7:
        dtypes |= dict.fromkeys(("bias", "scales", "c", "residual"), "f32")
        options = {"with_bias": True, "scaling": "columns", "with_residual": True}
    a = str(rng.choice(["row", "col"])) if kind in ("f16", "bf16") else "row"
    return on, MatmulSkinny.problem(m=m, n=n, k=k, dtypes=dtypes, majors={"a": a, "b": "col"}, options=options)


def finished(m: int, n: int, k: int, a: str) -> Problem:
    """With everything that an epilogue can do, in f32: more bytes than the product itself where k is short."""
    dtypes = dict.fromkeys("ab", "f16") | dict.fromkeys(("bias", "scales", "c", "residual"), "f32")
    options = {"with_bias": True, "scaling": "columns", "with_residual": True}
    return MatmulSkinny.problem(m=m, n=n, k=k, dtypes=dtypes, majors={"a": a}, options=options)


def cost_nothing(problem: Problem, on: str) -> None:
    """The rules about tiles of rows: up to what no measurement tells apart, as `tinygpu check` has it."""
    predicted = PredictedTime(build_space(MatmulSkinny, problem, device(on)))
    free = least(predicted, frozenset({"once", "tight"}))
    assert least(predicted) <= free + max(0.01 * free, 0.5e-6), f"{problem} on {on}"


@pytest.mark.parametrize("seed", [*range(6), *(pytest.param(s, marks=pytest.mark.slow) for s in range(6, 60))])
def test_rules_about_tiles_of_rows_cost_nothing(seed: int) -> None:
    on, problem = drawn(seed)
    cost_nothing(problem, on)


@pytest.mark.end_to_end
def test_rows_are_shared_out_where_b_has_few_columns() -> None:
    """Fewer than two tiles of 32 columns for each SM."""
    cost_nothing(finished(64, 4096, 320, "col"), "h100")


@pytest.mark.end_to_end
def test_rows_side_by_side_may_be_rounded_up_for_a_wide_swizzle() -> None:
    """A tile of 48 rows leaves swizzles of 32 bytes only; one of 64 rows does not."""
    cost_nothing(finished(48, 11072, 4096, "col"), "h200")


@pytest.mark.end_to_end
@pytest.mark.sampled(5)
@pytest.mark.parametrize("product", ["wgmma", "mma.sync"])
@pytest.mark.parametrize(
    ("kind", "result"),
    [("bf16", "bf16"), ("f16", "f32"), ("tf32", "f32"), ("e4m3", "bf16"), ("e5m2", "f16"), ("s8", "s32")],
)
def test_every_type_is_right_with_both_ways_to_multiply(product: str, kind: str, result: str) -> None:
    """k-major weights, as networks store them; edges along each dim; rounds that parts do not divide."""
    dtypes = {"a": kind, "b": kind, "c": result}
    problem = MatmulSkinny.problem(m=7, n=200, k=528, dtypes=dtypes, majors={"b": "col"}, options={"with_bias": True})
    kernel = made(problem, product=product)
    assert kernel.slices == 3
    assembly = assemble(kernel.ptx, kernel.architecture)
    assert not assembly.spills
    assert "wgmma" not in " ".join(assembly.warnings)
    found = verify(kernel, MatmulSkinny, problem, orders=("random",))
    assert found.passed, str(found)


@pytest.mark.end_to_end
@pytest.mark.sampled(3)
@pytest.mark.parametrize("product", ["wgmma", "mma.sync"])
@pytest.mark.parametrize("majors", [("row", "row"), ("col", "row"), ("col", "col")])
def test_operands_of_16_bits_in_any_order(product: str, majors: tuple[str, str]) -> None:
    problem = MatmulSkinny.problem(m=40, n=136, k=200, majors={"a": majors[0], "b": majors[1]})
    kernel = made(problem, product=product, bm=48, swizzle=32, stages=3)
    found = verify(kernel, MatmulSkinny, problem, orders=("early",))
    assert found.passed, str(found)


@pytest.mark.end_to_end
@pytest.mark.sampled(5)
@pytest.mark.parametrize(("product", "warps", "bn"), [("wgmma", 8, 128), ("mma.sync", 1, 16), ("mma.sync", 2, 64)])
@pytest.mark.parametrize("split_k", [2, 16])
def test_parts_of_every_width_are_fixed_up(product: str, warps: int, bn: int, split_k: int) -> None:
    """Few values of many parts are taken at once, many values part by part."""
    options = {"scaling": "columns", "activation": "silu", "with_residual": True}
    bk = 128 if bn == 16 else 64
    problem = MatmulSkinny.problem(m=16, n=264, k=16 * bk + 16, options=options)
    kernel = made(problem, product=product, warps=warps, bn=bn, bk=bk, bm=16, split_k=split_k, swizzle=32)
    found = verify(kernel, MatmulSkinny, problem, orders=("late",))
    assert found.passed, str(found)


@pytest.mark.end_to_end
@pytest.mark.parametrize("on", ["b200", "rtx-5090"])
def test_gpus_without_wgmma_multiply_with_mma_sync(on: str) -> None:
    problem = MatmulSkinny.problem(m=1, n=200, k=264, majors={"b": "col"})
    kernel = made(problem, on, product="mma.sync")
    assemble(kernel.ptx, kernel.assembled_for(device(on).portable_target))
    found = verify(kernel, MatmulSkinny, problem, orders=("late",))
    assert found.passed, str(found)


@pytest.mark.parametrize(("n", "k"), [(4096, 4096), (4096, 14336), (14336, 4096), (28672, 8192)])
@pytest.mark.parametrize("m", [1, 64])
def test_b_streams_at_the_rate_of_dram_by_the_predictor(m: int, n: int, k: int) -> None:
    """At least 80 % of the time is DRAM's, launch overhead included."""
    problem = MatmulSkinny.problem(m=m, n=n, k=k, dtypes=dict.fromkeys("abc", "bf16"), majors={"b": "col"})
    assert float(best(MatmulSkinny, problem, "h100").share_of_roofline) >= 0.8


def test_the_family_takes_it_where_rows_are_few() -> None:
    assert MatmulSkinny in family("matmul").machines
    asked: dict[str, Any] = {"m": 16, "n": 4096, "k": 4096}
    seconds = [float(best(m, m.problem(**asked), "h200").seconds) for m in (MatmulSkinny, MatmulHopper)]
    assert seconds[0] < seconds[1]


def test_more_rows_than_64_are_left_to_other_machines() -> None:
    for m, size in ((64, True), (65, False)):
        space = build_space(MatmulSkinny, MatmulSkinny.problem(m=m, n=256, k=256), device("h100")).space
        assert bool(space.size) is size
    (conflict,) = space.conflict()
    assert conflict.sentences == ("rows (MatmulSkinny): a has at most 64 rows; 65 (m) <= 64",)
