"""Triton kernels in which the emulator finds something: what hardware or the assembler make up for.

These run right on hardware, yet their PTX is not what the manual asks for. Each was read by hand.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from triton_fixture import Order, launch_unchecked, load, orders

from tinygpu.ptx.emulator import Report

FOLDER = Path(__file__).parent / "triton_kernels" / "findings"
F16, F32 = np.float16, np.float32


def report_of(name: str, grid: Any, *args: Any, order: Order = "late") -> Report:
    return launch_unchecked(load(FOLDER / f"{name}.ptx"), grid, *args, order=order)


@orders
def test_a_product_of_halves_uses_its_accumulators_before_the_wait(order: Order) -> None:
    """Unpacking f16 accumulators stands before wgmma.wait_group; ptxas 13.4 says C7517 and puts a wait there."""
    a, b, c = np.ones((320, 128), F16), np.ones((64, 320), F16), np.zeros((128, 64), F16)
    report = report_of("whole_matmul-fp16acc-tt.sm_90", 2, a, b, c, 128, 64, 320, order=order)
    assert report.faults == ()
    assert {advisory.rule for advisory in report.advisories} == {"accumulator moved before the wait"}
    assert re.fullmatch(
        r"moves %r\d+, which the wgmma.mma_async on line \d+ still works with: wgmma.wait_group must come first; the "
        r"assembler puts a wait here, and the products are carried out one after another",
        report.advisories[0].sentence,
    )
    assert (c == 320).all()


@orders
def test_attention_backward_copies_over_what_wgmma_reads(order: Order) -> None:
    """With three groups still pending, cp.async refills the buffer that one of them reads; ptxas 13.4 happens to
    serialise these wgmma (C7515), which hides it."""
    rng = np.random.default_rng(1)
    q, k, v, do = (rng.standard_normal((1, 128, 64)).astype(F16) for _ in range(4))
    lse, delta = np.zeros((2, 1, 128), F32)
    dq, dk, dv = np.zeros((3, 1, 128, 64), F32)
    args = (q, k, v, do, lse, delta, dq, dk, dv, 128, F32(0.125))
    report = report_of("attention_backward.sm_90", (2, 1), *args, order=order)
    assert {f.kind for f in report.faults} == {"race"}
    for fault in report.faults:
        assert fault.line_text.startswith("cp.async.cg.shared.global")
        assert "(wgmma of warps 0 to 3) may still be reading" in fault.sentence


@orders
def test_a_flag_that_one_warp_sets_while_others_still_read_it(order: Order) -> None:
    """Every warp loads `begun`, and the first one sets it at once: Triton 3.4 and 3.6 put no barrier between the two,
    so that a slow warp takes the other branch; Triton 3.9 puts one there."""
    rows, columns = 4, 400
    x, dy = np.ones((2, rows, columns), F32)
    gamma, mean, rstd = np.ones(columns, F32), np.zeros(rows, F32), np.ones(rows, F32)
    dx, parts, locks = np.zeros((rows, columns), F32), np.zeros((2, 2, columns), F32), np.zeros(4, np.int32)
    args = (dy, x, gamma, mean, rstd, dx, parts[0], parts[1], locks, columns)
    report = report_of("layer_norm_backward-old.sm_80", rows, *args, order=order)
    assert {f.kind for f in report.faults} == {"race"}
    assert "exch.b32" in report.faults[0].line_text
    assert re.fullmatch(
        r"overwrites 4 bytes at byte \d+ of layer_norm_backward_param_8 \(global address 0x[0-9a-f]+\) that warp \d of "
        r"the same CTA may still be reading on line 185, and nothing orders the two: put bar.sync between the two",
        report.faults[0].sentence,
    )


def test_blackwell_kernels_of_an_older_triton() -> None:
    """Advisories: Triton 3.4 left bits 46 to 48 of tcgen05's matrix descriptors zero, and gave tcgen05.commit an offset
    in shared memory where a generic address is asked for."""
    a, b, c = np.ones((64, 96), F16), np.ones((96, 64), F16), np.zeros((64, 64), F16)
    fixture = load(FOLDER.parent / "fixtures" / "matmul-old.sm_100.ptx")
    report = launch_unchecked(fixture, (1, 1), a, b, c, 64, 64, 96)
    assert report.faults == ()
    said = {(a.rule, a.sentence) for a in report.advisories}
    assert (
        "matrix descriptor without its constant bits",
        "matrix descriptor 0x8000002001000040: bits 46-48 are 0b000, but the manual wants 0b001",
    ) in said
    assert (
        "shared offset as a generic address",
        "`tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64` needs a generic address of shared memory, but 0x6400 "
        "is an offset in it: say .shared::cluster",
    ) in said
    assert (c == 96).all()


def test_wgmma_reads_what_cp_async_brought_without_a_proxy_fence() -> None:
    """An advisory: Triton 3.4 gave cp.async's bytes to wgmma like this in all its Hopper kernels."""
    a, b, c = np.ones((64, 96), F16), np.ones((96, 64), F16), np.zeros((64, 64), F16)
    fixture = load(FOLDER.parent / "fixtures" / "matmul-old.sm_90.ptx")
    report = launch_unchecked(fixture, (1, 1), a, b, c, 64, 64, 96)
    assert report.faults == ()
    assert {a.rule for a in report.advisories} == {"cp.async before the asynchronous proxy"}
    assert report.advisories[0].sentence == (
        "reads through the asynchronous proxy what cp.async wrote, without fence.proxy.async between the two: the "
        "threads that copied must execute it after their wait, before the barrier"
    )
    assert (c == 96).all()


@pytest.mark.parametrize("name", [path.stem for path in sorted(FOLDER.glob("*.ptx"))])
def test_findings_are_not_among_the_clean_fixtures(name: str) -> None:
    assert not (FOLDER.parent / "fixtures" / f"{name}.ptx").exists()
