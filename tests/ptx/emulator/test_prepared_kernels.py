"""A kernel that is prepared once gives in each of many launches what it gives when its text is read afresh."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator import Caches, EmulationFault, LaunchError, PreparedKernel, Report, emulate, prepare

# Uses all that differs between launches: parameters (narrow and signed ones too), sizes of block and grid, dynamic
# shared memory beside static, a variable of the module whose address depends on the buffers, the grid's workspace, a
# guard, a barrier with a result, and a register that some threads leave uninitialised.
PTX = """
.version 8.0
.target sm_90
.address_size 64
.global .align 4 .u32 total = 7;
.extern .shared .align 16 .b8 dynamic[];
.visible .entry k(.param .u64 out, .param .s16 shift, .param .u32 n, .param .f32 scale)
{
    .reg .pred %p<6>; .reg .b16 %h<4>; .reg .b32 %r<40>; .reg .f32 %f<8>; .reg .b64 %rd<12>;
    .shared .align 4 .b8 static[64];
    ld.param.u64 %rd1, [out];
    ld.param.s16 %r1, [shift];
    ld.param.u32 %r2, [n];
    ld.param.f32 %f1, [scale];
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %ntid.x;
    mov.u32 %r5, %ctaid.x;
    mov.u32 %r6, %nctaid.x;
    mov.u32 %r7, %dynamic_smem_size;
    mov.u32 %r8, %total_smem_size;
    mov.u32 %r9, %envreg2;
    setp.lt.u32 %p1, %r3, 3;
    @%p1 mov.u32 %r10, 5;
    setp.eq.u32 %p2, %r3, 2;
    bar.red.popc.u32 %r11, 0, %p2;
    mov.u32 %r12, static;
    mov.u32 %r13, dynamic;
    sub.u32 %r14, %r13, %r12;
    mov.u64 %rd2, total;
    ld.global.u32 %r15, [%rd2];
    mad.lo.u32 %r16, %r5, %r4, %r3;
    setp.ge.u32 %p3, %r16, %r2;
    @%p3 bra DONE;
    cvt.rn.f32.u32 %f2, %r16;
    mul.f32 %f3, %f2, %f1;
    cvt.rzi.s32.f32 %r17, %f3;
    add.s32 %r18, %r17, %r1;
    add.u32 %r18, %r18, %r6;
    add.u32 %r18, %r18, %r7;
    add.u32 %r18, %r18, %r8;
    and.b32 %r9, %r9, 1;
    add.u32 %r18, %r18, %r9;
    add.u32 %r18, %r18, %r11;
    add.u32 %r18, %r18, %r14;
    add.u32 %r18, %r18, %r15;
    @%p1 add.u32 %r18, %r18, %r10;
    mul.wide.u32 %rd3, %r16, 4;
    add.u64 %rd4, %rd1, %rd3;
    st.global.u32 [%rd4], %r18;
DONE:
    ret;
}
"""


@dataclass(frozen=True)
class Launch:
    """One launch; `spare` elements fewer than `n` make it write out of bounds."""

    grid: int
    block: int
    dynamic: int
    shift: int
    spare: int
    scale: float
    check: Any
    cached: bool

    def run(self, kernel: str | PreparedKernel) -> tuple[Report | str, list[int]]:
        n = self.grid * self.block - 1
        out = np.zeros(max(n - self.spare, 1), np.uint32)
        caches = Caches(l1_bytes=4096, l2_bytes=65536, sms=4, ctas_per_sm=1) if self.cached else None
        try:
            found: Report | str = emulate(
                kernel, grid=self.grid, block=self.block, dynamic_smem=self.dynamic, caches=caches, check=self.check,
                args=[out, np.int16(self.shift), n, np.float32(self.scale)],
            )  # fmt: skip
        except EmulationFault as fault:
            found = str(fault)
        return found, out.tolist()


LAUNCHES = st.builds(
    Launch, grid=st.integers(1, 4), block=st.sampled_from((16, 32, 48, 96)), dynamic=st.sampled_from((0, 16, 1024)),
    shift=st.integers(-300, 300), spare=st.sampled_from((0, 0, 5)), scale=st.sampled_from((1.0, -0.5, 3.25)),
    check=st.sampled_from((True, "collect", False)), cached=st.booleans(),
)  # fmt: skip


@settings(max_examples=25, deadline=None)
@given(st.lists(LAUNCHES, min_size=2, max_size=5))
def test_a_prepared_kernel_does_what_its_text_does(launches: list[Launch]) -> None:
    kernel = prepare(PTX)
    for launch in launches:
        assert launch.run(kernel) == launch.run(PTX)


def test_a_kernel_is_compiled_once_for_all_launches_that_place_its_variables_alike() -> None:
    kernel = prepare(PTX)
    Launch(2, 32, 16, 1, 0, 1.0, True, False).run(kernel)
    first = kernel._program
    Launch(3, 96, 16, -9, 5, 2.0, True, False).run(kernel)
    assert kernel._program is first
    Launch(3, 96, 64, -9, 0, 2.0, True, False).run(kernel)
    assert kernel._program is not first


def test_a_prepared_kernel_keeps_its_name() -> None:
    with pytest.raises(LaunchError, match=r"^this kernel was prepared as k, not as 'other'$"):
        emulate(prepare(PTX), entry="other", grid=1, block=32, args=[])
    with pytest.raises(LaunchError, match=r"^this PTX has no entry 'other'; it has k$"):
        prepare(PTX, "other")
