"""Uninitialised memory: what of a loaded value is unknown, element by element, byte by byte, and bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from tinygpu.ptx.emulator import DeviceBuffer, EmulationFault, emulate

TEXT = """
.version 7.0
.target sm_80
.address_size 64
.visible .entry k(.param .u64 y)
{
    .reg .b32 %r<10>; .reg .b64 %rd<4>; .reg .b16 %h<3>;
    .shared .align 16 .b8 shared[32];
    .local .align 16 .b8 local[32];
    ld.param.u64 %rd1, [y];
    mov.u32 %r1, 7;
    BODY
    st.global.u32 [%rd1], %r2;
    ret;
}
"""
# What is written and read back, and what is stored from it: first what is known, then what is not.
CASES = [
    # Elements of a vector.
    ("st.SPACE.u32 [SPACE], %r1; st.SPACE.u32 [SPACE+8], %r1; ld.SPACE.v4.u32 {%r3, %r4, %r5, %r6}, [SPACE];",
     "mov.u32 %r2, %r5;", "mov.u32 %r2, %r4;"),
    # Bytes of a word.
    ("st.SPACE.u8 [SPACE+1], %r1; ld.SPACE.u32 %r3, [SPACE];", "bfe.u32 %r2, %r3, 8, 8;", "bfe.u32 %r2, %r3, 16, 8;"),
    # Bytes that are extended: by zeros they are known, by a sign they are not.
    ("ld.SPACE.u8 %r3, [SPACE+2];", "shr.u32 %r2, %r3, 8;", "and.b32 %r2, %r3, 1;"),
    ("ld.SPACE.s8 %r3, [SPACE+2];", "mov.u32 %r2, %r1;", "shr.u32 %r2, %r3, 31;"),
]  # fmt: skip
# Bit fields are set one after another; local memory knows of each bit.
FIELDS = (
    "ld.local.u32 %r3, [local]; and.b32 %r3, %r3, -8; or.b32 %r3, %r3, 5; st.local.u32 [local], %r3;"
    "ld.local.u32 %r4, [local]; and.b32 %r4, %r4, -249; or.b32 %r4, %r4, 16; st.local.u32 [local], %r4;"
    "ld.local.u32 %r5, [local];"
)
HALF = (
    "{ .reg .b32 %t; .reg .b16 %never; mov.b16 %h1, 5; mov.b32 %t, {%never, %h1}; st.local.u32 [local], %t; }"
    "ld.local.u32 %r3, [local];"
)


def check(body: str, known: str, unknown: str) -> None:
    y = np.zeros(1, np.uint32)
    assert emulate(TEXT.replace("BODY", body + known), grid=1, block=1, args=[y]).faults == ()
    with pytest.raises(EmulationFault) as caught:
        emulate(TEXT.replace("BODY", body + unknown), grid=1, block=1, args=[y])
    assert caught.value.kind == "uninitialised"


@pytest.mark.parametrize("space", ["shared", "local"])
@pytest.mark.parametrize(("body", "known", "unknown"), CASES)
def test_what_was_written_is_known_and_nothing_else(space: str, body: str, known: str, unknown: str) -> None:
    check(body.replace("SPACE", space), known, unknown)


def test_bit_fields_in_local_memory() -> None:
    check(FIELDS, "bfe.u32 %r2, %r5, 0, 8;", "bfe.u32 %r2, %r5, 8, 1;")


def test_a_word_of_which_a_half_was_known() -> None:
    check(HALF, "shr.u32 %r2, %r3, 16;", "and.b32 %r2, %r3, 255;")


PADDED = """
    { .reg .b64 %q<3>; st.SPACE.u8 [SPACE], %r1; st.SPACE.u32 [SPACE+8], %r1;
    mov.u32 %r2, 1; COPY }
"""
COPIES = [
    "ld.SPACE.v2.u32 {%r3, %r4}, [SPACE]; st.global.v2.u32 [%rd1], {%r3, %r4};",
    "ld.SPACE.u64 %q1, [SPACE+8]; st.global.u64 [%rd1], %q1;",
    "ld.SPACE.v2.u64 {%q1, %q2}, [SPACE]; st.global.v2.u64 [%rd1], {%q1, %q2};",
]


@pytest.mark.parametrize("space", ["shared", "local"])
@pytest.mark.parametrize("copy", COPIES)
def test_padding_may_be_copied_with_its_struct(space: str, copy: str) -> None:
    y = np.zeros(4, np.uint32)
    text = TEXT.replace("BODY", PADDED.replace("COPY", copy).replace("SPACE", space))
    report = emulate(text, grid=1, block=1, args=[y])
    assert [advisory.rule for advisory in report.advisories] == ["padding is stored"]


@pytest.mark.parametrize(
    "copy",
    [
        "ld.SPACE.u64 %q1, [SPACE+16]; st.global.u64 [%rd1], %q1;",
        "ld.SPACE.u32 %r3, [SPACE]; st.global.u32 [%rd1], %r3;",
        "ld.SPACE.v2.u32 {%r3, %r4}, [SPACE]; and.b32 %r3, %r3, 2303; st.global.v2.u32 [%rd1], {%r3, %r4};",
    ],
)
def test_what_is_no_padding_is_a_fault(copy: str) -> None:
    # Nothing of it is known; a single word; a part of a byte.
    y = np.zeros(4, np.uint32)
    body = PADDED.replace("COPY", copy).replace("SPACE", "local")
    with pytest.raises(EmulationFault) as caught:
        emulate(TEXT.replace("BODY", body), grid=1, block=1, args=[y])
    assert caught.value.kind == "uninitialised"


def test_of_a_word_of_global_memory_the_bytes_that_were_written_are_known() -> None:
    write = "st.global.u8 [%rd1+1], %r1; ld.global.u32 %r3, [%rd1];"
    for part, known in (("8, 8", True), ("0, 1", False), ("8, 9", False), ("16, 8", False)):
        y = DeviceBuffer(np.zeros(1, np.uint32), initialised=False)
        text = TEXT.replace("BODY", write + f"bfe.u32 %r2, %r3, {part};")
        report = emulate(text, grid=1, block=1, args=[y], check="collect")
        assert [fault.kind for fault in report.faults] == ["uninitialised"] * (not known), part
