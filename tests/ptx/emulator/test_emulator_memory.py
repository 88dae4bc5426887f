"""Loads, stores and atomics in every space and width, against NumPy and sequential Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instruction_bench import module, run_instruction

from tinygpu.ptx.emulator import EmulationFault, PtxSyntaxError, SparseBuffer, emulate
from tinygpu.ptx.emulator.instructions.atomic_updates import make_update, one_after_another


def signed(v: int, bits: int = 32) -> int:
    return v - (1 << bits) if v >> (bits - 1) else v


ATOMICS: list[tuple[str, Callable[[int, int], int]]] = [
    ("add.u32", lambda old, v: old + v), ("min.u32", min), ("max.u32", max),
    ("min.s32", lambda old, v: min(signed(old), signed(v))), ("max.s32", lambda old, v: max(signed(old), signed(v))),
    ("and.b32", lambda old, v: old & v), ("or.b32", lambda old, v: old | v), ("xor.b32", lambda old, v: old ^ v),
    ("exch.b32", lambda old, v: v), ("inc.u32", lambda old, v: 0 if old >= v else old + 1),
    ("dec.u32", lambda old, v: v if old == 0 or old > v else old - 1),
]  # fmt: skip


def atomic_kernel(space: str, text: str) -> str:
    """Thread t applies an atomic to counter index[t]; what it found goes to found[t]. Counters start in memory."""
    body = f"""
.reg .b32 %r<12>; .reg .b64 %rd<12>; .reg .pred %p;
.shared .align 8 .b8 s[32];
ld.param.u64 %rd1, [counters]; ld.param.u64 %rd2, [index]; ld.param.u64 %rd3, [values]; ld.param.u64 %rd4, [found];
mov.u32 %r1, %tid.x; mul.wide.u32 %rd5, %r1, 4; add.u64 %rd6, %rd2, %rd5; add.u64 %rd7, %rd3, %rd5;
add.u64 %rd8, %rd4, %rd5; ld.global.u32 %r2, [%rd6]; ld.global.u32 %r3, [%rd7]; shl.b32 %r2, %r2, 2;
mov.u32 %r6, s; add.u32 %r7, %r6, %r2; cvt.u64.u32 %rd9, %r2; add.u64 %rd9, %rd1, %rd9;
setp.lt.u32 %p, %r1, 8; shl.b32 %r8, %r1, 2; add.u32 %r8, %r6, %r8; add.u64 %rd10, %rd1, %rd5;
@%p ld.global.u32 %r9, [%rd10]; @%p st.shared.u32 [%r8], %r9; cvt.u64.u32 %rd11, %r7; cvta.shared.u64 %rd11, %rd11;
bar.sync 0;
{text}
bar.sync 0;
st.global.u32 [%rd8], %r4;
@%p ld.shared.u32 %r9, [%r8];
"""
    if space != "global":
        body += "@%p st.global.u32 [%rd10], %r9;\n"
    return module(body + "ret;", [f".param .u64 {n}" for n in ("counters", "index", "values", "found")])


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("operation", "oracle"), ATOMICS, ids=[row[0] for row in ATOMICS])
@pytest.mark.parametrize("space", ["global", "shared", "generic"])
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_atomics_act_one_after_another(
    space: str, operation: str, oracle: Callable[[int, int], int], data: st.DataObject
) -> None:
    small = st.one_of(st.integers(0, 2**32 - 1), st.integers(0, 9))
    start = data.draw(st.lists(small, min_size=8, max_size=8))
    index = data.draw(st.lists(st.integers(0, 7), min_size=64, max_size=64))
    values = data.draw(st.lists(small, min_size=64, max_size=64))
    address = {"global": "%rd9", "shared": "%r7", "generic": "%rd11"}[space]
    dot = "" if space == "generic" else f".{space}"
    counters = np.array(start, np.uint32)
    found = np.zeros(64, np.uint32)
    emulate(
        atomic_kernel(space, f"atom{dot}.{operation} %r4, [{address}], %r3;"), grid=1, block=64,
        args=[counters, np.array(index, np.uint32), np.array(values, np.uint32), found],
    )  # fmt: skip
    state = list(start)
    old = []
    for k, v in zip(index, values, strict=True):
        old.append(state[k])
        state[k] = oracle(state[k], v) & 0xFFFFFFFF
    assert counters.tolist() == state
    assert found.tolist() == old


def test_compare_and_swap_lets_one_thread_of_each_counter_win() -> None:
    counters = np.zeros(8, np.uint32)
    index = (np.arange(64) % 8).astype(np.uint32)
    found = np.zeros(64, np.uint32)
    text = "add.u32 %r10, %r1, 1; atom.global.cas.b32 %r4, [%rd9], 0, %r10;"
    emulate(atomic_kernel("global", text), grid=1, block=64, args=[counters, index, index, found])
    assert counters.tolist() == list(range(1, 9))
    assert found.tolist() == [0] * 8 + [t % 8 + 1 for t in range(8, 64)]


@pytest.mark.parametrize(
    ("name", "dtype", "width"),
    [
        ("f32", np.float32, 4), ("f64", np.float64, 8), ("noftz.f16x2", np.float16, 4),
        ("noftz.bf16x2", ml_dtypes.bfloat16, 4),
    ],
)  # fmt: skip
def test_float_reductions_add_every_value(name: str, dtype: Any, width: int) -> None:
    register = "b64" if width == 8 else "b32"
    kind = "f64" if name == "f64" else "b32"
    body = f"""
