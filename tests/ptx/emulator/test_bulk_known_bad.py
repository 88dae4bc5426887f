"""One kernel per mistake with bulk and tensor copies: each is caught, in every order, and its fixed twin is not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bulk_bugs import BUGS, EXITED, ORDERS, Bug, linear
from bulk_sentences import FOUND
from instruction_bench import module

from tinygpu.ptx.emulator import DeviceBuffer, EmulationFault, Report, emulate
from tinygpu.ptx.emulator.state.emulation import Order


def launch(text: str, args: list[Any], bug: Bug, order: Order) -> Report:
    options = dict(bug.options)
    hidden = [a for a in args[2:] if isinstance(a, DeviceBuffer)]
    shown = [a for a in args if not any(a is h for h in hidden)]
    grid, block = options.pop("grid", 1), options.pop("block", 64)
    return emulate(text, grid=grid, block=block, args=shown, order=order, buffers=hidden, **options)


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_each_mistake_is_caught_in_every_order(bug: Bug) -> None:
    for order in bug.orders:
        with pytest.raises(EmulationFault) as caught:
            launch(bug.broken(), (bug.bad_args or bug.args)(), bug, order)
        # Which of the two warps stopped first hangs on the order.
        sentence = caught.value.sentence.replace("warp 1 waits on line 23", "warp 0 waits on line 23")
        assert (caught.value.kind, sentence) in FOUND[bug.name]


def test_an_exit_while_a_bulk_store_reads_is_advised() -> None:
    """The manual wants the wait; hardware keeps the memory until it has been read, and published kernels rely on it."""
    wait = "    cp.async.bulk.wait_group.read 0;\n"
    assert wait in EXITED
    for order in ORDERS:
        arguments = linear()
        bug = Bug("exit", EXITED, (), linear)
        report = launch(EXITED.replace(wait, ""), arguments, bug, order)
        assert report.faults == ()
        assert [(a.rule, a.sentence) for a in report.advisories] == [(
            "exit while a bulk store reads",
            "this CTA exits, but the copy of line 31 may still read its shared memory: the issuing thread should "
            "execute cp.async.bulk.wait_group.read 0 (after commit_group) before it exits",
        )]  # fmt: skip


# CTA 1 stores, lets CTA 0 exit, and waits until its store has been read before it exits itself.
ONE_EXITS_FIRST = """
.shared .align 128 .b8 s[256];
.reg .pred %p, %q; .reg .b32 %r<8>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, s;
setp.ne.u32 %p, %r1, 0; @%p ret;
st.shared.u32 [%r3], %r1; st.shared.u32 [%r3+4], %r1; st.shared.u32 [%r3+8], %r1; st.shared.u32 [%r3+12], %r1;
setp.eq.u32 %q, %r2, 1; @%q bra STORES;
AGAIN: ld.acquire.gpu.global.u32 %r4, [%rd1+256]; setp.eq.u32 %q, %r4, 0; @%q bra AGAIN;
ret;
STORES:
fence.proxy.async.shared::cta;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 16;
cp.async.bulk.commit_group;
st.release.gpu.global.u32 [%rd1+256], 1;
mov.u32 %r5, 0;
LATER: add.u32 %r5, %r5, 1; setp.lt.u32 %q, %r5, 50; @%q bra LATER;
AGAIN2: ld.acquire.gpu.global.u32 %r4, [%rd1+256]; add.u32 %r5, %r5, 1; setp.lt.u32 %q, %r5, 900; @%q bra AGAIN2;
cp.async.bulk.wait_group.read 0;
ret;
"""


def test_who_exits_is_told_of_its_own_stores_only() -> None:
    text = module(ONE_EXITS_FIRST, [".param .u64 y"])
    report = emulate(text, grid=2, block=32, args=[np.zeros(128, np.uint32)])
    assert report.faults == ()
    assert report.advisories == ()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_each_fixed_twin_is_clean(bug: Bug) -> None:
    for order in ORDERS:
        report = launch(bug.text, bug.args(), bug, order)
        assert report.faults == ()
        assert report.advisories == ()


@pytest.mark.parametrize("bug", BUGS, ids=[bug.name for bug in BUGS])
def test_each_mistake_can_be_collected(bug: Bug) -> None:
    """A run that goes on after the first fault ends, and finds it too."""
    order: Order = bug.orders[0]
    collected = Bug(**{**{n: getattr(bug, n) for n in ("name", "text", "edits", "args", "bad_args", "orders")},
                       "options": {**bug.options, "check": "collect"}})  # fmt: skip
    report = launch(bug.broken(), (bug.bad_args or bug.args)(), collected, order)
    assert any((fault.kind, fault.sentence) in FOUND[bug.name] for fault in report.faults)
