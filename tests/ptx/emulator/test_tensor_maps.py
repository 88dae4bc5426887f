"""Tensor maps: the driver's rules, the 128 bytes, and swizzles against tables of the manual."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mapped_arrays import BASE, IM2COL, WIDE, X4, X64, A, fp4

from tinygpu.ptx.emulator import DeviceBuffer, LaunchError, SparseBuffer, TensorMap
from tinygpu.ptx.emulator.units.swizzles import SWIZZLES
from tinygpu.ptx.emulator.units.tensor_maps import (
    ELEMENT_TYPES,
    LARGEST_DIMENSION,
    TensorMapFields,
    decode,
)

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
