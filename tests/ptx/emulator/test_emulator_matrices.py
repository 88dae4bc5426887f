"""mma.sync, ldmatrix, stmatrix and movmatrix: fragments built and read back by the manual's formulas, lane by lane."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from instruction_bench import module, run_instruction
from numpy.typing import NDArray

from tinygpu.ptx.emulator import PtxSyntaxError, UnsupportedInstruction, emulate

# The fragment formulas once more, written as loops from the figures of the manual: (row, k) of a_i and (k, n) of b_i.


def a_place(shape: str, kind: str, lane: int, i: int) -> tuple[int, int]:
    g, t = lane >> 2, lane & 3
    if kind in ("f16", "bf16"):
        if shape == "m16n8k8":
            return g + 8 * (i >> 1), 2 * t + (i & 1)
        return g + 8 * ((i >> 1) & 1), 2 * t + (i & 1) + 8 * (i >> 2)
    if kind == "tf32" or (kind == "f64" and shape != "m8n8k4"):
        return g + 8 * (i & 1), t + 4 * (i >> 1)
    if kind == "f64":
        return g, t
    if kind in ("s4", "u4"):
        if shape == "m8n8k32":
            return g, 8 * t + i
        return g + 8 * ((i >> 3) & 1), 8 * t + (i & 7) + 32 * (i >> 4)
    if shape == "m8n8k16":
        return g, 4 * t + i
    if shape == "m16n8k16":
        return g + 8 * (i >> 2), 4 * t + (i & 3)
    return g + 8 * ((i >> 2) & 1), 4 * t + (i & 3) + 16 * (i >> 3)


def b_place(shape: str, kind: str, lane: int, i: int) -> tuple[int, int]:
    g, t = lane >> 2, lane & 3
    if kind in ("f16", "bf16"):
        return 2 * t + (i & 1) + 8 * (i >> 1), g
    if kind in ("tf32", "f64"):
        return t + 4 * i, g
    if kind in ("s4", "u4"):
        return 8 * t + (i & 7) + 32 * (i >> 3), g
    return 4 * t + (i & 3) + 16 * (i >> 2), g


def c_place(m: int, lane: int, i: int) -> tuple[int, int]:
    g, t = lane >> 2, lane & 3
    return (g, 2 * t + i) if m == 8 else (g + 8 * (i >> 1), 2 * t + (i & 1))


SHAPES = [
    ("m16n8k8", "f16", "f16", "f32"), ("m16n8k16", "f16", "f16", "f32"), ("m16n8k16", "f16", "f16", "f16"),
    ("m16n8k8", "f16", "f16", "f16"), ("m16n8k8", "bf16", "bf16", "f32"), ("m16n8k16", "bf16", "bf16", "f32"),
    ("m16n8k4", "tf32", "tf32", "f32"), ("m16n8k8", "tf32", "tf32", "f32"), ("m8n8k4", "f64", "f64", "f64"),
    ("m16n8k4", "f64", "f64", "f64"), ("m16n8k8", "f64", "f64", "f64"), ("m16n8k16", "f64", "f64", "f64"),
    ("m8n8k16", "s8", "s8", "s32"), ("m16n8k16", "s8", "u8", "s32"), ("m16n8k32", "u8", "s8", "s32"),
    ("m16n8k32", "s8", "s8", "s32"), ("m16n8k32", "e4m3", "e5m2", "f32"), ("m16n8k16", "e5m2", "e4m3", "f32"),
    ("m16n8k64", "s4", "u4", "s32"), ("m8n8k32", "u4", "s4", "s32"),
]  # fmt: skip
STORAGE: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f64": np.float64, "s8": np.int8, "u8": np.uint8,
    "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2,
}  # fmt: skip
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8, "s4": 4, "u4": 4}


def draw(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> NDArray[Any]:
    if kind in ("s8", "s4"):
        return rng.integers(-8 if kind == "s4" else -128, 8 if kind == "s4" else 128, shape)
    if kind in ("u8", "u4"):
        return rng.integers(0, 16 if kind == "u4" else 256, shape)
    return rng.integers(-4, 5, shape).astype(np.float64)


def pack(values: list[float], kind: str) -> list[int]:
    """Elements, first lowest, into 32-bit (f64: 64-bit) registers."""
    if kind in ("s4", "u4"):
        word = 0
        words = []
        for k, v in enumerate(values):
            word |= (int(v) & 15) << 4 * (k % 8)
            if k % 8 == 7:
                words.append(word)
                word = 0
        return words
    raw = np.array(values).astype(STORAGE[kind]).tobytes()
    size = 8 if kind == "f64" else 4
    return [int.from_bytes(raw[k : k + size], "little") for k in range(0, len(raw), size)]


@pytest.mark.parametrize(("shape", "a_type", "b_type", "acc"), SHAPES, ids=["-".join(row) for row in SHAPES])
def test_mma_multiplies_the_matrices_that_its_fragments_mean(shape: str, a_type: str, b_type: str, acc: str) -> None:
    rng = np.random.default_rng(5)
    m, k = int(shape[1 : shape.index("n")]), int(shape[shape.index("k") + 1 :])
    a, b = draw(rng, a_type, (m, k)), draw(rng, b_type, (k, 8))
    c = rng.integers(-9, 10, (m, 8))
    word: Any = np.uint64 if a_type == "f64" else np.uint32
    in_a = [[a[a_place(shape, a_type, lane, i)] for i in range(m * k // 32)] for lane in range(32)]
    in_b = [[b[b_place(shape, b_type, lane, i)] for i in range(k * 8 // 32)] for lane in range(32)]
    frag_a = np.array([pack(row, a_type) for row in in_a], word)
    frag_b = np.array([pack(row, b_type) for row in in_b], word)
    per = m * 8 // 32
    values = [[c[c_place(m, lane, i)] for i in range(per)] for lane in range(32)]
    dtype: Any = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "s32": np.int32}[acc]
    frag_c = np.array(values).astype(dtype)
    if acc == "f16":
        frag_c = frag_c.view(np.uint32)
    inputs = [np.ascontiguousarray(x) for f in (frag_a, frag_b, frag_c) for x in f.T]
    na, nb, nc = frag_a.shape[1], frag_b.shape[1], frag_c.shape[1]
    names = [f"%a{k}" for k in range(na + nb + nc)]
    text = (
        f"mma.sync.aligned.{shape}.row.col.{acc}.{a_type}.{b_type}.{acc} {{{', '.join(f'%d{k}' for k in range(nc))}}}, "
        f"{{{', '.join(names[:na])}}}, {{{', '.join(names[na : na + nb])}}}, {{{', '.join(names[na + nb :])}}};"
    )
    out = run_instruction(text, inputs, [frag_c.dtype] * nc)
    got = np.stack(out, axis=1)
    if acc == "f16":
        got = np.ascontiguousarray(got).view(np.float16)
    want = a.astype(np.float64) @ b.astype(np.float64) + c
    for lane in range(32):
        for i in range(per):
            assert float(got[lane, i]) == want[c_place(m, lane, i)]


def test_tf32_operands_are_truncated() -> None:
    one = np.full(32, 1.0, np.float32)
    fine = np.full(32, 1.0 + 2.0**-11, np.float32)
    zero = np.zeros(32, np.float32)
    text = (
        "mma.sync.aligned.m16n8k4.row.col.f32.tf32.tf32.f32 {%d0, %d1, %d2, %d3}, {%a0, %a0}, {%a1}, "
        "{%a2, %a2, %a2, %a2};"
    )
    (got, *_) = run_instruction(text, [fine, one, zero], [np.float32] * 4)
    assert got.tolist() == [4.0] * 32


def test_integer_accumulation_wraps_unless_satfinite() -> None:
    big = np.full(32, 0x7F7F7F7F, np.uint32)
    top = np.full(32, 2**31 - 1, np.int32)
    for suffix, want in (("", 2**31 - 1 + 127 * 127 * 32 - 2**32), (".satfinite", 2**31 - 1)):
        text = (
            f"mma.sync.aligned.m16n8k32.row.col{suffix}.s32.s8.s8.s32 {{%d0, %d1, %d2, %d3}}, {{%a0, %a0, %a0, %a0}}, "
            "{%a0, %a0}, {%a1, %a1, %a1, %a1};"
        )
        (got, *_) = run_instruction(text, [big, top], [np.int32] * 4)
        assert got.tolist() == [want] * 32


def test_an_f32_accumulator_keeps_what_f16_products_need() -> None:
    """The largest and the smallest products together: nothing is lost before the one rounding to f32."""
    a = np.zeros((32, 8), np.float16)
    b = np.zeros((32, 4), np.float16)
    a[:, 0], b[:, 0] = 2.0**7, 2.0**7
    a[:, 1], b[:, 1] = 2.0**-5, 2.0**-4
    inputs = [np.ascontiguousarray(v) for v in (*a.view(np.uint32).T, *b.view(np.uint32).T)]
    text = (
        "{ .reg .f32 %z; mov.f32 %z, 0f00000000; mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%d0, %d1, %d2, %d3}, {%a0, %a1, %a2, %a3}, {%a4, %a5}, {%z, %z, %z, %z}; }"
    )
    (got, *_) = run_instruction(text, inputs, [np.float32] * 4)
    assert got[0] == 4 * (2.0**14 + 2.0**-9)


@pytest.mark.parametrize("part", ["a", "b", "c"])
def test_an_uninitialised_element_spoils_what_it_enters_only(part: str) -> None:
    """Lane 4 g + t holds rows g and g + 8 of A, column g of B, and columns 2 t, 2 t + 1 of rows g and g + 8 of D."""
    names = {"a": ("%u", "%x", "%z"), "b": ("%x", "%u", "%z"), "c": ("%x", "%x", "%w")}[part]
    head = """
