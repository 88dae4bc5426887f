"""mma.sync: sparse, block-scaled, single-bit and f16 quad-pair forms against sums written element by element.

Fragments are built here from the manual's rule for all shapes: with r elements per register, register j of lane 4 g + t
holds row g + 8 (j mod 2) of A and columns t r ... of its j / 2-th run along K.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from instruction_bench import run_instruction
from numpy.typing import NDArray

from tinygpu.ptx.emulator import EmulationFault, PtxSyntaxError, UnsupportedInstruction

Floats = NDArray[np.float64]
DTYPES: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2, "e3m2": ml_dtypes.float6_e3m2fn, "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn, "s8": np.int8, "u8": np.uint8,
}  # fmt: skip
RANGES = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16), "b1": (0, 2)}
NARROW = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")


@dataclass(frozen=True)
class Operand:
    """Elements of one matrix as numbers and as the bits that hold them."""

    values: Floats
    codes: NDArray[np.uint32]
    bits: int


def draw(rng: np.random.Generator, name: str, shape: tuple[int, ...], bits: int) -> Operand:
    if name in RANGES:
        whole = rng.integers(*RANGES[name], shape)
        return Operand(whole.astype(np.float64), (whole & ((1 << bits) - 1)).astype(np.uint32), bits)
    if name in ("f16", "bf16", "tf32"):
        values = rng.integers(-8, 9, shape) / 4
        codes = values.astype(DTYPES[name]).view(f"u{bits // 8}").astype(np.uint32)
        return Operand(values, codes, bits)
    width = {"e4m3": 8, "e5m2": 8, "e3m2": 6, "e2m3": 6, "e2m1": 4}[name]
    codes = rng.integers(0, 1 << width, shape).astype(np.uint8)
    values = codes.view(DTYPES[name]).astype(np.float64)
    if not np.isfinite(values).all():
        codes = np.where(np.isfinite(values), codes, np.uint8(1))
        values = codes.view(DTYPES[name]).astype(np.float64)
    # An e2m1 that has a byte to itself lies in the byte's middle; what surrounds it must not matter.
    placed = codes.astype(np.uint32)
    if name == "e2m1" and bits == 8:
        placed = placed << np.uint32(2) | rng.integers(0, 4, shape).astype(np.uint32) | np.uint32(0xC0)
    if width == 6:
        placed = placed | np.uint32(0x80)
    return Operand(values, placed, bits)


def packed(elements: Sequence[int], bits: int) -> int:
    return sum(int(e) << bits * k for k, e in enumerate(elements))


def left_registers(a: Operand) -> list[NDArray[np.uint32]]:
    """A: one array of 32 lanes per register."""
    rows, columns = a.values.shape
    per = 32 // a.bits
    count = rows * columns // 32 // per
    out = []
    for j in range(count):
        words = []
        for lane in range(32):
            g, t = lane >> 2, lane & 3
            row = g + (8 * (j % 2) if rows == 16 else 0)
            run = j // 2 if rows == 16 else j
            words.append(packed([a.codes[row, t * per + e + 4 * per * run] for e in range(per)], a.bits))
        out.append(np.array(words, np.uint32))
    return out


def right_registers(b: Operand) -> list[NDArray[np.uint32]]:
    per = 32 // b.bits
    out = []
    for j in range(b.values.shape[0] * 8 // 32 // per):
        words = []
        for lane in range(32):
            g, t = lane >> 2, lane & 3
            words.append(packed([b.codes[t * per + e + 4 * per * j, g] for e in range(per)], b.bits))
        out.append(np.array(words, np.uint32))
    return out


def accumulator_registers(c: NDArray[Any], dtype: Any) -> list[NDArray[Any]]:
    rows = c.shape[0]
    out = np.zeros((32, rows // 4), dtype)
    for lane in range(32):
        for i in range(rows // 4):
            out[lane, i] = c[(lane >> 2) + 8 * (i >> 1), 2 * (lane & 3) + (i & 1)]
    return [np.ascontiguousarray(column) for column in out.view(np.uint32).T]


def check(
    name: str, a: list[NDArray[Any]], b: list[NDArray[Any]], c: NDArray[Any], want: Floats, d_type: str,
    extra: str = "", inputs: Sequence[NDArray[Any]] = (),
) -> None:  # fmt: skip
    """Run one mma and compare every lane's registers with `want` rounded once into D."""
    dtype: Any = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[d_type]
    held = accumulator_registers(c, dtype)
    arrays = [*a, *b, *held, *inputs]
    cut = [0, len(a), len(a) + len(b), len(a) + len(b) + len(held)]
    parts = [", ".join(f"%a{k}" for k in range(cut[j], cut[j + 1])) for j in range(3)]
    targets = ", ".join(f"%d{k}" for k in range(len(held)))
    places = {f"X{k}": f"%a{cut[3] + k}" for k in range(len(inputs))}
    for key, register in places.items():
        extra = extra.replace(key, register)
    text = f"{name} {{{targets}}}, {{{parts[0]}}}, {{{parts[1]}}}, {{{parts[2]}}}{extra};"
    got = run_instruction(text, arrays, [np.uint32] * len(held))
    expected = accumulator_registers(want.astype(dtype), dtype)
    for lanes, value in zip(got, expected, strict=True):
        np.testing.assert_array_equal(lanes, value)


