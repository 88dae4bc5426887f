"""Weights of 4 bits through shared memory: random candidates on odd sizes, every code and group, fragments in place."""

from __future__ import annotations

import random
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.dtypes import dtype
from tinygpu.machines.grouped_weights import GROUPS
from tinygpu.machines.matmul_w4 import MatmulW4
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

WEIGHTS = ("s4", "u4", "e2m1")


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sampled(40)
@pytest.mark.end_to_end
def test_random_candidates_are_right(seed: int, draw_candidate: Any) -> None:
    rng = random.Random(seed)
    sizes = {"m": rng.randint(1, 90), "n": rng.randint(1, 70), "k": rng.choice((2, 8, 32)) * rng.randint(1, 30)}
    kinds = {"x": ("f16", "bf16")[seed % 2], "w": WEIGHTS[seed % 3]}
    problem = MatmulW4.problem(
        **sizes, group=rng.choice(GROUPS), dtypes=kinds, options={"with_zeros": rng.random() < 0.5}
    )
    space = build_space(MatmulW4, problem, device(("a100", "rtx4090", "rtx5090")[seed % 3]))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, MatmulW4, problem, orders=("random",))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.sampled(8)
@pytest.mark.parametrize("zeroed", [False, True], ids=["scaled", "zero points"])
@pytest.mark.parametrize("kind", WEIGHTS)
@pytest.mark.parametrize("wide", ["f16", "bf16"])
@pytest.mark.end_to_end
def test_a_column_of_the_identity_is_what_the_weights_stand_for(kind: str, wide: str, zeroed: bool) -> None:
    """Rows of the identity pick single weights: every code, in every place along k, with its group's scale and zero."""
    k, n, group = 128, 24, 32
    codes = (np.arange(k)[:, None] * 5 + np.arange(n) * 3).astype(np.uint8) % 16
    w = codes.view(dtype(kind).numpy)
    kept = np.float16 if wide == "f16" else ml_dtypes.bfloat16
    number = np.arange(k // group * n).reshape(-1, n)
    scales, zeros = (1 + number % 7).astype(kept), (number % 15 / 2 - 3).astype(kept)  # halves of odd numbers, too
    sizes = {"m": k, "n": n, "k": k, "group": group}
    space = tg.space(
        MatmulW4, **sizes, device="a100", dtypes={"x": wide, "w": kind, "y": wide}, options={"with_zeros": zeroed}
    )
    kernel = tg.emit(space, bm=32, bn=32, bk=32, warps_m=2, warps_n=1, stages=3, split_k=1)
    found = tg.emulate(kernel, np.eye(k).astype(kept), w, scales, *[zeros] * zeroed)
    right = w.astype(np.float64) - np.repeat(zeros.astype(np.float64), group, axis=0) * zeroed
    right = (right.astype(kept).astype(np.float64) * np.repeat(scales.astype(np.float64), group, axis=0)).astype(kept)
    np.testing.assert_array_equal(found.astype(np.float64), right.astype(np.float64))


@pytest.mark.end_to_end
def test_weights_stay_packed_until_they_are_fragments() -> None:
    """A kernel brings half a byte of weights for each, asks no lane for another's, and has no conflicts of banks."""
    space = tg.space(MatmulW4, m=256, n=256, k=256, group=128, device="a100")
    point = {"bm": 64, "bn": 64, "bk": 64, "warps_m": 1, "warps_n": 4, "stages": 3, "split_k": 1, "vw": 32, "vx": 8}
    text = tg.emit(space, **point, copy_x="cp.async", copy_w="cp.async", copy_s="cp.async").ptx
    assert "shfl" not in text
    assert "ldmatrix" not in text
    weights = [line for line in text.splitlines() if "ring.w = cp.async w" in line]
    assert all("16 bytes per thread" in line for line in weights)
    assert weights


def test_odd_rows_of_weights_have_no_bytes_of_their_own() -> None:
    space = tg.space(MatmulW4, m=16, n=16, k=33, group=32, device="a100")
    said = tg.explain(space, copy_w="ld.global+st.shared", vw=2).sentences
    assert any("the rows of w, whose elements have 4 bits, are whole vectors; 33 mod 2 = 1 != 0" in s for s in said)
