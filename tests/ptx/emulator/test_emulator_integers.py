"""Integer, bit and comparison instructions against Python integers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from instruction_bench import run_instruction

LANES = 32


def signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def trunc_div(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def values(bits: int) -> st.SearchStrategy[list[int]]:
    edges = [0, 1, 2, (1 << bits) - 1, (1 << bits) - 2, 1 << (bits - 1), (1 << (bits - 1)) - 1, 31, 32, 33, 255, 256]
    one = st.one_of(st.integers(0, (1 << bits) - 1), st.sampled_from(edges))
    return st.lists(one, min_size=LANES, max_size=LANES)


def names(table: list[Any]) -> list[str]:
    return [f"{row[0].split(' ')[0]}#{k}" for k, row in enumerate(table)]


def unsigned_dtype(bits: int) -> str:
    return f"u{bits // 8}"


BINARY: list[tuple[str, int, int, Callable[..., int]]] = []
for b in (16, 32, 64):
    BINARY += [
        (f"add.u{b} %d0, %a0, %a1;", b, b, lambda x, y: x + y),
        (f"sub.s{b} %d0, %a0, %a1;", b, b, lambda x, y: x - y),
        (f"mul.lo.s{b} %d0, %a0, %a1;", b, b, lambda x, y: x * y),
        (f"mul.hi.u{b} %d0, %a0, %a1;", b, b, lambda x, y, b=b: x * y >> b),
        (f"mul.hi.s{b} %d0, %a0, %a1;", b, b, lambda x, y, b=b: signed(x, b) * signed(y, b) >> b),
        (f"min.u{b} %d0, %a0, %a1;", b, b, min),
        (f"max.u{b} %d0, %a0, %a1;", b, b, max),
        (f"min.s{b} %d0, %a0, %a1;", b, b, lambda x, y, b=b: min(signed(x, b), signed(y, b))),
        (f"max.s{b} %d0, %a0, %a1;", b, b, lambda x, y, b=b: max(signed(x, b), signed(y, b))),
        (f"and.b{b} %d0, %a0, %a1;", b, b, lambda x, y: x & y),
        (f"or.b{b} %d0, %a0, %a1;", b, b, lambda x, y: x | y),
        (f"xor.b{b} %d0, %a0, %a1;", b, b, lambda x, y: x ^ y),
        (f"div.u{b} %d0, %a0, %a1;", b, b, lambda x, y, b=b: x // y if y else (1 << b) - 1),
        (f"rem.u{b} %d0, %a0, %a1;", b, b, lambda x, y: x % y if y else x),
        (f"div.s{b} %d0, %a0, %a1;", b, b, lambda x, y, b=b: trunc_div(signed(x, b), signed(y, b)) if y else -1),
        (
            f"rem.s{b} %d0, %a0, %a1;", b, b,
            lambda x, y, b=b: signed(x, b) - trunc_div(signed(x, b), signed(y, b)) * signed(y, b) if y else x,
        ),
    ]  # fmt: skip
for b in (16, 32):
    BINARY += [
        (f"mul.wide.u{b} %d0, %a0, %a1;", b, 2 * b, lambda x, y: x * y),
        (f"mul.wide.s{b} %d0, %a0, %a1;", b, 2 * b, lambda x, y, b=b: signed(x, b) * signed(y, b)),
    ]


def cut24(x: int, is_signed: bool) -> int:
    return signed(x, 24) if is_signed else x & 0xFFFFFF


BINARY += [
    ("mul24.lo.u32 %d0, %a0, %a1;", 32, 32, lambda x, y: cut24(x, False) * cut24(y, False)),
    ("mul24.hi.u32 %d0, %a0, %a1;", 32, 32, lambda x, y: cut24(x, False) * cut24(y, False) >> 16),
    ("mul24.lo.s32 %d0, %a0, %a1;", 32, 32, lambda x, y: cut24(x, True) * cut24(y, True)),
    ("mul24.hi.s32 %d0, %a0, %a1;", 32, 32, lambda x, y: cut24(x, True) * cut24(y, True) >> 16),
    (
        "add.sat.s32 %d0, %a0, %a1;", 32, 32,
        lambda x, y: max(-(2**31), min(2**31 - 1, signed(x, 32) + signed(y, 32))),
    ),
    (
        "sub.sat.s32 %d0, %a0, %a1;", 32, 32,
        lambda x, y: max(-(2**31), min(2**31 - 1, signed(x, 32) - signed(y, 32))),
    ),
    ("shl.b32 %d0, %a0, %a1;", 32, 32, lambda x, y: x << y if y < 32 else 0),
    ("shr.u32 %d0, %a0, %a1;", 32, 32, lambda x, y: x >> y if y < 32 else 0),
    ("shr.s32 %d0, %a0, %a1;", 32, 32, lambda x, y: signed(x, 32) >> min(y, 31)),
    ("shl.b32 %d0, %a0, 7;", 32, 32, lambda x, y: x << 7),
    ("shl.b32 %d0, %a0, 32;", 32, 32, lambda x, y: 0),
    ("shr.s32 %d0, %a0, 40;", 32, 32, lambda x, y: signed(x, 32) >> 31),
    ("shf.l.wrap.b32 %d0, %a0, %a1, %a1;", 32, 32, lambda x, y: (y << 32 | x) << (y & 31) >> 32),
    ("shf.r.wrap.b32 %d0, %a0, %a1, %a1;", 32, 32, lambda x, y: (y << 32 | x) >> (y & 31)),
    ("shf.l.clamp.b32 %d0, %a0, %a1, %a1;", 32, 32, lambda x, y: (y << 32 | x) << min(y, 32) >> 32),
    ("shf.r.clamp.b32 %d0, %a0, %a1, %a1;", 32, 32, lambda x, y: (y << 32 | x) >> min(y, 32)),
    ("sad.u32 %d0, %a0, %a1, 3;", 32, 32, lambda x, y: abs(x - y) + 3),
    ("sad.s32 %d0, %a0, %a1, 3;", 32, 32, lambda x, y: abs(signed(x, 32) - signed(y, 32)) + 3),
    ("mad.lo.u32 %d0, %a0, %a1, %a0;", 32, 32, lambda x, y: x * y + x),
    ("mad.hi.s32 %d0, %a0, %a1, %a0;", 32, 32, lambda x, y: (signed(x, 32) * signed(y, 32) >> 32) + x),
    ("mad.lo.s16 %d0, %a0, %a1, %a0;", 16, 16, lambda x, y: x * y + x),
    ("bmsk.clamp.b32 %d0, %a0, %a1;", 32, 32, lambda x, y: ((1 << min(y, 32)) - 1) << min(x, 32)),
    ("bmsk.wrap.b32 %d0, %a0, %a1;", 32, 32, lambda x, y: ((1 << (y & 31)) - 1) << (x & 31)),
    ("szext.clamp.s32 %d0, %a0, %a1;", 32, 32, lambda x, y: signed(x, min(y, 32)) if y else 0),
    ("szext.wrap.u32 %d0, %a0, %a1;", 32, 32, lambda x, y: x & ((1 << (y & 31)) - 1)),
    ("add.u32 %d0, %a0, 0xFFFFFFF0;", 32, 32, lambda x, y: x - 16),
    ("add.s32 %d0, %a0, -5;", 32, 32, lambda x, y: x - 5),
]  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("text", "bits", "result_bits", "oracle"), BINARY, ids=names(BINARY))
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_two_operand_instructions_agree_with_python_integers(
    text: str, bits: int, result_bits: int, oracle: Callable[..., int], data: st.DataObject
) -> None:
    x, y = data.draw(values(bits)), data.draw(values(bits))
    dtype = unsigned_dtype(bits)
    (got,) = run_instruction(text, [np.array(x, dtype), np.array(y, dtype)], [unsigned_dtype(result_bits)])
    mask = (1 << result_bits) - 1
    assert [int(v) for v in got] == [oracle(p, q) & mask for p, q in zip(x, y, strict=True)]


def dot4(x: int, y: int, sx: bool, sy: bool) -> int:
    total = 0
    for k in range(4):
        p, q = x >> 8 * k & 255, y >> 8 * k & 255
        total += (signed(p, 8) if sx else p) * (signed(q, 8) if sy else q)
    return total


def bfe(value: int, start: int, length: int, bits: int, is_signed: bool) -> int:
    start, length = start & 255, length & 255
    sign = 0
    if is_signed and length:
        sign = value >> min(start + length - 1, bits - 1) & 1
    result = 0
    for k in range(bits):
        bit = value >> (start + k) & 1 if k < length and start + k <= bits - 1 else sign
        result |= bit << k
    return result


def bfi(field: int, base: int, start: int, length: int, bits: int) -> int:
    start, length = start & 255, length & 255
    for k in range(length):
        if start + k < bits:
            base = base & ~(1 << (start + k)) | (field >> k & 1) << (start + k)
    return base


def prmt(x: int, y: int, selector: int) -> int:
    source = (y << 32 | x).to_bytes(8, "little")
    result = 0
    for k in range(4):
        nibble = selector >> 4 * k & 15
        byte = source[nibble & 7]
        if nibble & 8:
            byte = 255 if byte & 128 else 0
        result |= byte << 8 * k
    return result


def lop3(x: int, y: int, z: int, table: int) -> int:
    result = 0
    for k in range(32):
        index = (x >> k & 1) * 4 + (y >> k & 1) * 2 + (z >> k & 1)
        result |= (table >> index & 1) << k
    return result


def nth_one(x: int, base: int, count: int) -> int:
    ones = [bit for bit in range(base, 32) if x >> bit & 1]
    return ones[count - 1] if len(ones) >= count else -1


THREE: list[tuple[str, Callable[..., int]]] = [
    ("prmt.b32 %d0, %a0, %a1, %a2;", prmt),
    ("prmt.b32 %d0, %a0, %a1, 0x5410;", lambda x, y, z: prmt(x, y, 0x5410)),
    ("prmt.b32.f4e %d0, %a0, %a1, %a2;", lambda x, y, z: (y << 32 | x) >> 8 * (z & 3)),
    ("prmt.b32.rc8 %d0, %a0, %a1, %a2;", lambda x, y, z: (x >> 8 * (z & 3) & 255) * 0x01010101),
    ("bfe.u32 %d0, %a0, %a1, %a2;", lambda x, y, z: bfe(x, y, z, 32, False)),
    ("bfe.s32 %d0, %a0, %a1, %a2;", lambda x, y, z: bfe(x, y, z, 32, True)),
    ("bfe.u32 %d0, %a0, 5, 9;", lambda x, y, z: x >> 5 & 511),
    ("bfi.b32 %d0, %a0, %a1, %a2, 9;", lambda x, y, z: bfi(x, y, z, 9, 32)),
    ("bfi.b32 %d0, %a0, %a1, 3, %a2;", lambda x, y, z: bfi(x, y, 3, z, 32)),
    ("dp4a.s32.s32 %d0, %a0, %a1, %a2;", lambda x, y, z: dot4(x, y, True, True) + z),
    ("dp4a.u32.u32 %d0, %a0, %a1, %a2;", lambda x, y, z: dot4(x, y, False, False) + z),
    ("dp4a.u32.s32 %d0, %a0, %a1, %a2;", lambda x, y, z: dot4(x, y, False, True) + z),
    (
        "dp2a.lo.s32.s32 %d0, %a0, %a1, %a2;",
        lambda x, y, z: signed(x, 16) * signed(y, 8) + signed(x >> 16, 16) * signed(y >> 8, 8) + z,
    ),
    (
        "dp2a.hi.u32.u32 %d0, %a0, %a1, %a2;",
        lambda x, y, z: (x & 0xFFFF) * (y >> 16 & 255) + (x >> 16) * (y >> 24) + z,
    ),
    ("mad24.lo.s32 %d0, %a0, %a1, %a2;", lambda x, y, z: cut24(x, True) * cut24(y, True) + z),
    *[(f"lop3.b32 %d0, %a0, %a1, %a2, {table:#x};", lambda x, y, z, t=table: lop3(x, y, z, t))
      for table in (0x96, 0x80, 0xFE, 0xEA, 0xF8, 0x6A, 0x78, 0xCA, 0xE2, 0xE8, 0x1B, 0x00, 0xFF, 0x3C)],
    (
        "{ .reg .b32 %t; add.cc.u32 %t, %a0, %a1; addc.u32 %d0, %a2, 0; }",
        lambda x, y, z: z + (x + y >> 32),
    ),
    (
        "{ .reg .b32 %t; sub.cc.u32 %t, %a0, %a1; subc.u32 %d0, %a2, %a0; }",
        lambda x, y, z: z - x - (1 if x < y else 0),
    ),
    (  # The flag is a carry: set where nothing was borrowed.
        "{ .reg .b32 %t; sub.cc.u32 %t, %a0, %a1; addc.u32 %d0, %a2, 0; }",
        lambda x, y, z: z + (1 if x >= y else 0),
    ),
    (
        "{ .reg .b32 %t; sub.cc.u32 %t, %a0, %a1; subc.cc.u32 %t, %a2, %a0; addc.u32 %d0, %a0, %a1; }",
        lambda x, y, z: x + y + (1 if z - x - (1 if x < y else 0) >= 0 else 0),
    ),
    (
        "{ .reg .b32 %t; mad.lo.cc.u32 %t, %a0, %a1, %a2; madc.hi.u32 %d0, %a0, %a1, 7; }",
        lambda x, y, z: (x * y >> 32) + 7 + ((x * y & 0xFFFFFFFF) + z >> 32),
    ),
    ("fns.b32 %d0, %a0, 3, 2;", lambda x, y, z: nth_one(x, 3, 2)),
]  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("text", "oracle"), THREE, ids=names(THREE))
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_three_operand_instructions_agree_with_python_integers(
    text: str, oracle: Callable[..., int], data: st.DataObject
) -> None:
    inputs = [data.draw(values(32)) for _ in range(3)]
    (got,) = run_instruction(text, [np.array(v, np.uint32) for v in inputs], [np.uint32])
    assert [int(v) for v in got] == [oracle(*row) & 0xFFFFFFFF for row in zip(*inputs, strict=True)]


UNARY: list[tuple[str, int, int, Callable[..., int]]] = []
for b in (32, 64):
    UNARY += [
        (f"popc.b{b} %d0, %a0;", b, 32, lambda x: x.bit_count()),
        (f"clz.b{b} %d0, %a0;", b, 32, lambda x, b=b: b - x.bit_length()),
        (f"bfind.u{b} %d0, %a0;", b, 32, lambda x: x.bit_length() - 1),
        (f"bfind.shiftamt.u{b} %d0, %a0;", b, 32, lambda x, b=b: b - x.bit_length() if x else -1),
        (f"brev.b{b} %d0, %a0;", b, b, lambda x, b=b: int(f"{x:0{b}b}"[::-1], 2)),
        (f"not.b{b} %d0, %a0;", b, b, lambda x: ~x),
        (f"cnot.b{b} %d0, %a0;", b, b, lambda x: int(x == 0)),
        (f"neg.s{b} %d0, %a0;", b, b, lambda x: -x),
        (f"abs.s{b} %d0, %a0;", b, b, lambda x, b=b: abs(signed(x, b))),
        (f"bfe.s{b} %d0, %a0, 3, 7;", b, b, lambda x, b=b: bfe(x, 3, 7, b, True)),
        (f"bfi.b{b} %d0, %a0, %a0, 11, 13;", b, b, lambda x, b=b: bfi(x, x, 11, 13, b)),
    ]
UNARY += [
    ("bfind.s32 %d0, %a0;", 32, 32, lambda x: ((~x & 0xFFFFFFFF) if x >> 31 else x).bit_length() - 1),
    ("cvt.u64.u32 %d0, %a0;", 32, 64, lambda x: x),
    ("cvt.s64.s32 %d0, %a0;", 32, 64, lambda x: signed(x, 32)),
    ("cvt.u16.u32 %d0, %a0;", 32, 16, lambda x: x),
    ("cvt.s32.s8 %d0, %a0;", 32, 32, lambda x: signed(x, 8)),
    ("cvt.u32.u8 %d0, %a0;", 32, 32, lambda x: x & 255),
    ("cvt.sat.u8.s32 %d0, %a0;", 32, 32, lambda x: max(0, min(255, signed(x, 32)))),
    ("cvt.sat.s8.s32 %d0, %a0;", 32, 32, lambda x: max(-128, min(127, signed(x, 32)))),
    ("cvt.sat.s16.u32 %d0, %a0;", 32, 16, lambda x: min(32767, x)),
    ("cvt.sat.u32.s64 %d0, %a0;", 64, 32, lambda x: max(0, min(2**32 - 1, signed(x, 64)))),
    ("{ .reg .b16 %l, %h; mov.b32 {%l, %h}, %a0; mov.b32 %d0, {%h, %l}; }", 32, 32, lambda x: x >> 16 | x << 16),
    ("{ .reg .b32 %l, %h; mov.b64 {%l, %h}, %a0; mov.b64 %d0, {%h, %l}; }", 64, 64, lambda x: x >> 32 | x << 32),
    ("{ .reg .b32 %h; mov.b64 {_, %h}, %a0; mov.b32 %d0, %h; }", 64, 32, lambda x: x >> 32),
    ("shl.b64 %d0, %a0, 40;", 64, 64, lambda x: x << 40),
    ("shr.s64 %d0, %a0, 40;", 64, 64, lambda x: signed(x, 64) >> 40),
    ("shr.u16 %d0, %a0, 3;", 16, 16, lambda x: x >> 3),
    ("mad.wide.s32 %d0, %a0, -3, 0x100000000;", 32, 64, lambda x: signed(x, 32) * -3 + (1 << 32)),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("text", "bits", "result_bits", "oracle"), UNARY, ids=names(UNARY))
@settings(max_examples=4, deadline=None)
@given(data=st.data())
def test_one_operand_instructions_agree_with_python_integers(
    text: str, bits: int, result_bits: int, oracle: Callable[..., int], data: st.DataObject
) -> None:
    x = data.draw(values(bits))
    (got,) = run_instruction(text, [np.array(x, unsigned_dtype(bits))], [unsigned_dtype(result_bits)])
    mask = (1 << result_bits) - 1
    assert [int(v) for v in got] == [oracle(v) & mask for v in x]


COMPARE = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
UNSIGNED_COMPARE = {"lo": "<", "ls": "<=", "hi": ">", "hs": ">="}


@pytest.mark.parametrize("bits", [16, 32, 64])
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_setp_and_selp_agree_with_python_comparisons(bits: int, data: st.DataObject) -> None:
    x, y = data.draw(values(bits)), data.draw(values(bits))
    y[:8] = x[:8]
    dtype = unsigned_dtype(bits)
    arrays = [np.array(x, dtype), np.array(y, dtype)]
    for name, symbol in (*COMPARE.items(), *UNSIGNED_COMPARE.items()):
        kinds = "u" if name in UNSIGNED_COMPARE else "us"
        for kind in kinds:
            text = f"setp.{name}.{kind}{bits} %d0|%d1, %a0, %a1; selp.b{bits} %d2, %a0, %a1, %d0;"
            low, high, chosen = run_instruction(text, arrays, [np.bool_, np.bool_, dtype])
            for k, (p, q) in enumerate(zip(x, y, strict=True)):
                left, right = (signed(p, bits), signed(q, bits)) if kind == "s" else (p, q)
                holds = eval(f"left {symbol} right", {"left": left, "right": right})
                assert (bool(low[k]), bool(high[k])) == (holds, not holds)
                assert int(chosen[k]) == (p if holds else q)


@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_setp_combines_with_a_predicate(data: st.DataObject) -> None:
    x, y = data.draw(values(32)), data.draw(values(32))
    p = data.draw(st.lists(st.booleans(), min_size=LANES, max_size=LANES))
    arrays = [np.array(x, np.uint32), np.array(y, np.uint32), np.array(p, np.bool_)]
    for operation, fold in (("and", operator.and_), ("or", operator.or_), ("xor", operator.xor)):
        for bang in ("", "!"):
            text = f"setp.lt.{operation}.u32 %d0|%d1, %a0, %a1, {bang}%a2;"
            low, high = run_instruction(text, arrays, [np.bool_, np.bool_])
            for k in range(LANES):
                other = p[k] != bool(bang)
                assert bool(low[k]) == fold(x[k] < y[k], other)
                assert bool(high[k]) == fold(not x[k] < y[k], other)


def test_set_gives_all_ones_or_one_point_zero() -> None:
    x = np.array([1, 5, 5, 9] * 8, np.uint32)
    (ones,) = run_instruction("set.gt.u32.u32 %d0, %a0, 4;", [x], [np.uint32])
    assert ones.tolist() == [0, 2**32 - 1, 2**32 - 1, 2**32 - 1] * 8
    (floats,) = run_instruction("set.eq.f32.s32 %d0, %a0, 5;", [x], [np.float32])
    assert floats.tolist() == [0.0, 1.0, 1.0, 0.0] * 8


@settings(max_examples=10, deadline=None)
@given(data=st.data())
def test_a_guard_decides_which_lanes_write(data: st.DataObject) -> None:
    x, y = data.draw(values(32)), data.draw(values(32))
    p = data.draw(st.lists(st.booleans(), min_size=LANES, max_size=LANES))
    arrays = [np.array(x, np.uint32), np.array(y, np.uint32), np.array(p, np.bool_)]
    text = "mov.b32 %d0, %a0; @%a2 add.u32 %d0, %d0, %a1; @!%a2 xor.b32 %d0, %d0, %a1;"
    (got,) = run_instruction(text, arrays, [np.uint32])
    want = [(a + b if g else a ^ b) & 0xFFFFFFFF for a, b, g in zip(x, y, p, strict=True)]
    assert got.tolist() == want