.reg .pred %p; .reg .b32 %lane, %x, %u, %q; .reg .f32 %z, %w, %d<4>; .reg .b64 %rd<4>;
mov.u32 %lane, %laneid; mov.b32 %x, 0x3C003C00; mov.f32 %z, 0f00000000;
shr.u32 %q, %lane, 2; setp.ne.u32 %p, %q, 3;
@%p mov.b32 %u, %x; @%p mov.f32 %w, %z;
"""
    text = head + (
        f"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {{%d0, %d1, %d2, %d3}}, {{{names[0]}, %x}}, {{{names[1]}}}, "
        f"{{{names[2]}, %z, %z, %z}};\n"
        "ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %lane, 16; add.u64 %rd2, %rd0, %rd1;\n"
    ) + "\n".join(f"st.global.f32 [%rd2+{4 * k}], %d{k};" for k in range(4)) + "\nret;"
    out = np.zeros((32, 4), np.float32)
    report = emulate(module(text, [".param .u64 out"]), grid=1, block=32, args=[out], check="collect")
    got = [(fault.kind, fault.line_text[-4:-1], fault.count) for fault in report.faults]
    # Row 3 of A is four lanes' d0 and d1; column 3 of B is d1 and d3 of the eight lanes with t = 1.
    want = {"a": [("%d0", 4), ("%d1", 4)], "b": [("%d1", 8), ("%d3", 8)], "c": [("%d0", 4)]}[part]
    assert got == [("uninitialised", name, count) for name, count in want]


def shared_kernel(body: str) -> str:
    head = """
