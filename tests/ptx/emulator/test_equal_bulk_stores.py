"""Bulk stores of several warps to the same bytes: no conflict where both write the same, a race where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import emulate
from tinygpu.ptx.emulator.state.emulation import Order

# Each of two warps fills its own 64 bytes with its value, and stores them over the same 64 bytes of global memory.
BODY = """
.reg .b32 %r<9>; .reg .b64 %rd<4>; .reg .pred %p<3>;
.shared .align 128 .b8 s[128];
ld.param.u64 %rd1, [out]; ld.param.u32 %r1, [step];
mov.u32 %r2, %tid.x; shr.u32 %r3, %r2, 5; and.b32 %r4, %r2, 31; mov.u32 %r5, s; mad.lo.u32 %r5, %r3, 64, %r5;
mad.lo.u32 %r6, %r4, 4, %r5; mad.lo.u32 %r7, %r3, %r1, 7; setp.lt.u32 %p1, %r4, 16;
@%p1 st.shared.u32 [%r6], %r7;
fence.proxy.async.shared::cta;
bar.warp.sync -1;
setp.ne.u32 %p2, %r4, 0;
@%p2 bra DONE;
cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r5], 64;
cp.async.bulk.commit_group;
cp.async.bulk.wait_group 0;
DONE:
ret;
"""


@pytest.mark.parametrize("order", ["late", "early", "random"])
@pytest.mark.parametrize("step", [0, 1])
def test_equal_stores_do_not_conflict_and_others_race(order: Order, step: int) -> None:
    out = np.zeros(16, np.uint32)
    text = module(BODY, [".param .u64 out", ".param .u32 step"])
    for seed in range(4):
        report = emulate(text, grid=1, block=64, args=[out, step], order=order, check="collect", seed=seed)
        assert [f.kind for f in report.faults] == ["race"] * step
        if step == 0:
            assert (out == 7).all()
