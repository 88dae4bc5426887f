"""Arguments, buffers, sparse allocations, chosen CTAs, and launches that are refused."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from instruction_bench import module

from tinygpu.ptx.emulator import DeviceBuffer, EmulationFault, LaunchError, SparseBuffer, emulate

COPY = """
.reg .b32 %r<8>; .reg .b64 %rd<8>;
ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [stride];
mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x; cvt.u64.u32 %rd4, %r2; mul.lo.u64 %rd4, %rd4, %rd3;
mul.wide.u32 %rd5, %r1, 4; add.u64 %rd4, %rd4, %rd5; add.u64 %rd6, %rd1, %rd4; add.u64 %rd7, %rd2, %rd4;
ld.global.u32 %r3, [%rd6]; add.u32 %r3, %r3, 1; st.global.u32 [%rd7], %r3; ret;
"""
COPY_TEXT = module(COPY, [".param .u64 .ptr .global .align 16 a", ".param .u64 b", ".param .u64 stride"])


def test_two_ctas_of_a_huge_grid_run_over_backed_windows() -> None:
    """The first and the last CTA of a grid whose tensors have 4 TB: offsets far beyond 2^31 are really computed."""
    stride = 1 << 22
    grid = 1 << 20
    last = (grid - 1) * stride
    source = {0: np.arange(32, dtype=np.uint32), last: np.arange(32, dtype=np.uint32) * 2}
    target = {0: np.zeros(32, np.uint32), last: np.zeros(32, np.uint32)}
    a, b = SparseBuffer(grid * stride, source), SparseBuffer(grid * stride, target)
    report = emulate(COPY_TEXT, grid=grid, block=32, args=[a, b, np.uint64(stride)], ctas=[0, (grid - 1, 0, 0)])
    np.testing.assert_array_equal(target[0], source[0] + 1)
    np.testing.assert_array_equal(target[last], source[last] + 1)
    assert report.counters.ctas == 2
    with pytest.raises(EmulationFault) as caught:
        emulate(COPY_TEXT, grid=grid, block=32, args=[a, b, np.uint64(stride)], ctas=[7])
    assert caught.value.kind == "outside backed windows"
    assert caught.value.cta == (7, 0, 0)


@pytest.mark.parametrize(
    ("type_name", "value", "want"),
    [
        ("u32", 7, 7), ("s32", -1, 0xFFFFFFFF), ("f32", 1.0, 0x3F800000), ("f32", 1, 0x3F800000),
        ("b32", np.float32(1), 0x3F800000),
        ("u32", np.int32(-2), 0xFFFFFFFE), ("u32", True, 1), ("b32", b"\x01\x02\x03\x04", 0x04030201),
        ("b32", np.array([1, 2], np.uint16)[1:].view(np.uint16).repeat(2).tobytes(), 0x00020002),
    ],
)  # fmt: skip
def test_scalars_arrive_as_their_bits(type_name: str, value: Any, want: int) -> None:
    body = ".reg .b32 %r; .reg .b64 %rd; ld.param.b32 %r, [x]; ld.param.u64 %rd, [out]; st.global.b32 [%rd], %r; ret;"
    out = np.zeros(1, np.uint32)
    emulate(module(body, [f".param .{type_name} x", ".param .u64 out"]), grid=1, block=1, args=[value, out])
    assert int(out[0]) == want


def test_parameters_are_laid_out_with_their_alignment() -> None:
    body = """
.reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .b16 %h;
ld.param.u8 %h, [a]; cvt.u32.u16 %r1, %h; ld.param.u64 %rd1, [out]; ld.param.v2.u32 {%r2, %r3}, [s+8];
mov.b64 %rd2, s; ld.param.u32 %r0, [%rd2+4]; add.u32 %r2, %r2, %r0;
st.global.v2.u32 [%rd1], {%r1, %r2}; st.global.u32 [%rd1+8], %r3; ret;
"""
    out = np.zeros(3, np.uint32)
    struct = np.array([1, 2, 30, 40], np.uint32).tobytes()
    parameters = [".param .u8 a", ".param .align 8 .b8 s[16]", ".param .u64 out"]
    emulate(module(body, parameters), grid=1, block=1, args=[200, struct, out])
    assert out.tolist() == [200, 32, 40]


def test_one_array_passed_twice_is_one_buffer() -> None:
    array = np.arange(32, dtype=np.uint32)
    emulate(COPY_TEXT, grid=1, block=32, args=[array, array, 0])
    assert array.tolist() == list(range(1, 33))


def test_a_device_buffer_can_be_shifted_and_placed() -> None:
    array = np.arange(64, dtype=np.uint32)
    out = np.zeros(32, np.uint32)
    shifted_array, placed = DeviceBuffer(array, offset=128), DeviceBuffer(out, base=0x3F8000000000)
    report = emulate(COPY_TEXT, grid=1, block=32, args=[shifted_array, placed, 0])
    assert out.tolist() == list(range(33, 65))
    # The shift by four sectors keeps whole sectors; one by 4 bytes touches a fifth.
    assert report.counters.global_load_sectors == 4
    shifted = emulate(COPY_TEXT, grid=1, block=32, args=[DeviceBuffer(array, offset=4), out, 0])
    assert shifted.counters.global_load_sectors == 5


def test_an_uninitialised_buffer_may_be_written_but_not_read() -> None:
    a, b = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    emulate(COPY_TEXT, grid=1, block=32, args=[a, DeviceBuffer(b, initialised=False), 0])
    with pytest.raises(EmulationFault) as caught:
        emulate(COPY_TEXT, grid=1, block=32, args=[DeviceBuffer(a, initialised=False), b, 0])
    assert caught.value.kind == "uninitialised"


def test_arrays_of_any_type_and_order_are_bytes() -> None:
    a = np.asfortranarray(np.arange(64).reshape(8, 8).astype(ml_dtypes.bfloat16))
    b = np.zeros(32, np.uint32)
    emulate(COPY_TEXT, grid=1, block=32, args=[a, b, 0])
    np.testing.assert_array_equal(b - 1, a.T.reshape(-1).view(np.uint32))


def test_a_read_only_array_cannot_be_written() -> None:
    a, b = np.arange(32, dtype=np.uint32), np.zeros(32, np.uint32)
    b.flags.writeable = False
    with pytest.raises(EmulationFault) as caught:
        emulate(COPY_TEXT, grid=1, block=32, args=[a, b, 0])
    assert caught.value.sentence == "store to b, whose array is not writeable"


# Each CTA counts itself in, waits a little, and says how many had come by then.
COUNTED = """
.reg .pred %p; .reg .b32 %r<8>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [y]; mov.u32 %r1, %tid.x; setp.ne.u32 %p, %r1, 0; @%p ret;
mov.u32 %r2, %ctaid.x; atom.relaxed.gpu.global.add.u32 %r3, [%rd1], 1; mov.u32 %r4, 0;
LATER: add.u32 %r4, %r4, 1; setp.lt.u32 %p, %r4, 20; @%p bra LATER;
ld.relaxed.gpu.global.u32 %r5, [%rd1];
mul.wide.u32 %rd2, %r2, 4; add.u64 %rd3, %rd1, %rd2; st.global.u32 [%rd3+4], %r5;
ret;
"""


@pytest.mark.parametrize("together", [None, 2, 4, 8, 64])
def test_as_many_ctas_run_together_as_asked_for(together: int | None) -> None:
    y = np.zeros(9, np.uint32)
    emulate(module(COUNTED, [".param .u64 y"]), grid=8, block=32, cluster=2, args=[y], together=together)
    size = min(together or 8, 8)
    assert y[1:].tolist() == [(n // size + 1) * size for n in range(8)]


A = np.zeros(32, np.uint32)
REFUSED = [
    ({"grid": 0}, "grid is one to three positive integers, not 0"),
    ({"block": (32, 33)}, "block (32, 33, 1) has 1056 threads, but a CTA has at most 1024"),
    ({"args": [A, A]}, "k takes 3 arguments (a, b, stride), not 2"),
    ({"args": [A, A, "x"]},
     "stride cannot take 'x': pass an array, a DeviceBuffer or SparseBuffer, a TensorMap, a number, a Struct, or "
     "bytes"),
    ({"args": [A, A, np.int32(3)]}, "stride has 8 bytes, but int32 has 4: pass the right type"),
    ({"args": [A, A, b"123"]}, "stride has 8 bytes, but the argument has 3"),
    ({"args": [A, A, 1 << 70]}, f"stride has 8 bytes, into which {1 << 70} does not fit"),
    ({"args": [np.zeros((8, 8))[:, ::2], A, 0]},
     "a is a view with gaps (shape (8, 4), strides (64, 16)): pass a contiguous array"),
    ({"entry": "other"}, "this PTX has no entry 'other'; it has k"),
    ({"order": "soon"}, "order is \"late\", \"early\", \"random\" or \"spurious\", not 'soon'"),
    ({"check": "some"}, "check is True, False or \"collect\", not 'some'"),
    ({"ctas": [5]}, "CTA 5 is not in the grid (1, 1, 1), which has 1"),
    ({"ctas": [(0, 1)]}, "CTA (0, 1, 0) is not in the grid (1, 1, 1)"),
    ({"ctas": [0, 0]}, "ctas names a CTA twice"),
    ({"together": 0}, "CTAs run together in whole clusters: together is a multiple of 1, not 0"),
    ({"grid": 4, "cluster": 2, "together": 3},
     "CTAs run together in whole clusters: together is a multiple of 2, not 3"),
    ({"dynamic_smem": -1}, "dynamic_smem is a number of bytes, not -1"),
    ({"dynamic_smem": 1 << 20}, "the kernel needs 1048576 bytes of shared memory, more than the 232448 of any CTA"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "sentence"), REFUSED, ids=[row[1][:40] for row in REFUSED])
def test_a_launch_that_does_not_fit_is_refused(change: dict[str, Any], sentence: str) -> None:
    options: dict[str, Any] = {"grid": 1, "block": 32, "args": [A, A.copy(), 0], **change}
    with pytest.raises(LaunchError) as caught:
        emulate(COPY_TEXT, **options)
    assert str(caught.value) == sentence


def test_launch_bounds_of_the_kernel_are_kept() -> None:
    text = COPY_TEXT.replace("\n{\n", "\n.reqntid 32, 1, 1\n{\n")
    with pytest.raises(LaunchError) as caught:
        emulate(text, grid=1, block=64, args=[A, A.copy(), 0])
    assert str(caught.value) == "k requires block (32, 1, 1) (.reqntid), not (64, 1, 1)"
    text = COPY_TEXT.replace("\n{\n", "\n.maxntid 32\n{\n")
    with pytest.raises(LaunchError) as caught:
        emulate(text, grid=1, block=64, args=[A, A.copy(), 0])
    assert str(caught.value) == "k allows 32 threads per CTA (.maxntid), not 64"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: DeviceBuffer(A, base=100), "base must be a positive multiple of 256 bytes, not 0x64"),
        (
            lambda: DeviceBuffer(A, base=0x7F05_0000_0000),
            "addresses from 0x7c0000000000 to 0x800000000000 are those of parameters, constants, local and shared "
            "memory here, and with base 0x7f0500000000 a buffer reaches into them; give it another",
        ),
        (lambda: SparseBuffer(0), "size_bytes must be between 1 and 2^46, not 0"),
        (lambda: SparseBuffer(64, {0: A}), "the window at byte 0 ends at byte 128, but the buffer has 64 bytes"),
        (
            lambda: SparseBuffer(1024, {0: A, 64: A}),
            "the window at byte 64 overlaps the one before it, which ends at byte 128",
        ),
    ],
)  # fmt: skip
def test_a_buffer_that_makes_no_sense_is_refused(make: Any, sentence: str) -> None:
    with pytest.raises(LaunchError) as caught:
        make()
    assert str(caught.value) == sentence


def test_special_registers_of_a_three_dimensional_launch() -> None:
    body = """