.reg .b32 %r<40>; .reg .b64 %rd<10>;
.shared .align 16 .b8 s[2048];
ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [c];
mov.u32 %r1, %tid.x; mov.u32 %r2, s; mul.wide.u32 %rd4, %r1, 64; add.u64 %rd5, %rd1, %rd4;
shl.b32 %r3, %r1, 6; add.u32 %r3, %r2, %r3;
ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd5]; st.shared.v4.u32 [%r3], {%r4, %r5, %r6, %r7};
ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd5+16]; st.shared.v4.u32 [%r3+16], {%r4, %r5, %r6, %r7};
ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd5+32]; st.shared.v4.u32 [%r3+32], {%r4, %r5, %r6, %r7};
ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd5+48]; st.shared.v4.u32 [%r3+48], {%r4, %r5, %r6, %r7};
mul.wide.u32 %rd6, %r1, 4; add.u64 %rd7, %rd2, %rd6; ld.global.u32 %r10, [%rd7]; add.u32 %r10, %r10, %r2;
mul.wide.u32 %rd6, %r1, 16; add.u64 %rd8, %rd3, %rd6;
bar.sync 0;
"""
    return module(head + body + "\nret;", [".param .u64 a", ".param .u64 b", ".param .u64 c"])


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", [False, True])
def test_ldmatrix_gives_each_lane_the_elements_of_the_manual(count: int, trans: bool) -> None:
    rng = np.random.default_rng(6)
    memory = rng.integers(0, 2**16, 1024).astype(np.uint16)
    rows = rng.permutation(128)[:32].astype(np.uint32) * 16
    out = np.zeros((32, 4), np.uint32)
    registers = ", ".join(f"%r{20 + k}" for k in range(count))
    body = "mov.u32 %r20, 0; mov.u32 %r21, 0; mov.u32 %r22, 0; mov.u32 %r23, 0;\n"
    body += f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16 {{{registers}}}, [%r10];\n"
    body += "st.global.v4.u32 [%rd8], {%r20, %r21, %r22, %r23};"
    report = emulate(shared_kernel(body), grid=1, block=32, args=[memory, rows, out])
    halves = out.view(np.uint16).reshape(32, 4, 2)
    for matrix in range(count):
        stored = np.stack([memory[rows[8 * matrix + r] // 2 :][:8] for r in range(8)])
        for lane in range(32):
            for half in range(2):
                at = (2 * (lane & 3) + half, lane >> 2) if trans else (lane >> 2, 2 * (lane & 3) + half)
                assert halves[lane, matrix, half] == stored[at]
    wavefronts = 0
    for matrix in range(count):
        groups = [int(row) >> 4 & 7 for row in rows[8 * matrix : 8 * matrix + 8]]
        wavefronts += max(groups.count(g) for g in groups)
    line = next(n for n, text in report.line_texts.items() if text.startswith("ldmatrix"))
    assert (report.lines[line].requests, report.lines[line].wavefronts) == (1, wavefronts)


@pytest.mark.parametrize("trans", ["", ".trans"])
def test_stmatrix_is_the_inverse_of_ldmatrix(trans: str) -> None:
    rng = np.random.default_rng(8)
    memory = rng.integers(0, 2**16, 1024).astype(np.uint16)
    rows = np.arange(32, dtype=np.uint32) * 48
    out = np.zeros((32, 4), np.uint32)
    body = f"""
ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r20, %r21, %r22, %r23}}, [%r10];
bar.warp.sync -1;
add.u32 %r11, %r10, 16;
stmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 [%r11], {{%r20, %r21, %r22, %r23}};
bar.warp.sync -1;
ld.shared.v4.u32 {{%r24, %r25, %r26, %r27}}, [%r11];
st.global.v4.u32 [%rd8], {{%r24, %r25, %r26, %r27}};
"""
    report = emulate(shared_kernel(body), grid=1, block=32, args=[memory, rows, out])
    want = np.stack([memory[row // 2 : row // 2 + 8] for row in rows])
    np.testing.assert_array_equal(out.view(np.uint16).reshape(32, 8), want)
    assert report.advisories == ()


def test_movmatrix_transposes_in_registers() -> None:
    values = np.arange(64, dtype=np.uint16)
    (got,) = run_instruction("movmatrix.sync.aligned.m8n8.trans.b16 %d0, %a0;", [values.view(np.uint32)], [np.uint32])
    np.testing.assert_array_equal(got.view(np.uint16).reshape(8, 8), values.reshape(8, 8).T)


# ---- matrices of bytes, and of 4- and 6-bit elements in memory -----------------------------------------------------


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("source", ["b8", "b8x16.b4x16_p64", "b8x16.b6x16_p32"])
def test_ldmatrix_transposes_matrices_of_bytes(count: int, source: str) -> None:
    """m16n16: lane 4 g + t gets bytes g and g + 8 of rows 4 t to 4 t + 3; row r is where lane r says."""
    rng = np.random.default_rng(9)
    memory = rng.integers(0, 256, 2048).astype(np.uint8)
    rows = rng.permutation(128)[:32].astype(np.uint32) * 16
    out = np.zeros((32, 4), np.uint32)
    registers = ", ".join(f"%r{20 + k}" for k in range(2 * count))
    body = "mov.u32 %r22, 0; mov.u32 %r23, 0;\n"
    body += f"ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.{source} {{{registers}}}, [%r10];\n"
    body += "st.global.v4.u32 [%rd8], {%r20, %r21, %r22, %r23};"
    emulate(shared_kernel(body), grid=1, block=32, args=[memory, rows, out])
    got = out.view(np.uint8).reshape(32, 2, 8)
    for matrix in range(count):
        stored = [elements_of(memory[rows[16 * matrix + r] :][:16], source) for r in range(16)]
        for lane in range(32):
            g, t = lane >> 2, lane & 3
            want = [stored[4 * t + e][g] for e in range(4)] + [stored[4 * t + e][g + 8] for e in range(4)]
            assert got[lane, matrix].tolist() == want


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("source", ["b4x16_p64", "b6x16_p32"])
def test_ldmatrix_spreads_narrow_elements_over_bytes(count: int, source: str) -> None:
    """m8n16: lane 4 g + t gets elements 4 t to 4 t + 3 of row g."""
    rng = np.random.default_rng(10)
    memory = rng.integers(0, 256, 2048).astype(np.uint8)
    rows = rng.permutation(128)[:32].astype(np.uint32) * 16
    out = np.zeros((32, 4), np.uint32)
    registers = ", ".join(f"%r{20 + k}" for k in range(count))
    body = "mov.u32 %r21, 0; mov.u32 %r22, 0; mov.u32 %r23, 0;\n"
    body += f"ldmatrix.sync.aligned.m8n16.x{count}.shared.b8x16.{source} {{{registers}}}, [%r10];\n"
    body += "st.global.v4.u32 [%rd8], {%r20, %r21, %r22, %r23};"
    emulate(shared_kernel(body), grid=1, block=32, args=[memory, rows, out])
    got = out.view(np.uint8).reshape(32, 4, 4)
    for matrix in range(count):
        for lane in range(32):
            stored = elements_of(memory[rows[8 * matrix + (lane >> 2)] :][:16], source)
            assert got[lane, matrix].tolist() == stored[4 * (lane & 3) : 4 * (lane & 3) + 4]


@pytest.mark.parametrize(("source", "filled"), [("b4x16_p64", 8), ("b6x16_p32", 12)])
def test_padding_behind_narrow_elements_may_be_uninitialised(source: str, filled: int) -> None:
    """Rows of which only the elements are written may be loaded and stored; with one word less they may not."""
    for written in (filled, filled - 4):
        stores = "\n".join(f"st.shared.u32 [%r1+{k}], %r0;" for k in range(0, written, 4))
        text = f"""
