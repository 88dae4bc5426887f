"""Lanes of a warp that take different ways: where they meet again, and who is gone when a barrier is reached."""

from __future__ import annotations

import numpy as np
import pytest

from tinygpu.ptx.emulator import Order, emulate

HEAD = """
.version 7.0
.target sm_80
.address_size 64
"""

# Lane 0 goes back to the head of the loop another way than the others.
LOOP = HEAD + """
.visible .entry k(.param .u64 y)
{
    .reg .pred %p<4>; .reg .b64 %rd<4>; .reg .b32 %r<5>;
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, 0;
    setp.ne.u32 %p1, %r1, 0;
    bra HEAD;
OTHER:
    add.u32 %r3, %r2, 1;
HEAD:
    MEET
    add.u32 %r2, %r2, 1;
    setp.ge.u32 %p2, %r2, 3;
    @%p2 bra DONE;
    @%p1 bra HEAD;
    bra OTHER;
DONE:
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r2;
    ret;
}
"""
MEETINGS = (
    "bar.sync 0;", "bar.warp.sync 0xffffffff;", "vote.sync.any.pred %p3, %p1, 0xffffffff;",
    "shfl.sync.idx.b32 %r4, %r1, 0, 31, 0xffffffff;",
)  # fmt: skip


@pytest.mark.parametrize("meet", MEETINGS)
@pytest.mark.parametrize("order", ["late", "early", "random", "spurious"])
def test_lanes_meet_at_the_head_of_a_loop_by_whichever_way_they_go_back(meet: str, order: Order) -> None:
    """So does what nvcc makes of `while (__any_sync(...)) { if (...) ... }`."""
    y = np.zeros(64, np.uint32)
    assert emulate(LOOP.replace("MEET", meet), grid=1, block=64, args=[y], order=order).faults == ()
    assert (y == 3).all()


LEAVES = HEAD + """
.visible .entry k(.param .u64 y, .param .u32 n)
{
    .reg .pred %p<2>; .reg .b64 %rd<4>; .reg .b32 %r<4>;
    .shared .align 4 .b8 s[256];
    ld.param.u64 %rd1, [y];
    ld.param.u32 %r2, [n];
    mov.u32 %r1, %tid.x;
    setp.ge.u32 %p1, %r1, %r2;
    @%p1 bra DONE;
    mul.wide.u32 %rd2, %r1, 4;
    mov.u32 %r3, s;
    mad.lo.u32 %r3, %r1, 4, %r3;
    st.shared.u32 [%r3], %r1;
    bar.sync 0;
    ld.shared.u32 %r3, [%r3];
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r3;
DONE:
    ret;
}
"""


@pytest.mark.parametrize("n", [20, 32, 60, 64])
@pytest.mark.parametrize("order", ["late", "early", "random", "spurious"])
def test_threads_that_return_in_front_of_a_barrier_are_told_once_and_in_every_order(n: int, order: Order) -> None:
    """Of part of a warp as of whole ones: hardware does not wait for who has left."""
    for seed in range(3):
        y = np.full(64, 99, np.uint32)
        report = emulate(LEAVES, grid=1, block=64, args=[y, n], order=order, seed=seed)
        assert [a.rule for a in report.advisories] == ["barrier after exit"] * (n < 64)
        assert y[:n].tolist() == list(range(n))
