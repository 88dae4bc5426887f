"""What a launch takes: buffers by address, pointer tables, structs, tensor maps, and how all of them are laid out."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator import (
    DeviceBuffer,
    EmulationFault,
    LaunchError,
    SparseBuffer,
    Struct,
    TensorMap,
    emulate,
)
from tinygpu.ptx.emulator.run.arguments import bind_arguments
from tinygpu.ptx.emulator.source.parser import parse
from tinygpu.ptx.emulator.state.memory import GlobalMemory
from tinygpu.ptx.emulator.units.tensor_maps import decode


def head(parameters: str, body: str) -> str:
    return f"""
.version 8.0
.target sm_90
.address_size 64
.visible .entry k({parameters})
{{
    .reg .pred %p<4>; .reg .b32 %r<16>; .reg .b64 %rd<16>; .reg .b16 %h<4>;
{body}
    ret;
}}
"""


def bound(parameters: str, *args: Any, **options: Any) -> tuple[bytes, GlobalMemory]:
    """The parameter bytes of a launch, and its device memory."""
    (function,) = parse(head(parameters, "")).functions
    memory = GlobalMemory()
    return bind_arguments(function, args, memory, **options).data, memory


# Adds, to every element of the table's arrays in turn, the number that stands behind its pointer.
TABLE = head(
    ".param .u64 table, .param .u32 n",
    """    ld.param.u64 %rd1, [table];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %ctaid.x;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 ret;
    mul.wide.u32 %rd2, %r3, 16;
    add.u64 %rd1, %rd1, %rd2;
    ld.global.u64 %rd3, [%rd1];
    ld.global.u32 %r4, [%rd1+8];
    mul.wide.u32 %rd4, %r2, 4;
    add.u64 %rd3, %rd3, %rd4;
    ld.global.u32 %r5, [%rd3];
    add.u32 %r5, %r5, %r4;
    st.global.u32 [%rd3], %r5;""",
)


def test_a_pointer_table_reaches_buffers_that_are_listed() -> None:
    arrays = [np.arange(8, dtype=np.int32) * 10 * k for k in range(3)]
    want = [a + 100 + k for k, a in enumerate(arrays)]
    held = [DeviceBuffer(a, name=f"part {k}") for k, a in enumerate(arrays)]
    table = np.array([[b.address, 100 + k] for k, b in enumerate(held)], np.uint64)
    emulate(TABLE, grid=3, block=32, args=[table, 8], buffers=held)
    assert all((a == w).all() for a, w in zip(arrays, want, strict=True))
    with pytest.raises(EmulationFault) as caught:
        emulate(TABLE, grid=3, block=32, args=[table, 9], buffers=held)
    assert caught.value.kind == "out of bounds"
    assert "part 0 has 32 bytes, and this is byte 32 to 35 of it" in caught.value.sentence


def test_an_address_that_is_not_listed_leads_nowhere() -> None:
    held = DeviceBuffer(np.zeros(8, np.int32))
    table = np.array([[held.address, 1]], np.uint64)
    with pytest.raises(EmulationFault) as caught:
        emulate(TABLE, grid=1, block=32, args=[table, 8])
    assert caught.value.kind == "out of bounds"


def test_addresses_are_unique_stay_and_keep_their_distance() -> None:
    buffers: list[DeviceBuffer | SparseBuffer] = [DeviceBuffer(np.zeros(4, np.int32)) for _ in range(5)]
    buffers.append(SparseBuffer(1 << 40, {0: np.zeros(4, np.int32)}))
    buffers.append(DeviceBuffer(np.zeros(4, np.int32)))
    addresses = [b.address for b in buffers]
    assert addresses == [b.address for b in buffers]
    assert all(a % 256 == 0 for a in addresses)
    for (low, buffer), high in zip(zip(addresses, buffers, strict=True), addresses[1:], strict=False):
        assert high - (low + buffer.size_bytes) > 1 << 32
    assert DeviceBuffer(np.zeros(4), offset=8, base=4096).address == 4104
    shifted = DeviceBuffer(np.zeros(4), offset=8)
    assert shifted.address % 256 == 8


def test_the_same_array_is_one_buffer_however_it_is_passed() -> None:
    x = np.zeros(8, np.int32)
    data, memory = bound(".param .u64 a, .param .u64 b, .param .u64 c", x, DeviceBuffer(x, offset=4), x)
    a, b, c = struct.unpack("<QQQ", data)
    assert (b, c, len(memory.allocations)) == (a + 4, a, 1)
    held = DeviceBuffer(x)
    address = held.address
    data, memory = bound(".param .u64 a, .param .u64 b", x, held)
    assert struct.unpack("<QQ", data) == (address, address)
    assert len(memory.allocations) == 1
    data, memory = bound(".param .u64 a", x, buffers=[held, TensorMap(held, (8,))])
    assert struct.unpack("<Q", data) == (address,)
    assert len(memory.allocations) == 1


def test_views_of_one_array_have_their_own_bounds() -> None:
    x = np.zeros(8, np.int32)
    data, memory = bound(".param .u64 a, .param .u64 b, .param .u64 c", x[:4], x[4:], x)
    assert len(memory.allocations) == 3
    assert [a.size_bytes for a in memory.allocations] == [16, 16, 32]
    assert len(set(struct.unpack("<QQQ", data))) == 3


def test_one_array_cannot_lie_at_two_addresses() -> None:
    x = np.zeros(8, np.int32)
    first, second = DeviceBuffer(x, base=0x10000), DeviceBuffer(x, base=0x20000)
    sentence = (
        "b is an array that already lies at 0x10000 and cannot lie at 0x20000 too: use one DeviceBuffer for both"
    )
    with pytest.raises(LaunchError, match=f"^{re.escape(sentence)}$"):
        bound(".param .u64 a, .param .u64 b", first, second)


# ---- structs --------------------------------------------------------------------------------------------------------

SCALARS = {
    np.uint8: "B", np.int16: "h", np.uint32: "I", np.int64: "q", np.float32: "f", np.float64: "d", np.bool_: "?",
}  # fmt: skip


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(sorted(SCALARS, key=str)), st.integers(0, 100)), min_size=1, max_size=8))
def test_a_struct_is_laid_out_as_in_c(fields: list[tuple[Any, int]]) -> None:
    values = [kind(value) for kind, value in fields]
    text = "".join(SCALARS[kind] for kind, _ in fields)
    largest = max(values, key=lambda v: v.itemsize)
    native = struct.pack("@" + text + f"0{SCALARS[type(largest)]}", *[v.item() for v in values])
    made = Struct(*values)
    assert made.encode(lambda _: b"") == native
    assert made.size_bytes == len(native)
    packed = Struct(*values, packed=True)
    assert packed.encode(lambda _: b"") == struct.pack("<" + text, *[v.item() for v in values])


def test_a_struct_holds_addresses_tensor_maps_and_structs() -> None:
    x, y = np.zeros(16, np.float32), np.zeros((8, 64), np.float16)
    held = DeviceBuffer(x, offset=8)
    tensor = TensorMap(y, (64, 8))
    value = Struct(np.int32(7), held, [np.int16(1), np.int16(2)], Struct(np.uint8(3), x), tensor, b"xyz", y)
    data, memory = bound(f".param .align 64 .b8 s[{value.size_bytes}]", value)
    assert value.size_bytes == 256
    number, address, one, two, three, inner = struct.unpack_from("<i4xQhh4xB7xQ", data)
    assert (number, one, two, three) == (7, 1, 2, 3)
    assert inner == address - 8
    fields = decode(data[64:192])
    assert fields is not None
    assert data[192:195] == b"xyz"
    (last,) = struct.unpack_from("<Q", data, 200)
    assert fields.address == last
    assert {a.name for a in memory.allocations} == {"s"}
    assert sorted(a.base for a in memory.allocations) == sorted({inner, last})


SUM = head(
    ".param .align 8 .b8 s[24]",
    """    ld.param.u64 %rd1, [s];
    ld.param.u64 %rd2, [s+8];
    ld.param.u32 %r1, [s+16];
    ld.global.u32 %r2, [%rd1];
    add.u32 %r2, %r2, %r1;
    st.global.u32 [%rd2], %r2;""",
)


def test_a_kernel_follows_the_pointers_of_a_struct() -> None:
    x, y = np.array([30], np.int32), np.zeros(1, np.int32)
    emulate(SUM, grid=1, block=1, args=[Struct(x, y, np.int32(12))])
    assert y[0] == 42
    a, b = DeviceBuffer(x), DeviceBuffer(y)
    emulate(SUM, grid=1, block=1, args=[struct.pack("<QQi4x", a.address, b.address, 70)], buffers=[a, b])
    assert y[0] == 100


# ---- tensor maps ----------------------------------------------------------------------------------------------------


def test_a_tensor_map_is_passed_by_value_or_by_pointer() -> None:
    x = np.zeros((8, 64), np.float16)
    tensor = TensorMap(DeviceBuffer(x, offset=128), (64, 4), dims=(64, 7))
    data, memory = bound(
        ".param .u64 p, .param .align 64 .b8 v[128], .param .u64 q, .param .u64 y", tensor, tensor, tensor, x
    )
    by_value = decode(data[64:192])
    assert by_value is not None
    (first,), (second, array) = struct.unpack_from("<Q", data), struct.unpack_from("<QQ", data, 192)
    assert by_value.address == array + 128
    assert first == second
    assert first % 64 == 0
    window = memory.window_of(first, first + 128)
    assert window is not None
    assert window.allocation.name == "the tensor map of p"
    assert decode(window.data.tobytes()) == by_value


def test_sparse_buffers_have_tensor_maps() -> None:
    sparse = SparseBuffer(1 << 40, {1 << 35: np.zeros(4096, np.uint8)})
    tensor = TensorMap(sparse, (64, 8), dims=(1 << 20, 1 << 19), dtype="f16")
    data, _ = bound(".param .align 64 .b8 v[128], .param .u64 p", tensor, sparse)
    fields = decode(data[:128])
    assert fields is not None
    assert fields.address == struct.unpack_from("<Q", data, 128)[0]
    assert fields.strides[0] == 1 << 21


# ---- element types --------------------------------------------------------------------------------------------------

COPY = head(
    ".param .u64 x, .param .u64 y, .param .u32 bytes",
    """    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u32 %r1, [bytes];
    mov.u32 %r2, %tid.x;
    setp.ge.u32 %p1, %r2, %r1;
    @%p1 ret;
    cvt.u64.u32 %rd3, %r2;
    add.u64 %rd1, %rd1, %rd3;
    add.u64 %rd2, %rd2, %rd3;
    ld.global.u8 %h1, [%rd1];
    st.global.u8 [%rd2], %h1;""",
)


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.float16, np.bool_, np.complex64]
)
def test_arrays_of_any_element_type_are_buffers(dtype: Any) -> None:
    x = np.arange(12).reshape(3, 4).astype(dtype)
    y = np.zeros((3, 4), dtype)
    emulate(COPY, grid=1, block=128, args=[x, y, x.nbytes])
    assert x.tobytes() == y.tobytes()


# ---- what does not fit ----------------------------------------------------------------------------------------------

X = np.zeros(8, np.float32)
MAP = TensorMap(np.zeros((8, 64), np.float16), (64, 8))
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: bound(".param .u32 n", MAP),
     "n is a parameter of 4 bytes and cannot take a tensor map: that takes 128 bytes, or 8 for a pointer to it"),
    (lambda: bound(".param .align 64 .b8 m[64]", MAP),
     "m is a parameter of 64 bytes and cannot take a tensor map: that takes 128 bytes, or 8 for a pointer to it"),
    (lambda: bound(".param .u32 n", DeviceBuffer(X)),
     "n is a parameter of 4 bytes and cannot take a buffer's address"),
    (lambda: bound(".param .align 8 .b8 s[16]", Struct(X)), "s has 16 bytes, but the struct has 8"),
    (lambda: Struct(1),
     "a field of a Struct cannot be 1: pass a NumPy scalar (such as np.int32), an array, a DeviceBuffer, a "
     "SparseBuffer, a TensorMap, bytes, a Struct or a list of these"),
    (lambda: bound(".param .u32 n", 1, buffers=[X]),
     "buffers[0] is no DeviceBuffer, SparseBuffer or TensorMap: wrap the array in a DeviceBuffer and write its "
     "address where the kernel reads it"),
    (lambda: bound(".param .u64 a, .param .u64 b", X), "k takes 2 arguments (a, b), not 1"),
    (lambda: bound(".param .u32 n", None),
     "n cannot take None: pass an array, a DeviceBuffer or SparseBuffer, a TensorMap, a number, a Struct, or bytes"),
    (lambda: bound(".param .align 4 .b8 s[8]", b"abc"), "s has 8 bytes, but the argument has 3"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "sentence"), REFUSED, ids=[sentence[:40] for _, sentence in REFUSED])
def test_an_argument_that_does_not_fit_is_refused(make: Callable[[], Any], sentence: str) -> None:
    with pytest.raises(LaunchError, match=f"^{re.escape(sentence)}$"):
        make()
