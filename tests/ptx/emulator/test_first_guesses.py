"""A plain load that gives a compare-and-swap its first guess is no race; other loads of what atomics change are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.ptx.emulator import emulate

TEXT = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 total, .param .u64 out)
{
    .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<8>;
    .shared .align 8 .b32 shared[2];
    ld.param.u64 %rd1, [total];
    ld.param.u64 %rd2, [out];
    cvta.to.global.u64 %rd3, %rd1;
    mov.u32 %r1, %tid.x;
    mov.u32 %r8, shared;
    setp.eq.u32 %p1, %r1, 0;
    @%p1 st.shared.u32 [%r8], 0;
    @%p1 st.shared.u32 [%r8+4], 0;
    bar.sync 0;
    LOAD
LOOP:
    add.u32 %r3, %r2, 3;
    SWAP
    setp.ne.u32 %p2, %r4, %r2;
    mov.u32 %r2, %r4;
    @%p2 bra LOOP;
    mad.lo.u32 %r5, %r1, 4, 0;
    cvt.u64.u32 %rd4, %r5;
    add.u64 %rd5, %rd2, %rd4;
    AFTER
    ret;
}
"""
GLOBAL = ("ld.global.u32 %r2, [%rd3];", "atom.cas.b32 %r4, [%rd1], %r2, %r3;")
SHARED = ("ld.shared.u32 %r2, [%r8];", "atom.shared.cas.b32 %r4, [%r8], %r2, %r3;")


def launch(swap: tuple[str, str], after: str = "", grid: int = 3) -> tuple[list[str], Any]:
    total, out = np.zeros(2, np.uint32), np.zeros(64, np.uint32)
    text = TEXT.replace("LOAD", swap[0]).replace("SWAP", swap[1]).replace("AFTER", after)
    report = emulate(text, grid=grid, block=64, args=[total, out], check="collect")
    return [fault.kind for fault in report.faults], total


def test_a_loop_around_a_compare_and_swap_in_global_memory() -> None:
    kinds, total = launch(GLOBAL)
    assert kinds == []
    assert total.tolist() == [3 * 64 * 3, 0]


def test_a_loop_around_a_compare_and_swap_in_shared_memory() -> None:
    assert launch(SHARED, grid=1)[0] == []


def test_a_variable_that_one_of_the_two_names() -> None:
    assert launch(("ld.shared.u32 %r2, [shared];", SHARED[1]), grid=1)[0] == []
    other = ("ld.shared.u32 %r2, [shared+4];", SHARED[1] + "\n red.shared.add.u32 [shared+4], 1;")
    assert set(launch(other, grid=1)[0]) == {"race"}


@pytest.mark.parametrize(
    ("load", "swap"),
    [
        (
            "ld.global.u32 %r2, [%rd3];",
            "atom.global.add.u32 %r4, [%rd3], 0;\n mov.u32 %r2, %r4;\n red.global.add.u32 [%rd3], 1;",
        ),
        ("ld.global.u32 %r2, [%rd3+4];", "atom.cas.b32 %r4, [%rd1], %r2, %r3;\n red.global.add.u32 [%rd3+4], 1;"),
    ],
)
def test_other_plain_loads_race_with_atomics(load: str, swap: str) -> None:
    assert set(launch((load, swap))[0]) == {"race"}


def test_a_result_read_without_a_barrier_races() -> None:
    # It reads the place of the compare-and-swap, but not to compare it.
    assert set(launch(SHARED, "ld.shared.u32 %r6, [%r8];\n st.global.u32 [%rd5], %r6;", grid=1)[0]) == {"race"}
