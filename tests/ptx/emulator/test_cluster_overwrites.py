"""What may be done to another CTA's shared memory once it says that it is through with it, by kind of access.

CTA 0 reads or writes a slot of its own, with a thread or asynchronously, and arrives at an mbarrier of CTA 1, which
then accesses the slot. The exception of published kernels (Clock.from_abroad) is for asynchronous accesses, followed by
writes through the asynchronous proxy, and for nothing else.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import ORDERS, Order, Report, emulate

BODY = """
.reg .pred %p, %q; .reg .b32 %r<16>; .reg .b64 %rd<4>;
.shared .align 128 .b8 slot[128]; .shared .align 128 .b8 source[128]; .shared .align 8 .b64 bars[3];
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank;
mov.u32 %r3, slot; mov.u32 %r4, source; mov.u32 %r5, bars;
setp.ne.u32 %p, %r1, 0; @%p bra READY;
mbarrier.init.shared.b64 [%r5], 1; mbarrier.init.shared.b64 [%r5+8], 1; mbarrier.init.shared.b64 [%r5+16], 1;
st.shared.v4.u32 [%r3], {1, 1, 1, 1}; st.shared.v4.u32 [%r4], {2, 2, 2, 2};
fence.mbarrier_init.release.cluster; fence.proxy.async;
READY:
barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;
fence.proxy.async;
@%p bra OVER;
mapa.shared::cluster.u32 %r6, %r5, 1; mapa.shared::cluster.u32 %r7, %r3, 0; mapa.shared::cluster.u32 %r8, %r5, 0;
setp.eq.u32 %q, %r2, 1; @%q bra WAITS;
{expect}
{first}
{fence}
{arrival} _, [%r6+16];
{await}
bra OVER;
WAITS:
AGAIN: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q, [%r5+16], 0; @!%q bra AGAIN;
{second}
OVER:
barrier.cluster.arrive.release; barrier.cluster.wait.acquire;
ret;
"""
BROUGHT = """mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 16;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 16, [%r5];
COMES: mbarrier.try_wait.parity.shared::cta.b64 %q, [%r5], 0; @!%q bra COMES;"""
SENT = """cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 16;
cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""
# By name: what CTA 0 does, whether it writes, whether it is asynchronous.
FIRSTS = {
    "a thread reads": ("ld.shared.v4.u32 {%r9, %r10, %r11, %r12}, [%r3];", False, False),
    "a thread writes": ("st.shared.v4.u32 [%r3], {%r1, %r1, %r1, %r1};", True, False),
    "a bulk store reads": (SENT, False, True),
    "a bulk load writes": (BROUGHT, True, True),
}
COMPLETES = "mbarrier::complete_tx::bytes"
COPY = f"cp.async.bulk.shared::cluster.shared::cta.{COMPLETES} [%r7], [%r4], 16, [%r8+8];"
STORE = f"st.async.weak.shared::cluster.{COMPLETES}.v4.b32 [%r7], {{%r2, %r2, %r2, %r2}}, [%r8+8];"
# What CTA 1 does then, whether it writes, whether it completes on CTA 0's mbarrier.
SECONDS = {
    "a thread reads": ("ld.shared::cluster.v4.u32 {%r9, %r10, %r11, %r12}, [%r7];", False, False),
    "a thread writes": ("st.shared::cluster.v4.u32 [%r7], {5, 5, 5, 5};", True, False),
    "st.async": (STORE, True, True),
    "a bulk copy": (COPY, True, True),
}
ARRIVALS = {
    "mbarrier.arrive.release.cluster.shared::cluster.b64": "all",
    "mbarrier.arrive.shared::cluster.b64": "asynchronous",
    "mbarrier.arrive.relaxed.cluster.shared::cluster.b64": "nothing",
}
CROSSED = "asynchronous write over generic accesses"
FENCE = "fence.proxy.async.shared::cta;"


def run(first: str, second: str, arrival: str, fence: str, order: Order) -> Report:
    action, _, completes = SECONDS[second]
    text = BODY.replace("{first}", FIRSTS[first][0]).replace("{second}", action).replace("{arrival}", arrival)
    expect = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5+8], 16;" if completes else ""
    wait = "LANDS: mbarrier.try_wait.parity.shared::cta.b64 %q, [%r5+8], 0; @!%q bra LANDS;" if completes else ""
    text = text.replace("{expect}", expect).replace("{await}", wait).replace("{fence}", fence)
    return emulate(
        module(text, [".param .u64 y"]), grid=2, block=32, cluster=2, args=[np.full(4, 7, np.uint32)], order=order,
        check="collect",
    )  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("second", SECONDS)
@pytest.mark.parametrize("first", FIRSTS)
def test_a_slot_of_another_cta_is_free_for_what_the_arrival_gives_back(first: str, second: str) -> None:
    (_, wrote, asynchronous), (_, writes, _) = FIRSTS[first], SECONDS[second]
    for number, (arrival, fence) in enumerate(itertools.product(ARRIVALS, ("", FENCE))):
        report = run(first, second, arrival, fence, ORDERS[number % len(ORDERS)])
        told = ARRIVALS[arrival]
        excepted = told == "asynchronous" and asynchronous and second == "a bulk copy"
        race = (wrote or writes) and told != "all" and not excepted
        assert [fault.kind for fault in report.faults] == ["race"] * race, (arrival, fence)
        crossed = not race and second == "a bulk copy" and not asynchronous and not fence
        assert [advisory.rule for advisory in report.advisories] == [CROSSED] * crossed, (arrival, fence)


def test_what_lies_over_generic_accesses_is_named() -> None:
    whole = "overwrites through the asynchronous proxy what was {} through the generic proxy, without "
    whole += "fence.proxy.async between the two"
    for first, verb in (("a thread reads", "read"), ("a thread writes", "written")):
        report = run(first, "a bulk copy", next(iter(ARRIVALS)), "", "late")
        assert [advisory.sentence for advisory in report.advisories] == [whole.format(verb)]
