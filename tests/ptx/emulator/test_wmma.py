"""wmma: products of matrices in global and shared memory, by rows and columns, against NumPy."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from instruction_bench import module
from numpy.typing import NDArray

from tinygpu.ptx.emulator import EmulationFault, PtxSyntaxError, UnsupportedInstruction, emulate
from tinygpu.ptx.emulator.report import Report

STORAGE: dict[str, Any] = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "tf32": np.float32, "f64": np.float64, "s8": np.int8, "u8": np.uint8,
    "f32": np.float32, "s32": np.int32,
}  # fmt: skip
REGISTERS = {
    ("f16", "m16n16k16"): (8, 8), ("f16", "m8n32k16"): (8, 8), ("f16", "m32n8k16"): (8, 8),
    ("bf16", "m16n16k16"): (4, 4), ("bf16", "m8n32k16"): (2, 8), ("bf16", "m32n8k16"): (8, 2),
    ("s8", "m16n16k16"): (2, 2), ("u8", "m8n32k16"): (1, 4), ("s8", "m32n8k16"): (4, 1), ("tf32", "m16n16k8"): (4, 4),
    ("f64", "m8n8k4"): (1, 1), ("s4", "m8n8k32"): (1, 1), ("u4", "m8n8k32"): (1, 1), ("b1", "m8n8k128"): (1, 1),
}  # fmt: skip


def sizes(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def vector(prefix: str, count: int) -> str:
    return "{" + ", ".join(f"{prefix}{k}" for k in range(count)) + "}"


def stored(matrix: NDArray[Any], kind: str, layout: str, stride: int) -> NDArray[np.uint8]:
    """A matrix as memory holds it, with a leading dimension of `stride` elements; the gaps hold rubbish."""
    lines = matrix if layout == "row" else matrix.T
    bits = {"s4": 4, "u4": 4, "b1": 1}.get(kind, 0)
    if bits:
        codes = np.full((lines.shape[0], stride), (1 << bits) - 1)
        codes[:, : lines.shape[1]] = lines & ((1 << bits) - 1)
        expanded = (codes[:, :, None] >> np.arange(bits)) & 1
        return np.packbits(expanded.reshape(-1).astype(np.uint8), bitorder="little")
    whole = np.full((lines.shape[0], stride), 77, STORAGE[kind])
    whole[:, : lines.shape[1]] = lines
    return whole.reshape(-1).view(np.uint8).copy()


def kernel(shape: str, kind: str, layouts: tuple[str, str, str], d_type: str, c_type: str, suffix: str,
           space: str, strides: tuple[int, int, int, int], operation: str = "") -> str:  # fmt: skip
    na, nb = REGISTERS[kind, shape]
    m, n, _ = sizes(shape)
    nc, nd = (m * n // 32 // (2 if t == "f16" else 1) for t in (c_type, d_type))
    wide = ".b64" if kind == "f64" else ".b32"
    la, lb, lc = layouts
    types = f"{d_type}.{c_type}" if kind == "f16" else f"{d_type}.{kind}.{kind}.{c_type}"
    lines = [
        f".reg {wide} %a<8>, %b<8>, %c<8>, %d<8>; .reg .b64 %rd<8>; .reg .b32 %r<8>;",
        ".shared .align 32 .b8 s[8192];",
        "ld.param.u64 %rd0, [pa]; ld.param.u64 %rd1, [pb]; ld.param.u64 %rd2, [pc]; ld.param.u64 %rd3, [pd];",
    ]
    if space == "shared":
        # Thread t copies bytes 64 t to 64 t + 63 of A.
        lines.append("mov.u32 %r0, %tid.x; shl.b32 %r1, %r0, 6; mov.u32 %r2, s; add.u32 %r3, %r2, %r1;")
        lines.append("cvt.u64.u32 %rd4, %r1; add.u64 %rd4, %rd0, %rd4;")
        for step in range(0, 64, 4):
            lines.append(f"ld.global.u32 %r4, [%rd4+{step}]; st.shared.u32 [%r3+{step}], %r4;")
        lines.append("bar.warp.sync -1;")
    place = {"global": "[%rd0]", "shared": "[s]", "generic": "[%rd0]"}[space]
    where = "" if space == "generic" else f".{space}"
    lines.append(f"wmma.load.a.sync.aligned.{la}.{shape}{where}.{kind} {vector('%a', na)}, {place}, {strides[0]};")
    lines.append(f"mov.u32 %r5, {strides[1]};")
    lines.append(f"wmma.load.b.sync.aligned.{lb}.{shape}.global.{kind} {vector('%b', nb)}, [%rd1], %r5;")
    tail = "" if strides[2] == (n if lc == "row" else m) else f", {strides[2]}"
    lines.append(f"wmma.load.c.sync.aligned.{lc}.{shape}.global.{c_type} {vector('%c', nc)}, [%rd2]{tail};")
    popc = f".{operation}.popc" if operation else ""
    lines.append(
        f"wmma.mma{popc}.sync.aligned.{la}.{lb}.{shape}.{types}{suffix} {vector('%d', nd)}, {vector('%a', na)}, "
        f"{vector('%b', nb)}, {vector('%c', nc)};"
    )
    lines.append(f"wmma.store.d.sync.aligned.{lc}.{shape}.global.{d_type} [%rd3], {vector('%d', nd)}, {strides[3]};")
    lines.append("ret;")
    return module("\n".join(lines), [f".param .u64 p{x}" for x in "abcd"])


def draw(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> NDArray[Any]:
    ranges = {"u8": (0, 256), "s8": (-128, 128), "s4": (-8, 8), "u4": (0, 16), "b1": (0, 2)}
    return rng.integers(*ranges.get(kind, (-4, 5)), shape)


def run(
    shape: str, kind: str, layouts: tuple[str, str, str], d_type: str, c_type: str, *, suffix: str = "",
    space: str = "global", operation: str = "", seed: int = 1,
) -> tuple[NDArray[Any], NDArray[Any], Report]:  # fmt: skip
    """(D as stored, the exact result, report)"""
    rng = np.random.default_rng(seed)
    m, n, k = sizes(shape)
    a, b, c = draw(rng, kind, (m, k)), draw(rng, kind, (k, n)), rng.integers(-9, 10, (m, n))
    leads = [k if layouts[0] == "row" else m, n if layouts[1] == "row" else k, n if layouts[2] == "row" else m]
    extra = 256 if kind == "b1" else 32
    strides = (leads[0] + extra, leads[1] + extra, leads[2], leads[2] + 8)
    buffers = [stored(a, kind, layouts[0], strides[0]), stored(b, kind, layouts[1], strides[1])]
    buffers[0] = np.concatenate([buffers[0], np.zeros(max(0, 2048 - buffers[0].size), np.uint8)])
    buffers.append(stored(c, c_type, layouts[2], strides[2]))
    lines = m if layouts[2] == "row" else n
    out = np.zeros((lines, strides[3]), STORAGE[d_type])
    text = kernel(shape, kind, layouts, d_type, c_type, suffix, space, strides, operation)
    report = emulate(text, grid=1, block=32, args=[*buffers, out])
    got = out[:, : leads[2]]
    assert not out[:, leads[2] :].any()
    if operation:
        pairs = (a[:, :, None] ^ b[None]) if operation == "xor" else (a[:, :, None] & b[None])
        want = pairs.sum(axis=1) + c
    else:
        want = a @ b + c
    return (got if layouts[2] == "row" else got.T), want, report


@pytest.mark.parametrize(("kind", "shape"), [key for key in REGISTERS if key[0] not in ("s4", "u4", "b1")])
@pytest.mark.parametrize("layouts", [("row", "col", "row"), ("col", "row", "col"), ("row", "row", "row")])
def test_products_of_every_type_shape_and_layout(kind: str, shape: str, layouts: tuple[str, str, str]) -> None:
    accumulators = {"f16": [("f32", "f32"), ("f16", "f16"), ("f32", "f16"), ("f16", "f32")], "s8": [("s32", "s32")],
                    "u8": [("s32", "s32")], "f64": [("f64", "f64")]}  # fmt: skip
    for d_type, c_type in accumulators.get(kind, [("f32", "f32")]):
        got, want, report = run(shape, kind, layouts, d_type, c_type)
        np.testing.assert_array_equal(got, want.astype(STORAGE[d_type]))
        assert report.faults == ()
        assert sum(report.counters.mma.values()) == 1


@pytest.mark.parametrize("kind", ["s4", "u4"])
def test_products_of_four_bit_integers(kind: str) -> None:
    got, want, _ = run("m8n8k32", kind, ("row", "col", "row"), "s32", "s32", suffix=".satfinite")
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("operation", ["xor", "and"])
def test_products_of_single_bits(operation: str) -> None:
    got, want, _ = run("m8n8k128", "b1", ("row", "col", "col"), "s32", "s32", operation=operation)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("space", ["shared", "generic"])
def test_other_state_spaces(space: str) -> None:
    got, want, report = run("m16n16k16", "f16", ("row", "col", "row"), "f32", "f32", space=space)
    np.testing.assert_array_equal(got, want)
    assert report.faults == ()


def test_loads_are_checked() -> None:
    text = kernel("m16n16k16", "f16", ("row", "col", "row"), "f32", "f32", "", "global", (16, 16, 16, 16))
    a = np.zeros(250, np.float16)
    rest = [np.zeros(256, np.float16), np.zeros(256, np.float32), np.zeros(256, np.float32)]
    with pytest.raises(EmulationFault) as caught:
        emulate(text, grid=1, block=32, args=[a, *rest])
    assert caught.value.kind == "out of bounds"
    assert caught.value.line_text.startswith("wmma.load.a")


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("wmma.load.a.sync.aligned.row.m16n16k16", "wmma.load.a.sync.aligned.row.m16n16k8",
         ": m16n16k8 of .f16"),
        ("wmma.store.d.sync.aligned.row.m16n16k16.global.f32", "wmma.store.d.sync.aligned.row.m8n8k4.global.f32",
         ": m8n8k4 of .f32"),
    ],
)  # fmt: skip
def test_forms_that_do_not_exist_are_refused(old: str, new: str, sentence: str) -> None:
    text = kernel("m16n16k16", "f16", ("row", "col", "row"), "f32", "f32", "", "global", (16, 16, 16, 16))
    with pytest.raises(UnsupportedInstruction) as caught:
        emulate(text.replace(old, new), grid=1, block=32, args=[np.zeros(256, np.float32)] * 4)
    assert str(caught.value).endswith(sentence)


def test_a_type_cannot_accumulate_in_another() -> None:
    text = kernel("m16n16k16", "bf16", ("row", "col", "row"), "f32", "f32", "", "global", (16, 16, 16, 16))
    with pytest.raises(PtxSyntaxError) as caught:
        emulate(text.replace("f32.bf16.bf16.f32", "f16.bf16.bf16.f16"), grid=1, block=32, args=[np.zeros(4)] * 4)
    assert caught.value.sentence == (
        "`wmma.mma.sync.aligned.row.col.m16n16k16.f16.bf16.bf16.f16`: .bf16 accumulates in .f32"
    )
