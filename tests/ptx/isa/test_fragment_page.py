"""docs/fragments.md: every fragment against the manual's formula, the emulator's tables, and the emulator at work."""

import itertools
from collections.abc import Callable
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tinygpu.dtypes import dtype
from tinygpu.layouts import Layout
from tinygpu.ptx.cards.fragments import GENERATED, SECTIONS, Fragment, page
from tinygpu.ptx.emulator import emulate
from tinygpu.ptx.emulator.units.fragments import (
    accumulator_fragment,
    byte_matrix_fragment,
    left_fragment,
    right_fragment,
)
from tinygpu.ptx.emulator.units.tensor_memory_maps import access_cells
from tinygpu.ptx.isa import mma, tcgen05_ld
from tinygpu.ptx.isa.byte_matrices import BYTE_MATRICES, ByteMatrix
from tinygpu.ptx.isa.wgmma import accumulators
from tinygpu.ptx.isa.wgmma_registers import WgmmaRegisters

PAGE = Path(__file__).parents[3] / "docs" / "fragments.md"
LISTED = [f for _, fragments, _ in SECTIONS for f in fragments()]
At = Callable[[int, int], tuple[int, ...]]  # thread, value -> the axes of the layout, in their order

# The manual's formulas: t the thread, i the value; of mma, g = lane / 4 and q = lane % 4 (PTX ISA, matrix fragments).
FORMULAS: dict[str, At] = {
    "a m8n8k4 64": lambda t, i: (t >> 2, t & 3),
    "b m8n8k4 64": lambda t, i: (t & 3, t >> 2),
    "a m16n8k4 64": lambda t, i: ((t >> 2) + 8 * i, t & 3),
    "b m16n8k4 64": lambda t, i: (t & 3, t >> 2),
    "a m16n8k8 64": lambda t, i: ((t >> 2) + 8 * (i & 1), (t & 3) + 4 * (i >> 1)),
    "b m16n8k8 64": lambda t, i: ((t & 3) + 4 * i, t >> 2),
    "a m16n8k16 64": lambda t, i: ((t >> 2) + 8 * (i & 1), (t & 3) + 4 * (i >> 1)),
    "b m16n8k16 64": lambda t, i: ((t & 3) + 4 * i, t >> 2),
    "a m16n8k4 32": lambda t, i: ((t >> 2) + 8 * i, t & 3),
    "b m16n8k4 32": lambda t, i: (t & 3, t >> 2),
    "a m16n8k8 32": lambda t, i: ((t >> 2) + 8 * (i & 1), (t & 3) + 4 * (i >> 1)),
    "b m16n8k8 32": lambda t, i: ((t & 3) + 4 * i, t >> 2),
    "a m16n8k8 16": lambda t, i: ((t >> 2) + 8 * (i >> 1), 2 * (t & 3) + (i & 1)),
    "b m16n8k8 16": lambda t, i: (2 * (t & 3) + i, t >> 2),
    "a m16n8k16 16": lambda t, i: ((t >> 2) + 8 * (i >> 1 & 1), 2 * (t & 3) + (i & 1) + 8 * (i >> 2)),
    "b m16n8k16 16": lambda t, i: (2 * (t & 3) + (i & 1) + 8 * (i >> 1), t >> 2),
    "a m8n8k16 8": lambda t, i: (t >> 2, 4 * (t & 3) + i),
    "b m8n8k16 8": lambda t, i: (4 * (t & 3) + i, t >> 2),
    "a m16n8k16 8": lambda t, i: ((t >> 2) + 8 * (i >> 2), 4 * (t & 3) + (i & 3)),
    "b m16n8k16 8": lambda t, i: (4 * (t & 3) + i, t >> 2),
    "a m16n8k32 8": lambda t, i: ((t >> 2) + 8 * (i >> 2 & 1), 4 * (t & 3) + (i & 3) + 16 * (i >> 3)),
    "b m16n8k32 8": lambda t, i: (4 * (t & 3) + (i & 3) + 16 * (i >> 2), t >> 2),
    "a m16n8k64 4": lambda t, i: ((t >> 2) + 8 * (i >> 3 & 1), 8 * (t & 3) + (i & 7) + 32 * (i >> 4)),
    "b m16n8k64 4": lambda t, i: (8 * (t & 3) + (i & 7) + 32 * (i >> 3), t >> 2),
    "a m16n8k256 1": lambda t, i: ((t >> 2) + 8 * (i >> 5 & 1), 32 * (t & 3) + (i & 31) + 128 * (i >> 6)),
    "b m16n8k256 1": lambda t, i: (32 * (t & 3) + (i & 31) + 128 * (i >> 5), t >> 2),
    "c m16n8kK": lambda t, i: ((t >> 2) + 8 * (i >> 1), 2 * (t & 3) + (i & 1)),
    "c m8n8kK": lambda t, i: (t >> 2, 2 * (t & 3) + i),
    "a m64nNk16": lambda t, i: (16 * (t >> 5) + (t >> 2 & 7) + 8 * (i >> 1 & 1), 2 * (t & 3) + (i & 1) + 8 * (i >> 2)),
    "a m64nNk8": lambda t, i: (16 * (t >> 5) + (t >> 2 & 7) + 8 * (i & 1), (t & 3) + 4 * (i >> 1)),
    "a m64nNk32": lambda t, i: (16 * (t >> 5) + (t >> 2 & 7) + 8 * (i >> 2 & 1), 4 * (t & 3) + (i & 3) + 16 * (i >> 3)),
    "c m64nNkK": lambda t, i: (16 * (t >> 5) + (t >> 2 & 7) + 8 * (i >> 1 & 1), 8 * (i >> 2) + 2 * (t & 3) + (i & 1)),
    "data m8n8.x4": lambda t, i: (t >> 2, 2 * (t & 3) + (i & 1), i >> 1),
    "data m8n8.x4.trans": lambda t, i: (2 * (t & 3) + (i & 1), t >> 2, i >> 1),
    "rows m8n8.x4": lambda t, i: (t & 7, t >> 3),
    "data m16n16.x2.trans.b8": lambda t, i: (4 * (t & 3) + (i & 3), (t >> 2) + 8 * (i >> 2 & 1), i >> 3),
    "rows m16n16.x2.trans.b8": lambda t, i: (t & 15, t >> 4),
    "data m8n16.x4.b8x16.b6x16_p32": lambda t, i: (t >> 2, 4 * (t & 3) + (i & 3), i >> 2),
    "rows m8n16.x4.b8x16.b6x16_p32": lambda t, i: (t & 7, t >> 3),
    "data m16n8.x4.trans.b8": lambda t, i: (2 * (t & 3) + (i & 1), (t >> 2) + 8 * (i >> 1 & 1), i >> 2),
    "rows m16n8.x4.trans.b8": lambda t, i: (t & 7, t >> 3),
    # column, lane: axes that are words stand in alphabetical order
    "32x32b": lambda t, r: (r, t),
    "16x64b": lambda t, r: (2 * r + (t >> 1 & 1), (t >> 2) + 8 * (t & 1)),
    "16x128b": lambda t, r: (4 * (r >> 1) + (t & 3), (t >> 2) + 8 * (r & 1)),
    "16x256b": lambda t, r: (8 * (r >> 2) + 2 * (t & 3) + (r & 1), (t >> 2) + 8 * (r >> 1 & 1)),
    "16x32bx2": lambda t, r: (r + 32 * (t >> 4), t & 15),
}
BITS = {"f64": 64, "tf32": 32, "f16": 16, "s8": 8, "s4": 4, "b1": 1}


