"""Attention of many queries over keys in pages: pages of every size, which tables name twice; lengths of 0 and all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.devices import device
from tinygpu.machines.attention_paged_prefill import AttentionPagedPrefill
from tinygpu.machines.attention_varlen import attended
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.lowering.build import build
from tinygpu.ptx.verification.verify import verify
from tinygpu.solver.smem import SolverCache
from tinygpu.spaces.build import build_space

PREFILL = AttentionPagedPrefill.problem(b=2, h=1, g=1, s=20, longest=17, listed=3, pages=9, page=16, d=64)
# (b, g, s, longest, listed, pages)
SIZES = ((1, 1, 1, 1, 1, 1), (3, 2, 130, 129, 3, 7), (2, 1, 17, 17, 9, 5), (4, 1, 129, 97, 2, 31))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.sampled(40)
@pytest.mark.end_to_end
def test_random_candidates_are_right(seed: int, draw_candidate: Any) -> None:
    rng = np.random.default_rng(seed)
    b, g, s, longest, listed, pages = SIZES[seed % len(SIZES)]
    d, page = int(rng.choice([64, 64, 128, 256])), (16, 32, 64, 128, 256)[seed % 5]
    dims = {"b": b, "h": 1, "g": g, "s": s, "longest": longest, "listed": listed, "pages": pages, "page": page, "d": d}
    kind, options = ("f16", "bf16")[seed % 2], {"causal": bool(seed // 2 % 2)}
    problem = AttentionPagedPrefill.problem(**dims, dtypes={"q": kind}, options=options)
    space = build_space(AttentionPagedPrefill, problem, device(("a100", "h100")[seed // 4 % 2]))
    point = draw_candidate(space, seed)
    kernel = build(space.program(point), problem, point, SolverCache()).kernel
    found = verify(kernel, AttentionPagedPrefill, problem, orders=("late", "random"))
    assert found.passed, f"{problem} {point}\n{found}"


@pytest.mark.end_to_end
@pytest.mark.parametrize("page", [16, 256])
def test_rows_that_no_sequence_has_are_not_seen(page: int) -> None:
    """All other rows of the pool are NaN."""
    rng = np.random.default_rng(page)
    lengths = np.array([0, page + 1, 3 * page, 1], np.int32)
    first_q = np.array([0, 3, 20, 85, 86], np.int32)
    table = np.array([[0, 0, 0], [3, 1, 0], [2, 4, 5], [6, 0, 0]], np.int32)
    q = rng.standard_normal((1, 1, 86, 64)).astype(np.float16)
    k, v = (np.full((1, 8 * page, 64), np.nan, np.float16) for _ in range(2))
    slots = [(row[:, None] * page + np.arange(page)).reshape(-1)[:n] for row, n in zip(table, lengths, strict=True)]
    for pool in (k, v):
        pool[:, np.concatenate(slots)] = rng.standard_normal((1, int(lengths.sum()), 64))
    dims = {"b": 4, "h": 1, "g": 1, "s": 86, "longest": 65, "listed": 3, "pages": 8, "page": page, "d": 64}
    space = tg.space(AttentionPagedPrefill, **dims, options={"causal": True}, device="a100")
    found = tg.emulate(tg.emit(space, space.sample(1, 1)[0]), q, k, v, first_q, lengths, table, scale=0.1)
    for z, rows in enumerate(slots):
        mine = slice(first_q[z], first_q[z + 1])
        wanted = attended(q[:, :, mine], k[:, rows], v[:, rows], 0.1, True)
        assert np.abs(found[:, :, mine] - wanted).max() < 4e-3, z


@pytest.fixture(scope="module")
def right() -> Kernel:
    """A kernel that is right."""
    space = build_space(AttentionPagedPrefill, PREFILL, device("a100"))
    point = {"vector": 8, "across": 8, "warps": 4, "rows": 16, "bn": 32, "stages": 2, "waits": "for both"}
    kernel = build(space.program(point), PREFILL, point, SolverCache()).kernel
    assert verify(kernel, AttentionPagedPrefill, PREFILL, orders=("late",)).passed
    return kernel


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "edit",
    [
        lambda ptx: ptx.replace("and.b32", "or.b32"),  # the place in a page
        lambda ptx: ptx.replace("shr.s32 ", "shl.b32 "),  # the page in the table
        lambda ptx: ptx.replace("selp.s32 %r", "// selp.s32 %r"),  # rows behind the last key
        lambda ptx: ptx.replace("setp.lt.s32", "setp.le.s32"),
    ],
)
@pytest.mark.end_to_end
def test_wrong_kernels_are_found_out(edit: Callable[[str], str], right: Kernel) -> None:
    ptx = edit(right.ptx)
    assert ptx != right.ptx
    wrong = replace(right, ptx=ptx)
    assert not verify(wrong, AttentionPagedPrefill, PREFILL, orders=("late",), to_first_failure=True).passed
