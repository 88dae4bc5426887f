"""Attention on both generations: random candidates, causal or not, grouped heads, sizes that no tile divides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.machines.attention_ampere import AttentionAmpere
from tinygpu.machines.attention_hopper import AttentionHopper
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.search.predicted import PredictedTime
from tinygpu.simulator.simulator import Simulator
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

SIZES = ((1, 1, 1, 1, 1), (1, 2, 2, 65, 65), (2, 1, 1, 33, 130), (1, 1, 3, 129, 31), (1, 1, 1, 97, 200))


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize(("machine", "gpu"), [(AttentionAmpere, "a100"), (AttentionHopper, "h100")])
@pytest.mark.sampled(48)
@pytest.mark.end_to_end
def test_random_candidates_are_right(machine: Any, gpu: str, seed: int, draw_candidate: Any) -> None:
    rng = np.random.default_rng(seed)
    b, h, g, s, t = SIZES[seed % len(SIZES)]
    d, kind = int(rng.choice([64, 64, 128, 256])), ("f16", "bf16")[seed % 2]
    causal = bool(seed // 2 % 2) and t >= s
    problem = machine.problem(b=b, h=h, g=g, s=s, t=t, d=d, dtypes={"q": kind}, options={"causal": causal})
    space = build_space(machine, problem, device(gpu))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("late", "random"))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.end_to_end
def test_published_configurations_are_points() -> None:
    """Tiles of FlashAttention-2 (its sources for sm_80) and of FlashAttention-3 (those for sm_90), forward.

    That of FlashAttention-2 for heads of 64 is not: its 128 x 128 scores are estimated to take 264 registers, of 255.
    """
    large = {"b": 2, "h": 16, "g": 1, "s": 4096, "t": 4096}
    ampere = {128: (128, 64, 4)}
    for d, (bm, bn, warps) in ampere.items():
        space = tg.space(AttentionAmpere, **large, d=d, device="a100")
        points = [p for p in space if (int(p["rows"]) * int(p["warps"]), p["bn"], p["warps"]) == (bm, bn, warps)]
        assert points, (d, bm, bn)
    hopper = {64: ("3 in turns", 128), 128: ("2 in turns", 176), 256: (2, 80)}
    for d, at in hopper.items():
        space = tg.space(AttentionHopper, **large, d=d, device="h100")
        assert [p for p in space if (p["groups"], p["bn"], p["overlapped"]) == (*at, 1)], (d, at)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("groups", ["2 in turns", "3 in turns"])
@pytest.mark.parametrize("overlapped", [0, 1])
@pytest.mark.end_to_end
def test_warpgroups_in_turns_are_right(groups: str, overlapped: int) -> None:
    """Rows that end in the second warpgroup, keys in as many rounds as turn out odd and even."""
    problem = AttentionHopper.problem(b=1, h=2, g=1, s=97, t=161, d=64, options={"causal": bool(overlapped)})
    space = build_space(AttentionHopper, problem, device("h100"))
    point = {"groups": groups, "overlapped": overlapped, "bn": 32, "stages": 2, "columns": 64, "swizzle": 128}
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, AttentionHopper, problem, orders=("late", "random"))
    assert found.passed, str(found)


@pytest.mark.end_to_end
def test_turns_are_simulated_and_predicted_no_slower() -> None:
    """Warpgroups that take turns hide what one of them waits for behind the products of the others."""
    space = tg.space(AttentionHopper, b=1, h=4, g=1, s=2048, t=2048, d=64, device="h100")
    point = {"overlapped": 1, "bn": 128, "stages": 2, "columns": 64, "swizzle": 128}
    objective, simulator = PredictedTime(space), Simulator(space)
    for groups in (2, 3):
        points = [{**point, "groups": of} for of in (groups, f"{groups} in turns")]
        free, turns = (float(objective.prediction(p).seconds) for p in points)
        assert turns < free
        free, turns = (simulator.simulate(p).sm_s for p in points)
        assert turns < free


@pytest.mark.end_to_end
def test_products_that_overlap_take_less_simulated_time() -> None:
    """Of the published tile for heads of 128, where a role would otherwise wait for both products."""
    space = tg.space(AttentionHopper, b=1, h=4, g=1, s=2048, t=2048, d=128, device="h100")
    point = {"groups": 2, "bn": 176, "stages": 2, "columns": 128, "swizzle": 128}
    overlapped, plain = (Simulator(space).simulate({**point, "overlapped": choice}).sm_s for choice in (1, 0))
    assert overlapped < 0.85 * plain


def test_the_programs_mean_what_the_reference_says() -> None:
    rng = np.random.default_rng(0)
    shapes = (1, 2, 2, 70, 64), (1, 2, 90, 64), (1, 2, 90, 64)
    q, k, v = (rng.standard_normal(shape).astype(np.float16) for shape in shapes)
    wanted = AttentionAmpere.reference(q, k, v, 0.125, False)
    for machine, gpu in ((AttentionAmpere, "a100"), (AttentionHopper, "h100")):
        space = tg.space(machine, b=1, h=2, g=2, s=70, t=90, d=64, device=gpu)
        program = space.program(space.sample(1, 3)[0])
        found = program.run({"q": q, "k": k, "v": v}, {"scale": np.float32(0.125)})["o"]
        assert np.abs(found.astype(np.float64) - wanted).max() < 2e-3
