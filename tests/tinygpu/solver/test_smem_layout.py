"""Layouts of a tile in shared memory: injective, in bounds, printed, saved, refused in words where they cannot be."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinygpu.solver import SmemLayout
from tinygpu.solver.smem_layout import hardware_masks, row_bits, xor_block_bytes


@st.composite
def layouts(draw: st.DrawFn) -> SmemLayout:
    rows = draw(st.integers(1, 40))
    row_bytes = 4 * draw(st.integers(1, 48))
    pitch = row_bytes + 4 * draw(st.integers(0, 12))
    block = xor_block_bytes(row_bytes, pitch)
    xor = []
    for bit in range(row_bits(rows)):
        mask = draw(st.integers(0, block - 1))
        if mask:
            xor.append((bit, mask))
    return SmemLayout(rows, row_bytes, pitch, tuple(xor))


@given(layouts())
@settings(max_examples=150)
def test_a_layout_is_injective_in_bounds_and_what_its_masks_say(layout: SmemLayout) -> None:
    rows, columns = np.meshgrid(np.arange(layout.rows), np.arange(layout.row_bytes), indexing="ij")
    addresses = layout.address(rows, columns)
    assert addresses.min() >= 0
    assert addresses.max() < layout.size_bytes
    assert len(np.unique(addresses)) == addresses.size
    for row in range(0, layout.rows, 7):
        flip = 0
        for bit, mask in layout.xor:
            if row & 1 << bit:
                flip ^= mask
        assert addresses[row].tolist() == [row * layout.pitch_bytes + (c ^ flip) for c in range(layout.row_bytes)]


@given(layouts())
@settings(max_examples=150)
def test_vectors_of_the_stated_length_stay_whole_and_aligned_and_longer_ones_do_not(layout: SmemLayout) -> None:
    rows = np.arange(layout.rows)[:, None, None]

    def whole(vector: int) -> bool:
        count = layout.row_bytes // vector
        columns = np.arange(count * vector).reshape(1, count, vector)
        addresses = layout.address(rows, columns)
        starts = addresses[..., :1]
        return bool(np.all(starts % vector == 0) and np.array_equal(addresses, starts + np.arange(vector)))

    vector = layout.vector_bytes
    assert whole(vector)
    if vector < 16 and layout.rows > 1 and layout.row_bytes >= 2 * vector and layout.row_bytes % (2 * vector) == 0:
        assert not whole(2 * vector)


@given(layouts())
@settings(max_examples=100)
def test_saved_and_printed_layouts_come_back(layout: SmemLayout) -> None:
    assert SmemLayout.from_json(json.loads(json.dumps(layout.to_json()))) == layout
    assert eval(repr(layout)) == layout


@given(layouts())
@settings(max_examples=100)
def test_the_shift_form_computes_the_same_flips(layout: SmemLayout) -> None:
    form = layout.shift_form()
    rows = np.arange(layout.rows)
    if form is not None:
        count, row_shift, column_shift = form
        flips = layout.address(rows, np.zeros_like(rows)) - rows * layout.pitch_bytes
        assert np.array_equal((rows >> row_shift & (1 << count) - 1) << column_shift, flips)
    assert (form == (0, 0, 0)) == (not layout.xor)
    masks = [mask for _, mask in layout.xor]
    run = layout.xor == tuple((layout.xor[0][0] + i, masks[0] << i) for i in range(len(masks)))
    assert (form is not None) == (run and all(mask.bit_count() == 1 for mask in masks))


@pytest.mark.parametrize("pitch", [16, 32, 64, 128])
def test_hardware_swizzles_are_address_bits_7_and_up_xored_to_bits_4_and_up(pitch: int) -> None:
    rows, columns = np.meshgrid(np.arange(64), np.arange(pitch), indexing="ij")
    plain = rows * pitch + columns
    found = dict(hardware_masks(64, pitch))
    assert list(found) == ["32B", "64B", "128B"][: (pitch // 16).bit_length() - 1]
    for count, (name, xor) in enumerate(found.items(), start=1):
        layout = SmemLayout(64, pitch, pitch, xor)
        assert layout.hardware_swizzle() == name
        assert np.array_equal(layout.address(rows, columns), plain ^ ((plain >> 7 & (1 << count) - 1) << 4))
    assert SmemLayout(64, pitch, pitch).hardware_swizzle() == "none"
    assert SmemLayout(64, pitch, pitch + 16).hardware_swizzle() is None


def test_texts_and_picture() -> None:
    layout = SmemLayout(8, 64, 64, ((1, 16), (2, 32)))
    assert str(layout) == "8 rows x 64 B, column ^= (row >> 1 & 3) << 4"
    assert str(SmemLayout(8, 96, 112)) == "8 rows x 96 B, padded to 112 B"
    assert str(SmemLayout(8, 64, 64, ((0, 48),))) == "8 rows x 64 B, column ^= 48 * (row bit 0)"
    assert layout.picture() == "\n".join(
        [
            "row  0:  0  1  2  3",
            "row  1:  0  1  2  3",
            "row  2:  1  0  3  2",
            "row  3:  1  0  3  2",
            "row  4:  2  3  0  1",
            "row  5:  2  3  0  1",
            "row  6:  3  2  1  0",
            "row  7:  3  2  1  0",
        ]
    )
    assert SmemLayout(2, 32, 48).picture() == "row  0:  0  1  .\nrow  1:  0  1  ."


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: SmemLayout(0, 64, 64), "[smem layout] a tile has at least one row and one byte, not 0 x 64"),
        (lambda: SmemLayout(8, 64, 48), "[smem layout] rows of 64 B overlap at a pitch of 48 B"),
        (
            lambda: SmemLayout(8, 64, 64, ((1, 16), (0, 16))),
            "[smem layout] row bits are listed once each, in rising order, not as [1, 0]",
        ),
        (
            lambda: SmemLayout(8, 64, 64, ((3, 16),)),
            "[smem layout] the numbers of 8 rows have 3 bits, so bit 3 moves nothing",
        ),
        (
            lambda: SmemLayout(8, 96, 96, ((0, 32),)),
            "[smem layout] the mask 32 of row bit 0 must be positive and below 32 B, so that no column leaves its row",
        ),
        (
            lambda: SmemLayout(8, 64, 64).address(np.array([0, 8]), np.array([0, 0])),
            "[smem layout] row 8 lies outside the tile's 0 to 7",
        ),
        (
            lambda: SmemLayout(8, 64, 64).address(np.array([0]), np.array([-1])),
            "[smem layout] column byte -1 lies outside the tile's 0 to 63",
        ),
        (
            lambda: SmemLayout(8, 64, 64, ((0, 8),)).picture(),
            "[smem layout] chunks of 16 B do not stay whole here; 8 B or a power of two below it does",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(call: object, message: str) -> None:
    with pytest.raises(ValueError) as refused:
        call()  # type: ignore[operator]
    assert str(refused.value) == message
