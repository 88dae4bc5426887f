"""Uninitialised predicates: what a known partner decides is known; what it leaves open is a fault when it branches."""

from __future__ import annotations

import numpy as np
import pytest

from tinygpu.ptx.emulator import EmulationFault, emulate

TEXT = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 y)
{
    .reg .pred %p<4>; .reg .b32 %r<6>; .reg .b64 %rd<2>;
    .shared .align 4 .b32 never[32];
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, %tid.x;
    ld.shared.s32 %r2, [never];
    setp.lt.s32 %p1, %r2, 5;
    setp.COMPARE.u32 %p2, %r1, 32;
    MIX
    @%p3 bra DONE;
    st.global.u32 [%rd1], 1;
DONE:
    ret;
}
"""
# How the unknown %p1 and the known %p2 are mixed, and the comparison that makes %p2 decide or leave open.
MIXES = [
    ("and.pred %p3, %p1, %p2;", "ge", "lt"),
    ("and.pred %p3, %p2, %p1;", "ge", "lt"),
    ("and.pred %p3, %p1, !%p2;", "lt", "ge"),
    ("or.pred %p3, %p1, %p2;", "lt", "ge"),
    ("or.pred %p3, !%p2, !%p1;", "ge", "lt"),
    ("setp.lt.and.s32 %p3, %r2, 5, %p2;", "ge", "lt"),
    ("setp.lt.or.s32 %p3, %r2, 5, %p2;", "lt", "ge"),
    ("setp.lt.and.s32 %p3|%p1, %r2, 5, !%p2;", "lt", "ge"),
]


@pytest.mark.parametrize(("mix", "decides", "leaves_open"), MIXES)
def test_a_known_partner_decides_what_an_unknown_predicate_gives(mix: str, decides: str, leaves_open: str) -> None:
    y = np.zeros(1, np.uint32)
    text = TEXT.replace("MIX", mix)
    assert emulate(text.replace("COMPARE", decides), grid=1, block=32, args=[y]).faults == ()
    with pytest.raises(EmulationFault) as caught:
        emulate(text.replace("COMPARE", leaves_open), grid=1, block=32, args=[y])
    assert caught.value.kind == "uninitialised"
    assert caught.value.sentence == (
        "%p3 decides a branch, but it holds a value that was never initialised: give it a value on every path to here"
    )