.reg .b64 %rd<4>; .reg .{register} %v; .reg .b32 %t;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [total]; mov.u32 %t, %tid.x; mul.wide.u32 %rd3, %t, {width};
add.u64 %rd1, %rd1, %rd3; ld.global.{kind} %v, [%rd1]; red.global.add.{name} [%rd2], %v; ret;
"""
    each = 2 if "x2" in name else 1
    x = (np.arange(64 * each) % 7 - 3).astype(dtype)
    total = np.zeros(each, dtype)
    emulate(module(body, [".param .u64 x", ".param .u64 total"]), grid=1, block=64, args=[x, total])
    want = x.astype(np.float64).reshape(64, each).sum(axis=0)
    assert total.astype(np.float64).tolist() == want.tolist()


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("space", ["global", "shared", "local", "generic"])
def test_every_width_and_vector_travels_through_every_space(width: int, count: int, space: str) -> None:
    if width * count > 16:
        return
    bits = 8 * width
    size = width * count
    registers = ", ".join(f"%v{k}" for k in range(count))
    operand = f"{{{registers}}}" if count > 1 else registers
    vector = f".v{count}" if count > 1 else ""
    through = {
        "global": ("%rd6", ".global"), "shared": ("%r3", ".shared"), "local": ("%rd5", ".local"),
        "generic": ("%rd7", ""),
    }  # fmt: skip
    address, dot = through[space]
    body = f"""
.reg .b32 %r<6>; .reg .b64 %rd<9>; .reg .b{max(bits, 16)} %v<4>;
.shared .align 16 .b8 s[1024]; .local .align 16 .b8 l[64];
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u64 %rd3, [z]; mov.u32 %r1, %tid.x;
mul.wide.u32 %rd4, %r1, {size}; add.u64 %rd1, %rd1, %rd4; add.u64 %rd2, %rd2, %rd4; add.u64 %rd6, %rd3, %rd4;
mov.u32 %r2, s; mad.lo.u32 %r3, %r1, {size}, %r2; mov.u64 %rd5, l; add.u64 %rd5, %rd5, 16;
cvt.u64.u32 %rd7, %r3; cvta.shared.u64 %rd7, %rd7;
ld.global{vector}.b{bits} {operand}, [%rd1]; st{dot}{vector}.b{bits} [{address}], {operand};
ld{dot}{vector}.b{bits} {operand}, [{address}]; st.global{vector}.b{bits} [%rd2], {operand}; ret;
"""
    x = np.random.default_rng(1).integers(0, 256, 64 * size).astype(np.uint8)
    y, z = np.zeros_like(x), np.zeros_like(x)
    text = module(body, [".param .u64 x", ".param .u64 y", ".param .u64 z"])
    report = emulate(text, grid=1, block=64, args=[x, y, z])
    np.testing.assert_array_equal(y, x)
    assert report.faults == ()


def test_narrow_loads_extend_and_narrow_stores_truncate() -> None:
    body = """
