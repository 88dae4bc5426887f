"""Threads that have exited count as arrived: at a barrier of the CTA and at one of the cluster alike."""

from __future__ import annotations

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import ORDERS, EmulationFault, Order, emulate

# Warp 0 stores and exits; warp 1 meets {meet} those that are left, and reads what warp 0 stored.
BODY = """
.reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<6>; .shared .align 4 .b8 s[128];
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r5, s;
and.b32 %r3, %r1, 31; shl.b32 %r4, %r3, 2; add.u32 %r5, %r5, %r4;
shl.b32 %r6, %r2, 7; add.u32 %r6, %r6, %r4; cvt.u64.u32 %rd2, %r6; add.u64 %rd1, %rd1, %rd2;
setp.ge.u32 %p, %r1, 32;
@%p bra LATER;
st.shared.u32 [%r5], %r1;
{before}
ret;
LATER:
{meet}
ld.shared.u32 %r7, [%r5];
st.global.u32 [%rd1], %r7;
ret;
"""
CLUSTER = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def launch(before: str, meet: str, order: Order) -> tuple[str, ...]:
    """The rules of the advisories."""
    y = np.full((2, 32), 99, np.uint32)
    text = module(BODY.replace("{before}", before).replace("{meet}", meet), [".param .u64 y"])
    report = emulate(text, grid=2, block=64, cluster=2, args=[y], order=order)
    assert report.faults == ()
    assert (y == np.arange(32)).all()
    return tuple(advisory.rule for advisory in report.advisories)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("meet", ["bar.sync 0;", CLUSTER])
def test_who_has_exited_is_ordered_before_a_barrier_and_advised(meet: str, order: Order) -> None:
    assert launch("", meet, order) == ("barrier after exit",)


@pytest.mark.parametrize("order", ORDERS)
def test_who_arrives_before_the_exit_is_right(order: Order) -> None:
    assert launch("barrier.cluster.arrive.aligned;", CLUSTER, order) == ()


def test_without_a_barrier_it_is_a_race() -> None:
    with pytest.raises(EmulationFault) as caught:
        launch("", "", "late")
    assert caught.value.kind == "race"
