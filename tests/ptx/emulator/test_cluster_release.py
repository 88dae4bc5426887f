"""Giving a slot back to another CTA: which arrival suffices for which reader, and that no other does.

A pair of CTAs fills the slots of both by multicast. Each slot is read by threads, by the asynchronous proxy (a bulk
store), or by both, and is given back by one form of arrival. Published kernels whose readers are asynchronous arrive
without a scope; the emulator allows that to them and to nobody else.
"""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from seeded_pipelines import PAIR, REMOTE_RELEASE, ROUNDS

from tinygpu.ptx.emulator import emulate

THREADS = "    ld.shared.f32 %f2, [%r13];\n"
MATRICES = (
    "    and.b32 %r21, %r1, 7; shr.u32 %r20, %r1, 5; shl.b32 %r20, %r20, 7;\n"
    "    shl.b32 %r21, %r21, 4; add.u32 %r20, %r20, %r21; add.u32 %r20, %r20, %r10;\n"
    "    ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r22}, [%r20];\n    mov.b32 %f2, %r22;\n"
)
WAIT_READ = "    @!%p cp.async.bulk.wait_group.read 0;\n"
BULK = (
    "    @!%p cp.async.bulk.global.shared::cta.bulk_group [%rd5], [%r10], 256;\n"
    "    @!%p cp.async.bulk.commit_group;\n" + WAIT_READ + "    add.u64 %rd5, %rd5, 256;\n    bar.sync 0;\n"
)
READERS = {
    "ld.shared": THREADS,
    "ldmatrix": MATRICES,
    "bulk store": BULK + "    mov.f32 %f2, 0f00000000;\n",
    "bulk store and ld.shared": BULK + THREADS,
}
# What another CTA learns from an arrival. "all": every access before it; "asynchronous": that asynchronous ones have
# completed; "nothing".
ARRIVALS = {
    "mbarrier.arrive.release.cluster.shared::cluster.b64": "all",
    "mbarrier.arrive.release.gpu.shared::cluster.b64": "all",
    "fence.acq_rel.cluster; mbarrier.arrive.shared::cluster.b64": "all",
    "fence.acq_rel.cluster; mbarrier.arrive.relaxed.cluster.shared::cluster.b64": "all",
    "mbarrier.arrive.shared::cluster.b64": "asynchronous",
    "mbarrier.arrive.release.cta.shared::cluster.b64": "asynchronous",
    "mbarrier.arrive.relaxed.cluster.shared::cluster.b64": "nothing",
    "mbarrier.arrive.relaxed.cta.shared::cluster.b64": "nothing",
}
ORDERS = ("late", "early", "random")


def handed_over(reader: str, arrival: str, order: str = "late", narrow: bool = False) -> tuple[str, ...]:
    """Kinds of faults of the pair with this reader and arrival; what it computes is checked where there are none.

    narrow  who waits for the arrival does so with CTA scope
    """
    text = PAIR.replace(THREADS, reader)
    text = text.replace(REMOTE_RELEASE, f"    {arrival} _, [%r14];\n")
    text = text.replace("    ld.param.u64 %rd2, [y];\n", "    ld.param.u64 %rd2, [y]; ld.param.u64 %rd5, [z];\n")
    text = text.replace("    ld.param.u64 %rd1, [x];\n", "    ld.param.u64 %rd1, [x];\n    .reg .b64 %own;\n")
    text = text.replace("k(.param .u64 x, .param .u64 y)", "k(.param .u64 x, .param .u64 y, .param .u64 z)")
    text = text.replace(
        "    mov.u16 %h, 3;\n",
        f"    mul.wide.u32 %own, %r2, {ROUNDS * 256};\n    add.u64 %rd5, %rd5, %own;\n    mov.u16 %h, 3;\n",
    )
    assert reader in text
    assert arrival in text
    if narrow:
        assert ".acquire.cluster" in text
        text = text.replace(".acquire.cluster", "")
    x = np.arange(ROUNDS * 64, dtype=np.float32)
    y, z = np.zeros(128, np.float32), np.zeros((2, ROUNDS * 64), np.float32)
    report = emulate(text, grid=2, block=64, cluster=2, args=[x, y, z], check="collect", order=order, seed=3)
    if not report.faults:
        if THREADS in reader or MATRICES in reader:
            assert (y == np.tile(x.reshape(ROUNDS, 64).sum(axis=0), 2)).all()
        if BULK in reader:
            assert (z == x).all()
    return tuple(sorted({fault.kind for fault in report.faults}))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("reader", "arrival"), list(itertools.product(READERS, ARRIVALS)))
