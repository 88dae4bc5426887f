"""Tensor maps: the driver's rules, the 128 bytes, swizzles against tables of the manual, boxes against brute force."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tinygpu.ptx.emulator import DeviceBuffer, LaunchError, SparseBuffer, TensorMap
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
    LARGEST_DIMENSION,
    TensorMapFields,
    decode,
)

A = np.zeros((8, 64), np.float16)
BASE = 1 << 20

# ---- swizzles -------------------------------------------------------------------------------------------------------

# The destination of each 16-byte chunk, line by line, as the manual's tables have it (PTX ISA, "Swizzling Modes").
TABLES = {
    "none": ["01234567"],
    "32B": ["01234567", "10325476"],
    "64B": ["01234567", "10325476", "23016745", "32107654"],
    "96B": ["01234567", "10325476"],
    "128B": [
        "01234567", "10325476", "23016745", "32107654", "45670123", "54761032", "67452301", "76543210",
    ],
    "128B_ATOM_32B": ["01234567", "23016745", "45670123", "67452301"],
    "128B_ATOM_64B": ["01234567", "45670123"],
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_swizzle_moves_chunks_as_the_manual_tabulates(name: str) -> None:
    table, swizzle = TABLES[name], SWIZZLES[name]
    for line in range(16):
        row = table[line % len(table)]
        for position in range(8):
            (moved,) = swizzle.apply(np.array([128 * line + 16 * position]))
            assert moved == 128 * line + 16 * int(row[position])
    assert swizzle.period_bytes == 128 * len(table)


@given(st.sampled_from(sorted(SWIZZLES)), st.integers(0, 1 << 18))
def test_a_swizzle_is_its_own_inverse_and_stays_in_its_line(name: str, address: int) -> None:
    swizzle = SWIZZLES[name]
    moved = swizzle.apply(np.array([address]))
    assert moved[0] // 128 == address // 128
    assert swizzle.apply(moved)[0] == address
    low = 8 if swizzle.flip_8b else swizzle.atom_bytes
    assert moved[0] % low == address % low


def test_the_flip_exchanges_halves_of_16_bytes_on_every_other_line() -> None:
    plain, flipped = SWIZZLES["128B_ATOM_32B"], SWIZZLES["128B_ATOM_32B_FLIP_8B"]
    addresses = np.arange(0, 1024, 8)
    expected = plain.apply(addresses) ^ np.where(addresses // 128 % 2 == 1, 8, 0)
    assert (flipped.apply(addresses) == expected).all()


# ---- the rules of the driver ----------------------------------------------------------------------------------------


def fp4(rows: int = 8, bytes_per_row: int = 64) -> np.ndarray[Any, Any]:
    return np.zeros((rows, bytes_per_row), np.uint8)


IM2COL: dict[str, Any] = {
    "pixel_box_lower": (0, 0), "pixel_box_upper": (0, 0), "channels_per_pixel": 8, "pixels_per_column": 16,
}  # fmt: skip
X4 = np.zeros((2, 6, 5, 16), np.float16)
WIDE: dict[str, Any] = {
    "mode": "im2col_w", "pixel_box_lower": (0,), "pixel_box_upper": (0,), "channels_per_pixel": 64,
    "pixels_per_column": 16, "swizzle": "128B",
}  # fmt: skip
X64 = np.zeros((2, 6, 5, 64), np.float16)
REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: TensorMap([1, 2], (1,)),  # type: ignore[arg-type]
     "a tensor map is of an array, a DeviceBuffer or a SparseBuffer, not of [1, 2]"),
    (lambda: TensorMap(A, (64, 8), swizzle="256B"),
     "swizzle is one of none, 32B, 64B, 128B, 128B_ATOM_32B, 128B_ATOM_32B_FLIP_8B, 128B_ATOM_64B, 96B, not '256B'"),
    (lambda: TensorMap(A, (64, 8), interleave="8B"),  # type: ignore[arg-type]
     "interleave is one of none, 16B, 32B, not '8B'"),
    (lambda: TensorMap(A, (64, 8), oob="one"),  # type: ignore[arg-type]
     "oob is one of zeros, nan, not 'one'"),
    (lambda: TensorMap(A, (64, 8), l2_promotion="32B"),  # type: ignore[arg-type]
     "l2_promotion is one of none, 64B, 128B, 256B, not '32B'"),
    (lambda: TensorMap(A, (64, 8), mode="tiles"),  # type: ignore[arg-type]
     "mode is one of None, tile, im2col, im2col_w, im2col_w128, not 'tiles'"),
    (lambda: TensorMap(A, (64, 8), dtype="fp8"),
     "dtype is one of u8, u16, u32, s32, u64, s64, f16, f32, f32_ftz, f64, bf16, tf32, tf32_ftz, 16u4_align8b, "
     "16u4_align16b, 16u6_align16b, not 'fp8'"),
    (lambda: TensorMap(np.zeros(8, np.complex64), (8,)),
     "no element type for an array of complex64: say it with dtype="),
    (lambda: TensorMap(SparseBuffer(1 << 30), (64,)), "a SparseBuffer has no element type: say it with dtype="),
    (lambda: TensorMap(SparseBuffer(1 << 30), (64,), dtype="f16"), "a SparseBuffer has no shape: say it with dims="),
    (lambda: TensorMap(fp4(), (64, 8), dtype="16u4_align8b"),
     "elements of type 16u4_align8b have 4 bits, but those of the array have 8: say with dims= how many there are"),
    (lambda: TensorMap(np.zeros((1, 1, 1, 1, 1, 16), np.float16), (16,) + (1,) * 5),
     "a tensor map has 1 to 5 dimensions, not 6"),
    (lambda: TensorMap(A, (64, 8), dims=()), "a tensor map has 1 to 5 dimensions, not 0"),
    (lambda: TensorMap(A, (64,)), "box has 1 numbers, but a tensor of 2 dimensions needs 2"),
    (lambda: TensorMap(A, (64, 8), strides=(128, 128)), "strides has 2 numbers, but a tensor of 2 dimensions needs 1"),
    (lambda: TensorMap(A, (64, 8), element_strides=(1,)),
     "element_strides has 1 numbers, but a tensor of 2 dimensions needs 2"),
    (lambda: TensorMap(A, (64, 8), interleave="16B"), "interleave 16B needs at least 3 dimensions, and the map has 2"),
    (lambda: TensorMap(DeviceBuffer(A, offset=8), (64, 8)),
     "the buffer's offset 8 must be a multiple of 16 bytes for a tensor map"),
    (lambda: TensorMap(DeviceBuffer(np.zeros((2, 8, 16), np.float16), offset=16), (16, 8, 1), interleave="32B",
                       swizzle="32B"),
     "the buffer's offset 16 must be a multiple of 32 bytes with interleave 32B"),
    (lambda: TensorMap(DeviceBuffer(fp4(), offset=16), (128, 8), dims=(128, 8), dtype="16u4_align16b"),
     "the buffer's offset 16 must be a multiple of 32 bytes for elements of type 16u4_align16b"),
    (lambda: TensorMap(A, (64, 8), dims=(0, 8)), "dims[0] is 0, but a dimension has 1 to 2^32 elements"),
    (lambda: TensorMap(A, (64, 8), dims=(64, (1 << 32) + 1)),
     "dims[1] is 4294967297, but a dimension has 1 to 2^32 elements"),
    (lambda: TensorMap(fp4(), (128, 8), dims=(96, 8), strides=(64,), dtype="16u4_align16b"),
     "dims[0] is 96, but it must be a multiple of 128 for elements of type 16u4_align16b"),
    (lambda: TensorMap(fp4(), (32, 8), dims=(127, 8), strides=(64,), dtype="16u4_align8b"),
     "dims[0] is 127, but it must be a multiple of 2 for elements of type 16u4_align8b"),
    (lambda: TensorMap(np.zeros((8, 60), np.float16), (56, 8)),
     "strides[0] is 120 bytes (of dimension 1), but a stride must be a multiple of 16 bytes for a tensor map: "
     "pad the rows"),
    (lambda: TensorMap(fp4(), (128, 8), dims=(128, 8), strides=(80,), dtype="16u4_align16b"),
     "strides[0] is 80 bytes (of dimension 1), but a stride must be a multiple of 32 bytes for elements of type "
     "16u4_align16b: pad the rows"),
    (lambda: TensorMap(A, (64, 8), strides=(1 << 40,)),
     "strides[0] is 1099511627776 bytes (of dimension 1), but a stride must be less than 2^40"),
    (lambda: TensorMap(A, (64, 8), element_strides=(1, 9)), "element_strides[1] is 9, but an element stride is 1 to 8"),
    (lambda: TensorMap(A, (64, 8), element_strides=(1, 0)), "element_strides[1] is 0, but an element stride is 1 to 8"),
    (lambda: TensorMap(np.zeros((2, 4, 8), np.float16), (8, 4, 2), interleave="16B", element_strides=(2, 1, 1)),
     "element_strides[0] is 2, but for interleaved layouts the emulator knows only 1"),
    (lambda: TensorMap(A, (64, 257)), "box[1] is 257, but a box dimension has 1 to 256 elements"),
    (lambda: TensorMap(A, (0, 8)), "box[0] is 0, but a box dimension has 1 to 256 elements"),
    (lambda: TensorMap(A, (60, 8)),
     "box[0] is 60 elements of 16 bits, which is 120 bytes, but it must be a multiple of 16 bytes"),
    (lambda: TensorMap(fp4(), (64, 8), dims=(128, 8), dtype="16u6_align16b", strides=(96,)),
     "box[0] is 64, but it must be 128 for elements of type 16u6_align16b"),
    (lambda: TensorMap(A, (64, 8), swizzle="64B"),
     "box[0] is 64 elements, which is 128 bytes, but with swizzle 64B it must be at most 64 bytes"),
    (lambda: TensorMap(np.zeros((8, 128), np.float16), (72, 8), swizzle="128B"),
     "box[0] is 72 elements, which is 144 bytes, but with swizzle 128B it must be at most 128 bytes"),
    (lambda: TensorMap(A, (64, 8), swizzle="96B"),
     "box[0] is 64 elements, which is 128 bytes, but with swizzle 96B it must be at most 96 bytes"),
    (lambda: TensorMap(np.zeros((2, 8, 16), np.float16), (16, 8, 1), interleave="32B"),
     "interleave 32B needs swizzle 32B, not none"),
    (lambda: TensorMap(np.zeros((2, 8, 8), np.float16), (8, 8, 1), interleave="16B", swizzle="96B"),
     "swizzle 96B has no interleaved layout, but interleave is 16B"),
    (lambda: TensorMap(fp4(), (128, 4, 2), dims=(128, 4, 2), dtype="16u4_align16b", strides=(64, 256),
                       interleave="16B"),
     "elements of type 16u4_align16b cannot be interleaved, but interleave is 16B"),
    (lambda: TensorMap(fp4(), (128, 8), dims=(128, 8), dtype="16u4_align16b", swizzle="64B"),
     "elements of type 16u4_align16b allow swizzle none, 128B, 128B_ATOM_32B and 128B_ATOM_64B, not 64B"),
    (lambda: TensorMap(np.zeros((8, 16), np.int32), (16, 8), oob="nan"),
     'oob="nan" needs a floating-point element type, not s32'),
    (lambda: TensorMap(fp4(), (32, 8), dims=(128, 8), dtype="16u4_align8b", oob="nan"),
     'oob="nan" needs a floating-point element type, not 16u4_align8b'),
    (lambda: TensorMap(A), "mode im2col needs pixel_box_lower"),
    (lambda: TensorMap(X4, **{**IM2COL, "channels_per_pixel": None}), "mode im2col needs channels_per_pixel"),
    (lambda: TensorMap(X4, (8, 1, 1, 1), **IM2COL), "mode tile takes no channels_per_pixel"),
    (lambda: TensorMap(X4, (8, 1, 1, 1), mode="im2col", **IM2COL), "mode im2col takes no box"),
    (lambda: TensorMap(A, mode="tile"), "mode tile needs box"),
    (lambda: TensorMap(A, **IM2COL), "mode im2col needs at least 3 dimensions, and the map has 2"),
    (lambda: TensorMap(X4, **{**IM2COL, "pixel_box_lower": (0,)}),
     "pixel_box_lower has 1 numbers, but a tensor of 4 dimensions needs 2"),
    (lambda: TensorMap(X4, **{**IM2COL, "pixel_box_lower": (0, -129)}),
     "lower[1] is -129, but with 4 dimensions a corner is -128 to 127"),
    (lambda: TensorMap(np.zeros((1, 2, 2, 2, 8), np.float16),
                       **{**IM2COL, "pixel_box_lower": (0, 0, 0), "pixel_box_upper": (0, 0, 16)}),
     "upper[2] is 16, but with 5 dimensions a corner is -16 to 15"),
    (lambda: TensorMap(X4, **{**IM2COL, "pixel_box_upper": (-5, 0)}),
     "the bounding box of dimension 1 is empty: 5 elements, lower corner 0, upper corner -5"),
    (lambda: TensorMap(X4, **{**IM2COL, "channels_per_pixel": 257}),
     "channels_per_pixel is 257, but it must be 1 to 256"),
    (lambda: TensorMap(X4, **{**IM2COL, "pixels_per_column": 1025}),
     "pixels_per_column is 1025, but it must be 1 to 1024"),
    (lambda: TensorMap(X4, **{**IM2COL, "channels_per_pixel": 9}),
     "channels_per_pixel is 9 elements of 16 bits, which is 18 bytes, but it must be a multiple of 16 bytes"),
    (lambda: TensorMap(X4, **{**IM2COL, "channels_per_pixel": 32}, swizzle="32B"),
     "channels_per_pixel is 32 elements, which is 64 bytes, but with swizzle 32B it must be at most 32 bytes"),
    (lambda: TensorMap(X64, **{**WIDE, "swizzle": "32B"}),
     "mode im2col_w allows swizzle 64B, 128B, 128B_ATOM_32B, 96B, not 32B"),
    (lambda: TensorMap(X64, **{**WIDE, "swizzle": "96B", "mode": "im2col_w128"}),
     "mode im2col_w128 allows swizzle 64B, 128B, 128B_ATOM_32B, not 96B"),
    (lambda: TensorMap(X64, **{**WIDE, "interleave": "16B"}),
     "mode im2col_w has no interleaved layout, but interleave is 16B"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "sentence"), REFUSED, ids=[sentence[:48] for _, sentence in REFUSED])
def test_what_the_driver_refuses_is_refused(make: Callable[[], Any], sentence: str) -> None:
    whole = sentence if sentence.startswith("a tensor map is of") else f"tensor map: {sentence}"
    with pytest.raises(LaunchError, match=f"^{re.escape(whole)}$"):
        make()


def test_dims_strides_and_types_come_from_the_array() -> None:
    x = np.zeros((4, 3, 32), ml_dtypes.bfloat16)
    fields = TensorMap(x, (32, 3, 2)).fields(BASE)
    assert (fields.dims, fields.strides, fields.element) == ((32, 3, 4), (64, 192), "bf16")
    assert TensorMap(np.asfortranarray(np.zeros((32, 5), np.float32)), (32, 5)).fields(0).dims == (32, 5)
    assert TensorMap(np.zeros((2, 16), ml_dtypes.float8_e4m3fn), (16, 2)).fields(0).element == "u8"
    assert TensorMap(np.zeros((2, 16), np.int32), (16, 2)).fields(0).element == "s32"
    assert TensorMap(np.zeros((2, 32), np.float32), (32, 2), dtype="tf32").fields(0).element == "tf32"
    packed = TensorMap(fp4(8, 64), (128, 8), dims=(128, 8), dtype="16u4_align16b").fields(0)
    assert packed.strides == (64,)


def test_a_tensor_map_prints_as_it_is_made() -> None:
    assert repr(TensorMap(A, (64, 8), swizzle="128B", element_strides=(1, 2), oob="nan")) == (
        "TensorMap(float16[8, 64], box=(64, 8), dims=(64, 8), strides=(128,), dtype='f16', element_strides=(1, 2), "
        "swizzle='128B', oob='nan')"
    )
    assert repr(TensorMap(X4, **IM2COL)) == (
        "TensorMap(float16[2, 6, 5, 16], dims=(16, 5, 6, 2), strides=(32, 160, 960), dtype='f16', mode='im2col', "
        "pixel_box_lower=(0, 0), pixel_box_upper=(0, 0), channels_per_pixel=8, pixels_per_column=16)"
    )


# ---- the 128 bytes --------------------------------------------------------------------------------------------------

OTHER_FIELDS = st.fixed_dictionaries(
    {
        "interleave": st.sampled_from(["none", "16B", "32B"]), "swizzle_mode": st.integers(0, 4),
        "swizzle_atomicity": st.integers(0, 3), "fill": st.sampled_from(["zeros", "nan"]),
        "l2_promotion": st.sampled_from(["none", "64B", "128B", "256B"]), "channels": st.integers(0, 256),
        "pixels": st.integers(0, 1024),
    }
)  # fmt: skip


def some(low: int, high: int, count: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.tuples(*[st.integers(low, high)] * count)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(["tile", "im2col", "im2col_w", "im2col_w128"]), st.sampled_from(sorted(ELEMENT_TYPES)),
    st.integers(1, 5), st.integers(0, (1 << 64) - 1), some(1, LARGEST_DIMENSION, 5), some(0, (1 << 40) - 1, 4),
    some(1, 256, 5), some(1, 8, 5), some(-32768, 32767, 3), some(-32768, 32767, 3), OTHER_FIELDS,
)  # fmt: skip
def test_the_bytes_of_a_tensor_map_give_it_back(
    mode: Any, element: str, rank: int, address: int, dims: Any, strides: Any, box: Any, steps: Any, lower: Any,
    upper: Any, rest: Any,
) -> None:  # fmt: skip
    fields = TensorMapFields(mode, element, rank, address, dims, strides, box, steps, lower=lower, upper=upper, **rest)
    data = fields.encode()
    assert len(data) == 128
    assert decode(data) == fields


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 127), st.integers(1, 255))
def test_a_changed_byte_is_no_tensor_map_any_more(place: int, change: int) -> None:
    data = bytearray(TensorMap(A, (64, 8)).fields(BASE).encode())
    data[place] ^= change
    assert decode(bytes(data)) is None


def test_bytes_of_anything_else_are_no_tensor_map() -> None:
    assert decode(bytes(128)) is None
    assert decode(bytes(64)) is None
    assert decode(np.random.default_rng(1).bytes(128)) is None


def test_bytes_of_a_tensor_map_have_the_address_of_its_buffer() -> None:
    buffer = DeviceBuffer(A, offset=32)
    fields = decode(bytes(TensorMap(buffer, (64, 8))))
    assert fields is not None
    assert fields.address == buffer.address
    assert buffer.address % 256 == 32


REPLACEMENTS = [
    ("global_address", 0, 4096, {"address": 4096}),
    ("rank", 0, 1, {"rank": 2}),
    ("box_dim", 1, 7, {"box": (64, 7, 0, 0, 0)}),
    ("global_dim", 0, 63, {"dims": (63, 8, 0, 0, 0)}),
    ("global_stride", 0, 256, {"strides": (256, 0, 0, 0)}),
    ("element_stride", 1, 2, {"element_strides": (1, 2, 0, 0, 0)}),
    ("elemtype", 0, 10, {"element": "bf16"}),
    ("elemtype", 0, 9, {"element": "f64"}),
    ("interleave_layout", 0, 1, {"interleave": "16B"}),
    ("swizzle_mode", 0, 4, {"swizzle_mode": 4}),
    ("swizzle_atomicity", 0, 2, {"swizzle_atomicity": 2}),
    ("fill_mode", 0, 1, {"fill": "nan"}),
]


@pytest.mark.parametrize(
    ("field", "ordinal", "value", "changed"), REPLACEMENTS, ids=[f"{r[0]}={r[2]}" for r in REPLACEMENTS]
)
def test_tensormap_replace_changes_one_field(field: str, ordinal: int, value: int, changed: dict[str, Any]) -> None:
    before = decode(TensorMap(A, (64, 8)).fields(BASE).encode())
    assert before is not None
    after = decode(before.replaced(field, ordinal, value).encode())
    assert after is not None
    for name in TensorMapFields.__slots__:
        assert getattr(after, name) == changed.get(name, getattr(before, name)), name


def test_a_replaced_field_is_judged_when_the_map_is_used() -> None:
    fields = TensorMap(A, (64, 8)).fields(BASE)
    for field, ordinal, value, sentence in (
        ("global_address", 0, BASE + 8, "global address 0x100008 must be a multiple of 16 bytes for a tensor map"),
        ("rank", 0, 5, "a tensor map has 1 to 5 dimensions, not 6"),
        ("rank", 0, 1 << 31, "a tensor map has 1 to 5 dimensions, not 255"),
        ("box_dim", 1, 70_000, "box[1] is 65535, but a box dimension has 1 to 256 elements"),
        ("global_dim", 1, 0, "dims[1] is 0, but a dimension has 1 to 2^32 elements"),
        ("swizzle_atomicity", 0, 1, "swizzle mode 0 does not go with swizzle atomicity 1"),
    ):
        changed = decode(fields.replaced(field, ordinal, value).encode())
        assert changed is not None
        assert changed.violation() == sentence
    for field, ordinal, value, sentence in (
        ("elemtype", 0, 16, "tensormap.replace.elemtype takes 0 to 15, not 16"),
        ("box_dim", 5, 1, "tensormap.replace.box_dim has the ordinals 0 to 4, not 5"),
        ("global_stride", 4, 16, "tensormap.replace.global_stride has the ordinals 0 to 3, not 4"),
        ("colour", 0, 1, "tensormap.replace has no field .colour"),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
            fields.replaced(field, ordinal, value)


# ---- boxes against brute force --------------------------------------------------------------------------------------


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
    span = SWIZZLES[swizzle].span_bytes or 64
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
