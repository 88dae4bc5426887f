"""Rotary embedding and block scales: random candidates over odd sizes, all types, options and devices."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.machines import quantise
from tinygpu.machines.rotary import Rotary, RotaryNeighbours
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.derived import derive
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space
from tinygpu.testing.case import resize

KINDS = ("f32", "f16", "bf16")
TURNS = (Rotary, RotaryNeighbours)
WAYS = (quantise.QuantiseInt8, quantise.QuantiseFp8, quantise.QuantiseFp4, quantise.Dequantise)


def turned(rng: random.Random, seed: int) -> Any:
    dims = {"m": rng.randint(1, 40), "h": rng.randint(1, 9), "t": rng.randint(1, 30)}
    kind = KINDS[seed % 3]
    types = {"x": kind, "cos": rng.choice(("f32", kind)), "positions": rng.choice(("s32", "u32"))}
    half, options = rng.choice((1, 7, 16, 33, 64, 128)), {"backward": rng.random() < 0.5}
    return TURNS[seed // 3 % 2].problem(**dims, half=half, dtypes=types, options=options)


def scaled(rng: random.Random, seed: int) -> Any:
    machine = WAYS[seed % 4]
    n = rng.choice((2, 30, 64, 130, 256, 300, 1000))  # pairs share a byte in rows of 4 bits
    block = rng.choice((16, 32, 64, 128, 256))
    types = {"q": rng.choice(("s8", "e4m3", "e5m2", "s4", "e2m1"))} if seed % 4 == 3 else {"x": rng.choice(KINDS)}
    zeros = {"with_zeros": rng.random() < 0.5} if machine is quantise.Dequantise else {}
    return machine.problem(m=rng.randint(1, 20), n=n, dtypes=types, options={"block": block, **zeros})


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("posed", [turned, scaled])
@pytest.mark.sampled(10)
def test_random_candidates_are_right(posed: Any, seed: int, draw_candidate: Any) -> None:
    problem = posed(random.Random(seed), seed)
    machine: Any = TURNS[seed // 3 % 2] if posed is turned else WAYS[seed % 4]
    space = build_space(machine, problem, device(("h100", "rtx4090", "rtx5090")[seed // 6 % 3]))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("random",), thorough=True)
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.parametrize("machine", TURNS)
def test_what_was_turned_is_turned_back(machine: Any) -> None:
    rng = np.random.default_rng(0)
    angle, positions = rng.uniform(0, 7, (9, 8)), np.array([0, 8, 3, 3, 1], np.int32)
    x = rng.standard_normal((5, 3, 2, 8) if machine is Rotary else (5, 3, 16))
    cos, sin = np.cos(angle), np.sin(angle)
    turned_once = machine.reference(x, cos, sin, positions, False)
    assert np.allclose(machine.reference(turned_once, cos, sin, positions, True), x)
    before, after = (v[1, 2, :, 3] if machine is Rotary else v[1, 2, 6:8] for v in (x, turned_once))
    assert np.allclose(complex(*after), complex(*before) * np.exp(1j * angle[8, 3]))


@pytest.mark.end_to_end
def test_a_block_of_zeros_stays_zero_and_the_largest_of_a_block_is_the_largest_number() -> None:
    x = np.zeros((2, 40), np.float32)
    x[0, 3], x[0, 17], x[1, 39], x[1, 32] = -5.0, 1e-20, 1e30, -1e30
    for machine, limit in zip(WAYS[:3], (127.0, 448.0, 6.0), strict=True):
        space = tg.space(machine, m=2, n=40, device="h100", dtypes={"x": "f32"}, options={"block": 16})
        q, scales = tg.emulate(tg.emit(space, **space.sample(1, 0)[0]), x)
        q = q.astype(np.float32)
        assert q[0, 3] == -limit
        assert q[0, 17] == q[1, 39] == limit
        assert q[1, 32] == -limit
        assert np.count_nonzero(q) == 4
        assert np.allclose(np.repeat(scales, 16, axis=1)[:, :40] * q, x, rtol=1e-6, atol=0)


@pytest.mark.end_to_end
def test_neighbours_are_loaded_and_stored_in_vectors() -> None:
    space = tg.space(RotaryNeighbours, m=64, h=8, t=64, half=64, device="a100", dtypes={"x": "f16"})
    kernel = tg.emit(space, vector=4, across=16)
    assert "ld.global.v4.b32" in kernel.ptx
    assert "st.global.v4.b32" in kernel.ptx


def test_dims_that_follow_go_along_where_problems_are_made_smaller_and_verified() -> None:
    problem = quantise.QuantiseInt8.problem(m=40, n=300, options={"block": 64})
    smaller = resize(quantise.QuantiseInt8, problem, {"n": 100})
    assert (smaller.dim["n"], smaller.dim["blocks"], smaller.operand("scales").shape) == (100, 2, (40, 2))
    space = build_space(quantise.QuantiseInt8, problem, device("a100"))
    point = {"warps": 1, "across": 16, "vector": 4, "together": 1, "rows": 1}
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    small = derive(kernel, quantise.QuantiseInt8, problem)
    assert small.dim["n"] % 4 == 0
    assert small.dim["blocks"] == -(-small.dim["n"] // 64)
    found = verify(kernel, quantise.QuantiseInt8, problem, orders=("random",), thorough=True)
    assert found.passed
    unknown = "what each has of scales is not known, whose blocks follows from n, which tiles divide"
    assert any(said.endswith(unknown) for said in found.left_out)
