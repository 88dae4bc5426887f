"""A race is reported at the first lane that conflicts: its thread, the bytes, and how many lanes do."""

from __future__ import annotations

import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import emulate

# Warp 0 stores one element at a place of its own choice; warp 1, after a flag that orders nothing, all of its elements.
BODY = """
.reg .pred %p, %q; .reg .b32 %r<10>; .reg .b64 %rd<6>; .reg .b16 %h; .shared .align 16 .b8 data[1024];
.shared .align 4 .b32 flag;
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; mov.u32 %r4, flag; mov.u32 %r6, data;
setp.ne.u32 %p, %r1, 0; @!%p st.shared.u32 [%r4], 0;
mul.lo.u32 %r3, %r2, {size}; add.u32 %r5, %r6, %r3; cvt.u64.u32 %rd2, %r3; add.u64 %rd3, %rd1, %rd2; mov.u32 %r7, 9;
cvt.u16.u32 %h, %r7;
bar.sync 0;
setp.ge.u32 %q, %r1, 32; @%q bra LATER;
setp.eq.u32 %p, %r2, {lane};
@%p {store}
bar.warp.sync 0xffffffff;
setp.ne.u32 %p, %r1, 0; @!%p st.relaxed.cta.shared.u32 [%r4], 1;
ret;
LATER:
ld.relaxed.cta.shared.u32 %r8, [%r4]; setp.eq.u32 %q, %r8, 0; @%q bra LATER;
mov.u32 %r7, 5; cvt.u16.u32 %h, %r7;
{store}
ret;
"""
STORES = {
    "global": ("[%rd3]", {1: "u8 {at}, %h", 4: "u32 {at}, %r7", 16: "v4.u32 {at}, {%r7, %r7, %r7, %r7}"}),
    "shared": ("[%r5]", {1: "u8 {at}, %h", 4: "u32 {at}, %r7", 16: "v4.u32 {at}, {%r7, %r7, %r7, %r7}"}),
}


@pytest.mark.parametrize("size", [1, 4, 16])
@pytest.mark.parametrize("space", STORES)
def test_a_race_is_reported_where_it_is(space: str, size: int) -> None:
    at, forms = STORES[space]
    store = f"st.{space}.{forms[size].replace('{at}', at)};"
    for lane in (0, 5, 31):
        text = BODY.replace("{size}", str(size)).replace("{lane}", str(lane)).replace("{store}", store)
        y = np.zeros(1024, np.uint8)
        report = emulate(module(text, [".param .u64 y"]), grid=1, block=64, args=[y], check="collect")
        (fault,) = report.faults
        assert (fault.kind, fault.thread, fault.count) == ("race", (32 + lane, 0, 0), 1)
        place = f"{size} bytes at byte {lane * size} of" if space == "global" else f"{size} bytes at shared address "
        assert fault.sentence.startswith(f"writes {place}")
        if space == "shared":
            assert fault.sentence.startswith(f"writes {place}{0x400 + lane * size:#x} ")
