"""Flags in shared memory that one warp raises and another waits for: with which accesses and fences that is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tinygpu.ptx.emulator import EmulationFault, emulate

HEAD = """
.version 8.0
.target sm_90
.address_size 64
"""


def run(text: str, y: Any, **more: Any) -> Any:
    return emulate(HEAD + text, grid=1, block=64, args=[y], **more)


def fault(text: str, y: Any, **more: Any) -> EmulationFault:
    with pytest.raises(EmulationFault) as caught:
        run(text, y, **more)
    return caught.value


# Warp 0 writes data and raises a flag in shared memory; warp 1 waits for the flag.
FLAG = """
.visible .entry k(.param .u64 y)
{
    .reg .pred %p; .reg .b32 %r<12>; .reg .b64 %rd<6>;
    .shared .align 4 .b32 flag; .shared .align 4 .b32 slot[32];
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 31;
    shl.b32 %r3, %r2, 2;
    mov.u32 %r4, slot;
    add.u32 %r4, %r4, %r3;
    st.shared.u32 [flag], 0;
    bar.sync 0;
    setp.ge.u32 %p, %r1, 32;
    @%p bra WAIT;
    st.shared.u32 [%r4], %r1;
    FENCE
    setp.ne.u32 %p, %r1, 0;
    bar.warp.sync -1;
    @%p ret;
    RAISE
    ret;
WAIT:
    LOOK
    setp.eq.u32 %p, %r5, 0;
    @%p bra WAIT;
    fence.acq_rel.cta;
    ld.shared.u32 %r6, [%r4];
    cvt.u64.u32 %rd2, %r3;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r6;
    ret;
}
"""


def flag(fence: str, raise_it: str, look: str) -> str:
    return FLAG.replace("FENCE", fence).replace("RAISE", raise_it).replace("LOOK", look)


@pytest.mark.parametrize(
    ("raise_it", "look"),
    [
        ("st.volatile.shared.u32 [flag], 1;", "ld.volatile.shared.u32 %r5, [flag];"),
        ("st.relaxed.cta.shared.u32 [flag], 1;", "ld.acquire.cta.shared.u32 %r5, [flag];"),
        ("atom.shared.exch.b32 %r7, [flag], 1;", "atom.shared.cas.b32 %r5, [flag], 7, 7;"),
    ],
)
def test_a_flag_in_shared_memory(raise_it: str, look: str) -> None:
    y = np.zeros(32, np.uint32)
    report = run(flag("membar.cta;", raise_it, look), y)
    assert (y == np.arange(32)).all()
    assert report.faults == ()
    assert fault(flag("", raise_it, look), y).kind == "race"


def test_a_plain_flag_in_shared_memory_is_a_race() -> None:
    text = flag("membar.cta;", "st.shared.u32 [flag], 1;", "ld.shared.u32 %r5, [flag];")
    assert fault(text, np.zeros(32, np.uint32), step_limit=10000).kind in ("race", "deadlock")