.reg .b32 %r<6>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y];
ld.global.s8 %r1, [%rd1]; ld.global.u8 %r2, [%rd1]; ld.global.s16 %r3, [%rd1]; ld.global.s8 %rd3, [%rd1];
st.global.v4.u32 [%rd2], {%r1, %r2, %r3, %r1}; st.global.u64 [%rd2+16], %rd3; mov.u32 %r4, 0x12345678;
st.global.u8 [%rd2+24], %r4; st.global.u16 [%rd2+26], %r4; ret;
"""
    x = np.array([0x80, 0xFF, 0, 0], np.uint8)
    y = np.zeros(28, np.uint8)
    emulate(module(body, [".param .u64 x", ".param .u64 y"]), grid=1, block=1, args=[x, y])
    words = y[:16].view(np.uint32)
    assert [hex(w) for w in words] == ["0xffffff80", "0x80", "0xffffff80", "0xffffff80"]
    assert int(y[16:24].view(np.uint64)[0]) == 0xFFFFFFFFFFFFFF80
    assert y[24:].tolist() == [0x78, 0, 0x78, 0x56]


def test_module_variables_keep_their_values_and_addresses() -> None:
    head = """
.const .align 4 .f32 table[4] = {1.0, 2.0, 0f40800000, 8.0};
.global .align 4 .u32 counter = 41;
.global .align 8 .u64 link = generic(counter);
.global .align 8 .u64 other = table+8;
"""
    body = """
.reg .b32 %r<6>; .reg .b64 %rd<8>; .reg .f32 %f<4>;
ld.param.u64 %rd1, [y]; ld.const.f32 %f1, [table+4]; st.global.f32 [%rd1], %f1;
ld.global.u64 %rd2, [link]; ld.u32 %r1, [%rd2]; add.u32 %r1, %r1, 1; st.u32 [%rd2], %r1; ld.global.u32 %r2, [counter];
st.global.u32 [%rd1+4], %r2; ld.global.u64 %rd3, [other]; ld.f32 %f2, [%rd3]; st.global.f32 [%rd1+8], %f2;
mov.u64 %rd4, table; cvta.const.u64 %rd4, %rd4; isspacep.const %p, %rd4; selp.u32 %r3, 7, 9, %p;
st.global.u32 [%rd1+12], %r3; ret;
"""
    y = np.zeros(4, np.uint32)
    emulate(module(".reg .pred %p;" + body, [".param .u64 y"], head=head), grid=1, block=1, args=[y])
    assert y[[0, 2]].view(np.float32).tolist() == [2.0, 4.0]
    assert y[[1, 3]].tolist() == [42, 7]


def test_windows_that_start_anywhere_serve_aligned_vectors() -> None:
    """A window at byte 40: the vector at byte 48 lies in it, the one at byte 32 only in part."""
    body = """