def test_an_arrival_in_another_cta_gives_back_what_its_scope_reaches(reader: str, arrival: str, order: str) -> None:
    by_threads = reader != "bulk store"
    right = ARRIVALS[arrival] == "all" or (ARRIVALS[arrival] == "asynchronous" and not by_threads)
    assert handed_over(READERS[reader], arrival, order) == (() if right else ("race",))


@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize("reader", ["bulk store", "ld.shared"])
def test_a_wait_of_cta_scope_learns_of_another_cta_that_asynchronous_accesses_have_completed(
    reader: str, arrival: str
) -> None:
    """Published producers wait so for slots that other CTAs give back, which TMA fills again."""
    right = reader == "bulk store" and "relaxed" not in arrival
    assert handed_over(READERS[reader], arrival, narrow=True) == (() if right else ("race",))


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_no_arrival_gives_back_what_is_still_being_read(arrival: str) -> None:
    reader = READERS["bulk store"]
    assert handed_over(reader.replace(WAIT_READ, ""), arrival) == ("race",)


def test_the_own_cta_needs_no_scope() -> None:
    """An arrival at a barrier of the same CTA, by an address of the cluster, releases everything."""
    text = PAIR.replace("    mbarrier.arrive.shared::cta.b64 _, [%r9];\n", "").replace(
        REMOTE_RELEASE,
        f"{REMOTE_RELEASE}    mapa.shared::cluster.u32 %r14, %r9, %r2;\n"
        "    mbarrier.arrive.shared::cluster.b64 _, [%r14];\n",
    )
    x, y = np.arange(ROUNDS * 64, dtype=np.float32), np.zeros(128, np.float32)
    report = emulate(text, grid=2, block=64, cluster=2, args=[x, y])
    assert (y == np.tile(x.reshape(ROUNDS, 64).sum(axis=0), 2)).all()
    assert report.advisories == ()


def test_data_are_not_released_to_another_cta_without_its_scope() -> None:
    """What TMA brought to one CTA may be read from another one only behind a release at cluster scope."""
    want = {"all": (), "asynchronous": ("race",), "nothing": ("race",)}
    for arrival, tells in ARRIVALS.items():
        assert _brought_and_read(arrival) == want[tells], arrival


BROUGHT = (
    PAIR.split("READY:")[0]
    + """READY:
    barrier.cluster.arrive.aligned;
    barrier.cluster.wait.aligned;
    @%p bra OTHERS;
    setp.eq.u32 %q, %r2, 1;
    @%q bra READER;
    mov.u32 %r8, full;
    mov.u32 %r10, slot;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r8], 128;
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r10], [%rd1], 128, [%r8];
WAIT_FULL:
    mbarrier.try_wait.parity.shared::cta.b64 %q, [%r8], 0;
    @!%q bra WAIT_FULL;
    mov.u32 %r9, empty;
    mapa.shared::cluster.u32 %r14, %r9, 1;
    ARRIVAL _, [%r14];
    bra OTHERS;
READER:
    mov.u32 %r9, empty;
WAIT_EMPTY:
    mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q, [%r9], 0;
    @!%q bra WAIT_EMPTY;
    mov.u32 %r10, slot;
    mapa.shared::cluster.u32 %r11, %r10, 0;
    ld.shared::cluster.f32 %f1, [%r11];
    st.global.f32 [%rd2], %f1;
OTHERS:
    barrier.cluster.arrive;
    barrier.cluster.wait;
    ret;
}
"""
).replace("[empty], 128;", "[empty], 1;")


def _brought_and_read(arrival: str) -> tuple[str, ...]:
    x, y = np.full(64, 7, np.float32), np.zeros(128, np.float32)
    text = BROUGHT.replace("ARRIVAL", arrival)
    report = emulate(text, grid=2, block=64, cluster=2, args=[x, y], check="collect")
    assert report.faults or y[0] == 7
    return tuple(sorted({fault.kind for fault in report.faults}))
