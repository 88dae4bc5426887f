"""mbarriers, clusters and shared memory of other CTAs: what they order, and what is wrong with how they are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.ptx.emulator import DeviceBuffer, EmulationFault, LaunchError, emulate

HEAD = """
.version 8.0
.target sm_90
.address_size 64
"""

ORDERS = ("late", "early", "random")


def run(text: str, args: list[Any], block: int = 64, grid: int = 1, cluster: int = 1, **more: Any) -> Any:
    return emulate(HEAD + text, grid=grid, block=block, cluster=cluster, args=args, **more)


def fault(text: str, args: list[Any], block: int = 64, **more: Any) -> EmulationFault:
    with pytest.raises(EmulationFault) as caught:
        run(text, args, block, **more)
    return caught.value


# Warp 0 hands a number per round to warp 1 through one slot with a full and an empty barrier.
HANDOVER = """
.visible .entry k(.param .u64 y)
{
    .reg .pred %p, %q; .reg .b32 %r<12>; .reg .b64 %rd<6>;
    .shared .align 8 .b64 full; .shared .align 8 .b64 empty; .shared .align 4 .b32 slot[32];
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 31;
    shl.b32 %r3, %r2, 2;
    mov.u32 %r4, slot;
    add.u32 %r4, %r4, %r3;
    setp.ne.u32 %p, %r1, 0;
    @%p bra READY;
    mbarrier.init.shared.b64 [full], 32;
    mbarrier.init.shared.b64 [empty], 32;
READY:
    INIT_SYNC
    mov.u32 %r5, 0;
    setp.ge.u32 %p, %r1, 32;
    @%p bra CONSUMER;
PRODUCER:
    and.b32 %r6, %r5, 1;
    xor.b32 %r6, %r6, 1;
WAIT_EMPTY:
    mbarrier.try_wait.parity.shared.b64 %q, [empty], %r6;
    @!%q bra WAIT_EMPTY;
    mad.lo.u32 %r7, %r5, 100, %r2;
    st.shared.u32 [%r4], %r7;
    mbarrier.arrive.shared.b64 _, [full];
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %q, %r5, 5;
    @%q bra PRODUCER;
    ret;
CONSUMER:
    mad.lo.u32 %r8, %r5, 128, %r3;
    cvt.u64.u32 %rd2, %r8;
    add.u64 %rd3, %rd1, %rd2;
LOOP:
    and.b32 %r6, %r5, 1;
WAIT_FULL:
    mbarrier.try_wait.parity.shared.b64 %q, [full], %r6;
    @!%q bra WAIT_FULL;
    ld.shared.u32 %r7, [%r4];
    mbarrier.arrive.shared.b64 _, [empty];
    st.global.u32 [%rd3], %r7;
    add.u64 %rd3, %rd3, 128;
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %q, %r5, 5;
    @%q bra LOOP;
    ret;
}
"""
WHOLE = HANDOVER.replace("INIT_SYNC", "bar.sync 0;")


@pytest.mark.parametrize("order", ORDERS)
def test_a_slot_is_handed_over_by_two_barriers(order: str) -> None:
    y = np.zeros((5, 32), np.uint32)
    report = run(WHOLE, [y], order=order, seed=3)
    assert (y == np.arange(5)[:, None] * 100 + np.arange(32)).all()
    assert report.faults == ()
    assert report.advisories == ()


def test_a_barrier_used_without_waiting_for_its_making_is_a_race() -> None:
    caught = fault(HANDOVER.replace("INIT_SYNC", ""), [np.zeros((5, 32), np.uint32)])
    assert caught.kind in ("race", "mbarrier")


def test_a_producer_that_does_not_wait_is_a_race() -> None:
    text = WHOLE.replace("mbarrier.try_wait.parity.shared.b64 %q, [empty], %r6;\n    @!%q bra WAIT_EMPTY;", "")
    # It may run so far ahead that the consumer misses phases.
    assert fault(text, [np.zeros((5, 32), np.uint32)]).kind in ("race", "deadlock")


def test_a_consumer_that_does_not_wait_is_a_race() -> None:
    text = WHOLE.replace("mbarrier.try_wait.parity.shared.b64 %q, [full], %r6;\n    @!%q bra WAIT_FULL;", "")
    assert fault(text, [np.zeros((5, 32), np.uint32)]).kind in ("race", "mbarrier", "uninitialised")


def test_a_parity_that_never_flips_is_caught() -> None:
    text = WHOLE.replace("LOOP:\n    and.b32 %r6, %r5, 1;", "LOOP:\n    mov.u32 %r6, 0;")
    assert fault(text, [np.zeros((5, 32), np.uint32)]).kind in ("race", "mbarrier", "deadlock")


def test_a_deadlock_names_barrier_and_phase() -> None:
    text = WHOLE.replace("mbarrier.init.shared.b64 [full], 32;", "mbarrier.init.shared.b64 [full], 33;")
    caught = fault(text, [np.zeros((5, 32), np.uint32)])
    assert caught.kind == "deadlock"
    assert caught.sentence == (
        "deadlock: no thread can run. warp 0 waits on line 29 for parity 0 of an mbarrier: mbarrier 0x500 (initialised "
        "on line 19) has 0 completed phases, 0 of 32 arrivals; warp 1 waits on line 45 for parity 0 of an mbarrier: "
        "mbarrier 0x400 (initialised on line 18) has 0 completed phases, 32 of 33 arrivals"
    )


def test_too_many_arrivals() -> None:
    text = WHOLE.replace("mbarrier.init.shared.b64 [full], 32;", "mbarrier.init.shared.b64 [full], 31;")
    caught = fault(text, [np.zeros((5, 32), np.uint32)])
    assert caught.sentence == (
        "32 arrivals at an mbarrier whose phase takes 31 more: mbarrier 0x400 (initialised on line 18) has 0 completed "
        "phases, 0 of 31 arrivals; the count of mbarrier.init must be that of all arrivals of a phase"
    )


SINGLE = """
.visible .entry k(.param .u64 y)
{
    .reg .pred %p; .reg .b32 %r<6>; .reg .b64 %rd<6>;
    .shared .align 8 .b64 bar;
    ld.param.u64 %rd1, [y];
    BODY
    ret;
}
"""


def single(body: str) -> str:
    return SINGLE.replace("BODY", body)


@pytest.mark.parametrize(
    ("body", "kind", "sentence"),
    [
        (
            "mbarrier.init.shared.b64 [bar], 0;",
            "mbarrier",
            "mbarrier.init with a count of 0: it must be 1 to 1048575",
        ),
        (
            "mbarrier.arrive.shared.b64 _, [bar];",
            "mbarrier",
            "uses shared address 0x400 as an mbarrier, but no mbarrier.init has been executed there",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.inval.shared.b64 [bar]; mbarrier.arrive.shared.b64 _, [bar];",
            "mbarrier",
            "uses shared address 0x400 as an mbarrier, but it was invalidated on line 11",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 2; st.shared.u32 [bar+4], 7; mbarrier.arrive.shared.b64 _, [bar];",
            "mbarrier",
            "uses shared address 0x400 as an mbarrier, but it was overwritten on line 11",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 _, [bar]; "
            "mbarrier.init.shared.b64 [bar], 2;",
            "mbarrier",
            "initialises an mbarrier that is in use: mbarrier 0x400 (initialised on line 11) has 0 completed phases, 1 "
            "of 2 arrivals; invalidate it (mbarrier.inval) when nobody uses it any more",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 2; mbarrier.arrive.shared.b64 _, [bar], 3;",
            "mbarrier",
            "3 arrivals at an mbarrier whose phase takes 2 more: mbarrier 0x400 (initialised on line 11) has 0 "
            "completed phases, 0 of 2 arrivals; the count of mbarrier.init must be that of all arrivals of a phase",
        ),
        (
            "mbarrier.init.shared.b64 [bar], 1; mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [bar], 2000000;",
            "mbarrier",
            "the tx-count of an mbarrier becomes 2000000, beyond +-1048575: mbarrier 0x400 (initialised on line 11) "
            "has 0 completed phases, 0 of 1 arrivals and waits for 2000000 more transaction bytes",
        ),
        (
            "mov.u32 %r1, bar; add.u32 %r1, %r1, 4; mbarrier.init.shared.b64 [%r1], 1;",
            "misaligned",
            "the mbarrier at shared address 0x404 is misaligned: it must be a multiple of 8, but the remainder is 4",
        ),
        (
            "mov.u32 %r1, bar; add.u32 %r1, %r1, 8; mbarrier.init.shared.b64 [%r1], 1;",
            "out of bounds",
            "the mbarrier at shared address 0x408 is out of bounds: bar has 8 bytes, and this is byte 8 to 15",
        ),
        (
            "mbarrier.init.b64 [%rd1], 1;",
            "address space",
            "`mbarrier.init.b64` needs a generic address of shared memory, not 0x100000000000",
        ),
    ],
)
def test_misuse(body: str, kind: str, sentence: str) -> None:
    with pytest.raises(EmulationFault) as caught:
        run(single(body), [DeviceBuffer(np.zeros(4, np.uint32), base=1 << 44)], block=1)
    assert (caught.value.kind, caught.value.sentence) == (kind, sentence)


def test_states_counts_and_phases() -> None:
    """Tokens of arrivals, pending_count, arrive_drop, noComplete, and test_wait with a state."""
    body = """
    mbarrier.init.shared.b64 [bar], 3;
    mbarrier.arrive.noComplete.shared.b64 %rd2, [bar], 1;
    mbarrier.pending_count.b64 %r1, %rd2;
    st.global.u32 [%rd1], %r1;
    mbarrier.arrive_drop.shared.b64 %rd3, [bar];
    mbarrier.pending_count.b64 %r1, %rd3;
    st.global.u32 [%rd1+4], %r1;
    mbarrier.test_wait.shared.b64 %p, [bar], %rd3;
    selp.u32 %r1, 1, 0, %p;
    st.global.u32 [%rd1+8], %r1;
    mbarrier.arrive.shared.b64 %rd4, [bar];
    mbarrier.test_wait.shared.b64 %p, [bar], %rd3;
    selp.u32 %r1, 1, 0, %p;
    st.global.u32 [%rd1+12], %r1;
    mbarrier.arrive.shared.b64 %rd4, [bar];
    mbarrier.pending_count.b64 %r1, %rd4;
    st.global.u32 [%rd1+16], %r1;
    """
    y = np.zeros(5, np.uint32)
    run(single(body), [y], block=1)
    assert y.tolist() == [3, 2, 0, 1, 2]


# Every CTA writes its slot, and reads that of its neighbour in the cluster.
NEIGHBOUR = """
.visible .entry k(.param .u64 y)
{
    .reg .b32 %r<12>; .reg .b64 %rd<6>;
    .shared .align 4 .b32 slot[32];
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, slot;
    add.u32 %r3, %r3, %r2;
    mov.u32 %r4, %ctaid.x;
    mad.lo.u32 %r5, %r4, 1000, %r1;
    st.shared.u32 [%r3], %r5;
    SYNC
    mov.u32 %r6, %cluster_ctarank;
    add.u32 %r6, %r6, 1;
    mov.u32 %r7, %cluster_nctarank;
    rem.u32 %r6, %r6, %r7;
    mapa.shared::cluster.u32 %r8, %r3, %r6;
    ld.shared::cluster.u32 %r9, [%r8];
    LAST
    mad.lo.u32 %r10, %r4, 128, %r2;
    cvt.u64.u32 %rd2, %r10;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r9;
    ret;
}
"""
CLUSTER_SYNC = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;"


def neighbour(sync: str, last: str) -> str:
    return NEIGHBOUR.replace("SYNC", sync).replace("LAST", last)


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_shared_memory_of_the_cluster(size: int) -> None:
    y = np.zeros((16, 32), np.uint32)
    report = run(neighbour(CLUSTER_SYNC, CLUSTER_SYNC), [y], block=32, grid=16, cluster=size)
    cta = np.arange(16)
    other = cta // size * size + (cta + 1) % size
    assert (y == other[:, None] * 1000 + np.arange(32)).all()
    assert report.faults == ()


def test_relaxed_arrival_needs_a_fence() -> None:
    relaxed = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
    y = np.zeros((4, 32), np.uint32)
    assert fault(neighbour(relaxed, CLUSTER_SYNC), [y], block=32, grid=4, cluster=2).kind in ("race", "cluster")
    run(neighbour("fence.acq_rel.cluster; " + relaxed, CLUSTER_SYNC), [y], block=32, grid=4, cluster=2)


def test_a_neighbour_that_may_not_have_started() -> None:
    caught = fault(neighbour("", CLUSTER_SYNC), [np.zeros((4, 32), np.uint32)], block=32, grid=4, cluster=2)
    assert caught.sentence == (
        "reaches into the shared memory of CTA 0 of the cluster, which may not have started: a cluster barrier "
        "(barrier.cluster.arrive and .wait) must come before"
    )


def test_a_neighbour_that_may_have_exited() -> None:
    caught = fault(neighbour(CLUSTER_SYNC, ""), [np.zeros((4, 32), np.uint32)], block=32, grid=4, cluster=2)
    assert (caught.kind, caught.sentence) == (
        "cluster",
        "this CTA exits, but warp 0 of the cluster's CTA 1 may still reach into its shared memory (line 24): a cluster "
        "barrier must come before the exit",
    )


def test_a_cluster_barrier_that_half_the_cluster_skips() -> None:
    text = neighbour(CLUSTER_SYNC, "setp.eq.u32 %p, %r4, 0; @%p bra END; " + CLUSTER_SYNC + " END:").replace(
        ".reg .b32", ".reg .pred %p; .reg .b32"
    )
    # A CTA that exits counts as arrived.
    y = np.zeros((4, 32), np.uint32)
    with pytest.raises(EmulationFault) as caught:
        run(text, [y], block=32, grid=4, cluster=2)
    assert caught.value.kind == "cluster"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            neighbour("barrier.cluster.wait.aligned;", ""),
            "waits at the cluster barrier without having arrived (barrier.cluster.arrive)",
        ),
        (
            neighbour("barrier.cluster.arrive.aligned; barrier.cluster.arrive.aligned;", ""),
            "arrives at the cluster barrier twice: barrier.cluster.wait must come between",
        ),
    ],
)
def test_misused_cluster_barriers(text: str, sentence: str) -> None:
    report = run(text, [np.zeros((4, 32), np.uint32)], block=32, grid=4, cluster=2, check="collect")
    assert sentence in [fault.sentence for fault in report.faults if fault.kind == "barrier"]


def test_clusters_of_a_launch() -> None:
    text = neighbour(CLUSTER_SYNC, CLUSTER_SYNC)
    y = np.zeros((6, 32), np.uint32)
    message = r"^grid \(6, 1, 1\) is no multiple of cluster \(4, 1, 1\) in every dimension$"
    with pytest.raises(LaunchError, match=message):
        run(text, [y], block=32, grid=6, cluster=4)
    with pytest.raises(LaunchError, match=r"^cluster \(32, 1, 1\) has 32 CTAs, but a cluster has at most 16$"):
        run(text, [y], block=32, grid=32, cluster=32)
    with pytest.raises(
        LaunchError,
        match=r"^ctas names a part of a cluster: CTA \(3, 0, 0\), which runs together with others, is missing$",
    ):
        run(text, [y], block=32, grid=6, cluster=2, ctas=[2])
    run(text, [y], block=32, grid=6, cluster=2, ctas=[2, 3])
    assert (y[2:4, 0] == [3000, 2000]).all()
    assert not y[:2].any()
    assert not y[4:].any()
    required = text.replace("(.param .u64 y)", "(.param .u64 y) .reqnctapercluster 2, 1, 1")
    run(required, [y], block=32, grid=6)
    assert y[0, 0] == 1000
    with pytest.raises(LaunchError, match=r"^k requires cluster \(2, 1, 1\) \(.reqnctapercluster\), not \(3, 1, 1\)$"):
        run(required, [y], block=32, grid=6, cluster=3)


COPIES = """
.visible .entry k(.param .u64 x, .param .u64 y)
{
    .reg .pred %p; .reg .b32 %r<12>; .reg .b64 %rd<6>;
    .shared .align 8 .b64 bar; .shared .align 16 .b32 slot[64];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    shl.b32 %r2, %r1, 2;
    mov.u32 %r3, slot;
    add.u32 %r3, %r3, %r2;
    cvt.u64.u32 %rd3, %r2;
    add.u64 %rd4, %rd1, %rd3;
    setp.ne.u32 %p, %r1, 0;
    @%p bra READY;
    mbarrier.init.shared.b64 [bar], 64;
READY:
    bar.sync 0;
    cp.async.ca.shared.global [%r3], [%rd4], 4;
    ARRIVE
    mov.u32 %r5, 0;
WAIT:
    mbarrier.test_wait.parity.shared.b64 %p, [bar], %r5;
    @!%p bra WAIT;
    xor.b32 %r6, %r2, 128;
    mov.u32 %r7, slot;
    add.u32 %r7, %r7, %r6;
    ld.shared.u32 %r8, [%r7];
    add.u64 %rd5, %rd2, %rd3;
    st.global.u32 [%rd5], %r8;
    ret;
}
"""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "arrive",
    [
        "cp.async.mbarrier.arrive.noinc.shared.b64 [bar];",
        "cp.async.mbarrier.arrive.shared.b64 [bar]; mbarrier.arrive.shared.b64 _, [bar];",
    ],
)
def test_copies_that_arrive_at_a_barrier(order: str, arrive: str) -> None:
    x, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    report = run(COPIES.replace("ARRIVE", arrive), [x, y], order=order, seed=5)
    assert (y == np.roll(x, 32)).all()
    assert report.faults == ()


def test_a_plain_arrival_does_not_wait_for_copies() -> None:
    x, y = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    caught = fault(COPIES.replace("ARRIVE", "mbarrier.arrive.shared.b64 _, [bar];"), [x, y])
    assert caught.kind == "race"
    assert caught.sentence == (
        "reads 4 bytes at shared address 0x580 into which the cp.async on line 23 by warp 1 may still be copying: that "
        "warp must wait (cp.async.wait_group or wait_all) for it, and then all must pass bar.sync"
    )
