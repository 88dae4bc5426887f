"""Boxes that tensor maps cut out, against brute force: tiles, slices, gathers, im2col; uses that are forbidden."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from mapped_arrays import BASE, IM2COL, WIDE, X4, X64, A, fp4

from tinygpu.ptx.emulator import TensorMap
from tinygpu.ptx.emulator.units.swizzles import SWIZZLES
from tinygpu.ptx.emulator.units.tensor_boxes import (
    Box,
    gather_box,
    illegal_use,
    im2col_box,
    im2col_wide_box,
    packed_sixes,
    tile_box,
    transaction_bytes,
    unaligned_start,
)
from tinygpu.ptx.emulator.units.tensor_maps import (
    ELEMENT_TYPES,
    TensorMapFields,
)


def landed(box: Box, shared_address: int, memory: np.ndarray[Any, Any]) -> dict[int, int]:
    """{shared byte: global byte address, or -1 for a byte that is filled}"""
    out: dict[int, int] = {}
    for k, (address, offset) in enumerate(zip(box.addresses.tolist(), box.offsets.tolist(), strict=True)):
        inside = box.chunk_bytes if box.valid is None else int(box.valid[k])
        for byte in range(box.chunk_bytes):
            place = shared_address + offset + byte
            assert place not in out
            out[place] = address + byte if byte < inside else -1
    return out


def swizzled(fields: TensorMapFields, logical: int) -> int:
    assert fields.swizzle is not None
    return int(fields.swizzle.apply(np.array([logical]))[0])


@st.composite
def tiles(draw: st.DrawFn) -> tuple[TensorMapFields, tuple[int, ...], int]:
    """A legal tile map of whole-byte elements, start coordinates, and a shared address."""
    element = draw(st.sampled_from(["u8", "f16", "f32", "f64"]))
    size = ELEMENT_TYPES[element].bits // 8
    rank = draw(st.integers(1, 5))
    swizzle = draw(st.sampled_from(sorted(SWIZZLES)))
    span = SWIZZLES[swizzle].width_bytes or 64
    box = (draw(st.integers(1, span // 16)) * 16 // size, *(draw(st.integers(1, 4)) for _ in range(rank - 1)))
    assume(box[0] <= 256)
    dims = (draw(st.integers(1, 2 * box[0])), *(draw(st.integers(1, 5)) for _ in range(rank - 1)))
    strides, pitch = [], 0
    for n in range(rank - 1):
        pitch = max(pitch * dims[n] if n else dims[0] * size, 1)
        pitch = (pitch + 15) // 16 * 16 + 16 * draw(st.integers(0, 1))
        strides.append(pitch)
    steps = (1, *(draw(st.sampled_from([1, 1, 2, 3])) for _ in range(rank - 1)))
    step = 16 // size
    start = (
        # Most boxes start at a multiple of 16 bytes; hardware takes others too.
        draw(st.integers(-1, dims[0] // step + 1)) * step + draw(st.sampled_from([0, 0, 0, 1, step // 2])),
        *(draw(st.integers(-2, dims[n])) for n in range(1, rank)),
    )
    chosen = SWIZZLES[swizzle]
    fields = TensorMapFields(
        "tile", element, rank, BASE, dims, tuple(strides), box, steps, swizzle_mode=chosen.mode,
        swizzle_atomicity=chosen.atomicity,
    )  # fmt: skip
    assert fields.violation() is None
    return fields, start, 1024 + 128 * draw(st.integers(0, 9))


@settings(max_examples=150, deadline=None)
@given(tiles())
def test_a_tile_has_each_element_where_the_coordinates_say(
    case: tuple[TensorMapFields, tuple[int, ...], int],
) -> None:
    fields, start, shared = case
    size = fields.element_type.bits // 8
    counts = [-(-b // s) for b, s in zip(fields.box, fields.element_strides, strict=True)]
    expected: dict[int, int] = {}
    order = itertools.product(*(range(c) for c in reversed(counts)))
    for number, reverse in enumerate(order):
        index = reverse[::-1]
        at = [c + i * s for c, i, s in zip(start, index, fields.element_strides, strict=True)]
        inside = all(0 <= a < d for a, d in zip(at, fields.dims, strict=True))
        address = BASE + at[0] * size + sum(a * s for a, s in zip(at[1:], fields.strides, strict=True))
        for byte in range(size):
            place = swizzled(fields, shared + number * size + byte)
            expected[place] = address + byte if inside else -1
    box = tile_box(fields, start, shared)
    assert landed(box, shared, A) == expected
    assert box.transaction_bytes == len(expected) == transaction_bytes(fields) == box.shared_bytes


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(["16B", "32B"]), st.integers(3, 5), st.integers(1, 3), st.integers(1, 40), st.data()
)  # fmt: skip
def test_an_interleaved_box_takes_slices_of_channels(
    interleave: Any, rank: int, slices: int, channels: int, data: st.DataObject
) -> None:
    unit = 16 if interleave == "16B" else 32
    per = unit // 2
    spatial = [data.draw(st.integers(1, 4)) for _ in range(rank - 2)]
    images = data.draw(st.integers(1, 3))
    dims = (channels, *spatial, images)
    strides = [unit]
    for extent in spatial:
        strides.append(strides[-1] * extent)
    slice_stride = strides.pop()
    strides.append(slice_stride * -(-channels // per))
    box = (slices * per, *(data.draw(st.integers(1, 3)) for _ in range(rank - 1)))
    start = (
        data.draw(st.integers(-1, 2)) * per,
        *(data.draw(st.integers(-1, dims[n])) for n in range(1, rank)),
    )
    fields = TensorMapFields(
        "tile", "f16", rank, BASE, dims, tuple(strides), box, (1,) * rank, interleave,
        1 if interleave == "32B" else 0,
    )  # fmt: skip
    assert fields.violation() is None
    shared = 1024
    expected: dict[int, int] = {}
    number = 0
    for image in range(box[-1]):
        for part in range(slices):
            for reverse in itertools.product(*(range(b) for b in reversed(box[1:-1]))):
                for channel in range(per):
                    at = [start[0] + part * per + channel]
                    at += [c + i for c, i in zip(start[1:], (*reverse[::-1], image), strict=True)]
                    inside = all(0 <= a < d for a, d in zip(at, dims, strict=True))
                    address = BASE + at[0] // per * slice_stride + at[0] % per * 2
                    address += sum(a * s for a, s in zip(at[1:], strides, strict=True))
                    for byte in range(2):
                        expected[swizzled(fields, shared + number)] = address + byte if inside else -1
                        number += 1
    assert landed(tile_box(fields, start, shared), shared, A) == expected
    assert transaction_bytes(fields) == len(expected)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(-1, 9), min_size=4, max_size=4), st.integers(-1, 5), st.sampled_from(["none", "128B"]))
def test_gather_takes_four_rows_in_the_order_given(rows: list[int], column: int, swizzle: str) -> None:
    x = np.zeros((8, 96), np.float16)
    fields = TensorMap(x, (64, 1), swizzle=swizzle).fields(BASE)
    expected: dict[int, int] = {}
    for n, row in enumerate(rows):
        for element in range(64):
            at = column * 8 + element
            for byte in range(2):
                inside = 0 <= row < 8 and 0 <= at < 96
                place = swizzled(fields, 2048 + n * 128 + element * 2 + byte)
                expected[place] = BASE + row * 192 + at * 2 + byte if inside else -1
    box = gather_box(fields, column * 8, rows, 2048)
    assert landed(box, 2048, A) == expected
    assert box.transaction_bytes == transaction_bytes(fields, rows=4) == 512


def pixel_walk(fields: TensorMapFields, start: tuple[int, ...], bounds: list[tuple[int, int, int]], count: int) -> Any:
    """(W, H, D, N) of `count` pixels, one step at a time."""
    at = list(start)
    for _ in range(count):
        yield tuple(at)
        for d, (low, high, step) in enumerate(bounds):
            at[d] += step
            if at[d] <= high:
                break
            at[d] = low
        else:
            at[-1] += 1


@settings(max_examples=80, deadline=None)
@given(st.integers(3, 5), st.data())
def test_im2col_walks_the_bounding_box_pixel_by_pixel(rank: int, data: st.DataObject) -> None:
    spatial = [data.draw(st.integers(2, 5)) for _ in range(rank - 2)]
    dims = (24, *spatial, 2)
    lower = tuple(data.draw(st.integers(-2, 1)) for _ in spatial)
    upper = tuple(data.draw(st.integers(-1, 2)) for _ in spatial)
    assume(all(d + u - low >= 1 for d, u, low in zip(spatial, upper, lower, strict=True)))
    steps = (1, *(data.draw(st.integers(1, 2)) for _ in spatial), 1)
    strides = tuple(int(s) for s in np.cumprod([48, *spatial]))
    fields = TensorMapFields(
        "im2col", "f16", rank, BASE, dims, strides, (1,) * rank, steps, lower=lower, upper=upper, channels=16,
        pixels=data.draw(st.integers(1, 40)),
    )  # fmt: skip
    assert fields.violation() is None
    start = (
        data.draw(st.sampled_from([0, 8, 16])),
        *(data.draw(st.integers(low, d - 1 + u)) for low, d, u in zip(lower, spatial, upper, strict=True)),
        data.draw(st.integers(0, 1)),
    )
    offsets = tuple(data.draw(st.integers(0, 2)) for _ in spatial)
    assert illegal_use(fields, "im2col", start, dimensions=rank, offsets=offsets) is None
    bounds = [(low, d - 1 + u, s) for low, d, u, s in zip(lower, spatial, upper, steps[1:-1], strict=True)]
    expected: dict[int, int] = {}
    number = 0
    for pixel in pixel_walk(fields, start[1:], bounds, fields.pixels):
        moved = [p + o for p, o in zip(pixel, (*offsets, 0), strict=True)]
        for channel in range(16):
            at = [start[0] + channel, *moved]
            inside = all(0 <= a < d for a, d in zip(at, dims, strict=True))
            address = BASE + at[0] * 2 + sum(a * s for a, s in zip(moved, strides, strict=True))
            for byte in range(2):
                expected[1024 + number] = address + byte if inside else -1
                number += 1
    box = im2col_box(fields, start, offsets, 1024)
    assert landed(box, 1024, A) == expected
    assert box.transaction_bytes == transaction_bytes(fields) == len(expected)


def test_im2col_of_a_convolution_gives_its_columns() -> None:
    """Example 1 of the manual: padding 1, a filter of 3 x 3, stride 1 (PTX ISA, "im2col mode")."""
    x = np.arange(64 * 14 * 9 * 8, dtype=np.int64).astype(np.float32).reshape(64, 14, 9, 8)
    fields = TensorMap(
        x, pixel_box_lower=(-1, -1), pixel_box_upper=(-1, -1), channels_per_pixel=8, pixels_per_column=64
    ).fields(0)
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    for r, s in itertools.product(range(3), range(3)):
        columns = padded[:, r : r + 14, s : s + 9].reshape(-1, 8)
        first = (7 * 14 + 7 + 1) * 9 + 4 + 1
        box = im2col_box(fields, (0, 4, 7, 7), (s, r), 0)
        valid = np.full(box.addresses.size, 16) if box.valid is None else box.valid
        inside = np.where(valid == 16, box.addresses, 0) // 4
        got = np.where(valid[:, None] == 16, x.reshape(-1)[inside[:, None] + np.arange(4)], 0).reshape(64, 8)
        assert (got == columns[first : first + 64]).all()


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(["im2col_w", "im2col_w128"]), st.integers(0, 3), st.integers(0, 2), st.data())
def test_im2col_w_walks_along_w_and_appends_halos(mode: Any, halo: int, offset: int, data: st.DataObject) -> None:
    dims = (32, 7, 4, 60)
    lower, upper = data.draw(st.integers(-2, 1)), data.draw(st.integers(-1, 1))
    step = data.draw(st.integers(1, 3))
    strides = (64, 64 * 7, 64 * 28)
    fields = TensorMapFields(
        mode, "f16", 4, BASE, dims, strides, (1,) * 4, (1, step, 1, 1), swizzle_mode=2, lower=(lower,), upper=(upper,),
        channels=32, pixels=data.draw(st.integers(1, 50)),
    )  # fmt: skip
    assert fields.violation() is None
    first = data.draw(st.integers(lower - 2, 6 + upper))
    start = (0, first, data.draw(st.integers(0, 4)), data.draw(st.integers(0, 2)))
    assert illegal_use(fields, mode, start, dimensions=4, offsets=(halo, offset)) is None
    bounds = [(lower + offset, 6 + upper + offset, step), (start[2], start[2], 1)]
    walk = list(pixel_walk(fields, (start[1] + offset, *start[2:]), bounds, 200))
    if mode == "im2col_w":
        chosen = walk[: fields.pixels + halo]
    else:
        chosen = [walk[g * 32 + k] for g in range(4) for k in range(32 + halo)]
    expected: dict[int, int] = {}
    for number, (w, h, n) in enumerate(chosen):
        inside = 0 <= w < 7 and 0 <= h < 4 and 0 <= n < 60
        for byte in range(64):
            place = swizzled(fields, 1024 + number * 64 + byte)
            expected[place] = BASE + w * 64 + h * 448 + n * 1792 + byte if inside else -1
    box = im2col_wide_box(fields, start, halo, offset, 1024)
    assert landed(box, 1024, A) == expected
    assert box.transaction_bytes == transaction_bytes(fields, halo=halo) == len(expected)


def test_packed_elements_take_sixteen_bytes_each_sixteen() -> None:
    four = TensorMap(fp4(4, 64), (128, 4), dims=(128, 4), dtype="16u4_align16b", swizzle="128B").fields(BASE)
    box = tile_box(four, (0, 0), 1024)
    assert (box.chunk_bytes, box.pitch_bytes, box.shared_bytes, box.transaction_bytes) == (8, 16, 512, 256)
    assert (box.addresses == BASE + np.arange(32) * 8).all()
    lines, chunks = np.divmod(np.arange(32), 8)
    assert (box.offsets == lines * 128 + (chunks ^ lines) * 16).all()
    six = TensorMap(fp4(4, 96), (128, 4), dims=(128, 4), dtype="16u6_align16b").fields(BASE)
    box = tile_box(six, (0, 1), 1024)
    assert (box.chunk_bytes, box.pitch_bytes, box.shared_bytes, box.transaction_bytes) == (12, 16, 512, 384)
    assert box.valid is not None
    assert box.valid.tolist() == [12] * 24 + [0] * 8
    packed = TensorMap(fp4(4, 64), (64, 4), dims=(128, 4), dtype="16u4_align8b").fields(BASE)
    box = tile_box(packed, (64, 2), 1024)
    assert box.addresses[:2].tolist() == [BASE + 128 + 32, BASE + 128 + 48]
    assert (box.chunk_bytes, box.shared_bytes) == (16, 128)


@given(st.lists(st.integers(0, 255), min_size=16, max_size=16))
def test_six_bit_elements_are_packed_without_their_padding(values: list[int]) -> None:
    bits = sum((value & 63) << (6 * n) for n, value in enumerate(values))
    packed = packed_sixes(np.array([values, values], np.uint8))
    assert packed.shape == (2, 12)
    assert packed[0].tobytes() == packed[1].tobytes() == bits.to_bytes(12, "little")


TILE = TensorMap(A, (64, 8)).fields(BASE)
ROW = TensorMap(A, (64, 1)).fields(BASE)
COLUMN = TensorMap(X4, **{**IM2COL, "pixel_box_lower": (-1, 0), "pixel_box_upper": (0, -2)}).fields(BASE)
WIDE_MAP = TensorMap(X64, **WIDE).fields(BASE)
FOUR = TensorMap(fp4(), (128, 8), dims=(128, 8), dtype="16u4_align16b").fields(BASE)
SIX = TensorMap(fp4(4, 96), (128, 4), dims=(128, 4), dtype="16u6_align16b", swizzle="128B_ATOM_64B").fields(BASE)
MISUSES: list[tuple[str, Callable[[], str | None], str]] = [
    ("mode", lambda: illegal_use(TILE, "im2col", (0, 0), dimensions=2),
     "the tensor map is of mode tile, but the instruction is of mode im2col"),
    ("rank", lambda: illegal_use(TILE, "tile", (0, 0, 0), dimensions=3),
     "the tensor map has 2 dimensions, but the instruction is .3d"),
    ("gather", lambda: illegal_use(TILE, "gather4", (0, 0, 1, 2, 3), dimensions=2),
     "gather4 and scatter4 need box[1] = 1 and no interleave, but box[1] is 8 and interleave is none"),
    ("inner start", lambda: unaligned_start(TILE, (4, 0)),
     "coordinate 0 is 4, so that the box starts 8 bytes into a row, but it must start at a multiple of 16 bytes"),
    ("packed start", lambda: illegal_use(FOUR, "tile", (64, 0), dimensions=2),
     "coordinate 0 is 64, but for elements of type 16u4_align16b it must be a multiple of 128"),
    ("packed store", lambda: illegal_use(FOUR, "tile", (0, 0), dimensions=2, store=True),
     "elements of type 16u4_align16b can be loaded only"),
    ("packed load", lambda: illegal_use(SIX, "tile", (0, 0), dimensions=2),
     "elements of type 16u6_align16b can only be stored with swizzle 128B_ATOM_64B"),
    ("packed reduction", lambda: illegal_use(SIX, "tile", (0, 0), dimensions=2, store=True, reduce=True),
     "elements of type 16u6_align16b cannot be reduced"),
    ("negative store", lambda: illegal_use(TILE, "tile", (0, -1), dimensions=2, store=True),
     "the box starts at (0, -1), but a store takes no negative coordinates"),
    ("negative scatter", lambda: illegal_use(ROW, "gather4", (0, 1, 2, -3, 4), dimensions=2, store=True),
     "the box starts at (0, 1, 2, -3, 4), but a store takes no negative coordinates"),
    ("im2col store", lambda: illegal_use(COLUMN, "im2col", (0, 0, 0, 0), dimensions=4, store=True),
     "a store needs corners within the tensor, but the lower ones are (-1, 0) and the upper ones (0, -2)"),
    ("im2col offset", lambda: illegal_use(COLUMN, "im2col", (0, 0, 0, 0), dimensions=4, offsets=(0, 256)),
     "im2col offset 1 is 256, but with 4 dimensions it is 0 to 255"),
    ("im2col start", lambda: illegal_use(COLUMN, "im2col", (0, 0, 4, 0), dimensions=4, offsets=(0, 0)),
     "coordinate 2 is 4, which is outside the bounding box of dimension 2: 0 to 3"),
    ("halo", lambda: illegal_use(WIDE_MAP, "im2col_w", (0, 0, 0, 0), dimensions=4, offsets=(512, 0)),
     "wHalo is 512, but in mode im2col_w it is 0 to 511"),
    ("w offset", lambda: illegal_use(WIDE_MAP, "im2col_w", (0, 0, 0, 0), dimensions=4, offsets=(0, 32)),
     "wOffset is 32, but it is 0 to 31"),
    ("w start", lambda: illegal_use(WIDE_MAP, "im2col_w", (0, 5, 0, 0), dimensions=4, offsets=(0, 0)),
     "coordinate 1 is 5, which is beyond the bounding box: it ends at 4"),
]  # fmt: skip


@pytest.mark.parametrize(("use", "sentence"), [m[1:] for m in MISUSES], ids=[m[0] for m in MISUSES])
def test_a_use_that_the_manual_forbids_is_named(use: Callable[[], str | None], sentence: str) -> None:
    assert use() == sentence


def test_uses_that_the_manual_allows_are_not_named() -> None:
    assert illegal_use(TILE, "tile", (-8, -3), dimensions=2) is None
    assert unaligned_start(TILE, (-8, -3)) is None
    assert illegal_use(TILE, "tile", (56, 7), dimensions=2, store=True, reduce=True) is None
    assert illegal_use(ROW, "gather4", (8, 9, -1, 0, 3), dimensions=2) is None
    assert illegal_use(COLUMN, "im2col", (8, -1, 3, 1), dimensions=4, offsets=(255, 0)) is None
    assert illegal_use(WIDE_MAP, "im2col_w", (0, -9, 0, 0), dimensions=4, offsets=(511, 31)) is None
    assert illegal_use(SIX, "tile", (0, 0), dimensions=2, store=True) is None
