"""The emulator finds a race in PTX that somebody wrote by hand, and the barrier that mends it.

    python docs/examples/missing_barrier.py
"""

import numpy as np

from tinygpu.ptx.emulator import EmulationFault, emulate

REVERSE = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry reverse(.param .u64 x)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<3>;
    .shared .align 4 .b8 tile[512];
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    ld.global.f32 %f1, [%rd3];
    mov.u32 %r2, tile;
    shl.b32 %r3, %r1, 2;
    add.u32 %r4, %r2, %r3;
    st.shared.f32 [%r4], %f1;
    BARRIER
    sub.u32 %r5, 508, %r3;
    add.u32 %r6, %r2, %r5;
    ld.shared.f32 %f2, [%r6];
    st.global.f32 [%rd3], %f2;
    ret;
}
"""


def reverse(barrier: str) -> np.ndarray:
    """128 numbers, turned around by one CTA."""
    x = np.arange(128, dtype=np.float32)
    emulate(REVERSE.replace("BARRIER", barrier), grid=1, block=128, args=[x])
    return x


if __name__ == "__main__":
    try:
        reverse(barrier="")
    except EmulationFault as fault:
        print(fault)
    assert (reverse(barrier="bar.sync 0;") == np.arange(128)[::-1]).all()
    print("with bar.sync 0: right")