.reg .b32 %r<20>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [out];
mov.u32 %r1, %tid.x; mov.u32 %r2, %tid.y; mov.u32 %r3, %tid.z; mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ctaid.y;
mov.u32 %r6, %ctaid.z; mov.u32 %r7, %ntid.y; mov.u32 %r8, %nctaid.z; mov.u32 %r9, %laneid;
mad.lo.u32 %r10, %r6, 3, %r5; mad.lo.u32 %r10, %r10, 2, %r4; mad.lo.u32 %r11, %r3, 3, %r2;
mad.lo.u32 %r11, %r11, 5, %r1;
mad.lo.u32 %r12, %r10, 30, %r11; mul.wide.u32 %rd2, %r12, 4; add.u64 %rd1, %rd1, %rd2;
mad.lo.u32 %r13, %r7, 1000, %r8; mad.lo.u32 %r13, %r9, 100000, %r13; mov.u32 %r14, %lanemask_lt; popc.b32 %r14, %r14;
sub.u32 %r14, %r14, %r9; add.u32 %r13, %r13, %r14;
st.global.u32 [%rd1], %r13; ret;
"""
    out = np.zeros(2 * 3 * 2 * 30, np.uint32)
    emulate(module(body, [".param .u64 out"]), grid=(2, 3, 2), block=(5, 3, 2), args=[out])
    assert out.tolist() == [100000 * (k % 30) + 3002 for k in range(out.size)]