def key(f: Fragment) -> str:
    """Which formula a fragment has."""
    form = f.instruction.removeprefix("mma.sync.").removeprefix("wgmma.").removeprefix("tcgen05.ld.")
    form = form.removeprefix("ldmatrix.").removeprefix("stmatrix.").removesuffix(".xN").removesuffix(".xN.pack::16b")
    if f.operand == "registers":
        return form
    operand = {"row addresses": "rows", "data": "data"}.get(f.operand, f.operand[0])
    wide = f" {BITS[f.types.split(',')[0]]}" if f.instruction.startswith("mma") and operand in "ab" else ""
    return f"{operand} {form}{wide}"


def listed(layout: Layout) -> list[list[tuple[int, ...]]]:
    """The coordinates of every value of every thread."""
    threads, values = layout[0].size, layout[1].size
    found = layout.coordinates().reshape(values, threads, -1).transpose(1, 0, 2)
    return [[tuple(map(int, at)) for at in line] for line in found]


def test_every_formula_is_that_of_a_fragment_on_the_page() -> None:
    assert {key(f) for f in LISTED} == set(FORMULAS)


@pytest.mark.parametrize("fragment", LISTED, ids=str)
@pytest.mark.parametrize("repeat", [1, 4])
def test_every_layout_is_the_formula_of_the_manual(fragment: Fragment, repeat: int) -> None:
    formula = FORMULAS[key(fragment)]
    layout = fragment.layout.fill({"N": repeat, "N/8": repeat, "S": 32})
    packed = "pack" in fragment.instruction
    axes = len(layout.axes)

    def at(t: int, i: int) -> tuple[int, ...]:
        if not packed:
            return formula(t, i)
        column, lane = formula(t, i >> 1)
        # CuTe's .16x32bx2.x4.pack::16b has an immediate of 8: it counts columns, of which four registers take eight.
        window = 32 * (t >> 4) if "bx2" in fragment.instruction else 0
        return 2 * (column - window) + window + (i & 1), lane

    wanted = [[at(t, i)[-axes:] for i in range(layout[1].size)] for t in range(layout[0].size)]
    assert listed(layout) == wanted


