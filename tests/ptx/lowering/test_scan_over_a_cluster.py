"""Scans over the CTAs of a cluster: kernels in which they do not wait, or ask the wrong one, are refused."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import pytest

import tinygpu as tg
from tinygpu.machines.scan import RowScan
from tinygpu.ptx.launching.kernel import Kernel
from tinygpu.ptx.verification.verify import verify

# Three rounds of four CTAs, the last of which has none of its elements left for two of them.
PROBLEM = RowScan.problem(m=3, n=1200, dtypes={"x": "s32"})
POINT = {"warps": 2, "across": 64, "vector": 1, "step": 2, "ctas": 4, "exchange": "shuffles", "ahead": "no tiles"}


@cache
def kernel() -> Kernel:
    return tg.emit(tg.space(RowScan, m=3, n=1200, dtypes={"x": "s32"}, device="h100"), **POINT).built.kernel


BARRIER = r"\n *barrier\.cluster\.arrive\.aligned;\n *barrier\.cluster\.wait\.aligned;"
EDITS = {
    "what is left is not waited for": (BARRIER, "", 0),
    "nobody waits at the end": (r"\n *barrier\.cluster\.arrive[^\n]*\n *barrier\.cluster\.wait[^\n]*", "", -1),
    "a CTA asks another one": (r"(mapa\.shared::cluster\.u32 %r\d+, %r\d+), 1;", r"\1, 2;", 0),
    "a CTA asks itself": (r"mapa\.shared::cluster\.u32 (%r\d+), (%r\d+), 0;", r"mov.u32 \1, \2;", 0),
    "the CTA itself stands before it": (r"setp\.gt\.u32 (%p\d+), (%r\d+), 1;", r"setp.ge.u32 \1, \2, 1;", 0),
    "there is one place": (r"\n *xor\.b32 (%r\d+), \1, \d+;(?=\n *add\.u32 [^\n]*\n[^\n]*\n *barrier\.cluster)", "", 0),
    "nothing is left": (r"\n[^\n]*st\.shared[^\n]*(?=\n *barrier\.cluster)", "", 0),
}


@pytest.mark.parametrize("orders", [("late",), ("early",), ("random",)])
def test_the_kernel_itself_is_right(orders: tuple[str]) -> None:
    assert verify(kernel(), RowScan, PROBLEM, orders=orders).passed  # type: ignore[arg-type]


@pytest.mark.parametrize("name", EDITS)
def test_verification_refuses_a_kernel_without(name: str) -> None:
    pattern, by, which = EDITS[name]
    found = list(re.finditer(pattern, kernel().ptx))
    assert found, kernel().ptx
    at = found[which]
    wrong = replace(kernel(), ptx=kernel().ptx[: at.start()] + at.expand(by) + kernel().ptx[at.end() :])
    assert not verify(wrong, RowScan, PROBLEM, to_first_failure=True).passed