.reg .b32 %r<6>; .reg .b64 %rd<4>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1+48];
st.global.v4.u32 [%rd2], {%r1, %r2, %r3, %r4}; st.global.u32 [%rd1+40], %r4; ret;
"""
    window = np.arange(10, dtype=np.uint32)
    y = np.zeros(4, np.uint32)
    text = module(body, [".param .u64 x", ".param .u64 y"])
    emulate(text, grid=1, block=1, args=[SparseBuffer(1024, {40: window}), y])
    assert y.tolist() == [2, 3, 4, 5]
    assert window[0] == 5
    with pytest.raises(EmulationFault) as caught:
        emulate(text.replace("%rd1+48", "%rd1+32"), grid=1, block=1, args=[SparseBuffer(1024, {40: window}), y])
    assert caught.value.kind == "outside backed windows"


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_asynchronous_copies_of_every_size_fill_with_zeros(data: st.DataObject) -> None:
    size = data.draw(st.sampled_from([4, 8, 16]))
    read = data.draw(st.lists(st.integers(0, size), min_size=32, max_size=32))
    order: Any = data.draw(st.sampled_from(["late", "early", "random"]))
    body = f"""
.reg .b32 %r<12>; .reg .b64 %rd<8>;
.shared .align 16 .b8 s[512];
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [n]; ld.param.u64 %rd3, [y]; mov.u32 %r1, %tid.x;
mul.wide.u32 %rd4, %r1, 4; add.u64 %rd2, %rd2, %rd4; ld.global.u32 %r2, [%rd2]; mul.wide.u32 %rd5, %r1, {size};
add.u64 %rd1, %rd1, %rd5; mov.u32 %r3, s; mad.lo.u32 %r4, %r1, {size}, %r3;
cp.async.ca.shared.global [%r4], [%rd1], {size}, %r2; cp.async.commit_group; cp.async.wait_group 0; bar.warp.sync -1;
shl.b32 %r5, %r1, 2; add.u32 %r5, %r3, %r5; add.u64 %rd3, %rd3, %rd4; mov.u32 %r7, 0;
L: ld.shared.u32 %r6, [%r5]; st.global.u32 [%rd3], %r6; add.u32 %r5, %r5, 128; add.u64 %rd3, %rd3, 128;
add.u32 %r7, %r7, 1; setp.lt.u32 p, %r7, {size // 4}; @p bra L; ret;
"""
    x = np.random.default_rng(3).integers(1, 256, 32 * size).astype(np.uint8)
    y = np.zeros(32 * size, np.uint8)
    parameters = [".param .u64 x", ".param .u64 n", ".param .u64 y"]
    text = module(".reg .pred p;" + body, parameters)
    emulate(text, grid=1, block=32, args=[x, np.array(read, np.uint32), y], order=order)
    want = x.reshape(32, size).copy()
    for lane, count in enumerate(read):
        want[lane, count:] = 0
    np.testing.assert_array_equal(y, want.reshape(-1))


def test_the_order_of_copies_shows_in_a_missing_wait() -> None:
    """The value that a thread reads before it waits differs between the orders; the fault does not."""
    body = """
.reg .b32 %r<12>; .reg .b64 %rd<8>;
.shared .align 16 .b8 s[128];
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;
add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3; mov.u32 %r2, s; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3;
mov.u32 %r4, 7;
st.shared.u32 [%r2], %r4; cp.async.ca.shared.global [%r2], [%rd1], 4; ld.shared.u32 %r5, [%r2];
st.global.u32 [%rd2], %r5; ret;
"""
    text = module(body, [".param .u64 x", ".param .u64 y"])
    x = np.arange(100, 132, dtype=np.uint32)
    orders: list[tuple[Any, list[int]]] = [("late", [7] * 32), ("early", x.tolist())]
    for order, want in orders:
        y = np.zeros(32, np.uint32)
        report = emulate(text, grid=1, block=32, args=[x, y], order=order, check="collect")
        assert y.tolist() == want
        assert [f.kind for f in report.faults] == ["race"]


def test_copies_are_waited_for_group_by_group_and_thread_by_thread() -> None:
    """Odd lanes commit an extra empty group: wait_group 1 then forces their copies, and leaves those of even lanes."""
    body = """
.reg .b32 %r<12>; .reg .b64 %rd<8>; .reg .pred %p;
.shared .align 16 .b8 s[128];
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 4;
add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3; mov.u32 %r2, s; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3;
mov.u32 %r4, 7;
st.shared.u32 [%r2], %r4; cp.async.ca.shared.global [%r2], [%rd1], 4; cp.async.commit_group;
and.b32 %r6, %r1, 1; setp.eq.u32 %p, %r6, 1; @%p cp.async.commit_group; cp.async.wait_group 1;
ld.shared.u32 %r5, [%r2]; st.global.u32 [%rd2], %r5; ret;
"""
    x = np.arange(100, 132, dtype=np.uint32)
    y = np.zeros(32, np.uint32)
    text = module(body, [".param .u64 x", ".param .u64 y"])
    report = emulate(text, grid=1, block=32, args=[x, y], check="collect")
    assert y.tolist() == [int(x[k]) if k % 2 else 7 for k in range(32)]
    assert [f.count for f in report.faults] == [16]


VECTORS = [
    ("add.v2.f32", np.float32, 2), ("v4.f32.add", np.float32, 4), ("add.noftz.v8.bf16", ml_dtypes.bfloat16, 8),
    ("max.v4.f16", np.float16, 4), ("add.noftz.v4.f16x2", np.float16, 8), ("min.v2.bf16x2", ml_dtypes.bfloat16, 4),
]  # fmt: skip


@pytest.mark.parametrize(("form", "dtype", "lanes"), VECTORS, ids=[row[0] for row in VECTORS])
@pytest.mark.parametrize("opcode", ["atom.global", "red.relaxed.gpu.global", "atom"])
def test_vector_atomics_update_each_element(form: str, dtype: Any, lanes: int, opcode: str) -> None:
    size = np.dtype(dtype).itemsize
    width = size * (2 if "x2" in form else 1)
    count = lanes * size // width
    names = [f"%v{k}" for k in range(count)]
    kind = {2: "b16", 4: "b32"}[width]
    found = "" if opcode.startswith("red") else f"{{{', '.join(['_', *(f'%o{k}' for k in range(1, count))])}}}, "
    body = f"""
.reg .b64 %rd<6>; .reg .b32 %t; .reg .{kind} %v<8>; .reg .{kind} %o<8>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [total]; ld.param.u64 %rd4, [old]; mov.u32 %t, %tid.x;
mul.wide.u32 %rd3, %t, {lanes * size}; add.u64 %rd1, %rd1, %rd3; add.u64 %rd4, %rd4, %rd3;
and.b64 %rd3, %rd3, {lanes * size}; add.u64 %rd2, %rd2, %rd3; cvta.to.global.u64 %rd2, %rd2;
{" ".join(f"ld.global.{kind} {name}, [%rd1+{k * width}];" for k, name in enumerate(names))}
{opcode}.{form} {found}[%rd2], {{{", ".join(names)}}};
{"" if not found else f"st.global.{kind} [%rd4], %o1;"}
ret;
"""
    rng = np.random.default_rng(len(form))
    x = rng.integers(-3, 4, (64, lanes)).astype(dtype)
    total, old = rng.integers(-3, 4, (2, lanes)).astype(dtype), np.zeros((64, lanes), dtype)
    step = np.add if "add" in form else np.maximum if "max" in form else np.minimum
    state, second = total.copy(), np.zeros((64, width // size), dtype)
    for t in range(64):
        second[t] = state[t % 2, width // size : 2 * width // size]
        state[t % 2] = step(state[t % 2], x[t])
    parameters = [f".param .u64 {name}" for name in ("x", "total", "old")]
    report = emulate(module(body, parameters), grid=1, block=64, args=[x, total, old])
    np.testing.assert_array_equal(total, state)
    if found:
        np.testing.assert_array_equal(old[:, : width // size], second)
    assert report.counters.atomic_requests == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("red.global.min.v2.f32 [%at], {%a0, %a0};", "vectors are of add on f32, or add, min, max on f16 and bf16"),
        ("red.global.add.v8.f32 [%at], {%a0, %a0};", "works on 8 values of .f32, but a vector has at most 16 bytes"),
        ("red.global.add.v4.f32 [%at], {%a0, %a0};", "takes 4 registers, not 2"),
        ("red.global.add.f32 [%at], {%a0, %a0};", "works on 1 values of .f32"),
    ],
)
def test_vector_atomics_of_another_form_are_refused(text: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError, match=message):
        run_instruction(text, [np.zeros(32, np.float32)], [])


def test_128_bit_registers_hold_pack_load_and_store() -> None:
    x = np.arange(128, dtype=np.uint64) * np.uint64(0x0123456789ABCDEF)
    y = np.zeros(128, np.uint64)
    z = np.zeros(128, np.uint64)
    body = """
.reg .b128 %q<3>; .reg .b64 %rd<9>; .reg .b32 %r<9>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u64 %rd8, [z];
mov.u32 %r1, %tid.x; mul.wide.u32 %rd3, %r1, 16;
add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3; add.u64 %rd8, %rd8, %rd3;
ld.global.b128 %q1, [%rd1];
mov.b128 {%rd4, %rd5}, %q1;
mov.b128 %q2, {%rd5, %rd4};
st.global.b128 [%rd2], %q2;
mov.b128 {%r2, %r3, %r4, %r5}, %q1;
mov.b128 %q0, {%r5, %r2, %r3, %r4};
mov.b128 %q2, %q0;
st.relaxed.sys.global.b128 [%rd8], %q2;
ret;
"""
    emulate(module(body, [".param .u64 x", ".param .u64 y", ".param .u64 z"]), grid=1, block=64, args=[x, y, z])
    assert (y.reshape(-1, 2) == x.reshape(-1, 2)[:, ::-1]).all()
    assert (z.view(np.uint32).reshape(-1, 4) == np.roll(x.view(np.uint32).reshape(-1, 4), 1, axis=1)).all()


@pytest.mark.parametrize("space", ["global", "shared"])
def test_128_bit_atomics_exchange_and_compare_both_halves(space: str) -> None:
    """Every thread puts its number into both halves of one value where it holds that of the thread before it."""
    final = np.zeros(2, np.uint64)
    seen = np.zeros((64, 2), np.uint64)
    place = "cvta.to.global.u64 %at, %rd1;" if space == "global" else "mov.u64 %at, box;"
    body = f"""
.shared .align 16 .b8 box[16];
.reg .b128 %q<4>; .reg .b64 %rd<9>, %at; .reg .b32 %r<4>; .reg .pred %p<3>;
ld.param.u64 %rd1, [final]; ld.param.u64 %rd2, [seen]; mov.u32 %r1, %tid.x;
setp.eq.u32 %p1, %r1, 0; {place}
mov.u64 %rd3, 0; mov.b128 %q0, {{%rd3, %rd3}};
@%p1 st.{space}.b128 [%at], %q0;
bar.sync 0;
cvt.u64.u32 %rd4, %r1; add.u64 %rd5, %rd4, 1; shl.b64 %rd6, %rd4, 33; shl.b64 %rd7, %rd5, 33;
mov.b128 %q1, {{%rd4, %rd6}}; mov.b128 %q2, {{%rd5, %rd7}};
AGAIN:
atom.acq_rel.gpu.{space}.cas.b128 %q3, [%at], %q1, %q2;
mov.b128 {{%rd3, %rd8}}, %q3;
setp.ne.u64 %p2, %rd3, %rd4;
@%p2 bra AGAIN;
mul.wide.u32 %rd5, %r1, 16; add.u64 %rd2, %rd2, %rd5; st.global.b128 [%rd2], %q3;
bar.sync 0;
@!%p1 bra DONE;
atom.{space}.exch.b128 %q3, [%at], %q0;
st.global.b128 [%rd1], %q3;
DONE: ret;
"""
    emulate(module(body, [".param .u64 final", ".param .u64 seen"]), grid=1, block=64, args=[final, seen])
    number = np.arange(64, dtype=np.uint64)
    assert (seen == np.stack([number, number << np.uint64(33)], axis=1)).all()
    assert final.tolist() == [64, 64 << 33]


def test_an_atomic_on_local_memory_is_a_fault() -> None:
    body = """
.local .align 8 .b8 mine[8]; .reg .b64 %rd<3>; .reg .b32 %r<3>;
mov.u64 %rd1, mine; cvta.local.u64 %rd2, %rd1; atom.add.u32 %r1, [%rd2], 1; ret;
"""
    with pytest.raises(EmulationFault) as caught:
        emulate(module(body, []), grid=1, block=32, args=[])
    assert caught.value.kind == "address space"
    assert caught.value.sentence == (
        "`atom.add.u32` works on global and shared memory, but generic address 0x7e0000000000 is one of local memory"
    )


def test_bulk_stores_fill_shared_memory_with_zeros() -> None:
    y = np.ones(64, np.uint32)
    body = """
.shared .align 16 .b8 box[256]; .reg .b64 %rd<4>; .reg .b32 %r<6>; .reg .pred %p;
mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, box; add.u32 %r4, %r3, %r2;
st.shared.u32 [%r4], 7; bar.sync 0; setp.ne.u32 %p, %r1, 0; @%p bra REST;
mov.u64 %rd1, 128; st.bulk.weak.shared::cta [%r3], %rd1, 0;
REST: bar.sync 0; ld.shared.u32 %r5, [%r4]; ld.param.u64 %rd2, [y]; mul.wide.u32 %rd3, %r1, 4;
add.u64 %rd2, %rd2, %rd3; st.global.u32 [%rd2], %r5; ret;
"""
    emulate(module(body, [".param .u64 y"]), grid=1, block=64, args=[y])
    assert (y[:32] == 0).all()
    assert (y[32:] == 7).all()


@pytest.mark.parametrize(("operation", "name"), [
    *[(o, t) for o in ("add", "min", "max") for t in ("u32", "s32", "u64", "f32", "f64", "f16", "bf16", "f16x2")],
    *[(o, "b32") for o in ("and", "or", "xor", "exch")], ("inc", "u32"), ("dec", "u32"), ("exch", "b64"),
])  # fmt: skip
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 7, 40]))
def test_many_updates_of_few_elements_are_those_of_a_loop(operation: str, name: str, seed: int, elements: int) -> None:
    chance = np.random.default_rng(seed)
    update = make_update(operation, name)
    widths: dict[str, Any] = {"u64": np.uint64, "f64": np.uint64, "b64": np.uint64, "f16": np.uint16, "bf16": np.uint16}
    dtype = widths.get(name, np.uint32)
    if name[0] in "fb" and name not in ("b32", "b64"):
        kinds: dict[str, Any] = {"f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16}
        kind = kinds.get(name, np.float16)
        count = 2 if name == "f16x2" else 1
        view = chance.standard_normal(elements * count).astype(kind).view(dtype)
        value = chance.standard_normal(300 * count).astype(kind).view(dtype)
    else:
        view = chance.integers(0, 2**31, elements).astype(dtype)
        value = chance.integers(0, 2**31, 300).astype(dtype)
    index = chance.integers(0, elements, 300)
    looped, found = view.copy(), np.zeros(300, dtype)
    for k in range(300):
        at = slice(int(index[k]), int(index[k]) + 1)
        found[k] = looped[at][0]
        looped[at] = update.apply(looped[at], value[k : k + 1], None)
    assert (one_after_another(view, index, update, value, None) == found).all()
    assert (view == looped).all()
