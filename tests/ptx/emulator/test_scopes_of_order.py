"""Fences and accesses of CTA scope order nothing between CTAs, and proxy fences only the memory that they name."""

from __future__ import annotations

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import emulate

# CTA 0 (or warp 0) writes a word and raises a flag; CTA 1 (or warp 1) waits for the flag and reads the word.
MESSAGE = """
.reg .pred %p, %q; .reg .b32 %r<8>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; shr.u32 %r3, %r1, 5; add.u32 %r2, %r2, %r3;
and.b32 %r1, %r1, 31; setp.ne.u32 %p, %r1, 0; setp.ne.u32 %q, %r2, 0;
@%p ret;
@%q bra WAITS;
st.global.u32 [%rd1], 7;
{release}
{raise}.global.u32 [%rd1+4], 1;
ret;
WAITS:
{look}.global.u32 %r4, [%rd1+4]; setp.eq.u32 %q, %r4, 0; @%q bra WAITS;
{acquire}
ld.global.u32 %r5, [%rd1]; st.global.u32 [%rd1+8], %r5;
ret;
"""
FENCES = ("fence.acq_rel.gpu;", "fence.acq_rel.cta;", "fence.sc.sys;", "membar.cta;", "")
WAYS = [
    *((f, "st.relaxed.gpu", "ld.relaxed.gpu", g) for f in FENCES for g in FENCES),
    *(("", f"st.release.{a}", f"ld.acquire.{b}", "") for a in ("cta", "gpu") for b in ("cta", "gpu")),
]


def found(way: tuple[str, str, str, str], ctas: int) -> set[str]:
    """The faults and advisories, by kind and rule."""
    release, raise_, look, acquire = way
    text = MESSAGE.replace("{release}", release).replace("{raise}", raise_).replace("{look}", look)
    report = emulate(
        module(text.replace("{acquire}", acquire), [".param .u64 y"]), grid=ctas, block=64 // ctas,
        args=[np.zeros(4, np.uint32)], check="collect",
    )  # fmt: skip
    return {fault.kind for fault in report.faults} | {advisory.rule for advisory in report.advisories}


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_a_message_needs_both_fences_and_their_scope_has_to_reach(way: tuple[str, str, str, str]) -> None:
    release, raise_, look, acquire = way
    released, acquired = release or "release" in raise_, acquire or "acquire" in look
    near = found(way, 1)
    assert near == (set() if acquired else {"acquire without a fence"}) if released else "race" in near
    abroad = found(way, 2)
    assert bool(abroad) is not (bool(released and acquired) and not any(".cta" in part for part in way))
    # What nobody releases to other CTAs they have not learned; what they have not acquired for good they are told of.
    assert ("race" in abroad) is (not released or any(".cta" in part for part in way[:3]))


# Thread 0 writes a word through the generic proxy; after a fence a bulk copy of its own reads it.
PROXIES = """
.reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<4>; .shared .align 128 .b8 s[16]; .shared .align 8 .b8 bar[8];
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; setp.ne.u32 %p, %r1, 0; mov.u32 %r3, s;
@%p ret;
mbarrier.init.shared::cta.b64 [bar], 1;
st.shared.u32 [%r3], 7; st.shared.u32 [%r3+4], 7; st.shared.u32 [%r3+8], 7; st.shared.u32 [%r3+12], 7;
{fence}
{copy}
ret;
"""
LOAD = """st.global.u32 [%rd1], 7;
{fence}
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 16, [bar];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], 0; @!%p bra WAIT;"""
STORE = """cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 16;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;"""


@pytest.mark.parametrize(("copy", "memory"), [(LOAD, "global"), (STORE, "shared::cta")])
@pytest.mark.parametrize("fence", ["", *(f"fence.proxy.async{where};" for where in ("", ".global", ".shared::cta"))])
def test_a_proxy_fence_is_for_the_memory_that_it_names(copy: str, memory: str, fence: str) -> None:
    text = PROXIES.replace("{copy}", copy)
    if memory == "global":  # what is overwritten in shared memory is fenced in any case
        text = text.replace("{fence}", "fence.proxy.async.shared::cta;", 1)
    text = text.replace("{fence}", fence)
    report = emulate(module(text, [".param .u64 y"]), grid=1, block=32, args=[np.zeros(4, np.uint32)], check="collect")
    reaches = fence == "fence.proxy.async;" or memory in fence
    assert [fault.kind for fault in report.faults] == ["race"] * (not reaches)


# CTA 0 stores a word through the asynchronous proxy (or the generic one) and tells CTA 1, which loads it in bulk.
HANDED_ON = """
.reg .pred %p, %q; .reg .b32 %r<8>; .reg .b64 %rd<4>; .shared .align 128 .b8 s[16]; .shared .align 8 .b8 bar[8];
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; setp.ne.u32 %p, %r1, 0; mov.u32 %r3, s;
setp.ne.u32 %q, %r2, 0;
@%p ret;
@%q bra LOADS;
st.shared.u32 [%r3], 7; st.shared.u32 [%r3+4], 7; st.shared.u32 [%r3+8], 7; st.shared.u32 [%r3+12], 7;
fence.proxy.async.shared::cta;
{store}
st.release.gpu.global.u32 [%rd1+16], 1;
ret;
LOADS:
mbarrier.init.shared::cta.b64 [bar], 1;
AGAIN: ld.acquire.gpu.global.u32 %r4, [%rd1+16]; setp.eq.u32 %q, %r4, 0; @%q bra AGAIN;
{fence}
mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 16, [bar];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [bar], 0; @!%p bra WAIT;
ret;
"""
GENERIC = "st.global.v4.u32 [%rd1], {%r1, %r1, %r1, %r1};"
FENCE = "fence.proxy.async.global;"


@pytest.mark.parametrize(
    ("store", "fence", "right"),
    [(STORE, "", True), (GENERIC, "", False), (GENERIC + FENCE, "", True), (GENERIC, FENCE, True),
     (FENCE + GENERIC, "", False)],
)  # fmt: skip
def test_writer_or_reader_fences_what_threads_wrote(store: str, fence: str, right: bool) -> None:
    text = HANDED_ON.replace("{store}", store).replace("{fence}", fence)
    args = [np.zeros(8, np.uint32)]
    report = emulate(module(text, [".param .u64 y"]), grid=2, block=32, args=args, check="collect")
    assert [fault.kind for fault in report.faults] == ["race"] * (not right)


def test_who_has_not_fenced_is_named() -> None:
    """Warp 1 writes, warp 0 copies behind a barrier."""
    text = PROXIES.replace("{copy}", STORE).replace("{fence}", "").replace("@%p\n", "")
    text = text.replace("setp.ne.u32 %p, %r1, 0;", "setp.ne.u32 %p, %r1, 32;").replace("@%p ret;", "@%p bra WRITTEN;")
    meet = "WRITTEN: bar.sync 0; setp.ne.u32 %p, %r1, 0; @%p ret;\n"
    text = text.replace("cp.async.bulk.global", meet + "cp.async.bulk.global", 1)
    args = [np.zeros(4, np.uint32)]
    report = emulate(module(text, [".param .u64 y"]), grid=1, block=64, args=args, check="collect")
    (fault,) = report.faults
    assert fault.sentence == (
        "reads through the asynchronous proxy 16 bytes at shared address 0x400 that warp 1 wrote through the generic "
        "proxy on line 12, without fence.proxy.async between the two: the writing threads must execute "
        "fence.proxy.async after their stores, before the barrier"
    )
