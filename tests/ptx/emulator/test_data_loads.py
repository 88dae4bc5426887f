"""Volatile shared memory: data needs a barrier between warps all the same, a flag that is polled does not."""

from __future__ import annotations

import numpy as np
import pytest

from tinygpu.ptx.emulator import emulate

EXCHANGE = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 y)
{
    .reg .b32 %r<8>; .reg .b64 %rd<4>;
    .shared .align 4 .b8 s[256];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, s;
    shl.b32 %r3, %r1, 2;
    add.u32 %r4, %r2, %r3;
    STORE.shared.u32 [%r4], %r1;
    BETWEEN
    xor.b32 %r5, %r3, 128;
    add.u32 %r5, %r5, %r2;
    LOAD.shared.u32 %r6, [%r5];
    AFTER
    ld.param.u64 %rd1, [y];
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r6;
    ret;
}
"""

# Warp 1 waits for a flag that warp 0 raises behind its data, as code without acquire and release has it.
FLAG = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 y)
{
    .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
    .shared .align 4 .b8 s[8];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, s;
    setp.ne.u32 %p1, %r1, 0;
    @!%p1 st.volatile.shared.u32 [%r2+4], 0;
    bar.sync 0;
    @%p1 bra READER;
    st.volatile.shared.u32 [%r2], 7;
    membar.cta;
    st.volatile.shared.u32 [%r2+4], 1;
    ret;
READER:
    setp.ne.u32 %p2, %r1, 32;
    @%p2 ret;
SPIN:
    ld.volatile.shared.u32 %r3, [%r2+4];
    and.b32 %r5, %r3, 1;
    setp.eq.u32 %p3, %r5, 0;
    @%p3 bra SPIN;
    membar.cta;
    ld.volatile.shared.u32 %r4, [%r2];
    ld.param.u64 %rd1, [y];
    st.global.u32 [%rd1], %r4;
    ret;
}
"""


def kinds(store: str, load: str, between: str, after: str = "") -> set[str]:
    text = EXCHANGE
    for word, replacement in (("STORE", store), ("LOAD", load), ("BETWEEN", between), ("AFTER", after)):
        text = text.replace(word, replacement)
    y = np.zeros(64, np.uint32)
    report = emulate(text, grid=1, block=64, args=[y], check="collect")
    assert after or (y == np.arange(64) ^ 32).all()
    return {fault.kind for fault in report.faults}


@pytest.mark.parametrize("store", ["st", "st.volatile"])
@pytest.mark.parametrize("load", ["ld", "ld.volatile"])
def test_data_needs_a_barrier(store: str, load: str) -> None:
    assert kinds(store, load, "bar.sync 0;") == set()
    assert kinds(store, load, "") == {"race"}


def test_overwriting_what_volatile_loads_may_still_read_is_a_race() -> None:
    overwrite = "st.volatile.shared.u32 [%r4], 0;"
    assert kinds("st.volatile", "ld.volatile", "bar.sync 0;", "bar.sync 0;\n" + overwrite) == set()
    assert kinds("st.volatile", "ld.volatile", "bar.sync 0;", overwrite) == {"race"}


def test_relaxed_loads_are_no_race() -> None:
    assert kinds("st.relaxed.cta", "ld.relaxed.cta", "") == set()


@pytest.mark.parametrize("order", ["late", "early", "random"])
def test_a_flag_that_is_polled_orders_the_data_behind_it(order: str) -> None:
    y = np.zeros(1, np.uint32)
    report = emulate(FLAG, grid=1, block=64, args=[y], order=order)
    assert y[0] == 7
    assert not report.faults


def test_the_data_behind_a_flag_that_nobody_waits_for_is_a_race() -> None:
    text = FLAG.replace("    @%p3 bra SPIN;\n", "")
    report = emulate(text, grid=1, block=64, args=[np.zeros(1, np.uint32)], check="collect")
    assert {fault.kind for fault in report.faults} >= {"race"}