.shared .align 16 .b8 s[512]; .reg .b32 %r<4>; .reg .b64 %rd<4>;
mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 4; mov.u32 %r2, s; add.u32 %r1, %r1, %r2;
{stores}
bar.warp.sync -1;
ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.{source} {{%r3}}, [%r1];
ld.param.u64 %rd0, [out]; mul.wide.u32 %rd1, %r0, 4; add.u64 %rd0, %rd0, %rd1; st.global.u32 [%rd0], %r3;
ret;"""
        out = np.zeros(32, np.uint32)
        report = emulate(module(text, [".param .u64 out"]), grid=1, block=32, args=[out], check="collect")
        assert [fault.kind for fault in report.faults] == ([] if written == filled else ["uninitialised"])


def elements_of(row: NDArray[np.uint8], source: str) -> list[int]:
    """The sixteen elements at the start of a 16-byte row, lowest bits first."""
    bits = 4 if "b4" in source else 6 if "b6" in source else 8
    whole = int.from_bytes(row.tobytes(), "little")
    return [whole >> bits * k & ((1 << bits) - 1) for k in range(16)]


@pytest.mark.parametrize("count", [1, 2, 4])
def test_stmatrix_transposes_matrices_of_bytes(count: int) -> None:
    """m16n8: byte e of lane 4 g + t goes to row 2 t + e % 2, at byte g + 8 (e / 2)."""
    rng = np.random.default_rng(11)
    memory = np.zeros(2048, np.uint8)
    rows = rng.permutation(128)[:32].astype(np.uint32) * 16
    values = rng.integers(0, 2**32, (32, 4)).astype(np.uint32)
    out = values.copy()
    registers = ", ".join(f"%r{20 + k}" for k in range(count))
    body = f"""
