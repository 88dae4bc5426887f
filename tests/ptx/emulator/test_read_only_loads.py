"""ld.global.nc, which reads what nobody writes while the kernel runs."""

from __future__ import annotations

import numpy as np
import pytest

from tinygpu.ptx.emulator import Order, emulate

TEXT = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 x, .param .u64 y)
{
    .reg .b64 %rd<6>; .reg .b32 %r<4>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    FIRST
    bar.sync 0;
    LOAD.u32 %r2, [%rd4];
    st.global.u32 [%rd5], %r2;
    LAST
    ret;
}
"""
WRITES = "st.global.u32 [%rd4], %r1;"


@pytest.mark.parametrize("order", ["late", "early", "random"])
@pytest.mark.parametrize(
    ("load", "first", "last", "told"),
    [
        ("ld.global.nc", WRITES, "", True),
        ("ld.global.nc", "", WRITES, False),  # not the load itself
        ("ld.global.nc", "", "", False),
        ("ld.global", WRITES, "", False),
    ],
)
def test_a_load_of_what_the_kernel_wrote_is_told(order: Order, load: str, first: str, last: str, told: bool) -> None:
    text = TEXT.replace("FIRST", first).replace("LOAD", load).replace("LAST", last)
    report = emulate(text, grid=1, block=64, args=[np.zeros(64, np.uint32), np.zeros(64, np.uint32)], order=order)
    assert [a.rule for a in report.advisories] == ["read-only load of what is written"] * told
    if told:
        assert report.advisories[0].sentence == (
            "reads bytes of x that the kernel wrote on line 14: ld.global.nc is for memory that nobody writes while "
            "the kernel runs; use ld.global"
        )
