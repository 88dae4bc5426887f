"""tcgen05.ld, .st, .cp and .shift in hand-written PTX: what goes where, cell by cell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tcgen05_kernels import (
    Image,
    Tile,
    check_spelling,
    clear,
    codes_of,
    descriptor,
    enable,
    in_shared,
    kernel,
    lane_words,
    one_thread,
    padded_row,
    read_back,
    registers,
    store_lanes,
)

from tinygpu.ptx.emulator import EmulationFault, emulate

PER_ONE = {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8, "16x32bx2": 2}
REGISTERS = {"32x32b": 1, "16x64b": 1, "16x128b": 2, "16x256b": 4, "16x32bx2": 1}


def cell(shape: str, t: int, r: int, split: int) -> tuple[int, int]:
    """(lane, column) that register r of lane t holds, by the figures."""
    if shape == "32x32b":
        return t, r
    if shape == "16x32bx2":
        return t % 16, r + split * (t // 16)
    if shape == "16x64b":
        return t // 4 + 8 * (t & 1), 2 * r + (t >> 1 & 1)
    if shape == "16x128b":
        return t // 4 + 8 * (r & 1), 4 * (r // 2) + t % 4
    return t // 4 + 8 * (r >> 1 & 1), 8 * (r // 4) + 2 * (t % 4) + (r & 1)


def access(verb: str, shape: str, repeat: int, packed: bool, upper: bool, split: int) -> str:
    """One tcgen05.ld or .st of %r20 onwards, in the upper or lower half of the warp's lanes."""
    count = REGISTERS[shape] * repeat
    qualifier = (".pack::16b" if verb == "ld" else ".unpack::16b") if packed else ""
    name = f"tcgen05.{verb}.sync.aligned.{shape}.x{repeat}{qualifier}.b32"
    distance = f", {split}" if shape == "16x32bx2" else ""
    where = f"[%r15+{16 << 16 if upper else 0}]"
    values = registers(20, count)
    return f"{name} {values}, {where}{distance};\n" if verb == "ld" else f"{name} {where}{distance}, {values};\n"


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(PER_ONE)), st.sampled_from([1, 2, 4, 8]), st.booleans(), st.booleans(),
    st.sampled_from(["late", "early", "random"]),
)  # fmt: skip
def test_stores_put_registers_where_the_figures_say(
    shape: str, repeat: int, packed: bool, upper: bool, order: Any
) -> None:
    upper = upper and shape != "32x32b"
    count = REGISTERS[shape] * repeat
    width = 2 if packed else 1
    split = repeat * width + 3 if shape == "16x32bx2" else 0
    columns = split + repeat * width if split else PER_ONE[shape] * repeat * width
    given_words = np.arange(128 * count, dtype=np.uint32) * 0x10003 + 0x20001
    text = clear(columns)
    for n in range(count):
        text += f"mad.lo.u32 %r18, %r1, {count}, {n};\nmul.lo.u32 %r{20 + n}, %r18, 0x10003;\n"
        text += f"add.u32 %r{20 + n}, %r{20 + n}, 0x20001;\n"
    text += access("st", shape, repeat, packed, upper, split) + "tcgen05.wait::st.sync.aligned;\n"
    whole = kernel(text + read_back(columns, halves=packed), 1024, 512, words=0)
    check_spelling(whole)
    out = np.zeros((128, columns), np.uint32)
    emulate(whole, grid=1, block=128, args=[np.zeros(1, np.uint32), out], order=order)
    wanted = np.zeros((128, columns), np.uint32)
    for thread in range(128):
        for r in range(count):
            value = int(given_words[thread * count + r])
            if not packed:
                lane, column = cell(shape, thread % 32, r, split)
                wanted[32 * (thread // 32) + 16 * upper + lane, column] = value
                continue
            lane, column = cell(shape, thread % 32, r, 0)
            column = 2 * column + (split if shape == "16x32bx2" and thread % 32 >= 16 else 0)
            wanted[32 * (thread // 32) + 16 * upper + lane, column] = value & 0xFFFF
            wanted[32 * (thread // 32) + 16 * upper + lane, column + 1] = value >> 16
    assert (out == wanted).all()


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(sorted(PER_ONE)), st.sampled_from([1, 2, 4, 8]), st.booleans(), st.booleans(),
    st.sampled_from(["late", "early", "random"]),
)  # fmt: skip
def test_loads_take_registers_from_where_the_figures_say(
    shape: str, repeat: int, packed: bool, upper: bool, order: Any
) -> None:
    upper = upper and shape != "32x32b"
    count = REGISTERS[shape] * repeat
    width = 2 if packed else 1
    split = repeat * width + 5 if shape == "16x32bx2" else 0
    table = np.random.default_rng(repeat).integers(0, 2**32, (128, 128), dtype=np.uint32)
    text = ""
    for first in range(0, 128, 32):
        part = f"mad.lo.u32 %r16, %r1, 512, %r3;\nadd.u32 %r16, %r16, {4 * first};\n"
        part += "".join(f"ld.shared.u32 %r{20 + n}, [%r16+{4 * n}];\n" for n in range(32))
        text += "shl.b32 %r15, %r2, 21;\nadd.u32 %r15, %r15, %r6;\n" + part
        text += f"tcgen05.st.sync.aligned.32x32b.x32.b32 [%r15+{first}], {registers(20, 32)};\n"
    text += "tcgen05.wait::st.sync.aligned;\n" + access("ld", shape, repeat, packed, upper, split)
    text += f"tcgen05.wait::ld.sync.aligned;\nmul.wide.u32 %rd12, %r1, {4 * count};\nadd.u64 %rd13, %rd2, %rd12;\n"
    text += "".join(f"st.global.u32 [%rd13+{4 * n}], %r{20 + n};\n" for n in range(count))
    whole = kernel("bar.sync 0;\n" + text, 65536, 128)
    whole = whole.replace(".shared .align 1024 .b8 tile[65536];", "").replace(
        ".visible .entry", ".extern .shared .align 1024 .b8 tile[];\n.visible .entry"
    )
    check_spelling(whole)
    out = np.zeros((128, count), np.uint32)
    emulate(whole, grid=1, block=128, args=[table, out], order=order, dynamic_smem=65536)
    for thread in range(128):
        for r in range(count):
            lane, column = cell(shape, thread % 32, r, 0)
            lane += 32 * (thread // 32) + 16 * upper
            column = column * width + (split if shape == "16x32bx2" and thread % 32 >= 16 else 0)
            value = int(table[lane, column])
            if packed:
                value = value & 0xFFFF | (int(table[lane, column + 1]) & 0xFFFF) << 16
            assert out[thread, r] == value


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("written", [True, False])
def test_a_load_on_one_of_two_paths_fills_its_register_whether_or_not_checks_are_on(written: bool, check: bool) -> None:
    """Warps 0 and 1 load, the others have the value from elsewhere: nobody stores a register that holds nothing."""
    text = clear(1).replace("%r20", "%r19") if written else ""
    text += "shl.b32 %r15, %r2, 21;\nadd.u32 %r15, %r15, %r6;\nsetp.lt.u32 %p3, %r2, 2;\n@!%p3 bra $other;\n"
    text += access("ld", "32x32b", 1, False, False, 0) + "tcgen05.wait::ld.sync.aligned;\n"
    text += "$other:\n@!%p3 mov.u32 %r20, 7;\n"
    text += "mul.wide.u32 %rd12, %r1, 4;\nadd.u64 %rd13, %rd2, %rd12;\nst.global.u32 [%rd13], %r20;\n"
    whole = kernel(text, 1024, 32, words=0)
    out = np.ones(128, np.uint32)
    if not written and check:
        with pytest.raises(EmulationFault, match="stores a value that was never initialised"):
            emulate(whole, grid=1, block=128, args=[np.zeros(1, np.uint32), out], check=check)
        return
    emulate(whole, grid=1, block=128, args=[np.zeros(1, np.uint32), out], check=check)
    assert (out == np.repeat(np.array([0, 7], np.uint32), 64)).all()


ROWS = {
    "128x256b": (128, 32), "128x128b": (128, 16), "4x256b": (4, 32), "64x128b.warpx2::02_13": (64, 16),
    "64x128b.warpx2::01_23": (64, 16), "32x128b.warpx4": (32, 16),
}  # fmt: skip


def copied_row(shape: str, lane: int) -> int | None:
    """Which row of the source a lane gets."""
    match shape:
        case "128x256b" | "128x128b":
            return lane
        case "4x256b":
            return lane // 32 if lane % 32 == 0 else None
        case "64x128b.warpx2::02_13":
            return lane % 64
        case "64x128b.warpx2::01_23":
            return lane % 32 + 32 * (lane // 64)
    return lane % 32


@pytest.mark.sampled(3)
@pytest.mark.parametrize("order", ["late", "early"])
@pytest.mark.parametrize("swizzle", ["none", "32B", "128B"])
@pytest.mark.parametrize("shape", sorted(ROWS))
def test_copies_bring_rows_to_their_lanes(shape: str, swizzle: str, order: Any) -> None:
    rows, width = ROWS[shape]
    data = np.random.default_rng(rows).integers(0, 256, (rows, width))
    tile = Tile(data, 8, swizzle)
    image = Image()
    text = clear(16) + one_thread(
        descriptor(3, tile.descriptor, image.add(tile.image())) + f"tcgen05.cp.cta_group::1.{shape} [%r6+4], %rd3;\n"
    )
    whole = kernel(text + read_back(16), image.data.size, 32)
    check_spelling(whole)
    out = np.zeros((128, 16), np.uint32)
    report = emulate(whole, grid=1, block=128, args=[image.data, out], order=order)
    assert report.advisories == ()
    wanted = np.zeros((128, 16), np.uint32)
    for lane in range(128):
        row = copied_row(shape, lane)
        if row is not None:
            wanted[lane, 4 : 4 + width // 4] = data[row].astype(np.uint8).view(np.uint32)
    assert (out == wanted).all()


@pytest.mark.parametrize(("source", "element", "bits"), [("b6x16_p32", "e3m2", 6), ("b4x16_p64", "e2m1", 4)])
def test_copies_that_decompress_feed_a_from_tensor_memory(source: str, element: str, bits: int) -> None:
    rng = np.random.default_rng(bits)
    a, b = rng.integers(-3, 4, (128, 32)), rng.integers(-3, 4, (16, 32))
    packed = np.stack([padded_row(row, bits) for row in codes_of(a, element)])
    image = Image()
    tile = Tile(packed, 8, "32B")
    text = descriptor(3, tile.descriptor, image.add(tile.image()))
    text += f"tcgen05.cp.cta_group::1.128x256b.b8x16.{source} [%r6+64], %rd3;\n"
    right = in_shared(b, "f8f6f4", "e4m3", "32B", False)
    text += descriptor(4, right.descriptor, image.add(right.image())) + enable(5, False)
    word = 1 << 4 | {"e3m2": 4, "e2m1": 5}[element] << 7 | 2 << 17 | 8 << 24
    text += f"tcgen05.mma.cta_group::1.kind::f8f6f4 [%r6], [%r6+64], %rd4, {word:#x}, %p5;\n"
    whole = kernel(one_thread(text) + read_back(16), image.data.size, 128)
    check_spelling(whole)
    out = np.zeros((128, 16), np.float32)
    emulate(whole, grid=1, block=128, args=[image.data, out])
    assert (out == a @ b.T).all()


def shifted(rows: NDArray[Any]) -> NDArray[Any]:
    """In each 32 rows, row r becomes row r + 1; the last one stays."""
    result = rows.copy()
    for r in range(rows.shape[0]):
        if r % 32 != 31:
            result[r] = rows[r + 1]
    return result


def test_shift_moves_rows_of_a_slab_towards_lane_0() -> None:
    table = np.random.default_rng(1).integers(0, 2**32, (128, 16), dtype=np.uint32)
    image = Image()
    text = store_lanes(0, image.add(table.view(np.uint8).reshape(-1)), 16)
    text += one_thread("add.u32 %r18, %r6, 0x200004;\ntcgen05.shift.cta_group::1.down [%r18];\n")
    whole = kernel(text + read_back(16), image.data.size, 32)
    check_spelling(whole)
    out = np.zeros((128, 16), np.uint32)
    emulate(whole, grid=1, block=128, args=[image.data, out])
    wanted = table.copy()
    wanted[32:64, 4:12] = shifted(table[32:64, 4:12])
    assert (out == wanted).all()


def test_ashift_shifts_a_after_the_product() -> None:
    rng = np.random.default_rng(2)
    a, b = rng.integers(-3, 4, (128, 16)), rng.integers(-3, 4, (32, 16))
    image = Image()
    words = lane_words(a, "f16", "bf16")
    text = store_lanes(64, image.add(words.view(np.uint8).reshape(-1)), 8)
    tile = in_shared(b, "f16", "bf16", "32B", False)
    part = descriptor(4, tile.descriptor, image.add(tile.image()))
    word = 1 << 4 | 1 << 7 | 1 << 10 | 4 << 17 | 8 << 24
    part += enable(5, False)
    part += f"tcgen05.mma.cta_group::1.kind::f16.ashift [%r6], [%r6+64], %rd4, {word:#x}, %p5;\n" + enable(5, True)
    part += f"tcgen05.mma.cta_group::1.kind::f16 [%r6], [%r6+64], %rd4, {word:#x}, %p5;\n"
    whole = kernel(text + one_thread(part) + read_back(32), image.data.size, 128)
    check_spelling(whole)
    out = np.zeros((128, 32), np.float32)
    emulate(whole, grid=1, block=128, args=[image.data, out])
    assert (out == (a + shifted(a)) @ b.T).all()
