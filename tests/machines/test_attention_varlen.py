"""Attention of sequences behind one another: lengths of 0, 1, primes, one more than a tile; more queries than keys, and
fewer; wrong kernels, and what is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.language import Problem
from tinygpu.machines.attention_ampere import AttentionAmpere
from tinygpu.machines.attention_varlen import AttentionVarlenAmpere, AttentionVarlenHopper, attended
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

MACHINES: tuple[tuple[Any, str], ...] = ((AttentionVarlenAmpere, "a100"), (AttentionVarlenHopper, "h100"))
# (b, g, s, t, longest)
SIZES = ((1, 1, 1, 1, 1), (3, 2, 130, 65, 129), (2, 1, 17, 200, 17), (4, 1, 129, 31, 97), (2, 3, 66, 130, 65))
# of queries, and of keys
LENGTHS = ((0, 5), (65, 0), (1, 1), (17, 97), (97, 17), (64, 64), (0, 0), (65, 66))


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize(("machine", "gpu"), MACHINES)
@pytest.mark.sampled(96)
@pytest.mark.end_to_end
def test_random_candidates_are_right(machine: Any, gpu: str, seed: int, draw_candidate: Any) -> None:
    b, g, s, t, longest = SIZES[seed % len(SIZES)]
    d, kind = int(np.random.default_rng(seed).choice([64, 64, 128, 256])), ("f16", "bf16")[seed % 2]
    dims = {"b": b, "h": 1, "g": g, "s": s, "t": t, "longest": longest, "d": d}
    problem = machine.problem(**dims, dtypes={"q": kind}, options={"causal": bool(seed // 2 % 2)})
    space = build_space(machine, problem, device(gpu))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, machine, problem, orders=("late", "random"))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("machine", "gpu"), MACHINES)
@pytest.mark.end_to_end
def test_sequences_do_not_see_each_other(machine: Any, gpu: str, causal: bool) -> None:
    """Each is what it is by itself, though all others are NaN; on Hopper, keys of others are, and not their values."""
    rng = np.random.default_rng(1)
    first_q, first_k = (np.cumsum([0, *lengths]).astype(np.int32) for lengths in zip(*LENGTHS, strict=True))
    s, t, b = int(first_q[-1]), int(first_k[-1]), len(LENGTHS)
    q, k, v = (rng.standard_normal((*h, n, 64)).astype(np.float16) for h, n in (((1, 2), s), ((1,), t), ((1,), t)))
    dims = {"b": b, "h": 1, "g": 2, "s": s, "t": t, "longest": 97, "d": 64, "options": {"causal": causal}}
    space = tg.space(machine, **dims, device=gpu)
    kernel = tg.emit(space, space.sample(1, 3)[0])
    for z in (2, 3, 4, 7):
        rows, keys = slice(first_q[z], first_q[z + 1]), slice(first_k[z], first_k[z + 1])
        alone_k, alone_v = np.full_like(k, np.nan), np.full_like(v, np.nan) if gpu == "a100" else v.copy()
        alone_k[:, keys], alone_v[:, keys] = k[:, keys], v[:, keys]
        found = tg.emulate(kernel, q, alone_k, alone_v, first_q, first_k, scale=0.1)
        wanted = attended(q[:, :, rows], k[:, keys], v[:, keys], 0.1, causal)
        assert np.abs(found[:, :, rows] - wanted).max() < 4e-3, z
        assert not found[:, :, first_q[1] : first_q[2]].any()  # of no keys: zeros


def test_one_sequence_of_queries_and_keys_is_what_attention_is() -> None:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 3, 9, 8), (2, 9, 8), (2, 9, 8)))
    for causal in (False, True):
        wanted = AttentionAmpere.reference(q[None], k[None], v[None], 0.3, causal)[0]
        np.testing.assert_allclose(attended(q, k, v, 0.3, causal), wanted, rtol=1e-5)


def _swapped(ptx: str) -> str:
    """Where a sequence begins and where it ends change places, in what the second single load reads."""
    first, second = list(re.finditer(r"ld\.global\.nc\.b32 %r\d+, \[(%d\d+)\]", ptx))[:2]
    return f"{ptx[: second.start(1)]}{first[1]}{ptx[second.end(1) :]}"


def _beyond(ptx: str) -> str:
    """One row of the next sequence is stored as well."""
    return re.sub(r"max\.s32 (%r\d+), (%r\d+), 0;(\s+min\.u32 %r\d+, \1, )", r"add.u32 \1, \2, 1;\3", ptx, count=1)


@cache
def kernel_of(problem: Problem) -> Kernel:
    """A kernel for these, which is right."""
    space = build_space(AttentionVarlenAmpere, problem, device("a100"))
    point = {"vector": 8, "across": 8, "warps": 4, "rows": 16, "bn": 16, "stages": 2, "waits": "for both"}
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    assert verify(kernel, AttentionVarlenAmpere, problem, orders=("late",)).passed
    return kernel


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("edit", "causal"),
    [
        (lambda ptx: ptx.replace("setp.le.s32", "setp.lt.s32"), True),  # the key on the diagonal is not seen
        (lambda ptx: ptx.replace("setp.lt.s32", "setp.le.s32"), False),  # the key behind the last one is
        (lambda ptx: ptx.replace("0fFF800000", "0f00000000"), True),  # scores that are not seen are 0
        (_swapped, False),
        (_beyond, False),
    ],
)
@pytest.mark.end_to_end
def test_wrong_kernels_are_found_out(edit: Callable[[str], str], causal: bool) -> None:
    problem = AttentionVarlenAmpere.problem(
        b=3, h=1, g=1, s=150, t=97, d=64, longest=129, options={"causal": causal}
    )
    right = kernel_of(problem)
    ptx = edit(right.ptx)
    assert ptx != right.ptx
    wrong = replace(right, ptx=ptx)
    assert not verify(wrong, AttentionVarlenAmpere, problem, orders=("late",), to_first_failure=True).passed


@pytest.mark.end_to_end
def test_what_cannot_be_is_refused() -> None:
    fits = "no sequence has more queries than all together; 200 (longest) <= 100 (s)"
    with pytest.raises(Exception, match=re.escape(fits)):
        tg.tune(AttentionVarlenAmpere, b=2, h=1, g=1, s=100, t=50, longest=200, d=64, device="a100")
    space = tg.space(AttentionVarlenAmpere, b=2, h=1, g=1, s=60, t=50, longest=40, d=64, device="a100")
    q, k = np.ones((1, 1, 60, 64), np.float16), np.ones((1, 50, 64), np.float16)
    kernel = tg.emit(space, space.sample(1, 0)[0])
    with pytest.raises(ValueError) as refused:
        tg.emulate(kernel, q, k, k, np.array([0, 50, 60], np.int32), np.array([0, 20, 50], np.int32), scale=0.1)
    assert str(refused.value) == (
        "AttentionVarlenAmpere: first_q[1] is 50, more than 40 above the number before it, and neighbours are at most "
        "so far apart"
    )


@pytest.mark.sampled(3)
@pytest.mark.parametrize("longest", [1024, 2048, 4096])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.end_to_end
def test_rounds_are_predicted_for_sequences_of_even_lengths(longest: int, causal: bool) -> None:
    """The mean over the tiles of the grid, of which those behind a sequence have none."""
    length, bm, bn = 1024, 128, 64
    dims = {"b": 8, "h": 4, "g": 2, "s": 8 * length, "t": 8 * length, "d": 128, "longest": longest}
    problem = AttentionVarlenAmpere.problem(**dims, options={"causal": causal})
    space = build_space(AttentionVarlenAmpere, problem, device("a100"))
    point = {"vector": 8, "across": 16, "warps": 4, "rows": 32, "bn": bn, "stages": 1, "waits": "for both"}
    demand = space.counts(0).demand({**space.environment, **problem.environment(), **point}, space.device)
    rounds = [
        0 if i >= length else -(-min(length, i + bm if causal else length) // bn) for i in range(0, longest, bm)
    ]
    assert abs(int(demand.iterations) - np.mean(rounds)) <= 0.75
