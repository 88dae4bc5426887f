"""Attention on both generations: random candidates, causal or not, grouped heads, sizes that no tile divides."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.language import Problem
from tinygpu.machines.attention_ampere import AttentionAmpere
from tinygpu.machines.attention_hopper import AttentionHopper
from tinygpu.ptx.assembling.assembler import assemble
from tinygpu.ptx.launching.kernel import Kernel
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
    d, kind = int(rng.choice([64, 80, 96, 128, 160, 192, 224, 256])), ("f16", "bf16")[seed % 2]
    causal = bool(seed // 2 % 2) and t >= s
    problem = machine.problem(b=b, h=h, g=g, s=s, t=t, d=d, dtypes={"q": kind}, options={"causal": causal})
    space = build_space(machine, problem, device(gpu))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("late", "random"))
    assert found.passed, f"{problem} {point}\n{found}"


# FlashAttention-2, forward without dropout, as its launch template has it: columns of a head -> rows of queries and of
# keys, warps, where the GPU is none of those below.
FLASH_2 = {64: (128, 128, 4), 96: (128, 64, 4), 128: (128, 64, 4), 192: (128, 64, 8), 256: (64, 64, 4)}
# (GPU, columns of a head, causal) -> what is chosen there: squares where that is faster, and what shared memory admits
FLASH_2_ELSEWHERE = {
    **{("a100", 256, causal): (128, 64, 8) for causal in (False, True)},
    ("rtx4090", 96, True): (64, 64, 4),
    ("rtx4090", 128, False): (128, 32, 4),
    ("rtx4090", 128, True): (64, 64, 4),
}
# FlashAttention-3, forward in 16 bits, as hopper/tile_size.h has it: (columns of a head, mask) -> warpgroups, rows of
# keys, where weights are, whether products overlap. "one": with one warpgroup that multiplies; "pages": keys of pages
# that no TMA brings. Local masks are no option of the machine; their tiles are.
REG, SMEM = "registers", "shared memory"
FLASH_3 = {
    (64, "none"): (3, 192, SMEM, 1), (64, "causal"): (3, 128, REG, 1), (64, "local"): (3, 160, REG, 0),
    (64, "pages"): (3, 160, SMEM, 1), (64, "one"): (1, 192, REG, 1),
    (96, "none"): (3, 144, SMEM, 1), (96, "causal"): (3, 144, SMEM, 1), (96, "local"): (3, 128, SMEM, 1),
    (128, "none"): (2, 176, REG, 1), (128, "causal"): (2, 128, REG, 1), (128, "one"): (1, 176, REG, 1),
    (192, "none"): (2, 112, REG, 1), (192, "local"): (2, 96, REG, 1),
    (256, "none"): (2, 80, REG, 1), (256, "local"): (2, 64, REG, 1),
}  # fmt: skip
# Its products do not overlap there; ours of values goes on while the next scores are asked for, and holds its weights.
GOES_ON = {(64, "local")}
SPILLS = {128: (128, 64, 4)}  # a few registers, at the limit


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("gpu", ["a100", "h100", "rtx4090"])
@pytest.mark.end_to_end
def test_configurations_of_flash_attention_2_are_points(gpu: str, causal: bool) -> None:
    """One stage of keys and values, and queries in shared memory; all but one fit into registers."""
    for d, usual in FLASH_2.items():
        bm, bn, warps = FLASH_2_ELSEWHERE.get((gpu, d, causal), usual)
        problem = AttentionAmpere.problem(b=2, h=16, g=1, s=4096, t=4096, d=d, options={"causal": causal})
        space = build_space(AttentionAmpere, problem, device(gpu))
        tile = {"warps": warps, "rows": bm // warps, "bn": bn, "stages": 1}
        points = [p for p in space.space if tile.items() <= p.items()]
        assert points, (d, bm, bn, warps)
        if gpu == "a100":
            kernel = build(space.program(points[0]), problem, points[0], SolverCache()).kernel
            assert SPILLS.get(d) == (bm, bn, warps) or not assemble(kernel.ptx, "sm_80").spills, (d, bm, bn)


@pytest.mark.end_to_end
def test_configurations_of_flash_attention_3_are_points() -> None:
    """Two stages; warpgroups in turns where there are several, which is how it has its barriers for them."""
    for (d, mask), (groups, bn, weights, overlapped) in FLASH_3.items():
        causal = {"causal": mask == "causal"}
        problem = AttentionHopper.problem(b=2, h=16, g=1, s=4096, t=4096, d=d, options=causal)
        space = build_space(AttentionHopper, problem, device("h100"))
        for taken in (groups, f"{groups} in turns") if groups > 1 else (1,):
            widest = 128 if d % 64 == 0 else 64
            point = {"groups": taken, "bn": bn, "stages": 2, "overlapped": overlapped, "columns": d, "swizzle": widest}
            refused = [str(v).split(" of ")[0] for v in space.space.explain({**point, "weights_in": weights})]
            assert refused == (["registers"] if (d, mask) in GOES_ON else []), (d, mask, taken)


def test_registers_are_why_weights_go_through_shared_memory() -> None:
    """Beside the scores of as many keys as FlashAttention-3 takes for heads of 64, registers do not hold them."""
    space = tg.space(AttentionHopper, b=2, h=16, g=1, s=4096, t=4096, d=64, device="h100")
    point = {"groups": 3, "bn": 192, "stages": 2, "overlapped": 1, "columns": 64, "swizzle": 128}
    refused = [str(v).split(" of ")[0] for v in space.space.explain({**point, "weights_in": REG})]
    assert refused == ["registers"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("groups", [1, 2, "2 in turns"])
@pytest.mark.parametrize("overlapped", [0, 1])
@pytest.mark.parametrize("bn", [32, 80])  # rows of weights of one width of a swizzle, and of five of the narrowest
@pytest.mark.end_to_end
def test_weights_in_shared_memory_are_right(groups: Any, overlapped: int, bn: int) -> None:
    kernel, problem = of_weights_in_shared_memory(groups, overlapped, bn)
    found = verify(kernel, AttentionHopper, problem, orders=("late", "early", "random"))
    assert found.passed, str(found)


@pytest.mark.parametrize("gone", ["stmatrix", "fence.proxy.async.shared::cta;", "bar.sync", "wgmma.fence"])
@pytest.mark.sampled(2)
@pytest.mark.end_to_end
def test_weights_in_shared_memory_without_what_orders_them_are_wrong(gone: str) -> None:
    """In the loop and behind it, without the first line of a kind from the last stores on: another proxy reads them."""
    kernel, problem = of_weights_in_shared_memory(1, 1, 32)
    lines = kernel.ptx.split("\n")
    stores = [i for i, line in enumerate(lines) if "stmatrix.sync" in line]
    last = [i for i in stores if i + 1 not in stores]
    assert len(last) == 2
    for stored in last:
        number = next(i for i in range(stored, len(lines)) if lines[i].strip().startswith(gone))
        wrong = replace(kernel, ptx="\n".join((*lines[:number], *lines[number + 1 :])))
        seen = verify(wrong, AttentionHopper, problem, orders=("late", "random"), to_first_failure=True)
        assert not seen.passed, (number, lines[number])


def of_weights_in_shared_memory(groups: Any, overlapped: int, bn: int) -> tuple[Kernel, Problem]:
    problem = AttentionHopper.problem(b=1, h=2, g=1, s=97, t=161, d=64, options={"causal": bool(overlapped)})
    space = build_space(AttentionHopper, problem, device("h100"))
    point = {
        "groups": groups, "overlapped": overlapped, "weights_in": SMEM, "bn": bn, "stages": 2, "columns": 64,
        "swizzle": 128,
    }  # fmt: skip
    return build(space.program(point), problem, point, SolverCache()).kernel, problem


@pytest.mark.sampled(4)
@pytest.mark.parametrize("groups", ["2 in turns", "3 in turns"])
@pytest.mark.parametrize("overlapped", [0, 1])
@pytest.mark.end_to_end
def test_warpgroups_in_turns_are_right(groups: str, overlapped: int) -> None:
    """Rows that end in the second warpgroup, keys in as many rounds as turn out odd and even."""
    problem = AttentionHopper.problem(b=1, h=2, g=1, s=97, t=161, d=64, options={"causal": bool(overlapped)})
    space = build_space(AttentionHopper, problem, device("h100"))
    point = {
        "groups": groups, "overlapped": overlapped, "weights_in": REG, "bn": 32, "stages": 2, "columns": 64,
        "swizzle": 128,
    }  # fmt: skip
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, AttentionHopper, problem, orders=("late", "random"))
    assert found.passed, str(found)


@pytest.mark.end_to_end
def test_turns_are_simulated_and_predicted_no_slower() -> None:
    """Warpgroups that take turns hide what one of them waits for behind the products of the others."""
    space = tg.space(AttentionHopper, b=1, h=4, g=1, s=2048, t=2048, d=64, device="h100")
    point = {"overlapped": 1, "weights_in": REG, "bn": 128, "stages": 2, "columns": 64, "swizzle": 128}
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
    point = {"groups": 2, "weights_in": REG, "bn": 176, "stages": 2, "columns": 128, "swizzle": 128}
    overlapped, plain = (Simulator(space).simulate({**point, "overlapped": choice}).sm_s for choice in (1, 0))
    assert overlapped < 0.9 * plain


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
