"""cp.async whose completion arrives on an mbarrier: ordered for who waits there, and for who waits for the groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.ptx.emulator import Report, emulate

TEXT = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
{
    .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<8>;
    .shared .align 16 .b8 bytes[1024];
    .shared .align 8 .b64 bar;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 31;
    shl.b32 %r3, %r2, 4;
    mov.u32 %r4, bytes;
    add.u32 %r5, %r4, %r3;
    mov.u32 %r6, bar;
    setp.ne.u32 %p1, %r1, 0;
    @!%p1 mbarrier.init.shared.b64 [%r6], 32;
    bar.sync 0;
    mul.wide.u32 %rd3, %r2, 16;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    setp.ge.u32 %p2, %r1, 32;
    @%p2 bra SECOND;
    cp.async.cg.shared.global [%r5], [%rd4], 16;
    cp.async.commit_group;
    cp.async.cg.shared.global [%r5+512], [%rd4+512], 16;
    cp.async.mbarrier.arrive.noinc.shared.b64 [%r6];
    cp.async.commit_group;
    FIRST
    bra DONE;
SECOND:
    OTHER
DONE:
    ret;
}
"""
WAIT = """
AGAIN:
    mbarrier.test_wait.parity.shared.b64 %p3, [%r6], 0;
    @!%p3 bra AGAIN;
"""
READ_OLD = "ld.shared.u32 %r7, [%r5]; st.global.u32 [%rd5], %r7;"
READ_NEW = "ld.shared.u32 %r8, [%r5+512]; st.global.u32 [%rd5+512], %r8;"
ORDERS = ("late", "early", "random")


def launch(first: str, other: str, order: Any) -> tuple[Report, list[bool]]:
    x, y = np.arange(1, 257, dtype=np.uint32), np.zeros(256, np.uint32)
    text = TEXT.replace("FIRST", first).replace("OTHER", other)
    report = emulate(text, grid=1, block=64, args=[x, y], check="collect", order=order)
    return report, [bool((y[half][::4] == x[half][::4]).all()) for half in (slice(0, 128), slice(128, 256))]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("first", ["", "cp.async.wait_all;", "cp.async.wait_group 0;", "cp.async.wait_group 1;"])
def test_another_warp_reads_behind_the_mbarrier(first: str, order: Any) -> None:
    report, right = launch(first, WAIT + READ_OLD + READ_NEW, order)
    assert report.faults == ()
    assert right == [True, True]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("wait", ["cp.async.wait_all;", "cp.async.wait_group 0;"])
def test_the_copying_thread_may_wait_for_the_groups_alone(wait: str, order: Any) -> None:
    report, right = launch(wait + READ_OLD + READ_NEW, "", order)
    assert report.faults == ()
    assert right == [True, True]


@pytest.mark.parametrize("order", ORDERS)
def test_a_wait_for_the_older_group_orders_nothing_of_the_newer_one(order: Any) -> None:
    report, _ = launch("cp.async.wait_group 1;" + READ_NEW, "", order)
    assert [fault.kind for fault in report.faults] == ["race"]


@pytest.mark.parametrize("order", ORDERS)
def test_another_warp_that_waits_for_nothing_races(order: Any) -> None:
    report, _ = launch("cp.async.wait_all;", READ_OLD, order)
    assert [fault.kind for fault in report.faults] == ["race"]