ld.global.v4.u32 {{%r20, %r21, %r22, %r23}}, [%rd8];
stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [%r10], {{{registers}}};
bar.warp.sync -1;
ld.shared.v4.u32 {{%r24, %r25, %r26, %r27}}, [%r10];
st.global.v4.u32 [%rd8], {{%r24, %r25, %r26, %r27}};
"""
    emulate(shared_kernel(body), grid=1, block=32, args=[memory, rows, out])
    stored = out.view(np.uint8).reshape(32, 16)
    for matrix in range(count):
        for lane in range(32):
            for e in range(4):
                byte = int(values[lane, matrix]) >> 8 * e & 255
                row = 8 * matrix + 2 * (lane & 3) + e % 2
                assert stored[row, (lane >> 2) + 8 * (e // 2)] == byte
    assert not stored[8 * count :].any()


def test_ldmatrix_takes_generic_addresses() -> None:
    rng = np.random.default_rng(12)
    memory = rng.integers(0, 2**16, 1024).astype(np.uint16)
    rows = np.arange(32, dtype=np.uint32) * 16
    out = np.zeros((32, 4), np.uint32)
    body = """
cvt.u64.u32 %rd9, %r10; cvta.shared.u64 %rd9, %rd9;
ldmatrix.sync.aligned.m8n8.x4.b16 {%r20, %r21, %r22, %r23}, [%rd9];
add.u64 %rd9, %rd9, 512;
stmatrix.sync.aligned.m8n8.x4.b16 [%rd9], {%r20, %r21, %r22, %r23};
bar.warp.sync -1;
ld.shared.v4.u32 {%r24, %r25, %r26, %r27}, [%r10+512];
st.global.v4.u32 [%rd8], {%r24, %r25, %r26, %r27};
"""
    emulate(shared_kernel(body), grid=1, block=32, args=[memory, rows, out])
    np.testing.assert_array_equal(out.view(np.uint16).reshape(-1), memory[:256])


@pytest.mark.parametrize(
    "name",
    [
        "ldmatrix.sync.aligned.m16n16.x1.shared.b8", "ldmatrix.sync.aligned.m16n16.x4.trans.shared.b8",
        "ldmatrix.sync.aligned.m8n16.x1.shared.b8", "ldmatrix.sync.aligned.m8n8.x1.shared.b8",
    ],
)  # fmt: skip
def test_shapes_that_do_not_exist_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedInstruction) as caught:
        run_instruction(f"{name} {{%a0, %a0}}, [%a0];", [np.zeros(32, np.uint32)], [])
    assert str(caught.value) == (
        f"PTX line {caught.value.line}: the emulator has no semantics for `{name}`: this shape, type and transposition "
        "do not exist together"
    )


def test_a_matrix_in_global_memory_is_refused() -> None:
    text = ".global .align 16 .b8 g[16];"
    body = "{ ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%a0}, [g]; }"
    kernel = module(f".reg .b32 %a0;\n{body}\nret;", [], head=text)
    with pytest.raises(PtxSyntaxError) as caught:
        emulate(kernel, grid=1, block=32, args=[])
    assert caught.value.sentence == "`ldmatrix.sync.aligned.m8n8.x1.shared.b16` needs shared memory, not .global"