@pytest.mark.parametrize("fragment", [f for f in LISTED if "mma" in f.instruction], ids=str)
def test_the_picture_has_every_element_once(fragment: Fragment) -> None:
    rows, columns = fragment.extents
    held = [at for line in listed(fragment.drawn) for at in line]
    assert sorted(held) == sorted(itertools.product(range(rows), range(columns)))


# -- the emulator's tables, which are written on their own ---------------------------------------------------------


def flat(layout: Layout, columns: int) -> list[int]:
    """Thread by thread and value by value, row * columns + column."""
    return [row * columns + column for line in listed(layout) for row, column in line]


SHAPES = [(8, 4, 64), (16, 4, 64), (16, 8, 64), (16, 16, 64), (16, 4, 32), (16, 8, 32), (16, 8, 16), (16, 16, 16),
          (8, 16, 8), (16, 16, 8), (16, 32, 8), (16, 64, 4), (16, 256, 1)]  # fmt: skip


@pytest.mark.parametrize(("m", "k", "bits"), SHAPES)
def test_operands_of_mma_lie_as_the_emulator_has_them(m: int, k: int, bits: int) -> None:
    per = max(1, 32 // bits)
    a, b, c = mma.fragments(m, k, bits)
    assert flat(a, k) == left_fragment(m, k, per).scatter.tolist()
    assert flat(b, 8) == right_fragment(k, per).scatter.tolist()
    assert flat(c, 8) == accumulator_fragment(m, 8).scatter.tolist()


@pytest.mark.parametrize("kind", ["f16", "tf32", "e4m3"])
@pytest.mark.parametrize("n", [8, 24, 256])
def test_operands_of_wgmma_lie_as_the_emulator_has_them(kind: str, n: int) -> None:
    wide = dtype(kind)
    left = WgmmaRegisters().fragments(wide, wide)[0]
    assert left is not None
    assert flat(left, 256 // wide.bits) == left_fragment(64, 256 // wide.bits, 32 // wide.bits).scatter.tolist()
    assert flat(accumulators(n), n) == accumulator_fragment(64, n).scatter.tolist()


@pytest.mark.parametrize("form", BYTE_MATRICES, ids=lambda form: form.text)
def test_matrices_of_bytes_lie_as_the_emulator_has_them(form: ByteMatrix) -> None:
    one = form.held.project({0: 0, 1: 1})
    found = byte_matrix_fragment(form.rows, ".trans" in form.text)
    assert [line[: found.elements] for line in listed(one)] == [
        [divmod(int(place), 16) for place in line] for line in found.scatter.reshape(32, -1)
    ]


@pytest.mark.parametrize("shape", tcgen05_ld.SHAPES, ids=lambda s: s.name)
@pytest.mark.parametrize("repeat", [1, 2, 32])
def test_tensor_memory_is_read_as_the_emulator_has_it(shape: tcgen05_ld.AccessShape, repeat: int) -> None:
    plain, pairs = access_cells(shape.name, repeat), access_cells(shape.name, repeat, packed=True)
    assert by_axes(shape.repeated(repeat)) == [plain.lane.tolist(), plain.column.tolist()]
    halves = np.asarray(by_axes(tcgen05_ld.packed(shape.repeated(repeat))))
    assert halves[:, :, ::2].tolist() == [pairs.lane.tolist(), pairs.column.tolist()]
    assert (halves[1, :, 1::2] == halves[1, :, ::2] + 1).all()


def test_the_split_shape_is_read_as_the_emulator_has_it() -> None:
    cells = access_cells("16x32bx2", 4, split=9)
    assert by_axes(tcgen05_ld.split(9, 4)) == [cells.lane.tolist(), cells.column.tolist()]
    pairs = access_cells("16x32bx2", 4, packed=True, split=10)
    halves = np.asarray(by_axes(tcgen05_ld.split(10, 4, halves=True)))
    assert halves[:, :, ::2].tolist() == [pairs.lane.tolist(), pairs.column.tolist()]
    assert (halves[1, :, 1::2] == halves[1, :, ::2] + 1).all()


def by_axes(layout: Layout) -> list[list[list[int]]]:
    """(lane and column, thread, value)"""
    found = layout.coordinates(("lane", "column")).reshape(layout[1].size, layout[0].size, 2).transpose(2, 1, 0)
    return [[list(map(int, line)) for line in axis] for axis in found]


# -- the emulator at work ------------------------------------------------------------------------------------------

Array = NDArray[np.int64]
TYPES = {
    (8, 4, 64): "f64.f64.f64.f64", (16, 4, 64): "f64.f64.f64.f64", (16, 8, 64): "f64.f64.f64.f64",
    (16, 16, 64): "f64.f64.f64.f64", (16, 4, 32): "f32.tf32.tf32.f32", (16, 8, 32): "f32.tf32.tf32.f32",
    (16, 8, 16): "f32.f16.f16.f32", (16, 16, 16): "f32.bf16.bf16.f32", (8, 16, 8): "s32.s8.s8.s32",
    (16, 16, 8): "s32.s8.s8.s32", (16, 32, 8): "f32.e4m3.e4m3.f32", (16, 64, 4): "s32.s4.s4.s32",
    (16, 256, 1): "s32.b1.b1.s32.and.popc",
}  # fmt: skip
HEAD = """.version 8.8
.target {target}
.address_size 64
.visible .entry k(.param .u64 source, .param .u64 result) {{
.reg .b32 %r<99>; .reg .b64 %rd<99>; .reg .f64 %d<99>;
{shared}ld.param.u64 %rd0, [source]; ld.param.u64 %rd1, [result]; mov.u32 %r90, %tid.x;
"""


def placed(matrix: Array, layout: Layout) -> Array:
    """(lanes, values) of a matrix, as a fragment holds it."""
    return np.array([[matrix[at] for at in line] for line in listed(layout)])


def encoded(values: Array, kind: str, bits: int) -> NDArray[np.uint32]:
    """(lanes, words): values of one type, low bits first."""
    floats = {"bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "f16": np.float16, "tf32": np.float32}
    if kind in (*floats, "f64"):
        return np.ascontiguousarray(values.astype(floats.get(kind, np.float64))).view(np.uint32)
    if bits == 8:
        return np.ascontiguousarray(values.astype(np.int8)).view(np.uint32)
    per = 32 // bits
    codes = (values % (1 << bits)).reshape(32, -1, per).astype(np.uint64)
    return np.asarray((codes << (np.arange(per) * bits).astype(np.uint64)).sum(axis=-1), dtype=np.uint32)


@pytest.mark.parametrize(("m", "k", "bits"), SHAPES)
def test_the_emulator_multiplies_what_the_layouts_place(m: int, k: int, bits: int) -> None:
    rng = np.random.default_rng(m * k + bits)
    low, high = (0, 2) if bits == 1 else (-3, 4)
    a, b, c = rng.integers(low, high, (m, k)), rng.integers(low, high, (k, 8)), rng.integers(-9, 9, (m, 8))
    total, kind = TYPES[m, k, bits].split(".")[:2]
    da, db, dc = mma.fragments(m, k, bits)
    sums = {"f64": np.float64, "f32": np.float32, "s32": np.int32}[total]
    words = [encoded(placed(a, da), kind, bits), encoded(placed(b, db), kind, bits)]
    words.append(np.ascontiguousarray(placed(c, dc).astype(sums)).view(np.uint32))
    data = np.concatenate(words, axis=1)
    double = bits == 64
    step, letter, move = (8, "d", "f64") if double else (4, "r", "b32")
    counts = [w.shape[1] // (2 if double else 1) for w in words]
    names = [[f"%{letter}{20 * j + i}" for i in range(count)] for j, count in enumerate(counts)]
    text = HEAD.format(target="sm_90", shared="") + f"mad.wide.u32 %rd2, %r90, {4 * data.shape[1]}, %rd0;\n"
    for at, name in enumerate(itertools.chain(*names)):
        text += f"ld.global.{move} {name}, [%rd2+{step * at}];\n"
    lists = ["{" + ", ".join(n) + "}" for n in (names[2], names[0], names[1], names[2])]
    text += f"mma.sync.aligned.m{m}n8k{k}.row.col.{TYPES[m, k, bits]} {', '.join(lists)};\n"
    text += f"mad.wide.u32 %rd3, %r90, {step * counts[2]}, %rd1;\n"
    text += "".join(f"st.global.{move} [%rd3+{step * i}], {name};\n" for i, name in enumerate(names[2]))
    out = np.zeros((32, counts[2]), sums)
    emulate(text + "ret;\n}\n", grid=1, block=32, args=[data, out])
    assert (out == placed(a @ b + c, dc)).all()


FORMS = [f for f in LISTED if f.operand == "data"]


@pytest.mark.parametrize("fragment", FORMS, ids=str)
def test_the_emulator_moves_matrices_as_the_layouts_say(fragment: Fragment) -> None:
    """Row i of matrix m begins with element 0 of it; lanes point at rows by their layout, and hold by theirs."""
    addressed = next(
        f.layout for f in LISTED if f.operand == "row addresses" and key(f).split()[1] in key(fragment).split()[1]
    )
    held, halves = fragment.layout, "m8n8" in fragment.instruction
    rows, matrices = addressed.along(0).cosize, addressed.along("m").cosize
    wide, per_row = (2, 8) if halves else (1, 16)
    # a code for every element, 6 bits where memory holds no more
    codes = np.arange(matrices * rows * per_row).reshape(matrices, rows, per_row) * 5 % (64 if not halves else 1 << 16)
    memory = codes.astype(np.uint16 if halves else np.uint8)
    if "b6x16" in fragment.instruction:
        packed = [
            sum(int(c) << 6 * j for j, c in enumerate(row)).to_bytes(16, "little") for row in codes.reshape(-1, 16)
        ]
        memory = np.frombuffer(b"".join(packed), np.uint8)
    words = held[1].size * wide // 4
    registers = np.zeros((32, held[1].size), np.uint16 if halves else np.uint8)
    for lane, line in enumerate(listed(held)):
        registers[lane] = [codes[number, row, column] for row, column, number in line]
    load, size = fragment.instruction.startswith("ldmatrix"), matrices * rows * 16
    text = HEAD.format(target="sm_100a", shared=f".shared .align 16 .b8 tile[{size}];\n") + "mov.u32 %r91, tile;\n"
    text += f"mad.lo.u32 %r92, %r90, {size // 32}, %r91;\n"
    for at in range(0, size // 32, 4):
        text += f"mad.wide.u32 %rd2, %r90, {size // 32}, %rd0; ld.global.b32 %r80, [%rd2+{at}];\n"
        text += f"st.shared.b32 [%r92+{at}], %r80;\n" if load else ""
    places = [number * rows + row for ((row, number),) in listed(addressed)]
    text += "bar.sync 0;\n" + "mov.u32 %r93, 0;\n.reg .pred %p0;\n"
    for lane, place in enumerate(places):
        text += f"setp.eq.u32 %p0, %r90, {lane}; @%p0 mov.u32 %r93, {16 * place};\n"
    text += "add.u32 %r93, %r93, %r91;\n"
    names = [f"%r{i}" for i in range(words)]
    kind = "b16" if halves else "b8"
    name = fragment.instruction if fragment.instruction.count(".b") else f"{fragment.instruction}.{kind}"
    opcode, form = name.split(".", 1)
    form = (
        ".".join(p for p in form.split(".") if not p.startswith("b"))
        + ".shared."
        + ".".join(p for p in form.split(".") if p.startswith("b"))
    )
    listing = "{" + ", ".join(names) + "}"
    if load:
        text += f"{opcode}.sync.aligned.{form} {listing}, [%r93];\nmad.wide.u32 %rd3, %r90, {4 * words}, %rd1;\n"
        text += "".join(f"st.global.b32 [%rd3+{4 * i}], {name};\n" for i, name in enumerate(names))
        source, wanted = memory.view(np.uint8), registers
    else:
        text += f"mad.wide.u32 %rd3, %r90, {4 * words}, %rd0;\n"
        text += "".join(f"ld.global.b32 {name}, [%rd3+{4 * i}];\n" for i, name in enumerate(names))
        text += f"{opcode}.sync.aligned.{form} [%r93], {listing};\nbar.sync 0;\n"
        for at in range(0, size // 32, 4):
            text += f"ld.shared.b32 %r80, [%r92+{at}];\nmad.wide.u32 %rd2, %r90, {size // 32}, %rd1;\n"
            text += f"st.global.b32 [%rd2+{at}], %r80;\n"
        source, wanted = registers.view(np.uint8), memory
    out = np.zeros(wanted.size, wanted.dtype)
    emulate(text + "ret;\n}\n", grid=1, block=32, args=[np.ascontiguousarray(source), out])
    assert (out == wanted.reshape(-1)).all()


@pytest.mark.parametrize("shape", [*tcgen05_ld.SHAPES, None], ids=lambda s: s.name if s else "16x32bx2")
def test_the_emulator_loads_tensor_memory_as_the_layouts_say(shape: tcgen05_ld.AccessShape | None) -> None:
    """A warp writes its own lanes, cell by cell, and reads them in another shape."""
    layout = shape.repeated(2) if shape else tcgen05_ld.split(8, 2)
    name, distance = (shape.name, "") if shape else ("16x32bx2", ", 8")
    count = layout[1].size
    text = HEAD.format(target="sm_100a", shared=".shared .align 4 .b32 address;\n")
    text += "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [address], 32;\nbar.sync 0;\n"
    text += "ld.shared.u32 %r91, [address];\n"
    text += "".join(f"mad.lo.u32 %r{c}, %r90, 256, {c};\n" for c in range(32))
    cells = "{" + ", ".join(f"%r{c}" for c in range(32)) + "}"
    text += f"tcgen05.st.sync.aligned.32x32b.x32.b32 [%r91], {cells};\ntcgen05.wait::st.sync.aligned;\n"
    names = [f"%r{40 + i}" for i in range(count)]
    text += f"tcgen05.ld.sync.aligned.{name}.x2.b32 {{{', '.join(names)}}}, [%r91]{distance};\n"
    text += f"tcgen05.wait::ld.sync.aligned;\nmad.wide.u32 %rd3, %r90, {4 * count}, %rd1;\n"
    text += "".join(f"st.global.b32 [%rd3+{4 * i}], {name};\n" for i, name in enumerate(names))
    text += "bar.sync 0;\ntcgen05.dealloc.cta_group::1.sync.aligned.b32 %r91, 32;\n"
    out = np.zeros((32, count), np.uint32)
    emulate(text + "ret;\n}\n", grid=1, block=32, args=[np.zeros(1, np.uint32), out])
    lane, column = np.asarray(by_axes(layout))
    assert (out == 256 * lane + column).all()


# -- the page ------------------------------------------------------------------------------------------------------


def test_the_committed_page_is_what_the_instructions_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_fragment_that_an_instruction_declares_is_on_the_page() -> None:
    text = page()
    for shape in mma.SHAPES:
        for fragment in (f for f in LISTED if shape.text in f.instruction and shape.types[0] in f.types):
            assert f"`{fragment.layout}`" in text
        assert any(shape.text in f.instruction and set(shape.types) <= set(f.types.split(", ")) for f in LISTED)


def test_check_says_what_is_wrong_with_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fragments.md"
    assert GENERATED.main(["--check", str(file)]) == 1
    advice = f"; run python -m tinygpu.ptx.cards.fragments {file}\n"
    assert capsys.readouterr().err == f"{file} is missing{advice}"
    assert GENERATED.main([str(file)]) == 0
    assert capsys.readouterr().out == f"{file}: {len(LISTED)} fragments\n"
    assert GENERATED.main(["--check", str(file)]) == 0
    file.write_text("# Fragments\n", encoding="utf-8")
    assert GENERATED.main(["--check", str(file)]) == 1
    assert capsys.readouterr().err == f"{file} is not what the instructions say{advice}"
    nowhere = tmp_path / "nowhere" / "fragments.md"
    assert GENERATED.main([str(nowhere)]) == 1
    said = f"{nowhere} cannot be written: No such file or directory; give another path\n"
    assert capsys.readouterr() == ("", said)
