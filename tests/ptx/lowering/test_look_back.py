"""Look-back at the tiles before: kernels in which any of its synchronisation is missing are refused by verification."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import tinygpu as tg
from tinygpu.machines.scan import LongScan
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification.derived import LOOKED_BACK, derive
from tinygpu.ptx.verification.verify import verify

PROBLEM = LongScan.problem(m=2, n=3000, dtypes={"x": "s32"})


@cache
def kernel() -> Kernel:
    space = tg.space(LongScan, m=2, n=3000, dtypes={"x": "s32"}, device="a100")
    point = {"warps": 2, "across": 32, "vector": 1, "step": 2, "exchange": "shuffles"}
    return tg.emit(space, **point).built.kernel


EDITS = {
    "a flag that releases nothing": ("st.release.gpu.global.u32", "st.relaxed.gpu.global.u32", 0),
    "a flag that acquires nothing": ("ld.acquire.gpu.global.u32", "ld.relaxed.gpu.global.u32", 0),
    "flags are not waited for": (r"\n[^\n]*bra \$poll\d+;", "", 0),
    "one window is enough": (r"\n[^\n]*bra \$look\d+;", "", 0),
    "what the tile has is told as what all have": (r"selp\.b32 (%r\d+), 2, 1, ", r"selp.b32 \1, 2, 2, ", 1),
    "windows are not put together": (r"mov\.u32 (%r\d+), 1;(\n[^\n]*bra \$look)", r"mov.u32 \1, 0;\2", 1),
    "what is left is not waited for": (r"\n *bar\.sync 0;", "", -2),
    "what is found is not waited for": (r"\n *bar\.sync 0;", "", -1),
    "flags are not cleared": (r"\n[^\n]*st\.global\.b32 \[%d\d+\], 0;", "", 0),
    "the count does not wrap": (r"(atom\.acq_rel[^,]*, \[%d\d+\], )%r\d+", r"\g<1>0", 1),
    "counted in without release": ("atom.acq_rel.gpu.global.inc", "atom.relaxed.gpu.global.inc", 0),
}


def edited(ptx: str, pattern: str, by: str, which: int) -> str:
    """The text with one place changed: which < 0 counts from the end, 0 and 1 mean the first."""
    found = list(re.finditer(pattern if "\\" in pattern else re.escape(pattern), ptx))
    assert found, pattern
    it = found[which if which < 0 else 0]
    return ptx[: it.start()] + it.expand(by) + ptx[it.end() :]


@pytest.mark.end_to_end
def test_the_kernel_itself_is_right() -> None:
    assert verify(kernel(), LongScan, PROBLEM).passed


@pytest.mark.parametrize("name", EDITS)
def test_verification_refuses_a_kernel_without(name: str) -> None:
    wrong = replace(kernel(), ptx=edited(kernel().ptx, *EDITS[name]))
    assert not verify(wrong, LongScan, PROBLEM, to_first_failure=True).passed


def test_the_small_problem_has_more_tiles_than_a_warp_looks_at() -> None:
    small: Any = derive(kernel(), LongScan, LongScan.problem(m=2, n=1_000_003, dtypes={"x": "s32"}))
    assert small.dim["n"] // 64 >= LOOKED_BACK > 32


def test_a_launch_after_another_finds_its_flags_cleared() -> None:
    x = np.arange(1, 6001, dtype=np.int32).reshape(2, 3000)
    space = tg.space(LongScan, m=2, n=3000, dtypes={"x": "s32"}, device="a100")
    compiled = tg.emit(space, space.sample(1, 0)[0])
    for _ in range(2):
        assert (tg.emulate(compiled, x) == x.cumsum(axis=1)).all()
