"""Packing into e2m1: the text of an instruction, eight values at once and one by one, against what it means."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tinygpu.ptx.emulator import emulate
from tinygpu.ptx.isa.unpack import Pack

# Where rounding changes its mind, what it gives, and what lies beyond.
TIES = (0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 0, 0.5, 1, 1.5, 2, 3, 4, 6, 7, 8, 1e30, 1e-40, np.inf, np.nan)


def kernel(origin: str, at_once: bool) -> str:
    """Each thread packs eight values."""
    bits, letter = (32, "f") if origin == "f32" else (16, "h")
    values = [f"%{letter}{i}" for i in range(8)]
    loads = "\n".join(f"ld.global.b{bits} {value}, [%rd3+{i * bits // 8}];" for i, value in enumerate(values))
    pack = Pack(origin, "e2m1")
    if at_once:
        body = pack.packed_text().format(d="%r9", **{f"a{i}": value for i, value in enumerate(values)})
    else:
        alone = (
            f"{pack.text().format(d='%r8', a=value)} shl.b32 %r8, %r8, {4 * i}; or.b32 %r9, %r9, %r8;"
            for i, value in enumerate(values)
        )
        body = "\n".join(("mov.b32 %r9, 0;", *alone))
    return f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry pack(.param .u64 x, .param .u64 y, .param .u32 n)
{{
    .reg .b32 %f<8>; .reg .b16 %h<8>; .reg .b32 %r<10>; .reg .b64 %rd<5>; .reg .pred %p;
    ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r4, [n];
    mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mad.lo.u32 %r1, %r2, %r3, %r1;
    setp.ge.u32 %p, %r1, %r4; @%p ret;
    mul.wide.u32 %rd3, %r1, {bits}; add.u64 %rd3, %rd1, %rd3; mul.wide.u32 %rd4, %r1, 4; add.u64 %rd4, %rd2, %rd4;
    {loads}
    {body}
    st.global.b32 [%rd4], %r9;
    ret;
}}"""


def given(origin: str) -> NDArray[np.float16] | NDArray[np.float32]:
    """Every f16; of f32 ties with their neighbours, anything, and many of the size of an e2m1."""
    if origin == "f16":
        return np.arange(1 << 16).astype(np.uint16).view(np.float16)
    rng, ties = np.random.default_rng(0), np.array(TIES, dtype=np.float32)
    zero, far = np.float32(0), np.float32(np.inf)
    near = np.concatenate([np.nextafter(ties, zero), ties, np.nextafter(ties, far)])
    anything = rng.integers(0, 1 << 32, 1 << 14, dtype=np.uint64).astype(np.uint32).view(np.float32)
    found = np.concatenate([near, -near, anything, rng.uniform(-7, 7, 1 << 14).astype(np.float32)])
    return np.resize(found, -(-len(found) // 8) * 8)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("origin", ["f32", "f16"])
@pytest.mark.parametrize("at_once", [True, False])
def test_codes_are_those_of_the_meaning(origin: str, at_once: bool) -> None:
    x = given(origin)
    packed = np.zeros(len(x) // 8, dtype=np.uint32)
    grid = (-(-len(packed) // 128), 1, 1)
    emulate(kernel(origin, at_once), grid=grid, block=(128, 1, 1), args=[x, packed, np.uint32(len(packed))])
    found = (packed[:, None] >> 4 * np.arange(8, dtype=np.uint32)).reshape(-1) & 15
    expected = Pack(origin, "e2m1").meaning(x).view(np.uint8) & 15
    np.testing.assert_array_equal(found, expected)
