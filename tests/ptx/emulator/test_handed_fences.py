"""Fences of threads beside those that write and read a flag: what CTAs tell each other behind barriers."""

from __future__ import annotations

import numpy as np
import pytest

from tinygpu.ptx.emulator import EmulationFault, Order, emulate

# CTA 1 writes a row, and one of its threads a flag; CTA 0 waits for it, and reads the row.
FLAGGED = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 out, .param .u64 flag)
{
    .reg .pred %p<4>; .reg .b64 %rd<8>; .reg .b32 %r<8>;
    ld.param.u64 %rd1, [data];
    ld.param.u64 %rd2, [out];
    ld.param.u64 %rd3, [flag];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mul.wide.u32 %rd4, %r1, 4;
    setp.eq.u32 %p1, %r2, 0;
    setp.ne.u32 %p2, %r1, 0;
    @%p1 bra READS;
    add.u64 %rd5, %rd1, %rd4;
    st.global.u32 [%rd5], %r1;
    <WRITER>
    bar.sync 0;
    @%p2 bra DONE;
    mov.u32 %r3, 1;
    st.volatile.global.u32 [%rd3], %r3;
    bra DONE;
READS:
    @%p2 bra SEEN;
POLL:
    ld.volatile.global.u32 %r4, [%rd3];
    setp.eq.u32 %p3, %r4, 0;
    @%p3 bra POLL;
    <ONE>
SEEN:
    bar.sync 0;
    <ALL>
    mov.u32 %r5, 63;
    sub.u32 %r5, %r5, %r1;
    mul.wide.u32 %rd6, %r5, 4;
    add.u64 %rd6, %rd1, %rd6;
    ld.global.u32 %r6, [%rd6];
    add.u64 %rd7, %rd2, %rd4;
    st.global.u32 [%rd7], %r6;
DONE:
    ret;
}
"""
ORDERS: tuple[Order, ...] = ("late", "early", "random", "spurious")


def run(order: Order, writer: str, one: str, everyone: str) -> list[str]:
    text = FLAGGED.replace("<WRITER>", writer).replace("<ONE>", one).replace("<ALL>", everyone)
    out = np.zeros(64, np.uint32)
    report = emulate(text, grid=2, block=64, args=[np.zeros(64, np.uint32), out, np.zeros(1, np.uint32)], order=order)
    assert out.tolist() == list(range(64))[::-1]
    return [a.rule for a in report.advisories]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fence", ["membar.gl;", "fence.sc.gpu;"])
@pytest.mark.parametrize("behind", ["", "membar.gl;"])
def test_fences_of_all_in_front_of_a_barrier_are_as_good_as_one_of_who_tells(
    order: Order, fence: str, behind: str
) -> None:
    """Whoever waits fences right behind that, or all do behind their barrier."""
    assert run(order, fence, "" if behind else fence, behind) == []


@pytest.mark.parametrize("writer", ["", "membar.cta;", "fence.acq_rel.gpu;"])
def test_weaker_fences_beside_who_tells_order_nothing(writer: str) -> None:
    """Those of CTA scope, and those that are not sequentially consistent."""
    with pytest.raises(EmulationFault) as told:
        run("late", writer, "membar.gl;", "")
    assert told.value.kind == "race"
    assert told.value.sentence.endswith(
        "and nothing orders the two: CTAs run in any order: use atomics, or give each CTA its own bytes"
    )


def test_a_fence_that_is_missing_behind_the_poll_is_told() -> None:
    assert run("late", "membar.gl;", "", "") == ["acquire without a fence"]


# Whoever counts last reads what all CTAs have written.
LAST = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 data, .param .u64 out, .param .u64 count)
{
    .reg .pred %p<4>; .reg .b64 %rd<8>; .reg .b32 %r<8>;
    .shared .align 4 .b8 last[4];
    ld.param.u64 %rd1, [data];
    ld.param.u64 %rd2, [out];
    ld.param.u64 %rd3, [count];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r3, %r2, 64, %r1;
    mul.wide.u32 %rd4, %r3, 4;
    add.u64 %rd5, %rd1, %rd4;
    st.global.u32 [%rd5], %r3;
    <WRITER>
    bar.sync 0;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra COUNTED;
    atom.global.add.u32 %r4, [%rd3], 1;
    st.shared.u32 [last], %r4;
COUNTED:
    bar.sync 0;
    ld.shared.u32 %r5, [last];
    setp.ne.u32 %p2, %r5, 3;
    @%p2 bra DONE;
    <ALL>
    xor.b32 %r6, %r1, 63;
    mul.wide.u32 %rd6, %r6, 4;
    add.u64 %rd6, %rd1, %rd6;
    ld.global.u32 %r4, [%rd6];
    ld.global.u32 %r7, [%rd6+768];
    add.u32 %r7, %r7, %r4;
    mul.wide.u32 %rd7, %r1, 4;
    add.u64 %rd7, %rd2, %rd7;
    st.global.u32 [%rd7], %r7;
DONE:
    ret;
}
"""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("fence", ["membar.gl;", ""])
def test_the_last_of_several_ctas_reads_what_all_have_fenced(order: Order, fence: str) -> None:
    """As reductions across CTAs do: whole CTAs come to a barrier together, and one thread of each counts."""
    out = np.zeros(64, np.uint32)
    text = LAST.replace("<WRITER>", fence).replace("<ALL>", "membar.gl;")
    given = [np.zeros(256, np.uint32), out, np.zeros(1, np.uint32)]
    if not fence:
        with pytest.raises(EmulationFault, match="nothing orders the two"):
            emulate(text, grid=4, block=64, args=given, order=order)
        return
    report = emulate(text, grid=4, block=64, args=given, order=order)
    assert [a.rule for a in report.advisories] == []
    assert out.tolist() == [2 * (63 - i) + 192 for i in range(64)]


def test_strong_stores_of_different_values_to_one_place_are_no_race() -> None:
    """One of them comes last; plain ones are lost, which nobody asks for."""
    head = FLAGGED[: FLAGGED.index("mul.wide")]
    for width, block in ((2, 1), (1, 64)):
        for store in ("st.relaxed.gpu.global", "st.release.gpu.global", "st.volatile.global"):
            flag = np.full(1, 99, np.uint32)
            text = head + f"add.u32 %r3, %r1, %r2;\n{store}.u32 [%rd3], %r3;\nret;\n}}"
            emulate(text, grid=width, block=block, args=[np.zeros(1, np.uint32), np.zeros(1, np.uint32), flag])
            assert flag[0] < 64
        plain = text.replace(store, "st.global")
        with pytest.raises(EmulationFault):
            emulate(plain, grid=width, block=block, args=[np.zeros(1, np.uint32), np.zeros(1, np.uint32), flag])
