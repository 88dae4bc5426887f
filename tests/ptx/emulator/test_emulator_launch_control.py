"""clusterlaunchcontrol: CTAs that take over work of clusters that have not started."""

from __future__ import annotations

import numpy as np
import pytest

from tinygpu.ptx.emulator import emulate

# Each CTA marks its own tile, then those of the clusters that it takes over until there are none left.
PERSISTENT = """
.version 8.6
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 y)
{
    .reg .pred %p, %q; .reg .b32 %r<12>; .reg .b64 %rd<6>; .reg .b128 %w;
    .shared .align 16 .b8 response[16]; .shared .align 8 .b64 bar;
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ctaid.x;
    mov.u32 %r4, 0;
    setp.ne.u32 %p, %r1, 0;
    @%p bra READY;
    mbarrier.init.shared.b64 [bar], 1;
READY:
    bar.sync 0;
NEXT:
    @%p bra WAIT;
    mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 16;
    clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [response], [bar];
    mul.wide.u32 %rd2, %r2, 4;
    add.u64 %rd3, %rd1, %rd2;
    add.u32 %r5, %r3, 100;
    st.global.u32 [%rd3], %r5;
WAIT:
    mbarrier.try_wait.parity.shared.b64 %q, [bar], %r4;
    @!%q bra WAIT;
    xor.b32 %r4, %r4, 1;
    ld.shared.v2.b64 {%rd4, %rd5}, [response];
    mov.b128 %w, {%rd4, %rd5};
    clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 %q, %w;
    @!%q bra END;
    clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%r2, %r6, %r7, _}, %w;
    fence.proxy.async.shared::cta;
    bar.sync 0;
    bra NEXT;
END:
    ret;
}
"""


def test_what_was_not_taken_over_starts_by_itself() -> None:
    """A request may fail although clusters are left: they are run all the same."""
    started = set()
    for seed in range(8):
        y = np.zeros(7, np.uint32)
        report = emulate(PERSISTENT, grid=7, block=64, args=[y], order="spurious", seed=seed)
        assert ((y >= 100) & (y <= 100 + np.arange(7))).all()
        started.add(report.counters.ctas)
    assert max(started) > 2, "two are resident; more have started only where a request failed"


@pytest.mark.parametrize("order", ["late", "early"])
@pytest.mark.parametrize("grid", [1, 2, 7])
def test_every_tile_is_done_once(grid: int, order: str) -> None:
    y = np.zeros(grid, np.uint32)
    report = emulate(PERSISTENT, grid=grid, block=64, args=[y], order=order, seed=1)  # type: ignore[arg-type]
    assert report.faults == ()
    assert report.advisories == ()
    done_by = y.astype(int) - 100
    assert ((done_by >= 0) & (done_by <= np.arange(grid))).all()
    if grid > 2:
        assert report.counters.ctas < grid
        assert (done_by != np.arange(grid)).any()


def test_the_response_must_not_be_read_before_it_has_come() -> None:
    text = PERSISTENT.replace("mbarrier.try_wait.parity.shared.b64 %q, [bar], %r4;\n    @!%q bra WAIT;", "")
    report = emulate(text, grid=4, block=64, args=[np.zeros(4, np.uint32)], check="collect")
    assert "race" in [fault.kind for fault in report.faults]


def test_the_slot_must_not_be_asked_for_again_before_it_is_read() -> None:
    text = PERSISTENT.replace("fence.proxy.async.shared::cta;\n    bar.sync 0;", "")
    report = emulate(text, grid=4, block=64, args=[np.zeros(4, np.uint32)], check="collect")
    assert "race" in [fault.kind for fault in report.faults]


def test_after_a_no_nobody_asks_again() -> None:
    once_more = "@%q bra GO; add.u32 %r8, %r8, 1; setp.gt.u32 %q, %r8, 1; @%q bra END;\nGO:"
    text = PERSISTENT.replace("@!%q bra END;", once_more).replace("mov.u32 %r4, 0;", "mov.u32 %r4, 0; mov.u32 %r8, 0;")
    report = emulate(text, grid=4, block=64, args=[np.zeros(4, np.uint32)], check="collect")
    assert [(fault.kind, fault.sentence) for fault in report.faults if fault.kind == "cluster"] == [
        (
            "cluster",
            "asks for another cluster after a thread of the CTA has seen that there was none left: behind a no a CTA "
            "must not ask again; let it end, or go on only where query_cancel.is_canceled is true",
        )
    ]
