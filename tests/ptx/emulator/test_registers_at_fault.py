"""What a thread held at a fault is what it had computed until then, whichever warps go on with it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator import EmulationFault, emulate

WARPS = 6
# Warps of the mask compute, and threads from a limit on look where nothing is: all of it in one basic block.
TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry stops(.param .u32 mask, .param .u32 limit)
{
  .reg .b32 %r<12>;
  .reg .b64 %d<2>;
  .reg .pred %p<3>;
  ld.param.u32 %r0, [mask];
  ld.param.u32 %r1, [limit];
  mov.u32 %r2, %tid.x;
  shr.u32 %r3, %r2, 5;
  shr.u32 %r4, %r0, %r3;
  and.b32 %r4, %r4, 1;
  setp.eq.u32 %p0, %r4, 0;
  @%p0 bra END;
  mul.lo.u32 %r5, %r2, 3;
  add.u32 %r6, %r5, 7;
  cvt.u64.u32 %d0, %r6;
  setp.ge.u32 %p1, %r2, %r1;
  mov.u64 %d1, 16;
  @%p1 ld.global.u32 %r7, [%d1];
  add.u32 %r6, %r6, 1000;
END:
  ret;
}
"""


@settings(max_examples=40)
@given(st.integers(1, 2**WARPS - 1), st.integers(0, 32 * WARPS - 1))
@example(0b101101, 40)  # warps that do not lie at regular steps
def test_registers_are_those_at_the_fault(mask: int, limit: int) -> None:
    stopped = [t for t in range(32 * WARPS) if mask >> t // 32 & 1 and t >= limit]
    arguments = [np.uint32(mask), np.uint32(limit)]
    if not stopped:
        emulate(TEXT, grid=1, block=32 * WARPS, args=arguments)
        return
    with pytest.raises(EmulationFault) as caught:
        emulate(TEXT, grid=1, block=32 * WARPS, args=arguments)
    assert caught.value.thread is not None
    thread = caught.value.thread[0]
    assert thread in stopped
    held = {name: caught.value.registers[name] for name in ("%r0", "%r2", "%r5", "%r6", "%d0")}
    assert held == {"%r0": mask, "%r2": thread, "%r5": 3 * thread, "%r6": 3 * thread + 7, "%d0": 3 * thread + 7}