# ---- dense forms that the basic tests leave out -------------------------------------------------------------------


@pytest.mark.parametrize("shape", ["m8n8k128", "m16n8k128", "m16n8k256"])
@pytest.mark.parametrize("operation", ["and", "xor"])
def test_single_bits_are_combined_and_counted(shape: str, operation: str) -> None:
    rng = np.random.default_rng(1)
    m, k = int(shape[1 : shape.index("n")]), int(shape[shape.index("k") + 1 :])
    a, b = draw(rng, "b1", (m, k), 1), draw(rng, "b1", (k, 8), 1)
    c = rng.integers(-50, 50, (m, 8))
    want = np.zeros((m, 8))
    for row in range(m):
        for column in range(8):
            pairs = zip(a.values[row].astype(int), b.values[:, column].astype(int), strict=True)
            want[row, column] = c[row, column] + sum((x & y) if operation == "and" else (x ^ y) for x, y in pairs)
    name = f"mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{operation}.popc"
    check(name, left_registers(a), right_registers(b), c, want, "s32")


@pytest.mark.parametrize("d_type", ["f32", "f16"])
@pytest.mark.parametrize("a_type", NARROW)
@pytest.mark.parametrize("b_type", NARROW)
def test_narrow_elements_in_bytes_multiply(a_type: str, b_type: str, d_type: str) -> None:
    rng = np.random.default_rng(2)
    a, b = draw(rng, a_type, (16, 32), 8), draw(rng, b_type, (32, 8), 8)
    c = rng.integers(-5, 6, (16, 8)).astype(np.float64)
    name = f"mma.sync.aligned.kind::f8f6f4.m16n8k32.row.col.{d_type}.{a_type}.{b_type}.{d_type}"
    with np.errstate(over="ignore"):
        check(name, left_registers(a), right_registers(b), c, a.values @ b.values + c, d_type)


@pytest.mark.parametrize("shape", ["m16n8k16", "m16n8k32"])
def test_fp8_accumulates_in_f16(shape: str) -> None:
    rng = np.random.default_rng(3)
    k = int(shape[shape.index("k") + 1 :])
    a, b = draw(rng, "e4m3", (16, k), 8), draw(rng, "e5m2", (k, 8), 8)
    c = rng.integers(-5, 6, (16, 8)).astype(np.float64)
    name = f"mma.sync.aligned.{shape}.row.col.f16.e4m3.e5m2.f16"
    with np.errstate(over="ignore"):
        check(name, left_registers(a), right_registers(b), c, a.values @ b.values + c, "f16")


@pytest.mark.parametrize("shape", ["m16n8k32", "m8n8k32"])
def test_four_bit_integers_multiply(shape: str) -> None:
    rng = np.random.default_rng(4)
    m = int(shape[1 : shape.index("n")])
    a, b = draw(rng, "s4", (m, 32), 4), draw(rng, "u4", (32, 8), 4)
    c = rng.integers(-500, 500, (m, 8))
    name = f"mma.sync.aligned.{shape}.row.col.satfinite.s32.s4.u4.s32"
    check(name, left_registers(a), right_registers(b), c, a.values @ b.values + c, "s32")


