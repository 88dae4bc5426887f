"""Reaching into another CTA's shared memory: it must have started, and may not exit before the access is over."""

from __future__ import annotations

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import ORDERS, Order, Report, emulate

# CTA 0 reaches into CTA 1. `first` says who goes first: that CTA raises a flag, for which the other one waits.
BODY = """
.reg .pred %p, %q; .reg .b32 %r<16>; .reg .b64 %rd<4>;
.shared .align 128 .b8 slot[16]; .shared .align 128 .b8 source[16]; .shared .align 8 .b64 bar;
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank;
mov.u32 %r3, slot; mov.u32 %r4, source; mov.u32 %r5, bar;
setp.ne.u32 %p, %r1, 0; @%p bra READY;
mbarrier.init.shared.b64 [%r5], 1; st.shared.v4.u32 [%r3], {0, 0, 0, 0}; st.shared.v4.u32 [%r4], {2, 2, 2, 2};
fence.mbarrier_init.release.cluster; fence.proxy.async;
READY:
{start}
@%p bra OVER;
mapa.shared::cluster.u32 %r6, %r5, 1; mapa.shared::cluster.u32 %r7, %r3, 1;
setp.eq.u32 %q, %r2, 1; @%q bra REACHED;
{wait_0}
{reach}
{raise_0}
bra OVER;
REACHED:
{own}
{wait_1}
{raise_1}
OVER:
{end}
ret;
"""
MEET = "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"
RELAXED = "barrier.cluster.arrive.relaxed; barrier.cluster.wait;"
RAISE = "st.{0}.cluster.global.u32 [%rd1+16], 1;"
WAIT = "AGAIN: ld.{0}.cluster.global.u32 %r9, [%rd1+16]; setp.eq.u32 %q, %r9, 0; @%q bra AGAIN;"
# The other CTA exits meanwhile.
DELAY = "mov.u32 %r10, 400; MORE: sub.u32 %r10, %r10, 1; setp.ne.u32 %q, %r10, 0; @%q bra MORE;"
COMPLETES = "mbarrier::complete_tx::bytes"
REACHES = {
    "ld": "ld.shared::cluster.u32 %r11, [%r7];",
    "st": "st.shared::cluster.u32 [%r7], 3;",
    "red": "red.relaxed.cluster.shared::cluster.add.u32 [%r7], 3;",
    "arrive": "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];",
}
SENDS = {
    "st.async": f"st.async.weak.shared::cluster.{COMPLETES}.v4.b32 [%r7], {{%r2, %r2, %r2, %r2}}, [%r6];",
    "a bulk copy": f"cp.async.bulk.shared::cluster.shared::cta.{COMPLETES} [%r7], [%r4], 16, [%r6];",
    "a multicast": "mov.b16 %h, 2; cp.async.bulk.shared::cluster.global."
    f"{COMPLETES}.multicast::cluster [%r3], [%rd1], 16, [%r5], %h;",
}
EXPECT = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], 16;"
COME = "COME: mbarrier.try_wait.parity.shared::cta.b64 %q, [%r5], 0; @!%q bra COME;"
STAY = "all CTAs must stay until a last cluster barrier"


def run(reach: str, order: Order, start: str = MEET, end: str = "", **steps: str) -> Report:
    text = BODY.replace("{start}", start).replace("{reach}", "\n" + reach).replace("{end}", end)
    for name in ("wait_0", "raise_0", "own", "wait_1", "raise_1"):
        text = text.replace("{" + name + "}", steps.get(name, ""))
    text = text.replace(".reg .pred", ".reg .b16 %h; .reg .pred", 1)
    return emulate(
        module(text, [".param .u64 y"]), grid=2, block=32, cluster=2, args=[np.zeros(8, np.uint32)], order=order,
        check="collect",
    )  # fmt: skip


def found(report: Report) -> list[str]:
    """Faults and advisories, but for the threads that exit before a barrier."""
    rules = [(a.rule, a.sentence) for a in report.advisories if a.rule != "barrier after exit"]
    return [*(f"{fault.kind}: {fault.sentence}" for fault in report.faults), *(f"{r}: {s}" for r, s in rules)]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("reach", REACHES)
def test_a_cta_that_has_exited_is_not_reached(reach: str, order: Order) -> None:
    steps = {"raise_1": RAISE.format("relaxed"), "wait_0": WAIT.format("relaxed") + "\n" + DELAY}
    for end in (MEET, RELAXED):
        assert found(run(REACHES[reach], order, end=end, **steps)) == []
    assert found(run(REACHES[reach], order, **steps)) == [
        f"arrival at an exited CTA: this arrives on an mbarrier of CTA 1 of the cluster, which has exited: {STAY}"
        if reach == "arrive"
        else f"cluster: reaches into the shared memory of CTA 1 of the cluster, which has exited: {STAY}"
    ]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("reach", REACHES)
def test_a_cta_does_not_exit_while_it_may_be_reached(reach: str, order: Order) -> None:
    for semantics, ordered in ((("release", "acquire"), True), (("relaxed", "relaxed"), False)):
        steps = {"raise_0": RAISE.format(semantics[0]), "wait_1": WAIT.format(semantics[1])}
        who = "warp 0 of the cluster's CTA 0"
        sentence = (
            f"arrival at an exited CTA: a CTA exits here, and {who} may still arrive on an mbarrier of it (line 22): "
            + STAY
            if reach == "arrive"
            else f"cluster: this CTA exits, but {who} may still reach into its shared memory (line 22): a cluster "
            "barrier must come before the exit"
        )
        assert found(run(REACHES[reach], order, **steps)) == [sentence] * (not ordered)


@pytest.mark.parametrize("reach", REACHES)
def test_a_cta_that_may_not_have_started_is_not_reached(reach: str) -> None:
    report = run(REACHES[reach], "late", start="", end=MEET)
    assert report.faults[0].sentence == (
        "reaches into the shared memory of CTA 1 of the cluster, which may not have started: a cluster barrier "
        "(barrier.cluster.arrive and .wait) must come before"
    )
    twice = run(REACHES[reach] + "\n" + REACHES[reach], "late", start="", end=MEET)
    assert len([fault for fault in twice.faults if "not have started" in fault.sentence]) == 1


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("send", SENDS)
def test_a_cta_may_exit_when_all_that_is_sent_to_it_has_come(send: str, order: Order) -> None:
    sender_stays = MEET * (send == "a bulk copy")
    assert found(run(SENDS[send], order, end=sender_stays, own=EXPECT + "\n" + COME)) == []
    assert [f.kind for f in run(SENDS[send], order, own=EXPECT).faults][:1] in (["asynchronous copy"], ["cluster"])


@pytest.mark.parametrize("order", ORDERS)
def test_a_cta_does_not_exit_while_its_own_memory_is_copied_to_another(order: Order) -> None:
    """The other one is told that the copy is over; who sends it only hears so from there."""
    steps = {"own": EXPECT + "\n" + COME}
    assert found(run(SENDS["a bulk copy"], order, **steps)) == [
        "cluster: this CTA exits, but what completes on mbarrier 0x600 may still reach into its shared memory "
        "(line 22): a cluster barrier must come before the exit"
    ]
    for tells, hears, ordered in (("release", "acquire", True), ("relaxed", "relaxed", False)):
        told = SENDS["a bulk copy"] + "\n" + WAIT.format(hears)
        assert len(found(run(told, order, **steps, raise_1=RAISE.format(tells)))) == (not ordered)
