"""An mbarrier is done away with, or initialised again, when nobody uses it any more, and no copy completes on it."""

from __future__ import annotations

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import ORDERS, Order, Report, emulate

# Warp 1 uses the mbarrier; then warp 0 does away with it.
BODY = """
.reg .pred %p, %q; .reg .b32 %r<8>; .reg .b64 %rd<4>; .reg .b64 %state;
.shared .align 128 .b8 slot[16]; .shared .align 8 .b64 bar; .shared .align 4 .b32 flag;
ld.param.u64 %rd1, [x]; mov.u32 %r1, %tid.x; mov.u32 %r3, slot; mov.u32 %r4, bar; mov.u32 %r5, flag;
setp.ne.u32 %p, %r1, 0; @%p bra READY;
mbarrier.init.shared.b64 [%r4], {count}; st.shared.u32 [%r5], 0;
READY:
bar.sync 0;
setp.lt.u32 %p, %r1, 32; @%p bra ENDS;
setp.ne.u32 %p, %r1, {lane};
@%p bra USED;
{use}
USED:
{release}
bra OVER;
ENDS:
{acquire}
setp.ne.u32 %p, %r1, 0; @%p bra OVER;
{end}
OVER:
ret;
"""
# By name: arrivals of a phase, and what is done.
USES = {
    "arrive": (2, "mbarrier.arrive.shared.b64 _, [%r4];"),
    "the last arrive": (1, "mbarrier.arrive.shared.b64 _, [%r4];"),
    "expect_tx": (1, "mbarrier.expect_tx.relaxed.cta.shared.b64 [%r4], 0;"),
    "test_wait": (1, "mbarrier.test_wait.parity.shared.b64 %q, [%r4], 1;"),
    "try_wait": (1, "mbarrier.try_wait.parity.shared.b64 %q, [%r4], 1;"),
}
ENDS = {"invalidates": "mbarrier.inval.shared.b64 [%r4];", "initialises": "mbarrier.init.shared.b64 [%r4], 1;"}
RAISE = "setp.ne.u32 %q, %r1, {0}; {1} @!%q st.relaxed.cta.shared.u32 [%r5], 1;"
LOOK = "AGAIN: ld.{0}.cta.shared.u32 %r6, [%r5]; setp.eq.u32 %q, %r6, 0; @%q bra AGAIN;"
FENCE = "@!%q fence.acq_rel.cta;"
# By name: what follows the use, what comes before the end, whether that orders the two.
WAYS = {
    "a barrier": ("bar.sync 1;", "bar.sync 1;", True),
    "a flag": (RAISE.format(33, FENCE), LOOK.format("acquire"), True),
    "a flag that releases nothing": (RAISE.format(33, ""), LOOK.format("acquire"), False),
}


def run(count: int, use: str, way: tuple[str, str], end: str, order: Order = "late", lane: int = 33) -> Report:
    text = BODY.replace("{count}", str(count)).replace("{use}", use).replace("{end}", end)
    text = text.replace("{release}", way[0]).replace("{acquire}", way[1]).replace("{lane}", str(lane))
    x = np.arange(4, dtype=np.uint32)
    return emulate(module(text, [".param .u64 x"]), grid=1, block=64, args=[x], order=order, check="collect")


@pytest.mark.parametrize("verb", ENDS)
@pytest.mark.parametrize("use", USES)
def test_the_last_use_is_ordered_before_the_end(use: str, verb: str) -> None:
    for number, (release, acquire, ordered) in enumerate(WAYS.values()):
        report = run(*USES[use], (release, acquire), ENDS[verb], ORDERS[number % len(ORDERS)])
        in_use = verb == "initialises" and use == "arrive"
        found = [fault.sentence for fault in report.faults if fault.kind == "race"]
        sentence = f"{verb} mbarrier 0x500, which warp 1 used on line 18, and nothing orders the two: put bar.sync "
        assert found == [sentence + "between the last use and this"] * (not ordered)
        assert [fault.kind for fault in report.faults if fault.kind != "race"] == ["mbarrier"] * in_use


@pytest.mark.parametrize("verb", ENDS)
def test_a_flag_of_another_lane_than_the_user_is_told(verb: str) -> None:
    for lane, meet in ((33, ""), (34, ""), (34, "bar.warp.sync 0xffffffff;")):
        way = (meet + RAISE.format(33, FENCE), LOOK.format("acquire"))
        report = run(*USES["test_wait"], way, ENDS[verb], lane=lane)
        assert report.faults == ()
        unmet = lane != 33 and not meet
        assert [a.rule for a in report.advisories] == ["release for other lanes without bar.warp.sync"] * unmet


COPY = """mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 16;
cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%r3], [%rd1], 16, [%r4];
"""
COMES = "COMES: mbarrier.try_wait.parity.shared::cta.b64 %q, [%r4], 0; @!%q bra COMES;"


@pytest.mark.parametrize("order", ORDERS)
def test_an_mbarrier_is_not_invalidated_while_a_copy_may_complete_on_it(order: Order) -> None:
    way = WAYS["a barrier"][:2]
    assert run(1, COPY + COMES, way, ENDS["invalidates"], order).faults == ()
    waits = ENDS["invalidates"] + "\n"
    found = [fault.sentence for fault in run(1, COPY, way, waits, order).faults if "invalidates" in fault.sentence]
    assert found == [
        "invalidates mbarrier 0x500 (initialised on line 12) while a copy may still complete on it: wait for its "
        "phase, and order the wait before this"
    ]
    assert run(1, COPY, way, COMES + "\n" + waits, order).faults == ()
    # Another warp has seen it come, which tells this one nothing.
    loose = WAYS["a flag that releases nothing"][:2]
    assert {fault.kind for fault in run(1, COPY + COMES, loose, waits, order).faults} == {"race", "mbarrier"}