@pytest.mark.parametrize("a_layout", ["row", "col"])
@pytest.mark.parametrize("b_layout", ["row", "col"])
@pytest.mark.parametrize(("d_type", "c_type"), [("f32", "f32"), ("f16", "f16"), ("f32", "f16")])
def test_m8n8k4_makes_four_products(a_layout: str, b_layout: str, d_type: str, c_type: str) -> None:
    """Lanes 4 q to 4 q + 3 and 16 + 4 q to 19 + 4 q make product q."""
    rng = np.random.default_rng(5)
    a, b = rng.integers(-6, 7, (4, 8, 4)), rng.integers(-6, 7, (4, 4, 8))
    c = rng.integers(-9, 10, (4, 8, 8))
    frag_a, frag_b = np.zeros((32, 4), np.float16), np.zeros((32, 4), np.float16)
    frag_c = np.zeros((32, 8), np.float32 if c_type == "f32" else np.float16)

    def place(kind: str, lane: int, i: int) -> tuple[int, int]:
        if kind == "f16":
            return lane % 4 + 4 * (lane >= 16), i
        return (lane & 1) + (i & 2) + 4 * (lane >= 16), (i & 4) + (lane & 2) + (i & 1)

    for lane in range(32):
        q, high = lane % 16 // 4, 4 * (lane >= 16)
        for i in range(4):
            frag_a[lane, i] = a[q, lane % 4 + high, i] if a_layout == "row" else a[q, i + high, lane % 4]
            frag_b[lane, i] = b[q, lane % 4, i + high] if b_layout == "row" else b[q, i, lane % 4 + high]
        for i in range(8):
            frag_c[lane, i] = c[(q, *place(c_type, lane, i))]
    held = [np.ascontiguousarray(x) for f in (frag_a, frag_b, frag_c) for x in f.view(np.uint32).T]
    nc, nd = frag_c.view(np.uint32).shape[1], 8 if d_type == "f32" else 4
    names = [f"%a{k}" for k in range(len(held))]
    text = (
        f"mma.sync.aligned.m8n8k4.{a_layout}.{b_layout}.{d_type}.f16.f16.{c_type} "
        f"{{{', '.join(f'%d{k}' for k in range(nd))}}}, {{{', '.join(names[:2])}}}, {{{', '.join(names[2:4])}}}, "
        f"{{{', '.join(names[4 : 4 + nc])}}};"
    )
    got = np.ascontiguousarray(np.stack(run_instruction(text, held, [np.uint32] * nd), axis=1))
    numbers = got.view(np.float32 if d_type == "f32" else np.float16)
    want = a @ b + c
    for lane in range(32):
        for i in range(8):
            assert numbers[lane, i] == want[(lane % 16 // 4, *place(d_type, lane, i))]


# ---- sparse -------------------------------------------------------------------------------------------------------

SPARSE = [
    ("m16n8k16", "f16", "f32"), ("m16n8k32", "f16", "f16"), ("m16n8k16", "bf16", "f32"), ("m16n8k32", "bf16", "f32"),
    ("m16n8k8", "tf32", "f32"), ("m16n8k16", "tf32", "f32"), ("m16n8k32", "s8", "s32"), ("m16n8k64", "u8", "s32"),
    ("m16n8k64", "s4", "s32"), ("m16n8k128", "u4", "s32"), ("m16n8k64", "e4m3", "f32"),
]  # fmt: skip
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "e4m3": 8}
LEGAL = [0b0100, 0b1000, 0b1001, 0b1100, 0b1101, 0b1110]


def metadata(
    rng: np.random.Generator, k: int, bits: int, selector: int, legal: Sequence[int]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Metadata registers, and the column of each stored element (16, k / 2), from the manual's figures."""
    chunk = {32: 2, 16: 4, 8: 4, 4: 8}[bits]
    words = rng.integers(0, 2**32, 32).tolist()
    columns = np.zeros((16, k // 2), np.int64)
    for row in range(16):
        for c in range(k // chunk):
            value = int(rng.choice(legal))
            if bits >= 16:
                lanes = k // chunk * 4 // 16
                lane, shift = c // 4, 4 * (c % 4) + 16 * (row // 8)
            else:
                lanes = 2 * (k // chunk * 4 // 32)
                lane, shift = 2 * (c // 8) + row // 8, 4 * (c % 8)
            lane += 4 * (row % 8) + selector * lanes
            words[lane] = words[lane] & ~(15 << shift) | value << shift
            low, high = value & 3, value >> 2
            if bits == 32:
                columns[row, c] = 2 * c + (1 if value == 0b1110 else 0)
            elif bits == 4:
                columns[row, 4 * c : 4 * c + 4] = [8 * c + 2 * i + j for i in (low, high) for j in (0, 1)]
            else:
                columns[row, 2 * c : 2 * c + 2] = [4 * c + low, 4 * c + high]
    return np.array(words, np.uint32), columns


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("shape", "kind", "d_type"), SPARSE)
@pytest.mark.parametrize("ordered", [False, True])
def test_sparse_a_is_expanded_by_its_metadata(shape: str, kind: str, d_type: str, ordered: bool) -> None:
    rng = np.random.default_rng(6)
    k, bits = int(shape[shape.index("k") + 1 :]), BITS[kind]
    per_quad = {(16, 16): 1, (32, 16): 2, (8, 32): 1, (16, 32): 2, (32, 8): 2, (64, 8): 4, (64, 4): 2, (128, 4): 4}
    legal = [0b0100, 0b1110] if bits == 32 else LEGAL if ordered else [*LEGAL, 0b0001, 0b0110, 0b1011]
    for selector in range(4 // per_quad[k, bits]):
        a, b = draw(rng, kind, (16, k // 2), bits), draw(rng, kind, (k, 8), bits)
        words, columns = metadata(rng, k, bits, selector, legal)
        whole = np.zeros((16, k))
        for row in range(16):
            whole[row, columns[row]] = a.values[row]
        c = rng.integers(-5, 6, (16, 8)).astype(np.float64)
        variant = "sp::ordered_metadata" if ordered else "sp"
        name = f"mma.{variant}.sync.aligned.{shape}.row.col.{d_type}.{kind}.{kind}.{d_type}"
        check(
            name, left_registers(a), right_registers(b), c, whole @ b.values + c, d_type, f", X0, {selector}", [words]
        )


def test_sparse_narrow_elements_multiply() -> None:
    rng = np.random.default_rng(7)
    a, b = draw(rng, "e2m1", (16, 32), 8), draw(rng, "e3m2", (64, 8), 8)
    words, columns = metadata(rng, 64, 8, 0, LEGAL)
    whole = np.zeros((16, 64))
    for row in range(16):
        whole[row, columns[row]] = a.values[row]
    c = rng.integers(-5, 6, (16, 8)).astype(np.float64)
    name = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e3m2.f32"
    check(name, left_registers(a), right_registers(b), c, whole @ b.values + c, "f32", ", X0, 0", [words])


@pytest.mark.parametrize(
    ("name", "word", "sentence"),
    [
        (
            "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 0x4445,
            "the sparsity metadata of row 0 of A, chunk 0, is 0b0101: it must be two different indices",
        ),
        (
            "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", 0x44144444,
            "the sparsity metadata of row 8 of A, chunk 1, is 0b0001: it must be 0b0100, 0b1000, 0b1001, 0b1100, "
            "0b1101 or 0b1110",
        ),
        (
            "mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", 0x44444448,
            "the sparsity metadata of row 0 of A, chunk 0, is 0b1000: it must be 0b0100 or 0b1110",
        ),
    ],
)  # fmt: skip
def test_metadata_without_meaning_is_a_fault(name: str, word: int, sentence: str) -> None:
    zero = np.zeros(32, np.uint32)
    text = f"{name} {{%d0, %d1, %d2, %d3}}, {{%a0, %a0}}, {{%a0, %a0}}, {{%a0, %a0, %a0, %a0}}, %a1, 0;"
    with pytest.raises(EmulationFault) as caught:
        run_instruction(text, [zero, np.full(32, word, np.uint32)], [np.float32] * 4)
    assert (caught.value.kind, caught.value.sentence) == ("descriptor", sentence)


# ---- block scaling ------------------------------------------------------------------------------------------------

SCALED = [
    ("mxf8f6f4", "m16n8k32", "e4m3", "e2m1", "1X", "ue8m0", False),
    ("mxf8f6f4", "m16n8k32", "e3m2", "e5m2", "", "ue8m0", False),
    ("mxf4", "m16n8k64", "e2m1", "e2m1", "", "ue8m0", False),
    ("mxf4nvf4", "m16n8k64", "e2m1", "e2m1", "2X", "ue8m0", False),
    ("mxf4nvf4", "m16n8k64", "e2m1", "e2m1", "4X", "ue4m3", False),
    ("mxf4nvf4", "m16n8k64", "e2m1", "e2m1", "4X", "ue8m0", False),
    ("mxf8f6f4", "m16n8k64", "e4m3", "e2m3", "1X", "ue8m0", True),
    ("mxf4", "m16n8k128", "e2m1", "e2m1", "2X", "ue8m0", True),
    ("mxf4nvf4", "m16n8k128", "e2m1", "e2m1", "4X", "ue4m3", True),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("kind", "shape", "a_type", "b_type", "size", "scale", "sparse"), SCALED)
def test_blocks_along_k_are_scaled(
    kind: str, shape: str, a_type: str, b_type: str, size: str, scale: str, sparse: bool
) -> None:
    rng = np.random.default_rng(8)
    k = int(shape[shape.index("k") + 1 :])
    bits = 8 if kind == "mxf8f6f4" else 4
    count = int((size or {"mxf8f6f4": "1X", "mxf4": "2X"}[kind])[0])
    for byte_a, thread_a, byte_b, thread_b in [(0, 0, 0, 0), (4 - count, 1, 4 - count, 3), (0, 1, 4 - count, 2)]:
        a, b = draw(rng, a_type, (16, k // 2 if sparse else k), bits), draw(rng, b_type, (k, 8), bits)
        words_a = rng.integers(0, 2**32, 32, np.uint64).astype(np.uint32)
        words_b = rng.integers(0, 2**32, 32, np.uint64).astype(np.uint32)
        low, high = (120, 135) if scale == "ue8m0" else (0, 127)
        factors_a, factors_b = np.zeros((16, count)), np.zeros((8, count))
        for row in range(16):
            for j in range(count):
                lane, shift = 4 * (row % 8) + 2 * thread_a + row // 8, 8 * (byte_a + j)
                code = int(rng.integers(low, high))
                words_a[lane] = int(words_a[lane]) & ~(255 << shift) | code << shift
                factors_a[row, j] = number(code, scale)
        for column in range(8):
            for j in range(count):
                lane, shift = 4 * column + thread_b, 8 * (byte_b + j)
                code = int(rng.integers(low, high))
                words_b[lane] = int(words_b[lane]) & ~(255 << shift) | code << shift
                factors_b[column, j] = number(code, scale)
        whole = a.values
        inputs = [words_a, words_b]
        extra = f", X0, {{{byte_a}, {thread_a}}}, X1, {{{byte_b}, {thread_b}}}"
        if sparse:
            words, columns = metadata(rng, k, bits, 0, LEGAL)
            whole = np.zeros((16, k))
            for row in range(16):
                whole[row, columns[row]] = a.values[row]
            inputs.append(words)
            extra = ", X2, 0" + extra
        c = rng.integers(-5, 6, (16, 8)).astype(np.float64)
        want = c.copy()
        block = k // count
        for row in range(16):
            for column in range(8):
                for j in range(count):
                    part = whole[row, j * block : (j + 1) * block] @ b.values[j * block : (j + 1) * block, column]
                    want[row, column] += factors_a[row, j] * factors_b[column, j] * part
        variant = ".sp::ordered_metadata" if sparse else ""
        vector = f".scale_vec::{size}" if size else ""
        name = (
            f"mma{variant}.sync.aligned.kind::{kind}.block_scale{vector}.{shape}.row.col.f32.{a_type}.{b_type}.f32.{scale}"
        )
        check(name, left_registers(a), right_registers(b), c, want, "f32", extra, inputs)


def number(code: int, scale: str) -> float:
    dtype = ml_dtypes.float8_e8m0fnu if scale == "ue8m0" else ml_dtypes.float8_e4m3fn
    return float(np.array([code], np.uint8).view(dtype)[0])


def test_selectors_may_be_registers_and_wrong_ones_are_a_fault() -> None:
    zero, one = np.zeros(32, np.uint32), np.full(32, 0x7F7F7F7F, np.uint32)
    head = "mma.sync.aligned.kind::mxf4.block_scale.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0 "
    body = "{%d0, %d1, %d2, %d3}, {%a0, %a0, %a0, %a0}, {%a0, %a0}, {%a0, %a0, %a0, %a0}, %a1, "
    text = head + body + "{%a2, %a3}, %a1, {%a2, %a3};"
    good = [np.full(32, v, np.uint16) for v in (2, 1)]
    run_instruction(text, [zero, one, *good], [np.float32] * 4)
    for byte, thread, sentence in [
        (1, 0, "byte-id-a of the scale factors is 1: it must be 0 or 2"),
        (2, 2, "thread-id-a of the scale factors is 2: it must be 0 or 1"),
    ]:
        bad = [np.full(32, v, np.uint16) for v in (byte, thread)]
        with pytest.raises(EmulationFault) as caught:
            run_instruction(text, [zero, one, *bad], [np.float32] * 4)
        assert (caught.value.kind, caught.value.sentence) == ("descriptor", sentence)


# ---- what does not exist ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("mma.sync.aligned.m16n8k8.row.col.s32.s8.s8.s32", ": m16n8k8 of .s8 and .s8"),
        ("mma.sp.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32", ": sparse m16n8k8 of .f16 and .f16"),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32", ": .f16 with .bf16"),
        ("mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32", ": layouts other than .row.col"),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e2m1.e2m1.f32", ": .e2m1 with .e2m1"),
        ("mma.sync.aligned.kind::mxf4.block_scale.m16n8k64.row.col.f32.e4m3.e2m1.f32.ue8m0",
         ": .kind::mxf4 of .e4m3 and .e2m1"),
        ("mma.sync.aligned.kind::mxf4nvf4.block_scale.m16n8k64.row.col.f32.e2m1.e2m1.f32.ue8m0",
         ": .kind::mxf4nvf4 with .scale_vec::? and scale factors of .ue8m0"),
        ("mma.sync.aligned.kind::f8f6f4.block_scale.m16n8k32.row.col.f32.e4m3.e4m3.f32.ue8m0",
         ": .block_scale belongs to .kind::mxf8f6f4, .kind::mxf4 and .kind::mxf4nvf4"),
        ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32",
         ": single bits need .and.popc or .xor.popc, and only they do"),
        ("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rz", ": rounding other than .rn"),
        ("mma.sp.sync.aligned.kind::f8f6f4.m16n8k64.row.col.f32.e4m3.e2m1.f32",
         ": this sparse form needs .sp::ordered_metadata"),
    ],
)  # fmt: skip
def test_forms_that_do_not_exist_are_refused_before_anything_runs(name: str, reason: str) -> None:
    with pytest.raises(UnsupportedInstruction) as caught:
        run_instruction(f"{name} {{%a0}}, {{%a0}}, {{%a0}}, {{%a0}};", [np.zeros(32, np.uint32)], [])
    assert str(caught.value) == f"PTX line {caught.value.line}: the emulator has no semantics for `{name}`{reason}"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16 {%a0}, {%a0}, {%a0}, {%a0};",
            "`mma.sync.aligned.m16n8k16.row.col.f16.bf16.bf16.f16`: .bf16 accumulates in .f32",
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f32 {%a0}, {%a0}, {%a0}, {%a0};",
            "`mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f32`: C and D must have one type, not .f32 and .f16",
        ),
        (
            "mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%a0, %a0, %a0, %a0}, {%a0, %a0, %a0, %a0}, "
            "{%a0, %a0, %a0, %a0}, {%a0, %a0, %a0, %a0}, %a0, 2;",
            "`mma.sp.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32`: the sparsity selector must be 0 or 1, not 2",
        ),
    ],
)
def test_wrong_operands_say_what_is_wrong(text: str, sentence: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        run_instruction(text, [np.zeros(32, np.uint32)], [])
    assert caught.value.sentence == sentence
