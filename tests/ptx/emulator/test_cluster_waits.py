"""Waiting for another CTA: what an arrival tells depends on the scopes of both, and on fences that stand for them.

CTA 0 writes into its own shared memory (or into the other CTA's), and arrives on an mbarrier of CTA 1, which waits and
then reads what was written. Only where both the arrival and the wait reach the cluster, or a fence on that side does,
are the two ordered.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import ORDERS, Order, emulate

# Of each side: whether it reaches the other CTA.
ARRIVALS = {
    "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];": True,
    "mbarrier.arrive.release.gpu.shared::cluster.b64 _, [%r6];": True,
    "fence.acq_rel.cluster; mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r6];": True,
    "fence.acq_rel.gpu; mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r6];": True,
    "fence.acq_rel.cluster; mbarrier.arrive.shared::cluster.b64 _, [%r6];": True,
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r6];": True,
    "mbarrier.arrive.shared::cluster.b64 _, [%r6];": False,
    "mbarrier.arrive.release.cta.shared::cluster.b64 _, [%r6];": False,
    "mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r6];": False,
    "fence.acq_rel.cta; mbarrier.arrive.relaxed.cluster.shared::cluster.b64 _, [%r6];": False,
    "fence.acq_rel.cta; mbarrier.arrive.shared::cluster.b64 _, [%r6];": False,
}
WAIT = "AGAIN: mbarrier.{kind}.parity{semantics}.shared::cta.b64 %q, [%r5], 0; @!%q bra AGAIN; {fence}"
WAITS = {
    (".acquire.cluster", ""): True,
    (".acquire.cluster", "fence.acq_rel.cta;"): True,
    (".relaxed.cluster", "fence.acq_rel.cluster;"): True,
    (".relaxed.cluster", "fence.acq_rel.gpu;"): True,
    ("", "fence.acq_rel.cluster;"): True,
    ("", ""): False,
    (".acquire.cta", ""): False,
    (".acquire.cta", "fence.acq_rel.cta;"): False,
    (".relaxed.cluster", ""): False,
    (".relaxed.cluster", "fence.acq_rel.cta;"): False,
    (".relaxed.cta", ""): False,
}
# (what CTA 0 does before it arrives, what CTA 1 does after it has waited): %r8 is the same word in both.
ACCESSES = {
    "its own word, read from afar": ("st.shared::cta.u32 [%r7], 7;", "ld.shared::cluster.u32 %r9, [%r8];"),
    "a word of the waiting CTA": ("st.shared::cluster.u32 [%r8], 7;", "ld.shared::cta.u32 %r9, [%r7];"),
    "read before it is overwritten": ("ld.shared::cta.u32 %r9, [%r7];", "st.shared::cluster.u32 [%r8], 7;"),
    "changed by both": ("st.shared::cta.u32 [%r7], 9;", "st.shared::cluster.u32 [%r8], 7;"),
}
BODY = """
.reg .pred %p, %q; .reg .b32 %r<16>; .reg .b64 %rd<4>;
.shared .align 8 .b64 bar; .shared .align 8 .b32 word;
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r5, bar; mov.u32 %r7, word;
mov.u32 %r9, 0;
setp.ne.u32 %p, %r1, 0;
@%p bra READY;
mbarrier.init.shared.b64 [%r5], 1;
st.shared.u32 [%r7], 1;
fence.mbarrier_init.release.cluster;
READY:
barrier.cluster.arrive.release.aligned;
barrier.cluster.wait.acquire.aligned;
@%p bra OVER;
mapa.shared::cluster.u32 %r6, %r5, 1;
mapa.shared::cluster.u32 %r8, %r7, {holder};
setp.eq.u32 %q, %r2, 1;
@%q bra WAITS;
{before}
{arrival}
bra OVER;
WAITS:
{wait}
{after}
st.global.u32 [%rd1], %r9;
OVER:
barrier.cluster.arrive.release;
barrier.cluster.wait.acquire;
ret;
"""


def kinds(accesses: str, arrival: str, wait: tuple[str, str], order: Order, kind: str = "try_wait") -> set[str]:
    """Kinds of faults; what is read is checked where there are none."""
    before, after = ACCESSES[accesses]
    text = BODY.replace("{before}", before).replace("{after}", after).replace("{arrival}", arrival)
    text = text.replace("{holder}", "1" if accesses == "a word of the waiting CTA" else "0").replace("{wait}", WAIT)
    text = text.replace("{kind}", kind).replace("{semantics}", wait[0]).replace("{fence}", wait[1])
    y = np.zeros(1, np.uint32)
    report = emulate(
        module(text, [".param .u64 y"]), grid=2, block=64, cluster=2, args=[y], check="collect", order=order, seed=1
    )
    assert report.faults or "ld." not in after or y[0] == 7
    return {fault.kind for fault in report.faults}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("arrival", ARRIVALS)
def test_a_word_is_handed_over_where_both_sides_reach_the_cluster(arrival: str, wait: tuple[str, str]) -> None:
    want = set() if ARRIVALS[arrival] and WAITS[wait] else {"race"}
    assert kinds("its own word, read from afar", arrival, wait, "late") == want


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("accesses", ACCESSES)
def test_every_pair_of_accesses_is_ordered_so(accesses: str, order: Order) -> None:
    for (arrival, told), (wait, learned), kind in itertools.product(
        ARRIVALS.items(), WAITS.items(), ("try_wait", "test_wait")
    ):
        want = set() if told and learned else {"race"}
        assert kinds(accesses, arrival, wait, order, kind) == want, (arrival, wait, kind)


@pytest.mark.parametrize("accesses", ACCESSES)
@pytest.mark.parametrize("order", ORDERS)
def test_pairs_of_accesses_drawn_at_random_are_ordered_so(accesses: str, order: Order) -> None:
    rng = np.random.default_rng(len(accesses) + ORDERS.index(order))
    for right in (True, False):
        arrivals = [a for a, tells in ARRIVALS.items() if tells or not right]
        waits = [w for w, learns in WAITS.items() if learns or not right]
        arrival, wait = arrivals[rng.integers(len(arrivals))], waits[rng.integers(len(waits))]
        want = set() if ARRIVALS[arrival] and WAITS[wait] else {"race"}
        assert kinds(accesses, arrival, wait, order) == want, (arrival, wait)


NEAR = """
.reg .pred %q; .reg .b32 %r<16>; .reg .b64 %rd<4>;
.shared .align 8 .b64 bar; .shared .align 8 .b32 word;
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r5, bar; mov.u32 %r7, word;
setp.ne.u32 %q, %r1, 0;
@!%q mbarrier.init.shared.b64 [%r5], 1;
bar.sync 0;
setp.eq.u32 %q, %r1, 0; @%q bra WRITES;
setp.eq.u32 %q, %r1, 32; @%q bra WAITS;
ret;
WRITES:
st.shared.u32 [%r7], 7;
{arrival} _, [%r5];
ret;
WAITS:
{wait}
ld.shared.u32 %r9, [%r7];
st.global.u32 [%rd1], %r9;
ret;
"""


@pytest.mark.parametrize("wait", WAITS)
def test_within_a_cta_every_scope_reaches_and_only_what_is_relaxed_needs_a_fence(wait: tuple[str, str]) -> None:
    arrivals = {
        "mbarrier.arrive.shared::cta.b64": True, "mbarrier.arrive.release.cta.shared::cta.b64": True,
        "mbarrier.arrive.shared::cluster.b64": True,
        "fence.acq_rel.cta; mbarrier.arrive.relaxed.cta.shared::cta.b64": True,
        "mbarrier.arrive.relaxed.cta.shared::cta.b64": False,
    }  # fmt: skip
    for arrival, told in arrivals.items():
        text = NEAR.replace("{arrival}", arrival).replace("{wait}", WAIT).replace("{kind}", "try_wait")
        text = text.replace("{semantics}", wait[0]).replace("{fence}", wait[1])
        y = np.zeros(1, np.uint32)
        report = emulate(module(text, [".param .u64 y"]), grid=1, block=64, args=[y], check="collect")
        learned = "relaxed" not in wait[0] or bool(wait[1])
        assert {fault.kind for fault in report.faults} == (set() if told and learned else {"race"}), arrival
        assert report.faults or y[0] == 7


def test_a_relaxed_cluster_barrier_passes_on_what_a_fence_of_the_cluster_released() -> None:
    """The same of barrier.cluster.arrive.relaxed: a fence of CTA scope does not stand for its release."""
    fences = {"fence.acq_rel.cluster;": set(), "fence.acq_rel.cta;": {"race"}, "": {"race"}}
    for fence, want in fences.items():
        text = BODY.split("@%p bra OVER;")[0] + (
            "setp.eq.u32 %q, %r2, 1; mapa.shared::cluster.u32 %r8, %r7, 0;\n"
            f"@!%p st.shared::cta.u32 [%r7], 7;\n{fence}\nbarrier.cluster.arrive.relaxed; barrier.cluster.wait;\n"
            "@%p bra OVER; @!%q bra OVER; ld.shared::cluster.u32 %r9, [%r8]; st.global.u32 [%rd1], %r9;\n"
            "OVER: barrier.cluster.arrive.release; barrier.cluster.wait.acquire; ret;"
        )
        y = np.zeros(1, np.uint32)
        report = emulate(module(text, [".param .u64 y"]), grid=2, block=64, cluster=2, args=[y], check="collect")
        assert {fault.kind for fault in report.faults} == want, fence
        assert report.faults or y[0] == 7
