"""Order between the lanes of a warp, and behind flags: what is missing is told, its twin is not."""

from __future__ import annotations

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import Report, emulate

PARAMETERS = (".param .u64 x", ".param .u64 y")
BEGIN = """
.reg .b32 %r<12>; .reg .b64 %d<6>; .reg .pred %p<4>;
ld.param.u64 %d0, [x]; ld.param.u64 %d1, [y];
mov.u32 %r0, %tid.x; mul.wide.u32 %d2, %r0, 4; add.u64 %d0, %d0, %d2; add.u64 %d1, %d1, %d2;
shl.b32 %r1, %r0, 2; mov.u32 %r2, data; mov.u32 %r3, flag;
"""
SHARED = ".shared .align 4 .b32 data[64]; .shared .align 4 .b32 flag;"


def run(body: str, threads: int) -> tuple[Report, np.ndarray]:
    x, y = np.arange(threads, dtype=np.int32), np.zeros(threads, np.int32)
    report = emulate(
        module(BEGIN + body + "ret;", PARAMETERS, head=SHARED), grid=1, block=threads, args=[x, y], check="collect"
    )
    assert report.faults == ()
    return report, y


ROTATE = """
add.u32 %r4, %r2, %r1;
ld.global.u32 %r5, [%d0]; st.shared.u32 [%r4], %r5;
{0}
add.u32 %r6, %r0, 1; and.b32 %r6, %r6, 31; shl.b32 %r6, %r6, 2; add.u32 %r6, %r6, %r2;
ld.shared.u32 %r7, [%r6]; shl.b32 %r7, %r7, 1;
{1}
st.shared.u32 [%r4], %r7;
{2}
xor.b32 %r8, %r1, 124; add.u32 %r8, %r8, %r2; ld.shared.u32 %r9, [%r8]; st.global.u32 [%d1], %r9;
"""
MEET = "bar.warp.sync 0xffffffff;"


@pytest.mark.parametrize("lost", [None, 0, 1, 2])
def test_lanes_that_exchange_meet_before_each_read_and_before_each_overwriting(lost: int | None) -> None:
    report, y = run(ROTATE.format(*("" if n == lost else MEET for n in range(3))), 32)
    np.testing.assert_array_equal(y, (np.roll(np.arange(32), -1) * 2)[::-1])
    want = set() if lost is None else {"warp exchange without bar.warp.sync"}
    assert {advisory.rule for advisory in report.advisories} == want
    if lost == 1:
        assert [advisory.sentence for advisory in report.advisories] == [
            "a lane overwrites what another lane of its warp read, without bar.warp.sync between the two"
        ]


def test_a_lane_may_overwrite_what_it_read_itself() -> None:
    body = ROTATE.format(MEET, MEET, MEET).replace("add.u32 %r6, %r0, 1;", "mov.u32 %r6, %r0;").replace(MEET, "", 1)
    report, _ = run(body.replace(MEET, "", 1), 32)
    assert report.advisories == ()


FLAG = """
setp.ne.u32 %p0, %r0, 0; @!%p0 st.shared.u32 [%r3], 0;
bar.sync 0;
setp.ge.u32 %p1, %r0, 32; @%p1 bra CONSUMER;
add.u32 %r4, %r2, %r1; ld.global.u32 %r5, [%d0]; st.shared.u32 [%r4], %r5;
{meet}
{release}
@!%p0 st.relaxed.cta.shared.u32 [%r3], 1;
bra END;
CONSUMER:
{poll}.u32 %r6, [%r3]; setp.eq.u32 %p2, %r6, 0; @%p2 bra CONSUMER;
{acquire}
xor.b32 %r7, %r1, 124; add.u32 %r7, %r7, %r2; ld.shared.u32 %r8, [%r7+-128]; st.global.u32 [%d1], %r8;
END:
"""
FENCE = "fence.acq_rel.cta;"


@pytest.mark.parametrize(
    ("meet", "poll", "acquire", "rules"),
    [
        (MEET, "ld.relaxed.cta.shared", FENCE, set()),
        (MEET, "ld.acquire.cta.shared", "", set()),
        (MEET, "ld.relaxed.cta.shared", "", {"acquire without a fence"}),
        ("", "ld.relaxed.cta.shared", FENCE, {"release for other lanes without bar.warp.sync"}),
        ("", "ld.acquire.cta.shared", "", {"release for other lanes without bar.warp.sync"}),
    ],
)
def test_a_flag_says_what_its_lane_did_to_who_acquires_it(meet: str, poll: str, acquire: str, rules: set[str]) -> None:
    report, y = run(FLAG.format(meet=meet, release=FENCE, poll=poll, acquire=acquire), 64)
    np.testing.assert_array_equal(y[32:], np.arange(32)[::-1])
    assert {advisory.rule for advisory in report.advisories} == rules


def test_strong_accesses_of_one_word_need_no_fence() -> None:
    """Counting and polling one word by relaxed accesses: what the flag says is never relied on."""
    body = """
    setp.ne.u32 %p0, %r0, 0; @!%p0 st.shared.u32 [%r3], 0;
    bar.sync 0;
    and.b32 %r4, %r0, 31; setp.ne.u32 %p1, %r4, 0;
    fence.acq_rel.cta;
    @!%p1 atom.relaxed.cta.shared.add.u32 %r5, [%r3], 1;
    AGAIN:
    ld.relaxed.cta.shared.u32 %r6, [%r3]; setp.ne.u32 %p2, %r6, 2; @%p2 bra AGAIN;
    @!%p1 atom.relaxed.cta.shared.max.u32 %r5, [%r3], 2;
    st.global.u32 [%d1], %r6;
    """
    report, y = run(body, 64)
    assert (y == 2).all()
    assert report.advisories == ()
