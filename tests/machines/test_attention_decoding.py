"""Attention of few queries over many keys: random plans, lengths of 0 and 1, rows and keys that no tile divides."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.language import Plan
from tinygpu.machines.attention_decoding import AttentionDecoding
from tinygpu.machines.attention_paged import AttentionPaged
from tinygpu.ptx.launching.kernels import Kernels
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.whole import verify_kernels
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.plan_space import build_plan_space

SIZES = ((1, 1, 1, 1), (2, 1, 8, 129), (3, 2, 5, 257), (1, 2, 17, 31), (2, 1, 33, 300))


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.sampled(30)
@pytest.mark.end_to_end
def test_random_plans_are_right(seed: int, draw_candidate: Any) -> None:
    b, h, r, t = SIZES[seed % len(SIZES)]
    checked(AttentionDecoding, seed, {"b": b, "h": h, "r": r, "t": t}, draw_candidate)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.sampled(30)
@pytest.mark.end_to_end
def test_random_plans_of_pages_are_right(seed: int, draw_candidate: Any) -> None:
    rng = np.random.default_rng(seed)
    b, h, r, _ = SIZES[seed % len(SIZES)]
    pages, page = int(rng.integers(1, 12)), int(rng.choice([16, 64, 128]))
    most = int(rng.integers(1, 5))
    checked(AttentionPaged, seed, {"b": b, "h": h, "r": r, "most": most, "pages": pages, "page": page}, draw_candidate)


def checked(plan: type[Plan], seed: int, dims: dict[str, int], draw_candidate: Any) -> None:
    """A random candidate of a plan, verified."""
    rng = np.random.default_rng(seed)
    kind, gpu = ("f16", "bf16")[seed % 2], ("a100", "h100")[seed // 2 % 2]
    d = int(rng.choice([64, 64, 128, 256]))
    problem = plan.problem(**dims, d=d, dtypes={"q": kind})
    space = build_plan_space(plan, problem, device(gpu))
    point = draw_candidate(space, seed)
    steps, cache = space.candidates(point), SolverCache()
    parts = [build(c.space.program(c.point), c.space.problem, c.point, cache).kernel for c in steps]
    found = verify_kernels(Kernels.of_plan(space.machine, problem, point, tuple(parts)), orders=("random",))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.sampled(12)
@pytest.mark.end_to_end
def test_lengths_are_heeded_whatever_lies_behind_them(seed: int) -> None:
    """No keys, one, all but one and all; what is not there is NaN."""
    rng = np.random.default_rng(seed)
    t, r = 140, int(rng.integers(1, 20))
    lengths = np.array([0, 1, t - 1, t], np.int32)
    q, k, v = (rng.standard_normal((4, 1, n, 64)).astype(np.float16) for n in (r, t, t))
    for z, length in enumerate(lengths):
        k[z, :, length:] = v[z, :, length:] = np.nan
    space = tg.space(AttentionDecoding, b=4, h=1, r=r, t=t, d=64, device="h100")
    point = {**space.sample(1, seed)[0], "chunk": 128}
    found = tg.emulate(tg.emit(space, point), q, k, v, lengths, scale=0.1)
    for z, keys in enumerate(slice(0, int(n)) for n in lengths):
        w = q[z, 0].astype(np.float32) @ k[z, 0, keys].astype(np.float32).T * 0.1
        e = np.exp(w - w.max(axis=1, keepdims=True, initial=-1e30))
        wanted = e @ v[z, 0, keys].astype(np.float32) / np.maximum(e.sum(axis=1, keepdims=True), 1e-30)
        assert np.abs(found[z, 0].astype(np.float32) - wanted).max() < 4e-3, z
